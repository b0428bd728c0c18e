//! The initramfs: a `newc` cpio archive with this program and the libraries that it is linked to.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Packs this program as `/init`, with its libraries where it looks for them.
pub fn pack(into: &Path) -> Result<(), String> {
    let program = stripped(into)?;
    let mut archive = Archive::default();
    for folder in ["dev", "proc", "sys", "tmp", "run"] {
        archive.folder(Path::new(folder));
    }
    archive.file(Path::new("init"), &read(&program)?);
    for library in libraries(&program)? {
        let at = library.strip_prefix("/").map_err(|e| e.to_string())?;
        archive.file(at, &read(&library)?);
    }
    fs::write(into, archive.end()).map_err(|e| format!("{}: {e}", into.display()))
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// This program without its symbols, which are most of it; as it is where there is no `strip`.
fn stripped(beside: &Path) -> Result<PathBuf, String> {
    let me = std::env::current_exe().map_err(|e| e.to_string())?;
    let out = beside.with_extension("program");
    let done = Command::new("strip").arg("-o").arg(&out).arg(&me).status();
    Ok(if done.is_ok_and(|s| s.success()) {
        out
    } else {
        me
    })
}

/// The shared libraries of a program, as `ldd` finds them, and the loader.
fn libraries(program: &Path) -> Result<Vec<PathBuf>, String> {
    let listed = Command::new("ldd")
        .arg(program)
        .output()
        .map_err(|e| format!("ldd: {e}"))?;
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    // `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x...)`, and the loader without an arrow.
    let path = |line: &str| {
        let rest = line.split_once("=>").map_or(line, |(_, found)| found);
        let word = rest.split_whitespace().next()?;
        word.starts_with('/').then(|| PathBuf::from(word))
    };
    Ok(text.lines().filter_map(path).collect())
}

#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    folders: BTreeSet<PathBuf>,
    entries: u32,
}

impl Archive {
    fn folder(&mut self, path: &Path) {
        let above: Vec<&Path> = path.ancestors().filter(|p| *p != Path::new("")).collect();
        for folder in above.into_iter().rev() {
            if self.folders.insert(folder.to_owned()) {
                self.entry(folder, 0o040755, &[]);
            }
        }
    }

    fn file(&mut self, path: &Path, content: &[u8]) {
        if let Some(folder) = path.parent().filter(|p| *p != Path::new("")) {
            self.folder(folder);
        }
        self.entry(path, 0o100755, content);
    }

    fn entry(&mut self, path: &Path, mode: u32, content: &[u8]) {
        let name = path.display().to_string();
        self.entries += 1;
        // The kernel's Documentation/driver-api/early-userspace/buffer-format.rst: inode, mode, uid,
        // gid, links, mtime, size, device (4 fields), length of the name, checksum.
        let fields = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            content.len() as u32,
            0,
            0,
            0,
            0,
            name.len() as u32 + 1,
            0,
        ];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn end(mut self) -> Vec<u8> {
        self.entry(Path::new("TRAILER!!!"), 0, &[]);
        self.bytes
    }
}
