//! `cargo xtask setup`: libtorch out of the Python wheels of torch, without Python's torch.
//!
//! The wheels are fetched by pip (which knows mirrors and proxies), checked against pinned
//! hashes, and only what the workspace links is unpacked: 490 MB into
//! `$XDG_CACHE_HOME/corehold/libtorch-2.13.0`, shared by all checkouts of the user. The checkout
//! gets a link, `.deps/libtorch`, which `.cargo/config.toml` names as `LIBTORCH`.
mod error;
mod unpack;
mod wheel;

pub use error::SetupError;

use std::fs;
use std::path::{Path, PathBuf};

use wheel::WHEELS;

/// The version that tch 0.26 binds.
const VERSION: &str = "2.13.0";

/// In the unpacked folder, written last: which wheels it came from.
const MARKER: &str = ".corehold-complete";

/// Makes `.deps/libtorch` below `root` a link to a complete libtorch. Quick when it is one already.
pub fn run(root: &Path) -> Result<(), SetupError> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Err(SetupError::Platform);
    }
    let cache = cache_dir()?;
    let libtorch = cache.join(format!("libtorch-{VERSION}"));
    if !is_complete(&libtorch) {
        let wheels = cache.join("wheels");
        create_dir(&wheels)?;
        let files = WHEELS
            .iter()
            .map(|wheel| wheel::obtain(wheel, &wheels))
            .collect::<Result<Vec<_>, _>>()?;
        unpack_whole(&files, &cache, &libtorch)?;
        println!("setup: libtorch {VERSION} is in {}", libtorch.display());
    }
    link(&libtorch, &root.join(".deps").join("libtorch"))
}

fn cache_dir() -> Result<PathBuf, SetupError> {
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|dir| dir.is_absolute())
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))
        .ok_or(SetupError::NoHome)?;
    Ok(base.join("corehold"))
}

/// What the marker of a folder unpacked from the pinned wheels says.
fn marker_text() -> String {
    WHEELS
        .iter()
        .map(|wheel| format!("{} {}\n", wheel.sha256, wheel.file))
        .collect()
}

fn is_complete(libtorch: &Path) -> bool {
    fs::read_to_string(libtorch.join(MARKER)).is_ok_and(|text| text == marker_text())
}

/// Unpacks beside the target and renames: a folder with the final name is always whole.
fn unpack_whole(wheels: &[PathBuf], cache: &Path, target: &Path) -> Result<(), SetupError> {
    let staging = Staging::new(cache)?;
    unpack::unpack(wheels, &staging.dir)?;
    let marker = staging.dir.join(MARKER);
    fs::write(&marker, marker_text()).map_err(SetupError::io("write", &marker))?;
    if target.exists() && !is_complete(target) {
        // Of other wheels, or not made by this command. Renamed first, so that an
        // interruption here leaves no half-deleted folder under the final name.
        let old = cache.join(format!("{STAGING}old-{}", std::process::id()));
        fs::rename(target, &old).map_err(SetupError::io("move aside", target))?;
        fs::remove_dir_all(&old).map_err(SetupError::io("remove", &old))?;
    }
    match fs::rename(&staging.dir, target) {
        // Another set-up of the same user was quicker.
        Err(_) if is_complete(target) => Ok(()),
        other => other.map_err(SetupError::io("rename to its final place", &staging.dir)),
    }
}

const STAGING: &str = "libtorch.tmp-";

/// A folder that is removed when dropped, named after this process so that what a killed set-up
/// left behind is recognised and cleared by the next one.
struct Staging {
    dir: PathBuf,
}

impl Staging {
    fn new(cache: &Path) -> Result<Self, SetupError> {
        for entry in fs::read_dir(cache)
            .map_err(SetupError::io("read", cache))?
            .flatten()
        {
            let name = entry.file_name();
            let Some(owner) = name.to_str().and_then(|name| name.strip_prefix(STAGING)) else {
                continue;
            };
            let pid = owner.trim_start_matches("old-");
            if !Path::new("/proc").join(pid).exists() {
                // Only tidying: what can't be removed does not stop the set-up.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let dir = cache.join(format!("{STAGING}{}", std::process::id()));
        create_dir(&dir)?;
        Ok(Self { dir })
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // Already renamed away when all went well.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Points `link` at `target`, replacing a link that points elsewhere but nothing that is not a link.
fn link(target: &Path, link: &Path) -> Result<(), SetupError> {
    if fs::read_link(link).is_ok_and(|now| now == target) {
        return Ok(());
    }
    if let Some(parent) = link.parent() {
        create_dir(parent)?;
    }
    match fs::symlink_metadata(link) {
        Ok(meta) if meta.is_symlink() => {
            fs::remove_file(link).map_err(SetupError::io("replace", link))?;
        }
        // A folder put there by hand: theirs to keep.
        Ok(_) => {
            return Err(SetupError::InTheWay {
                path: link.to_path_buf(),
            });
        }
        Err(_) => {}
    }
    std::os::unix::fs::symlink(target, link).map_err(SetupError::io("link", link))?;
    println!("setup: linked {}", link.display());
    Ok(())
}

fn create_dir(dir: &Path) -> Result<(), SetupError> {
    fs::create_dir_all(dir).map_err(SetupError::io("create", dir))
}
