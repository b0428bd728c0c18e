//! The head's guard: a small process that starts the head, and starts it again when it is killed or panics.
//!
//! It does nothing else, so that there is little to go wrong in it, and nothing depends on it until the head dies: a
//! guard that is killed leaves a head without a guard, and nodes that end by themselves when they have had no head for
//! `head_lease_s`. A head that ends by its own decision is not started again.

use std::os::fd::AsFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::Instant;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cluster::ClusterConfig;
use crate::cluster::state_dir::StateDir;
use crate::cluster::supervision::Backoff;
use crate::error::{Error, Result};

// Deaths in a row, none after `Backoff::reset_after` of life, after which the head is left dead.
const GIVE_UP_AFTER: u32 = 6;
// What a Rust program ends with whose main thread panicked.
const PANICKED: i32 = 101;

/// Guards the head of the cluster in the file `path` until it ends by itself or this process is told to end.
/// `say` gets the one line that the first head says when it is ready or cannot be.
///
/// # Errors
/// Where another guard holds the cluster, or the head cannot be started at all.
pub(crate) async fn run(path: &Path, say: impl Fn(&str)) -> Result<ExitCode> {
    let config = ClusterConfig::load(path)?;
    // Not let go before this process is gone: who waits for the lock waits for that.
    let _claim = std::mem::ManuallyDrop::new(StateDir::of(&config).claim_guard()?);
    let signals = |kind| signal(kind).map_err(Error::Thread);
    let mut terminate = signals(SignalKind::terminate())?;
    let mut tie = Tie::of_stdin();
    let mut deaths = 0;
    let mut head = start(path, Stdio::piped())?;
    let mut ready = relay(&mut head, &say, &mut terminate).await;
    let backoff = Backoff::default();
    loop {
        let began = Instant::now();
        let status = tokio::select! {
            status = head.wait() => status.map_err(Error::Thread)?,
            _ = terminate.recv() => return Ok(code(end(&mut head).await?)),
            () = tie.cut() => {
                tracing::info!("the program that this cluster was started for is gone");
                return Ok(code(end(&mut head).await?));
            }
        };
        let killed = status.signal().is_some() || status.code() == Some(PANICKED);
        if !killed || !ready {
            return Ok(code(status));
        }
        if began.elapsed() >= backoff.reset_after {
            deaths = 0;
        }
        deaths += 1;
        if deaths > GIVE_UP_AFTER {
            tracing::error!(%status, "the head died {GIVE_UP_AFTER} times in a row: it is not started again");
            return Ok(code(status));
        }
        tracing::error!(%status, "the head died; it is started again");
        tokio::select! {
            () = tokio::time::sleep(backoff.wait(deaths)) => {}
            _ = terminate.recv() => return Ok(ExitCode::SUCCESS),
            () = tie.cut() => return Ok(ExitCode::SUCCESS),
        }
        head = start(path, Stdio::null())?;
        ready = true;
    }
}

/// The pipe to the process that this cluster is for, on standard input, where it is for one
/// ([`up_while_this_lives`](crate::entry::up_while_this_lives)).
struct Tie(Option<pipe::Receiver>);

impl Tie {
    fn of_stdin() -> Self {
        let input = std::io::stdin().as_fd().try_clone_to_owned().ok();
        // Anything but a pipe ties to nobody.
        Self(input.and_then(|fd| pipe::Receiver::from_owned_fd(fd).ok()))
    }

    /// Returns when that process is gone. Nothing is lost where it is called again.
    async fn cut(&mut self) {
        match &mut self.0 {
            Some(pipe) => {
                let mut nothing = [0; 16];
                while pipe.read(&mut nothing).await.is_ok_and(|n| n > 0) {}
            }
            None => std::future::pending().await,
        }
    }
}

/// Passes on what the first head says; true if that is that it is ready.
async fn relay(head: &mut Child, say: &impl Fn(&str), terminate: &mut Signal) -> bool {
    let Some(stdout) = head.stdout.take() else {
        return false;
    };
    let mut line = String::new();
    let mut reader = BufReader::new(stdout);
    tokio::select! {
        // Ends when the head has spoken, or is dead.
        _ = reader.read_line(&mut line) => {}
        // `run` sees to the rest.
        _ = terminate.recv() => {
            let _ = end(head).await;
        }
    }
    let line = line.trim_end();
    if !line.is_empty() {
        say(line);
    }
    line == crate::entry::READY
}

/// From this process's own image: a head that is started again is of the build that its nodes are, also when the
/// program's file has been replaced.
fn start(path: &Path, stdout: Stdio) -> Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    if let Ok(program) = std::env::current_exe() {
        command.arg0(program);
    }
    command
        .arg("--corehold-role=head")
        .arg(format!("--corehold-cluster={}", path.display()))
        .stdin(Stdio::null())
        .stdout(stdout);
    command.spawn().map_err(Error::Thread)
}

async fn end(head: &mut Child) -> Result<ExitStatus> {
    use nix::sys::signal::{Signal, kill};
    if let Some(pid) = head.id().and_then(|pid| i32::try_from(pid).ok()) {
        // It has not been waited for, so the id is its.
        let _ = kill(nix::unistd::Pid::from_raw(pid), Signal::SIGTERM);
    }
    head.wait().await.map_err(Error::Thread)
}

fn code(status: ExitStatus) -> ExitCode {
    match status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(code) => ExitCode::from(code),
        None => ExitCode::FAILURE,
    }
}
