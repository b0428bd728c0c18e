//! A cluster for one case, in a folder of its own.

use std::path::PathBuf;

use corehold::{Cluster, entry};

pub struct TestCluster {
    folder: tempfile::TempDir,
}

impl TestCluster {
    /// Starts a cluster with these `[[node]]` tables.
    pub fn up(nodes: &str) -> Self {
        let cluster = Self::written(nodes);
        let program = std::env::current_exe().unwrap();
        entry::up(&program, &cluster.config()).unwrap();
        cluster
    }

    /// Writes the file only.
    pub fn written(nodes: &str) -> Self {
        Self::written_with("listen = \"127.0.0.1:0\"", nodes)
    }

    /// Writes the file only, with these keys of `[cluster]`.
    pub fn written_with(cluster: &str, nodes: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("[cluster]\nname = \"test\"\n{cluster}\n{nodes}");
        std::fs::write(folder.path().join("cluster.toml"), text).unwrap();
        Self { folder }
    }

    pub fn config(&self) -> PathBuf {
        self.folder.path().join("cluster.toml")
    }

    /// The process that holds this place of the state folder: `head`, `guard` or `nodes/NAME`.
    pub fn pid_of(&self, place: &str) -> i32 {
        self.claim(place)
            .split_whitespace()
            .next()
            .unwrap()
            .parse()
            .unwrap()
    }

    /// The process that holds this place, or did last, if any ever has.
    pub fn holder(&self, place: &str) -> Option<i32> {
        let file = self.folder.path().join(".corehold").join(place);
        let claim = std::fs::read_to_string(file).ok()?;
        claim.split_whitespace().next()?.parse().ok()
    }

    /// Where it listens.
    pub fn address_of(&self, place: &str) -> std::net::SocketAddr {
        self.claim(place)
            .split_whitespace()
            .nth(1)
            .unwrap()
            .parse()
            .unwrap()
    }

    fn claim(&self, place: &str) -> String {
        let file = self.folder.path().join(".corehold").join(place);
        std::fs::read_to_string(file).unwrap()
    }

    /// What `corehold status` of this cluster says, seen by a process of its own.
    pub fn status(&self) -> String {
        let program = std::env::current_exe().unwrap();
        let mut command = std::process::Command::new(program);
        let output = command.env(crate::STATUS, self.config()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn keys(&self) -> PathBuf {
        self.folder.path().join(".corehold/keys")
    }

    /// Runs `main` as a driver. Once a process.
    pub fn drive(&self, main: impl AsyncFnOnce(Cluster) -> corehold::Result<()>) {
        entry::drive(&self.config(), "test", main).unwrap();
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        let ended = entry::down(&self.config());
        if !std::thread::panicking() {
            ended.unwrap();
        } else {
            for entry in std::fs::read_dir(self.folder.path().join(".corehold/logs"))
                .into_iter()
                .flatten()
                .flatten()
            {
                let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
                eprintln!("--- {}\n{text}", entry.path().display());
            }
        }
    }
}

/// One node named `one`.
pub const ONE: &str = "[[node]]\nname = \"one\"\nhost = \"local\"\nlabels = { kind = \"a\" }\n";

/// Two nodes, `one` (kind a) and `two` (kind b).
pub const TWO: &str = "[[node]]\nname = \"one\"\nhost = \"local\"\nlabels = { kind = \"a\" }\ncores = [0]\n\
     [[node]]\nname = \"two\"\nhost = \"local\"\nlabels = { kind = \"b\" }\ncores = [0]\n";
