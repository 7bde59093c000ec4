//! The C++ master of the newest release.

use crate::released;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The Python with the client of the newest release.
pub fn python() -> PathBuf {
    released::python("0.3.13")
}

/// The C++ master in the wheel of that Python.
pub fn upstream_master(python: &Path) -> PathBuf {
    let library = python.parent().and_then(Path::parent).expect("an environment").join("lib");
    let versions = fs::read_dir(&library).expect("the environment has a lib").flatten();
    let found =
        versions.map(|v| v.path().join("site-packages/mooncake/mooncake_master")).find(|path| path.exists());
    found.unwrap_or_else(|| panic!("no site-packages/mooncake/mooncake_master under {}", library.display()))
}
