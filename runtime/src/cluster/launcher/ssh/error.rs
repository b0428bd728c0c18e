//! What goes wrong with a host, told apart by what ssh and the host say, with what to do.

use std::time::Duration;

/// Why a node could not be launched by ssh.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(super) enum SshError {
    /// There is no ssh here.
    #[error(
        "cannot start `{command}`: {why}; install an ssh client, or name one by `command` in [launcher.ssh]"
    )]
    NoSsh { command: String, why: String },
    /// The program that is to be copied.
    #[error("cannot read the program {path}: {why}; `program` in [launcher.ssh] names it")]
    Program { path: String, why: String },
    /// No connection.
    #[error("{host} cannot be reached: {said}; is it up, and does `ssh {host} true` work here?")]
    Unreachable { host: String, said: String },
    /// The user may not log in.
    #[error(
        "{host} lets nobody in with the keys that ssh offers: {said}; passwords are not asked for: have `ssh -o \
         BatchMode=yes {host} true` work first (a key in the agent, or `IdentityFile` in ssh's configuration)"
    )]
    KeyRefused { host: String, said: String },
    /// Nobody knows that it is the right machine.
    #[error(
        "the identity of {host} is not known or has changed: {said}; look at its key, and log in once by hand (`ssh \
         {host}`), which writes it to known_hosts"
    )]
    HostKey { host: String, said: String },
    /// Another kind of machine.
    #[error(
        "{host} is {has}, and the program is for {wants}: build it for that, and name it by `program` in [launcher.ssh]"
    )]
    OtherMachine {
        host: String,
        has: String,
        wants: String,
    },
    /// The disk is full.
    #[error(
        "{host} has no room for the program ({wants} MiB) in {folder}: {said}; make room, or set `folder` in \
         [launcher.ssh] to another disk"
    )]
    NoSpace {
        host: String,
        folder: String,
        wants: u64,
        said: String,
    },
    /// The folder cannot be used.
    #[error(
        "{host} cannot use the folder {folder}: {said}; set `folder` in [launcher.ssh] to one that can be written"
    )]
    Folder {
        host: String,
        folder: String,
        said: String,
    },
    /// The program is there and does not run.
    #[error(
        "the program does not run on {host}: {said}; name one that does by `program` in [launcher.ssh] (a node that only \
         measures needs none of torch's libraries), or set `folder` to a disk that programs may be run from"
    )]
    CannotRun { host: String, said: String },
    /// A node of this name is there already.
    #[error("on {host}, {said}; it ends by itself when it has had no head for `head_lease_s`")]
    Taken { host: String, said: String },
    /// The node did not become one.
    #[error("the node on {host} ended before it had joined: {why} (log: {log})")]
    NotJoined {
        host: String,
        why: String,
        log: String,
    },
    /// It takes too long.
    #[error(
        "{host} was not done with {step} after {} s; `start_timeout_s` in [launcher.ssh] gives it more (log: {log})",
        within.as_secs()
    )]
    TimedOut {
        host: String,
        step: &'static str,
        within: Duration,
        log: String,
    },
    /// The head does not let it in.
    #[error("no token for the node on {host}: {why}")]
    NoToken { host: String, why: String },
    /// Anything else.
    #[error("{step} on {host} failed: {said}")]
    Other {
        host: String,
        step: &'static str,
        said: String,
    },
}

/// What ssh's exit status is when the fault is its own.
pub(super) const SSH_FAILED: i32 = 255;

/// What was tried on a host, and with what.
#[derive(Clone, Copy)]
pub(super) struct Tried<'a> {
    pub host: &'a str,
    pub step: &'static str,
    pub folder: &'a str,
    /// Bytes of the program.
    pub size: u64,
}

impl Tried<'_> {
    /// What an exit status and the last words on standard error mean.
    pub(super) fn failed(&self, status: Option<i32>, stderr: &str) -> SshError {
        let host = self.host.to_owned();
        let said = last_words(stderr);
        let has = |texts: &[&str]| texts.iter().any(|text| stderr.contains(text));
        if status == Some(SSH_FAILED) {
            if has(&["Permission denied (", "Too many authentication failures"]) {
                return SshError::KeyRefused { host, said };
            }
            if has(&[
                "Host key verification failed",
                "HOST IDENTIFICATION HAS CHANGED",
                "host key is known",
            ]) {
                return SshError::HostKey { host, said };
            }
            return SshError::Unreachable { host, said };
        }
        let folder = self.folder.to_owned();
        if has(&["No space left on device", "Disk quota exceeded"]) {
            let wants = self.size >> 20;
            return SshError::NoSpace {
                host,
                folder,
                wants,
                said,
            };
        }
        match status {
            Some(NO_FOLDER) => SshError::Folder { host, folder, said },
            Some(126 | 127) => SshError::CannotRun { host, said },
            _ => SshError::Other {
                host,
                step: self.step,
                said: match status {
                    _ if !said.is_empty() => said,
                    Some(status) => format!("exit status {status}"),
                    None => "its ssh was killed".to_owned(),
                },
            },
        }
    }
}

/// The exit status of a script that has no folder.
pub(super) const NO_FOLDER: i32 = 73;

/// The last lines, as one.
fn last_words(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines: Vec<&str> = lines.collect();
    lines[lines.len().saturating_sub(3)..].join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ssh_says_is_told_apart() {
        let tried = Tried {
            host: "me@far",
            step: "looking",
            folder: "x",
            size: 5 << 20,
        };
        let of = |status, text: &str| tried.failed(Some(status), text).to_string();
        let table = [
            (
                255,
                "ssh: connect to host far port 22: Connection refused\n",
                "cannot be reached",
            ),
            (
                255,
                "ssh: Could not resolve hostname far: Name or service not known",
                "cannot be reached",
            ),
            (
                255,
                "me@far: Permission denied (publickey).",
                "lets nobody in",
            ),
            (255, "Host key verification failed.", "identity of me@far"),
            (
                74,
                "cat: write error: No space left on device",
                "no room for the program (5 MiB)",
            ),
            (
                73,
                "mkdir: cannot create directory 'x': Read-only file system",
                "cannot use the folder x",
            ),
            (
                126,
                "sh: 1: exec: nodes/a/program: Permission denied",
                "does not run on me@far",
            ),
            (
                127,
                "error while loading shared libraries: libtorch_cpu.so",
                "does not run on me@far",
            ),
            (5, "", "looking on me@far failed: exit status 5"),
        ];
        for (status, text, what) in table {
            let said = of(status, text);
            assert!(said.contains(what), "{status} {text}: {said}");
            assert!(text.is_empty() || said.contains(text.trim()), "{said}");
        }
    }
}
