//! `corehold new NAME`: a crate of the user's own, with two actors that talk, which builds and runs as it is.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::{Failure, out};

mod name;

/// Write a crate of your own: two actors that talk, which build and run as they are
///
/// The crate depends on corehold by a path, because corehold is on no registry yet: by default that of the sources
/// which this program was built from.
#[derive(Args)]
pub(super) struct New {
    /// Where: the last part of the path is the crate's name
    path: PathBuf,
    /// The folder with corehold's sources (a checkout, or `runtime` in it); by default those that this program was
    /// built from
    #[arg(long, value_name = "PATH")]
    corehold: Option<PathBuf>,
}

/// Where the runtime's sources were when this program was built.
const BUILT_FROM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../runtime");

impl New {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let name = name::of(&self.path)?;
        let corehold = sources(self.corehold.as_deref())?;
        let folder = Folder::make(&self.path)?;
        for (file, text) in files(&name, &corehold) {
            folder.write(file, text.as_bytes())?;
        }
        // The versions that corehold is tested with; cargo drops those that the crate does not need.
        if let Some(lock) = corehold.parent().map(|root| root.join("Cargo.lock"))
            && let Ok(lock) = fs::read(lock)
        {
            folder.write("Cargo.lock", &lock)?;
        }
        folder.keep();
        let path = self.path.display();
        out::line(format_args!(
            "{path} is written; it depends on corehold at {}",
            corehold.display()
        ))?;
        out::line(format_args!(
            "next: cd {path} && cargo build && corehold run target/debug/{name}"
        ))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn files(name: &str, corehold: &Path) -> [(&'static str, String); 5] {
    let path = toml::Value::from(corehold.to_string_lossy().as_ref()).to_string();
    let fill = |template: &str| {
        template
            .replace("@NAME@", name)
            .replace("@COREHOLD@", &path)
            .replace("@COREHOLD_DIR@", &corehold.to_string_lossy())
    };
    [
        ("Cargo.toml", fill(include_str!("new/Cargo.toml.txt"))),
        ("src/main.rs", fill(include_str!("new/main.rs.txt"))),
        ("cluster.toml", fill(include_str!("new/cluster.toml.txt"))),
        (".gitignore", fill(include_str!("new/gitignore.txt"))),
        ("README.md", fill(include_str!("new/README.md.txt"))),
    ]
}

/// The folder of the crate `corehold`.
fn sources(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let is_corehold = |folder: &Path| {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
        let manifest: toml::Table = manifest.parse().unwrap_or_default();
        let name = manifest
            .get("package")
            .and_then(|package| package.get("name"));
        name.and_then(toml::Value::as_str) == Some("corehold")
    };
    let (candidates, what) = match given {
        Some(path) => (vec![path.to_owned(), path.join("runtime")], path.to_owned()),
        None => (vec![PathBuf::from(BUILT_FROM)], PathBuf::from(BUILT_FROM)),
    };
    if let Some(found) = candidates.iter().find(|folder| is_corehold(folder)) {
        return Ok(found.canonicalize()?);
    }
    let why = match given {
        Some(_) => "it is neither a checkout of corehold nor the folder `runtime` of one",
        None => {
            "corehold is on no registry yet, and the sources that this program was built from are no longer there: \
             give the folder of a checkout with --corehold PATH"
        }
    };
    Err(format!("no corehold at {}: {why}", what.display()).into())
}

/// A new folder. What was made is removed again unless it is kept.
struct Folder {
    path: PathBuf,
    /// The outermost folder that was made for it.
    made: Option<PathBuf>,
    written: std::cell::RefCell<Vec<PathBuf>>,
}

impl Folder {
    fn make(path: &Path) -> Result<Self, Failure> {
        let path = std::path::absolute(path)?;
        match fs::read_dir(&path).map(|mut entries| entries.next().is_some()) {
            Ok(true) => {
                let path = path.display();
                return Err(
                    format!("{path} is not empty: choose another name, or empty it").into(),
                );
            }
            Ok(false) => {}
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) if e.kind() == ErrorKind::NotADirectory => {
                return Err(format!("{} is a file: choose another name", path.display()).into());
            }
            Err(e) => return Err(failed(&path, &e)),
        }
        let missing = path.ancestors().take_while(|folder| !folder.exists());
        let folder = Self {
            made: missing.last().map(Path::to_owned),
            path,
            written: Default::default(),
        };
        fs::create_dir_all(folder.path.join("src")).map_err(|e| failed(&folder.path, &e))?;
        Ok(folder)
    }

    fn write(&self, file: &str, bytes: &[u8]) -> Result<(), Failure> {
        let path = self.path.join(file);
        self.written.borrow_mut().push(path.clone());
        fs::write(&path, bytes).map_err(|e| failed(&path, &e))
    }

    fn keep(mut self) {
        self.made = None;
        self.written.take();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Only what was written here: nobody else's file is in the way of this.
        for file in self.written.take() {
            let _ = fs::remove_file(file);
        }
        if let Some(made) = &self.made {
            let _ = fs::remove_dir(self.path.join("src"));
            for folder in self
                .path
                .ancestors()
                .take_while(|folder| folder.starts_with(made))
            {
                let _ = fs::remove_dir(folder);
            }
        }
    }
}

fn failed(path: &Path, e: &io::Error) -> Failure {
    let path = path.display();
    match e.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            format!(
                "the disk is full: {path} cannot be written ({e}); nothing of the new crate is left"
            )
        }
        _ => format!("cannot write {path}: {e}"),
    }
    .into()
}
