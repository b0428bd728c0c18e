//! How a program becomes a head, a node or a driver: the same binary is all of them.
//!
//! `#[corehold::main]` calls [`run`]. A program that wants its own `main` (a command line, say) calls
//! [`serve_role`] first, and [`up`], [`down`] and [`drive`] as it needs them.

use std::future::Future;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::build_id::build_id;
use crate::cluster::client::Cluster;
use crate::cluster::state_dir::StateDir;
use crate::cluster::{ClusterConfig, Owner, head};
use crate::control::PeerRole;
use crate::error::{Error, Result};
use crate::node;
use crate::observe::{ActorLines, Status, Why, log_to_stderr};
use crate::process::Process;
use crate::wire::Identity;

/// The environment variable that names the cluster's file to a driver (`corehold run` sets it).
pub const CLUSTER_ENV: &str = "COREHOLD_CLUSTER";

/// Runs `main` as the driver of a cluster: of the one that the environment names, else of a cluster of
/// one node on this machine that lives as long as `main`. In the processes of that cluster, which run the
/// same program, it is a node or the head instead.
pub fn run<E: std::fmt::Display>(
    main: impl AsyncFnOnce(Cluster) -> std::result::Result<(), E>,
) -> ExitCode {
    if let Some(code) = serve_role() {
        return code;
    }
    let result = match std::env::var_os(CLUSTER_ENV) {
        Some(config) => drive(Path::new(&config), "program", main),
        None => alone(main),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

/// Where this process was launched as a head or a node, does that until it ends and gives its exit code.
/// Call it first in `main`.
pub fn serve_role() -> Option<ExitCode> {
    let role = Role::from_args(std::env::args().skip(1))?;
    log_to_stderr();
    let result = role.and_then(|role| {
        actix_rt::System::new().block_on(async move {
            match role {
                Role::Head { config } => serve_head(&config).await,
                Role::Node { config, name, head } => {
                    node::run(ClusterConfig::load(&config)?, &name, head).await
                }
                Role::Worker { config, vitals } => {
                    node::run_worker(ClusterConfig::load(&config)?, vitals).await
                }
            }
        })
    });
    Some(match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            tracing::error!("{e}");
            ExitCode::FAILURE
        }
    })
}

/// Is node `name` of the cluster in the file `config`, whose head is at `head`, until that ends it.
///
/// # Errors
/// Where the head is out of reach or refuses it.
pub fn node(config: &Path, name: &str, head: SocketAddr) -> Result<()> {
    log_to_stderr();
    let config = ClusterConfig::load(absolute(config)?)?;
    actix_rt::System::new().block_on(node::run(config, name, head))
}

enum Role {
    Head {
        config: PathBuf,
    },
    Node {
        config: PathBuf,
        name: String,
        head: SocketAddr,
    },
    /// A process of one actor, started by a node.
    Worker {
        config: PathBuf,
        vitals: i32,
    },
}

impl Role {
    fn from_args(args: impl Iterator<Item = String>) -> Option<Result<Self>> {
        let (mut role, mut config, mut name, mut head, mut vitals) = (None, None, None, None, None);
        for arg in args {
            let Some((key, value)) = arg
                .strip_prefix("--corehold-")
                .and_then(|a| a.split_once('='))
            else {
                continue;
            };
            match key {
                "role" => role = Some(value.to_owned()),
                "cluster" => config = Some(PathBuf::from(value)),
                "name" => name = Some(value.to_owned()),
                "head" => head = value.parse().ok(),
                "vitals" => vitals = value.parse().ok(),
                _ => {}
            }
        }
        let role = match (role?.as_str(), config, name, head, vitals) {
            ("head", Some(config), ..) => Ok(Role::Head { config }),
            ("node", Some(config), Some(name), Some(head), _) => {
                Ok(Role::Node { config, name, head })
            }
            ("worker", Some(config), .., Some(vitals)) => Ok(Role::Worker { config, vitals }),
            _ => Err(Error::Misuse(
                "a head needs --corehold-cluster=FILE; a node also --corehold-name=NAME and \
                 --corehold-head=ADDRESS"
                    .to_owned(),
            )),
        };
        Some(role)
    }
}

// What the head says on its standard output, once, to whoever launched it.
const READY: &str = "ready";

async fn serve_head(path: &Path) -> Result<()> {
    let say = |line: &str| {
        // Whoever launched it may be gone; the cluster is up all the same.
        let _ = writeln!(std::io::stdout(), "{line}");
    };
    let told = std::cell::Cell::new(false);
    let ready = |result: std::result::Result<(), String>| {
        told.set(true);
        match result {
            Ok(()) => say(READY),
            Err(why) => say(&why),
        }
    };
    let result = async { head::run(ClusterConfig::load(path)?, ready).await }.await;
    if let Err(e) = &result
        && !told.get()
    {
        say(&e.to_string());
    }
    result
}

/// Starts the cluster of the file `config`, with `program` as the binary of its head and nodes; returns when
/// every node has joined.
///
/// # Errors
/// Where the file or this machine does not allow it; nothing is left running then.
pub fn up(program: &Path, config: &Path) -> Result<()> {
    let config_path = absolute(config)?;
    let config = ClusterConfig::load(&config_path)?;
    let facts = node::discover().map_err(|e| Error::Refused(e.to_string()))?;
    config.validate(&facts)?;
    config.check_launchers()?;
    let state = StateDir::of(&config);
    state.create()?;
    let log = state.log("head");
    let file = std::fs::File::options()
        .create(true)
        .append(true)
        .open(&log)
        .map_err(|source| Error::Io {
            path: log.clone(),
            source,
            advice: "the cluster's state folder must be writable",
        })?;
    let mut command = Command::new(program);
    command
        .arg("--corehold-role=head")
        .arg(format!("--corehold-cluster={}", config_path.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(file);
    own_session(&mut command);
    let mut child = command.spawn().map_err(|source| Error::Io {
        path: program.to_owned(),
        source,
        advice: "is it the program to run?",
    })?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        // Ends when the head has spoken, or is dead.
        let _ = BufReader::new(stdout).read_line(&mut line);
    }
    match line.trim_end() {
        READY => Ok(()),
        "" => {
            let _ = child.wait();
            Err(Error::Refused(format!(
                "the head ended before it was ready; see {}",
                log.display()
            )))
        }
        why => {
            let why = why.to_owned();
            let _ = child.wait();
            Err(Error::Refused(format!("{why} (log: {})", log.display())))
        }
    }
}

/// Ends the cluster of the file `config`; returns when its processes are gone and nothing of it is left on
/// this machine.
///
/// # Errors
/// [`Error::NotUp`] where there is none, after what a killed one may have left has been removed.
pub fn down(config: &Path) -> Result<()> {
    let config_path = absolute(config)?;
    let loaded = ClusterConfig::load(&config_path)?;
    let state = StateDir::of(&loaded);
    let asked = match state.head() {
        // It holds the lock, so the process with this id is the head.
        Some(head) => end(head.pid).map(|()| head.await_end()),
        None => Err(Error::NotUp {
            config: config.to_owned(),
            why: "its head does not run".to_owned(),
        }),
    };
    // Also what a cluster left that was killed.
    let swept = crate::isolate::sweep_stale().map_err(|e| Error::Refused(e.to_string()));
    asked?;
    swept.map(|_| ())
}

/// The cluster of the file `config` at this moment.
///
/// # Errors
/// [`Error::NotUp`] where there is none.
pub fn status(config: &Path) -> Result<Status> {
    let loaded = ClusterConfig::load(absolute(config)?)?;
    in_system(async {
        join(&loaded, PeerRole::Client).await?;
        Cluster::of(Owner::Detached).status().await
    })
}

/// The last `lines` log lines of each actor of the cluster of the file `config`, oldest first; of one actor where
/// `actor` names it, by its name, its id, or the beginning of that. Of the dead, too, as far as the head remembers them
/// (ids of others are found while their log is kept).
///
/// Logs are read from the cluster's state folder on this machine: those of nodes that keep theirs elsewhere are not
/// found.
///
/// # Errors
/// [`Error::NotUp`] where there is no cluster, [`Error::NotFound`] where no actor is meant.
pub fn logs(config: &Path, actor: Option<&str>, lines: usize) -> Result<Vec<ActorLines>> {
    let folder = StateDir::of(&ClusterConfig::load(absolute(config)?)?).actor_logs();
    let status = status(config)?;
    crate::observe::actor_lines(&folder, &status, actor, lines)
}

/// Why the actor with the name or id `which`, or the placement group with that id, stands as it does in the cluster
/// of the file `config`.
///
/// # Errors
/// [`Error::NotUp`] where there is none, [`Error::NotFound`] where it knows nothing of it.
pub fn why(config: &Path, which: &str) -> Result<Why> {
    let loaded = ClusterConfig::load(absolute(config)?)?;
    in_system(async {
        join(&loaded, PeerRole::Client).await?;
        Cluster::of(Owner::Detached).why(which).await
    })
}

/// Runs `main` as a driver of the cluster of the file `config`, which is up. The actors that it spawns end
/// with it. Once a process.
///
/// # Errors
/// [`Error::NotUp`] where there is none, [`Error::Refused`] where it runs another build, [`Error::Program`] with
/// what `main` gave back.
pub fn drive<E: std::fmt::Display>(
    config: &Path,
    name: &str,
    main: impl AsyncFnOnce(Cluster) -> std::result::Result<(), E>,
) -> Result<()> {
    let loaded = ClusterConfig::load(absolute(config)?)?;
    in_system(async {
        let id = rand::random();
        let role = PeerRole::Driver {
            id,
            name: format!("{name} (pid {})", std::process::id()),
        };
        let process = join(&loaded, role).await?;
        let result = main(Cluster::of(Owner::Driver(id))).await;
        process.endpoint.close("the driver is done").await;
        result.map_err(|e| Error::Program(e.to_string()))
    })
}

/// A cluster of one node for one program.
fn alone<E: std::fmt::Display>(
    main: impl AsyncFnOnce(Cluster) -> std::result::Result<(), E>,
) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("corehold-{}", std::process::id()));
    let io = |source| Error::Io {
        path: folder.clone(),
        source,
        advice: "set TMPDIR to a folder that can be written",
    };
    std::fs::create_dir_all(&folder).map_err(io)?;
    let config = folder.join("cluster.toml");
    let text = "[cluster]\nname = \"alone\"\nlisten = \"127.0.0.1:0\"\n\n[[node]]\nname = \"here\"\nhost = \"local\"\n";
    std::fs::write(&config, text).map_err(io)?;
    let program = std::env::current_exe().map_err(io)?;
    let result = up(&program, &config).and_then(|()| {
        let result = drive(&config, "program", main);
        let ended = down(&config);
        result.and(ended)
    });
    let _ = std::fs::remove_dir_all(&folder);
    result
}

fn end(head: i32) -> Result<()> {
    use nix::sys::signal::{Signal, kill};
    kill(nix::unistd::Pid::from_raw(head), Signal::SIGTERM)
        .map_err(|e| Error::Refused(format!("cannot end the head (process {head}): {e}")))
}

fn in_system<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    actix_rt::System::new().block_on(work)
}

async fn join(config: &ClusterConfig, role: PeerRole) -> Result<std::sync::Arc<Process>> {
    let state = StateDir::of(config);
    let not_up = |why: String| Error::NotUp {
        config: config.origin.clone(),
        why,
    };
    let head = state
        .head()
        .ok_or_else(|| not_up("its head does not run".to_owned()))?;
    let identity = Identity::load(&state.keys())?;
    // The address by which nodes reach this process: on the interface that the head is on.
    let listen = SocketAddr::new(config.listen.ip(), 0);
    let (process, _) = Process::start(&identity, listen, None)?;
    let mut orders = process
        .join(head.address, role, &build_id())
        .await
        .map_err(|e| match e {
            Error::Wire(e) => not_up(e.to_string()),
            other => other,
        })?;
    // A driver gets no orders, but the head's word that it ends is logged.
    process.wire.spawn(async move {
        while let Some(order) = orders.recv().await {
            tracing::debug!(?order, "from the head");
        }
    });
    Ok(process)
}

fn absolute(config: &Path) -> Result<PathBuf> {
    std::path::absolute(config).map_err(|source| Error::Io {
        path: config.to_owned(),
        source,
        advice: "give the path of the cluster's file",
    })
}

// A terminal's ctrl-C must not reach the cluster, only the program that runs on it.
fn own_session(command: &mut Command) {
    use std::os::unix::process::CommandExt as _;
    // SAFETY: between fork and exec only setsid is called, which is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            nix::unistd::setsid()?;
            Ok(())
        });
    }
}
