//! The keeper of a node that was launched on another machine: a small process of the same program, there as long as the
//! node, that leaves nothing behind.
//!
//! - KP-1: the token comes on standard input and goes on to the node in the same way: it is in no argument and no environment.
//! - KP-2: a node does not outlive its keeper, in whatever way that ends; nor its folder the two, unless both are killed at
//!   once. (What is left then is removed by the launcher, or by the next keeper.)
//! - KP-3: a node never waits for whoever reads its log: what is not taken in time is dropped, and counted in the log.
//! - KP-4: a keeper does not end because its launcher is gone: its node looks for another head for `head_lease_s`, ends then,
//!   and the keeper with it.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{SigHandler, Signal, kill, signal as on_signal};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::cluster::launcher::MARK;
use crate::cluster::state_dir::StateDir;
use crate::error::{Error, Result};

/// What a launcher tells a keeper, as one line of JSON.
#[derive(Serialize, Deserialize)]
pub(crate) struct Order {
    /// A join token, for this node alone.
    pub token: String,
    /// The head's address.
    pub head: std::net::SocketAddr,
    /// The node's name.
    pub name: String,
    /// Where it listens; without an address: on the one that leads to the head.
    pub listen: std::net::SocketAddr,
    /// Its `[[node]]` table, without `listen`.
    pub node: String,
    /// Whether it records its handlers all the time.
    pub timeline: bool,
    /// The program's name in `bin/`, where it is removed at the end; `None`: it stays.
    pub program: Option<String>,
}

// A line of a node's description is far shorter.
const LONGEST_ORDER: u64 = 1 << 20;
// The keeper waits so long for the rest of a log that something else holds open.
const LOG_ENDS_WITHIN: Duration = Duration::from_millis(500);
// Pieces of the log, of at most 8 KiB each, that wait for the launcher.
const WAITING: usize = 256;
// Longer than a node waits for its actors.
const ENDS_WITHIN: Duration = Duration::from_secs(8);
/// The file in which a node says why it did not join.
const WHY: &str = "why";
/// The keeper's exit status where a node of this name is there already.
pub(crate) const TAKEN: u8 = 75;

/// Keeps a node whose folder is `root`, as the order on standard input says.
///
/// # Errors
/// Where the order is not understood or the node cannot be started. Nothing is left then, either.
pub(crate) async fn run(root: PathBuf) -> Result<ExitCode> {
    // The connection through which it was started may end: neither is this process's concern.
    let _ = nix::unistd::setsid();
    // SAFETY: ignoring a signal runs no code of ours.
    let _ = unsafe { on_signal(Signal::SIGHUP, SigHandler::SigIgn) };
    let state = StateDir::at(root.clone());
    let claim = match state.claim_keeper() {
        Ok(claim) => claim,
        Err(e) => {
            say(&format!("taken {e}"));
            return Ok(ExitCode::from(TAKEN));
        }
    };
    let mut program = None;
    let ended = keep(&root, &mut program).await;
    // What a node that was killed has left: cgroups, knobs, scratch folders.
    if let Err(e) = crate::isolate::sweep_stale() {
        eprintln!("what the node had held is not given back: {e}");
    }
    let why = std::fs::read_to_string(root.join(WHY)).unwrap_or_default();
    let removed = remove(&root, program.as_deref());
    // Whoever waits for the lock waits for the end of this process.
    std::mem::forget(claim);
    let code = match &ended {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    };
    let mut words = match &ended {
        Ok(status) if why.is_empty() => status.to_string(),
        Ok(_) => why,
        Err(e) => e.to_string(),
    };
    if let Err(e) = removed {
        words = format!("{words}; not all of {} is removed: {e}", root.display());
    }
    say(&format!("ended {}", words.replace('\n', " ")));
    Ok(code)
}

/// Says something to the launcher, which may be gone.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{MARK}{line}").and_then(|()| out.flush());
}

async fn keep(root: &Path, program: &mut Option<PathBuf>) -> Result<ExitStatus> {
    // Before the node is there: nothing that comes then is missed.
    let signals = |kind| signal(kind).map_err(Error::Thread);
    let mut terminate = signals(SignalKind::terminate())?;
    let mut quit = signals(SignalKind::quit())?;
    let _interrupt = signals(SignalKind::interrupt())?;
    clear(root)?;
    let order = read_order().await?;
    let folder = root.parent().and_then(Path::parent);
    *program = folder
        .zip(order.program.as_ref())
        .map(|(folder, name)| folder.join("bin").join(name));
    let mut child = start(root, &order)?;
    let outlet = Outlet::start()?;
    let pipes = [
        child
            .stdout
            .take()
            .map(|pipe| tokio::spawn(relay(pipe, outlet.clone()))),
        child
            .stderr
            .take()
            .map(|pipe| tokio::spawn(relay(pipe, outlet.clone()))),
    ];
    say(&format!("started {}", child.id().unwrap_or_default()));
    let status = loop {
        tokio::select! {
            status = child.wait() => break status.map_err(Error::Thread)?,
            _ = terminate.recv() => pass_on(&child, Signal::SIGTERM),
            _ = quit.recv() => pass_on(&child, Signal::SIGQUIT),
        }
    };
    for pipe in pipes.into_iter().flatten() {
        let _ = tokio::time::timeout(LOG_ENDS_WITHIN, pipe).await;
    }
    Ok(status)
}

/// What an earlier node of this name left here that was killed with its keeper.
fn clear(root: &Path) -> Result<()> {
    let ours = ["keeper", "program"];
    let io = |source| Error::Io {
        path: root.to_owned(),
        source,
        advice: "the folder must be writable by who logs in",
    };
    for entry in std::fs::read_dir(root).map_err(io)? {
        let entry = entry.map_err(io)?;
        if ours.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        let path = entry.path();
        let removed = match entry.file_type().map_err(io)?.is_dir() {
            true => std::fs::remove_dir_all(&path),
            false => std::fs::remove_file(&path),
        };
        removed.map_err(io)?;
    }
    StateDir::at(root.to_owned()).create()
}

async fn read_order() -> Result<Order> {
    let read = tokio::task::spawn_blocking(|| {
        let mut text = String::new();
        let input = std::io::stdin().lock();
        input
            .take(LONGEST_ORDER)
            .read_to_string(&mut text)
            .map(|_| text)
    });
    let text = read.await.map_err(|e| Error::Misuse(e.to_string()))?;
    let text = text.map_err(|e| Error::Misuse(format!("no order came: {e}")))?;
    serde_json::from_str(&text)
        .map_err(|e| Error::Misuse(format!("the order is not understood: {e}")))
}

/// From this process's own image, under the name that its file has: workers are started from that.
fn start(root: &Path, order: &Order) -> Result<Child> {
    let failed =
        |e: std::io::Error| Error::Refused(format!("the node's process cannot be started: {e}"));
    let text = serde_json::to_string(order).map_err(|e| failed(e.into()))?;
    let mut command = Command::new(root.join("program"));
    command
        .arg("--corehold-role=launched")
        .arg(format!("--corehold-state={}", root.display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let keeper = nix::unistd::getpid();
    // SAFETY: between fork and exec only prctl and getppid are called, which are async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
            // It may have died before that.
            match nix::unistd::getppid() == keeper {
                true => Ok(()),
                false => Err(std::io::Error::from(nix::errno::Errno::ESRCH)),
            }
        });
    }
    let mut child = command.spawn().map_err(failed)?;
    let input = child.stdin.take().map(|input| input.into_owned_fd());
    if let Some(input) = input.transpose().map_err(failed)? {
        // A pipe takes this at once: it is shorter than its buffer, or the node reads it.
        std::fs::File::from(input)
            .write_all(text.as_bytes())
            .map_err(failed)?;
    }
    Ok(child)
}

fn pass_on(child: &Child, signal: Signal) {
    if let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) {
        // It has not been waited for, so the id is its.
        let _ = kill(Pid::from_raw(pid), signal);
    }
}

/// The way to the launcher: a thread that writes, which may be stuck.
#[derive(Clone)]
struct Outlet(mpsc::Sender<Vec<u8>>);

impl Outlet {
    fn start() -> Result<Self> {
        let (send, mut pieces) = mpsc::channel::<Vec<u8>>(WAITING);
        std::thread::Builder::new()
            .name("corehold-log".to_owned())
            .spawn(move || {
                while let Some(piece) = pieces.blocking_recv() {
                    // Nobody may be there any more: it is read on all the same.
                    let _ = std::io::stderr().lock().write_all(&piece);
                }
            })
            .map_err(Error::Thread)?;
        Ok(Self(send))
    }
}

async fn relay(mut pipe: impl AsyncRead + Unpin, outlet: Outlet) {
    let mut chunk = vec![0; 8 << 10];
    let mut dropped = 0;
    while let Ok(read @ 1..) = pipe.read(&mut chunk).await {
        if dropped > 0 {
            let note = format!(
                "\n(here {dropped} bytes of the log were dropped: nobody took them in time)\n"
            );
            if outlet.0.try_send(note.into_bytes()).is_ok() {
                dropped = 0;
            }
        }
        if dropped > 0 || outlet.0.try_send(chunk[..read].to_vec()).is_err() {
            dropped += read;
        }
    }
}

/// Removes the node's folder, the program, and the folders around them that are empty then.
fn remove(root: &Path, program: Option<&Path>) -> std::io::Result<()> {
    let removed = std::fs::remove_dir_all(root);
    if let Some(program) = program {
        // Another node that ended may have been first.
        let _ = std::fs::remove_file(program);
    }
    let nodes = root.parent();
    let folder = nodes.and_then(Path::parent);
    for empty in [
        folder.map(|f| f.join("bin")),
        nodes.map(Path::to_owned),
        folder.map(Path::to_owned),
    ] {
        // One that has something of another node in it stays.
        let _ = empty.map(std::fs::remove_dir);
    }
    removed
}

/// Says why this node does not join, to its keeper.
pub(crate) fn tell_why(root: &Path, why: &str) {
    // Where that cannot be written, the log has it.
    let _ = std::fs::write(root.join(WHY), why);
}

/// Ends the node whose folder is `root`, with its keeper, and removes what is left of it.
///
/// # Errors
/// Where it cannot be ended.
pub(crate) fn reap(root: &Path) -> Result<()> {
    if let Some(keeper) = StateDir::at(root.to_owned()).keeper() {
        keeper.end(ENDS_WITHIN)?;
    }
    crate::isolate::sweep_stale().map_err(|e| Error::Refused(e.to_string()))?;
    Ok(())
}
