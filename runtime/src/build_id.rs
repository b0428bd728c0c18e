//! Which build a process runs: a cluster runs one.

use std::sync::OnceLock;

use sha2::{Digest as _, Sha256};

static DECLARED: OnceLock<String> = OnceLock::new();

/// Declares this program's build id, before it joins a cluster. For programs that are built in several
/// ways from one source (with and without a large library, say) and whose builds may work together;
/// without it, the id is the hash of the program's file. The first call counts.
pub fn declare_build_id(id: &str) {
    let _ = DECLARED.set(id.to_owned());
}

/// The id of this build.
pub fn build_id() -> String {
    DECLARED.get_or_init(hash_of_program).clone()
}

fn hash_of_program() -> String {
    // Two programs whose own file cannot be read cannot be told apart by it: never equal to a hash.
    let Ok(bytes) = std::fs::read("/proc/self/exe") else {
        return "unreadable".to_owned();
    };
    let digest = Sha256::digest(&bytes);
    digest.iter().take(12).map(|b| format!("{b:02x}")).collect()
}
