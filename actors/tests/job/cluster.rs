//! A cluster of two nodes for one case, and what must be gone after it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Why the cases that hold a core cannot run here.
pub fn skip(case: &str) -> bool {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let possible = nix::unistd::geteuid().is_root() && cores >= 2;
    if !possible {
        println!("skipped {case}: it needs root and two cores");
    }
    !possible
}

pub struct JobCluster {
    folder: tempfile::TempDir,
    up: bool,
    turn: Option<Flock<fs::File>>,
}

const NODES: &str = r#"
[cluster]
name = "test"
listen = "127.0.0.1:0"

[[node]]
name = "trainer"
host = "local"
labels = { role = "train" }
cores = [0]

[[node]]
name = "bench"
host = "local"
labels = { role = "bench" }
cores = [0]
held = [1]
shield = true
"#;

impl JobCluster {
    pub fn up() -> Self {
        let mut cluster = Self::holding();
        let up = cluster.corehold(&["up", "cluster.toml"]);
        assert!(up.status.success(), "{}", text(&up));
        cluster.up = true;
        cluster
    }

    /// A folder, and the turn to hold core 1.
    pub fn holding() -> Self {
        let lock = std::env::temp_dir().join("corehold-core1.lock");
        let lock = fs::File::create(lock).unwrap();
        let turn = Flock::lock(lock, FlockArg::LockExclusive).unwrap();
        let mut cluster = Self::written();
        cluster.turn = Some(turn);
        cluster
    }

    /// A cluster of this file. It takes its turn too: its verifiers' sandboxes are cgroups that others would miss.
    pub fn up_with(nodes: &str) -> Self {
        let mut cluster = Self::holding();
        cluster.write("cluster.toml", nodes);
        let up = cluster.corehold(&["up", "cluster.toml"]);
        assert!(up.status.success(), "{}", text(&up));
        cluster.up = true;
        cluster
    }

    /// A folder with the cluster's file.
    pub fn written() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("cluster.toml"), NODES).unwrap();
        Self {
            folder,
            up: false,
            turn: None,
        }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_corehold"));
        command
            .args(args)
            .current_dir(self.path())
            .stdin(Stdio::null());
        command
    }

    pub fn corehold(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// The process id of a node, once it has one.
    pub fn node(&self, name: &str) -> Pid {
        let wanted = format!("--corehold-name={name}");
        let began = Instant::now();
        loop {
            if let Some(pid) = self
                .processes()
                .into_iter()
                .find(|(_, args)| args.contains(&wanted))
            {
                return pid.0;
            }
            assert!(
                began.elapsed() < Duration::from_secs(20),
                "node {name} does not run"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub fn kill(&self, name: &str) {
        kill(self.node(name), Signal::SIGKILL).unwrap();
    }

    /// The processes of this cluster, by the folder in their arguments.
    fn processes(&self) -> Vec<(Pid, String)> {
        let folder = self.path().display().to_string();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else {
                continue;
            };
            let args = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let args = String::from_utf8_lossy(&args).replace('\0', " ");
            if args.contains(&folder) && args.contains("--corehold-role") {
                found.push((Pid::from_raw(pid), args));
            }
        }
        found
    }

    /// Ends the cluster; nothing of it may be left.
    pub fn down(mut self) {
        let down = self.corehold(&["down", "cluster.toml"]);
        assert!(down.status.success(), "{}", text(&down));
        self.up = false;
        assert_eq!(self.processes(), []);
        assert_eq!(cgroups(), [] as [PathBuf; 0]);
    }

    pub fn logs(&self) -> String {
        let mut all = String::new();
        for entry in fs::read_dir(self.path().join(".corehold/logs"))
            .into_iter()
            .flatten()
            .flatten()
        {
            all += &format!("--- {}\n", entry.path().display());
            all += &fs::read_to_string(entry.path()).unwrap_or_default();
        }
        all
    }
}

impl Drop for JobCluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
        if self.up {
            let _ = self.corehold(&["down", "cluster.toml"]);
        }
    }
}

/// What Corehold has made in any cgroup hierarchy and not removed.
pub fn cgroups() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for hierarchy in fs::read_dir("/sys/fs/cgroup")
        .into_iter()
        .flatten()
        .flatten()
    {
        let ours = |path: &Path| {
            path.file_name()
                .is_some_and(|n| n.to_string_lossy().starts_with("corehold-"))
        };
        if ours(&hierarchy.path()) {
            found.push(hierarchy.path());
        }
        for group in fs::read_dir(hierarchy.path())
            .into_iter()
            .flatten()
            .flatten()
        {
            if ours(&group.path()) {
                found.push(group.path());
            }
        }
    }
    found
}

pub fn text(output: &Output) -> String {
    format!(
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
