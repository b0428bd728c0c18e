//! Calls of the `ssh` program: the user's own, with the user's configuration, keys, agents and jump hosts.

use std::process::Stdio;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};

use super::error::SshError;
use super::script;
use crate::cluster::config::SshConfig;

// What a host says in answer to a short script; more is not read.
const LONGEST: u64 = 64 << 10;

/// What came of a call.
pub(super) struct Said {
    /// Ssh's exit status, which is the script's unless it is [`SSH_FAILED`](super::error::SSH_FAILED).
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Ssh with the script as what it runs on the host.
pub(super) fn ssh(config: &SshConfig, host: &str, script: &str) -> Command {
    let mut command = Command::new(&config.command);
    if let Some(file) = &config.config {
        command.arg("-F").arg(file);
    }
    // No terminal, agent or display there; nothing is asked here. What the user has set for other uses must not get in the way:
    // a connection that is shared is used, but none is left behind.
    command.args(["-T", "-a", "-x"]);
    for option in [
        "BatchMode=yes",
        "LogLevel=ERROR",
        "ControlMaster=no",
        "ClearAllForwardings=yes",
        "PermitLocalCommand=no",
        "RemoteCommand=none",
    ] {
        command.args(["-o", option]);
    }
    command.arg("--").arg(host).arg(script::command(script));
    command
}

/// Starts it.
pub(super) fn start(mut command: Command, config: &SshConfig) -> Result<Child, SshError> {
    command.spawn().map_err(|e| SshError::NoSsh {
        command: config.command.display().to_string(),
        why: e.to_string(),
    })
}

/// Runs a short script with this input. It is killed where this is dropped, and where this process dies.
pub(super) async fn run(
    config: &SshConfig,
    host: &str,
    script: &str,
    input: Stdio,
) -> Result<Said, SshError> {
    let mut command = ssh(config, host, script);
    command
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    end_with_this(&mut command);
    let mut child = start(command, config)?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let (stdout, stderr) = tokio::join!(text(out), text(err));
    // An error means that somebody else has waited for it, which nobody does.
    let status = child.wait().await.ok().and_then(|status| status.code());
    Ok(Said {
        status,
        stdout,
        stderr,
    })
}

async fn text(pipe: Option<impl AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        // What was read before an error is what there is.
        let _ = pipe.take(LONGEST).read_to_end(&mut bytes).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

// Else a copy would go on of which nobody knows any more.
fn end_with_this(command: &mut Command) {
    // SAFETY: between fork and exec only prctl is called, which is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
            Ok(())
        });
    }
}
