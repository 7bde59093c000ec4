//! The generated files are current.

use std::path::Path;

#[test]
fn generated_files_are_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (path, content) in mooncake_crds::docs::generated_files() {
        let found = std::fs::read_to_string(root.join(path)).unwrap_or_default();
        assert!(
            found == content,
            "{path} is out of date: run `cargo run -p mooncake-crds --bin crdgen -- --write .` in the root of the tree"
        );
    }
}
