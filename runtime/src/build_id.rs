//! Which build a process runs. A cluster's head and nodes are of one; programs of others bring their own along, as long
//! as all of them have the same runtime in them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::OnceLock;

use sha2::{Digest as _, Sha256};

/// The id of the runtime's sources: programs with the same one understand each other's words.
pub(crate) const RUNTIME_ID: &str = env!("COREHOLD_RUNTIME_ID");

static DECLARED: OnceLock<String> = OnceLock::new();

/// Declares this program's build id, before it joins a cluster. For programs that are built in several
/// ways from one source (with and without a large library, say) and whose builds may work together;
/// without it, the id is the linker's (`.note.gnu.build-id`), or the hash of the program's file where there is
/// none. The first call counts.
pub fn declare_build_id(id: &str) {
    let _ = DECLARED.set(id.to_owned());
}

/// The id of this build.
pub fn build_id() -> String {
    DECLARED
        .get_or_init(|| {
            let linkers = File::open("/proc/self/exe").and_then(|program| note(&program));
            match linkers {
                Ok(Some(id)) => id,
                // Hashing takes a second for every few hundred megabytes, of each process that starts.
                _ => hash_of_program(),
            }
        })
        .clone()
}

fn hash_of_program() -> String {
    // Two programs whose own file cannot be read cannot be told apart by it: never equal to a hash.
    let Ok(bytes) = std::fs::read("/proc/self/exe") else {
        return "unreadable".to_owned();
    };
    hex(&Sha256::digest(&bytes)[..12])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The linker's id: a digest of what it linked. In the ELF file, a note of owner `GNU` and type 3 in a segment of type
/// `PT_NOTE` (System V ABI, chapters 4 and 5).
fn note(program: &File) -> io::Result<Option<String>> {
    const PT_NOTE: u32 = 4;
    const NT_GNU_BUILD_ID: u32 = 3;
    // Notes are small; a file that says otherwise is not read into memory.
    const MOST: u64 = 1 << 16;
    let mut header = [0u8; 64];
    program.read_exact_at(&mut header, 0)?;
    // 64-bit, little-endian; anything else is hashed.
    if header[..6] != *b"\x7fELF\x02\x01" {
        return Ok(None);
    }
    let (table, size, count) = (
        u64_at(&header, 32),
        u16_at(&header, 54),
        u16_at(&header, 56),
    );
    if size < 56 {
        return Ok(None);
    }
    for index in 0..u64::from(count) {
        let mut segment = [0u8; 56];
        program.read_exact_at(&mut segment, table.saturating_add(index * u64::from(size)))?;
        let (offset, len) = (u64_at(&segment, 8), u64_at(&segment, 32));
        if u32_at(&segment, 0) != PT_NOTE || len > MOST {
            continue;
        }
        let mut notes = vec![0u8; len as usize];
        program.read_exact_at(&mut notes, offset)?;
        let mut rest = notes.as_slice();
        while rest.len() >= 12 {
            let (name_len, id_len) = (u32_at(rest, 0) as usize, u32_at(rest, 4) as usize);
            let name_end = 12 + name_len.next_multiple_of(4);
            let end = name_end.saturating_add(id_len);
            let Some(id) = rest.get(name_end..end) else {
                break;
            };
            let is_gnu = rest.get(12..16) == Some(b"GNU\0") && name_len == 4;
            if is_gnu && u32_at(rest, 8) == NT_GNU_BUILD_ID && id_len >= 8 {
                return Ok(Some(hex(id)));
            }
            rest = rest.get(end.next_multiple_of(4)..).unwrap_or_default();
        }
    }
    Ok(None)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_linkers_id_is_what_binutils_reads() {
        let program = std::env::current_exe().unwrap();
        let Ok(output) = std::process::Command::new("readelf")
            .arg("-n")
            .arg(&program)
            .output()
        else {
            println!("skipped: there is no readelf");
            return;
        };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let theirs = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("Build ID: "));
        let ours = note(&File::open(program).unwrap()).unwrap();
        assert_eq!(ours.as_deref(), theirs);
    }

    #[test]
    fn what_is_no_program_has_no_note() {
        let text = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(text.path(), "x".repeat(100)).unwrap();
        assert_eq!(note(&File::open(text.path()).unwrap()).unwrap(), None);
    }
}
