//! The id of the runtime's sources: programs that were built with the same ones understand each other.

use std::path::{Path, PathBuf};
use std::{fs, io};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src");
    let mut files = Vec::new();
    if let Err(e) = collect(Path::new("src"), &mut files) {
        panic!("src: {e}");
    }
    files.sort();
    // 64-bit FNV-1a: it need only tell builds apart that nobody made alike on purpose.
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let mut feed = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    };
    for file in &files {
        feed(file.to_string_lossy().as_bytes());
        match fs::read(file) {
            Ok(bytes) => feed(&bytes),
            Err(e) => panic!("{}: {e}", file.display()),
        }
    }
    println!("cargo:rustc-env=COREHOLD_RUNTIME_ID={hash:016x}");
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
