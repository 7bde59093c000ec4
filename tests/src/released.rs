//! The unmodified clients from PyPI, one release of each wire generation.

use std::{env, path::PathBuf, process::Command};

/// A release by the generation that its clients belong to; the newest is the one that all tests use.
pub const RELEASES: [(&str, &str); 4] =
    [("0.3.9", "0.3.9"), ("0.3.11", "0.3.11"), ("0.3.12", "0.3.12.post1"), ("0.3.13", "")];

const PREPARE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/prepare.sh");

/// The Python that has the client of that generation, as the project's own script installs it.
pub fn python(generation: &str) -> PathBuf {
    let (_, release) = RELEASES.iter().find(|(name, _)| *name == generation).expect("a generation");
    if release.is_empty()
        && let Some(path) = env::var_os("MOONCAKE_CLIENT_PYTHON")
    {
        return path.into();
    }
    let release = Some(*release).filter(|release| !release.is_empty());
    let output = Command::new(PREPARE).arg("client").args(release).output().expect("prepare.sh runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("a path").trim().into()
}
