//! How a program becomes a head, a node or a driver: the same binary is all of them.
//!
//! `#[corehold::main]` calls [`run`]. A program that wants its own `main` (a command line, say) calls
//! [`serve_role`] first, and [`up`], [`down`] and [`drive`] as it needs them.

use std::future::Future;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

mod join;
mod launched;
mod order;
mod role;

use self::role::Role;
use crate::cluster::client::Cluster;
use crate::cluster::state_dir::StateDir;
use crate::cluster::{ClusterConfig, HeadStore, Owner, head, launcher};
use crate::control::{PeerRole, Request};
use crate::error::{Error, Result};
use crate::node;
use crate::observe::{ActorLines, Status, Terminal, Why, log_to_stderr, timeline::record_if};
use crate::process::{Line, Process};
use crate::wire::Identity;

mod watch;

pub use join::{Joiner, join_cluster};
pub use order::{drain, scale, token};
pub use watch::{timeline, watch};

/// The environment variable that names the cluster's file to a driver (`corehold run` sets it).
pub const CLUSTER_ENV: &str = "COREHOLD_CLUSTER";

/// The environment variable that keeps what actors log off the terminal of their driver (`corehold run
/// --quiet-actors` sets it).
pub const QUIET_ENV: &str = "COREHOLD_QUIET_ACTORS";

/// Runs `main` as the driver of a cluster: of the one that the environment names, else of a cluster of
/// one node on this machine that lives as long as `main`. In the processes of that cluster, which run the
/// same program, it is a node or the head instead.
///
/// What its actors log comes to standard error, each line with its actor and node, unless [`QUIET_ENV`] is set.
pub fn run<E: std::fmt::Display>(
    main: impl AsyncFnOnce(Cluster) -> std::result::Result<(), E>,
) -> ExitCode {
    if let Some(code) = serve_role() {
        return code;
    }
    let result = match std::env::var_os(CLUSTER_ENV) {
        Some(config) => drive_hearing(Path::new(&config), &program_name(), hears(), main),
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
    allow_many_files();
    let result = role.and_then(|role| {
        actix_rt::System::new().block_on(async move {
            match role {
                Role::Guard { config } => return serve_guard(&config).await,
                Role::Head { config } => serve_head(&config).await,
                Role::Node { config, name, head } => {
                    node::run(ClusterConfig::load(&config)?, &name, head).await
                }
                Role::Keeper { state } => return node::keeper::run(state).await,
                Role::Launched { state } => launched::run(&state).await,
                Role::Reap { state } => node::keeper::reap(&state),
                Role::Worker { config, vitals } => {
                    node::run_worker(ClusterConfig::load(&config)?, vitals).await
                }
            }
            .map(|()| ExitCode::SUCCESS)
        })
    });
    Some(match result {
        Ok(code) => code,
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

// A thread of an actor has files of its own, and shells allow 1,024 unless asked.
fn allow_many_files() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // Where it is refused, the limit stays what it was, and an actor that meets it says so.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// What the head says on its standard output, once, to whoever launched it.
pub(crate) const READY: &str = "ready";

async fn serve_guard(path: &Path) -> Result<ExitCode> {
    let say = |line: &str| {
        // Whoever launched it may be gone; the cluster is up all the same.
        let _ = writeln!(std::io::stdout(), "{line}");
    };
    let ended = head::guard::run(path, say).await;
    if let Err(e) = &ended {
        say(&e.to_string());
    }
    ended
}

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
/// every node has joined. A cluster whose head was killed goes on: the nodes that still run, and what they run,
/// are taken over.
///
/// # Errors
/// Where the file or this machine does not allow it; nothing new is left running then.
pub fn up(program: &Path, config: &Path) -> Result<()> {
    start(program, config, Stdio::null()).map(drop)
}

/// A cluster that lives no longer than the process that started it, however that ends.
#[derive(Debug)]
pub struct OwnCluster {
    /// Its guard reads the other end, which ends with this process.
    _tie: Option<std::process::ChildStdin>,
}

/// As [`up`], of a cluster that ends with this process, also when that is killed. End it with [`down`] while the
/// [`OwnCluster`] is there.
///
/// # Errors
/// As of [`up`].
pub fn up_while_this_lives(program: &Path, config: &Path) -> Result<OwnCluster> {
    let tie = start(program, config, Stdio::piped())?;
    Ok(OwnCluster { _tie: tie })
}

fn start(program: &Path, config: &Path, tie: Stdio) -> Result<Option<std::process::ChildStdin>> {
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
        .arg("--corehold-role=guard")
        .arg(format!("--corehold-cluster={}", config_path.display()))
        .stdin(tie)
        .stdout(Stdio::piped())
        .stderr(file);
    own_session(&mut command);
    let mut child = command.spawn().map_err(|source| Error::Io {
        path: program.to_owned(),
        source,
        advice: "is it the program to run?",
    })?;
    let tie = child.stdin.take();
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        // Ends when the head has spoken, or is dead.
        let _ = BufReader::new(stdout).read_line(&mut line);
    }
    match line.trim_end() {
        READY => Ok(tie),
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
/// this machine. Where its head was killed, that is what it left: nodes that wait for it, its state, cgroups.
///
/// # Errors
/// [`Error::NotUp`] where there is none, after what a killed one may have left has been removed.
pub fn down(config: &Path) -> Result<()> {
    let config_path = absolute(config)?;
    let loaded = ClusterConfig::load(&config_path)?;
    let state = StateDir::of(&loaded);
    let mut ended = 0;
    // The guard first, which ends its head: else it would start another.
    for process in [StateDir::guard, StateDir::head] {
        if let Some(holder) = process(&state) {
            ended += 1;
            holder.terminate()?;
            holder.await_end();
        }
    }
    // What a head has not ended that was killed.
    for (name, holder) in state.nodes() {
        ended += 1;
        tracing::info!(%name, "ends a node that has no head");
        holder.end(NODE_ENDS_WITHIN)?;
    }
    // On other machines, too.
    let far = match launcher::any_left(&loaded) {
        true => in_system(launcher::end_left(&loaded)),
        false => Ok(0),
    };
    ended += *far.as_ref().unwrap_or(&1);
    HeadStore::put_aside(&state.head_store())?;
    // Also what a cluster left that was killed.
    crate::isolate::sweep_stale().map_err(|e| Error::Refused(e.to_string()))?;
    far?;
    if ended == 0 {
        return Err(Error::NotUp {
            config: config.to_owned(),
            why: "its head does not run".to_owned(),
        });
    }
    Ok(())
}

// Longer than a node waits for its actors.
const NODE_ENDS_WITHIN: Duration = Duration::from_secs(8);

/// The cluster of the file `config` at this moment.
///
/// # Errors
/// [`Error::NotUp`] where there is none, [`Error::HeadAway`] where its head died and is not back yet,
/// [`Error::Refused`] where it runs another build.
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
    drive_hearing(config, name, false, main)
}

fn hears() -> bool {
    std::env::var_os(QUIET_ENV).is_none_or(|quiet| quiet.is_empty())
}

fn program_name() -> String {
    let program = std::env::current_exe().unwrap_or_default();
    let name = program.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn drive_hearing<E: std::fmt::Display>(
    config: &Path,
    name: &str,
    logs: bool,
    main: impl AsyncFnOnce(Cluster) -> std::result::Result<(), E>,
) -> Result<()> {
    let loaded = ClusterConfig::load(absolute(config)?)?;
    in_system(async {
        let id = rand::random();
        let driver = format!("{name} (pid {})", std::process::id());
        let role = PeerRole::Driver {
            id,
            name: driver.clone(),
            logs,
        };
        record_if(loaded.timeline);
        let process = join(&loaded, role).await?;
        let result = main(Cluster::of(Owner::Driver(id))).await;
        let head = StateDir::of(&loaded).head();
        if let Some(head) = head.and_then(|head| head.address) {
            let who = format!("driver {driver}");
            process.leave_recorded(head, who).await;
        }
        // A head that is away learns it from the connection that does not come again.
        let report = Box::new(process.report(false));
        let leave = process.head.request(Request::Leave { report });
        let _ = tokio::time::timeout(GOODBYE_WITHIN, leave).await;
        if let Some(terminal) = process.terminal.get() {
            terminal.finish().await;
        }
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
    let result = up_while_this_lives(&program, &config).and_then(|_own| {
        let result = drive_hearing(&config, &program_name(), hears(), main);
        let ended = down(&config);
        result.and(ended)
    });
    let _ = std::fs::remove_dir_all(&folder);
    result
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
    let mut head = find_head(config, &state).await?;
    let identity = Identity::load(&state.keys())?;
    // The address by which nodes reach this process: on the interface that the head is on.
    let listen = SocketAddr::new(config.listen.ip(), 0);
    let (process, _) = Process::start(&identity, listen, None)?;
    if let PeerRole::Driver { logs: true, .. } = &role {
        // Before the head tells any node to send something here.
        let terminal = Terminal::start().map_err(Error::Thread)?;
        let _ = process.terminal.set(terminal);
    }
    let lease = match role {
        PeerRole::Client => Duration::ZERO,
        _ => config.head_lease,
    };
    let mut orders = loop {
        let (state, role) = (state.clone(), role.clone());
        let line = Line {
            head,
            state: state.clone(),
            lease,
            role: Box::new(move || role.clone()),
        };
        match process.join(line).await {
            Ok(orders) => break orders,
            Err(Error::Wire(e)) => {
                let known = head;
                // It may have died meanwhile: then that is to be told, or there is another.
                head = find_head(config, &state).await?;
                if head == known && state.head().is_some() {
                    return Err(not_up(e.to_string()));
                }
            }
            Err(other) => return Err(other),
        }
    };
    // A driver gets no orders, but the head's word that it ends is logged.
    process.wire.spawn(async move {
        while let Some(order) = orders.recv().await {
            tracing::debug!(?order, "from the head");
        }
    });
    Ok(process)
}

/// Where the head listens; waits a little for one that is being started again.
async fn find_head(config: &ClusterConfig, state: &StateDir) -> Result<SocketAddr> {
    let since = Instant::now();
    let mut wait = Duration::from_millis(10);
    loop {
        if let Some(address) = state.head().and_then(|head| head.address) {
            return Ok(address);
        }
        let guarded = state.guard().is_some();
        if !guarded || since.elapsed() > HEAD_RETURNS_WITHIN {
            let nodes: Vec<String> = state.nodes().into_iter().map(|(name, _)| name).collect();
            return Err(if guarded || !nodes.is_empty() {
                Error::HeadAway {
                    config: config.origin.clone(),
                    nodes,
                    lease: config.head_lease,
                    guarded,
                }
            } else {
                Error::NotUp {
                    config: config.origin.clone(),
                    why: "its head does not run".to_owned(),
                }
            });
        }
        tokio::time::sleep(wait).await;
        wait = (2 * wait).min(Duration::from_millis(200));
    }
}

const GOODBYE_WITHIN: Duration = Duration::from_millis(500);

// A head that was killed is back within a few tenths of a second, unless it keeps dying.
const HEAD_RETURNS_WITHIN: Duration = Duration::from_secs(3);

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
