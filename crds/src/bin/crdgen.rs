//! `crdgen` prints the definition; `crdgen --write ROOT` writes every generated file of the tree.

use mooncake_crds::docs;
use std::{env, error::Error, fs, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => print!("{}", docs::crd_yaml()),
        ["--write", root] => {
            for (path, content) in docs::generated_files() {
                let path = Path::new(root).join(path);
                if let Some(parent) = path.parent() {
                    fs::create_dir_all(parent)?;
                }
                fs::write(&path, content)?;
                println!("{}", path.display());
            }
        }
        _ => return Err("usage: crdgen [--write ROOT]".into()),
    }
    Ok(())
}
