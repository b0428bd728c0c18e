//! Two hosts: this network namespace, where the head and a node are, and another one with a node of its own.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use corehold::entry;
use corehold::prelude::*;

use crate::cluster::TestCluster;

fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(e) => Err(e.to_string()),
    }
}

/// A network namespace with one link to this one; removed when dropped.
struct Namespace {
    name: String,
    link: String,
    here: String,
    there: String,
}

impl Namespace {
    fn new() -> Result<Self, String> {
        let pid = std::process::id();
        // 254 * 64 networks of four addresses.
        let net = pid % (254 * 64);
        let net = |host: u32| format!("10.213.{}.{}", net / 64 + 1, net % 64 * 4 + host);
        let space = Self {
            name: format!("corehold-{pid}"),
            link: format!("ch{pid}"),
            here: net(1),
            there: net(2),
        };
        let Self {
            name,
            link,
            here,
            there,
        } = &space;
        ip(&format!("netns add {name}"))?;
        ip(&format!(
            "link add {link} type veth peer name far netns {name}"
        ))?;
        ip(&format!("addr add {here}/30 dev {link}"))?;
        ip(&format!("link set {link} up"))?;
        ip(&format!("-n {name} addr add {there}/30 dev far"))?;
        ip(&format!("-n {name} link set lo up"))?;
        ip(&format!("-n {name} link set far up"))?;
        Ok(space)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = ip(&format!("link del {}", self.link));
        let _ = ip(&format!("netns del {}", self.name));
    }
}

/// A cluster with the node `one` (kind a) beside its head, and room for the node `far` (kind b) on the other host.
pub struct Hosts {
    pub up: TestCluster,
    /// Has the cluster's keys, and a file of its own in which it is named.
    far_file: PathBuf,
    space: Namespace,
}

impl Hosts {
    /// Starts all but the far node; `None` where there can be no other host, and why is printed.
    pub fn up(case: &str) -> Option<Self> {
        let space = match Namespace::new() {
            Ok(space) => space,
            Err(why) => {
                println!("skipped {case}: it needs `ip netns` and root: {why}");
                return None;
            }
        };
        let node = |name: &str, address: &str, kind: &str| {
            format!(
                "[[node]]\nname = \"{name}\"\nhost = \"local\"\nlisten = \"{address}:0\"\nlabels = {{ kind = \"{kind}\" }}\n\
                 cores = [0]\n"
            )
        };
        let listen = format!("listen = \"{}:0\"", space.here);
        let one = node("one", &space.here, "a");
        let up = TestCluster::written_with(&listen, &one);
        entry::up(&std::env::current_exe().unwrap(), &up.config()).unwrap();
        let far_file = up.config().with_file_name("far.toml");
        let text = format!(
            "[cluster]\n{listen}\n{one}{}",
            node("far", &space.there, "b")
        );
        std::fs::write(&far_file, text).unwrap();
        Some(Self {
            up,
            far_file,
            space,
        })
    }

    /// Gives the far node a state folder of its own, with the cluster's keys in it; before it is started.
    pub fn part_state(&self) -> PathBuf {
        let state = self.far_file.with_file_name("far-state");
        std::fs::create_dir_all(state.join("keys")).unwrap();
        for key in std::fs::read_dir(self.up.keys()).unwrap() {
            let key = key.unwrap();
            std::fs::copy(key.path(), state.join("keys").join(key.file_name())).unwrap();
        }
        let text = std::fs::read_to_string(&self.far_file).unwrap();
        let own = format!("[cluster]\nstate = \"{}\"", state.display());
        std::fs::write(&self.far_file, text.replacen("[cluster]", &own, 1)).unwrap();
        state
    }

    /// A command on the other host.
    pub fn there(&self, program: &std::path::Path) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.space.name])
            .arg(program);
        command
    }

    pub fn cut(&self) {
        ip(&format!("-n {} link set far down", self.space.name)).unwrap();
    }

    pub fn mend(&self) {
        ip(&format!("-n {} link set far up", self.space.name)).unwrap();
    }

    /// Starts the node on the other host, and again whenever it ends, as an init would.
    pub fn start_far(&self) -> Far {
        let log = self.up.keys().with_file_name("logs").join("far.log");
        let log = std::fs::File::options().create(true).append(true).open(log);
        let log = log.unwrap();
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.space.name])
            .arg(std::env::current_exe().unwrap())
            .args(["--corehold-role=node", "--corehold-name=far"])
            .arg(format!("--corehold-head={}", self.up.address_of("head")))
            .arg(format!("--corehold-cluster={}", self.far_file.display()))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        let child = Arc::new(Mutex::new(Some(command.spawn().unwrap())));
        let kept = child.clone();
        let init = std::thread::spawn(move || {
            loop {
                std::thread::sleep(Duration::from_millis(50));
                match &mut *kept.lock().unwrap() {
                    None => return,
                    Some(child) => {
                        if child.try_wait().unwrap().is_some() {
                            *child = command.spawn().unwrap();
                        }
                    }
                }
            }
        });
        Far {
            child,
            init: Some(init),
        }
    }
}

/// The far node; killed, and not started again, when dropped.
pub struct Far {
    child: Arc<Mutex<Option<Child>>>,
    init: Option<JoinHandle<()>>,
}

impl Drop for Far {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.lock().unwrap().take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = self.init.take().unwrap().join();
    }
}

/// Waits until the far node is alive in the eyes of the head, as the process of this number under its name.
pub async fn joined(cluster: &Cluster, incarnation: u32) -> corehold::Result<()> {
    let began = Instant::now();
    loop {
        let status = cluster.status().await?;
        let far = status.nodes.iter().find(|node| node.name == "far");
        if far.is_some_and(|far| (far.incarnation, far.health.as_str()) == (incarnation, "alive")) {
            return Ok(());
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{status}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
