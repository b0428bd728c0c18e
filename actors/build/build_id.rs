//! The id of the program's sources. Builds with and without torch have the same: they may form one cluster.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// Sets `COREHOLD_BUILD_ID` for the crate: a hash of every source file that ends up in the program.
pub fn emit() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for folder in [
        "runtime/src",
        "runtime/macros/src",
        "actors/src",
        "actors/build",
    ] {
        let folder = top.join(folder);
        println!("cargo:rerun-if-changed={}", folder.display());
        if let Err(e) = collect(&folder, &mut files) {
            panic!("{}: {e}", folder.display());
        }
    }
    files.push(top.join("Cargo.lock"));
    files.sort();
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for file in &files {
        // Cargo.lock is absent where the crate is built from a package: the sources decide then.
        for byte in fs::read(file).unwrap_or_default() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    println!("cargo:rustc-env=COREHOLD_BUILD_ID={hash:016x}");
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}
