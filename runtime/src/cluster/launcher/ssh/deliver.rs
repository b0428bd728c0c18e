//! How a node comes to its host: a look at that, the program, the keeper with its order.

use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::sync::oneshot;

use super::attempt::{Attempt, Line};
use super::call;
use super::error::{SshError, Tried};
use super::record::{Record, remove};
use super::script::Place;
use super::{LaunchEvent, MARK};
use crate::error::Result;
use crate::node::keeper::Order;

// The end of a log that is looked at for what went wrong.
const LAST_BYTES: u64 = 4 << 10;

impl Attempt {
    pub(super) async fn prepare(&self) -> Result<Line, SshError> {
        let (shared, host) = (&self.shared, &self.host);
        let program = shared.program().await?;
        let record = self.record(&program.hash);
        let other = |said: String| SshError::Other {
            host: host.clone(),
            step: self.step(),
            said,
        };
        let place = record.place();
        self.pending(format!("looking at {host}")).await;
        let tried = |step| Tried {
            host,
            step,
            folder: &shared.config.folder,
            size: program.size,
        };
        let _turn = shared
            .copies
            .acquire()
            .await
            .map_err(|e| other(e.to_string()))?;
        let said = call::run(&shared.config, host, &place.look(), Stdio::null()).await?;
        if said.status != Some(0) {
            return Err(tried(self.step()).failed(said.status, &said.stderr));
        }
        let facts = Facts::of(&said.stdout);
        let wants = format!("Linux {}", std::env::consts::ARCH);
        if facts.system != wants {
            return Err(SshError::OtherMachine {
                host: host.clone(),
                has: facts.system,
                wants,
            });
        }
        self.write_down(&record)
            .await
            .map_err(|e| other(e.to_string()))?;
        if facts.has.as_deref() != Some(program.hash.as_str()) {
            self.is_at("taking the program");
            let mib = program.size >> 20;
            if facts.free.is_some_and(|free| free < program.size >> 10) {
                let said = format!("{} MiB are free", facts.free.unwrap_or_default() >> 10);
                return Err(SshError::NoSpace {
                    host: host.clone(),
                    folder: shared.config.folder.clone(),
                    wants: mib,
                    said,
                });
            }
            self.pending(format!("copying the program ({mib} MiB) to {host}"))
                .await;
            let script = place.take(program.size);
            let said = call::run(&shared.config, host, &script, program.input()?).await?;
            if said.status != Some(0) {
                return Err(tried(self.step()).failed(said.status, &said.stderr));
            }
            tracing::info!(%host, hash = %program.hash, mib, "copied the program");
        }
        self.is_at("starting the node");
        self.start(&place, tried(self.step())).await
    }

    async fn start(&self, place: &Place<'_>, tried: Tried<'_>) -> Result<Line, SshError> {
        let (shared, host) = (&self.shared, &self.host);
        let other = |said: String| SshError::Other {
            host: host.clone(),
            step: tried.step,
            said,
        };
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(&self.log);
        let log = log.map_err(|e| other(format!("{}: {e}", self.log.display())))?;
        let log_from = log.metadata().map_or(0, |log| log.len());
        let mut ssh = call::ssh(&shared.config, host, &place.start());
        // Not with a head that is killed: the log goes on.
        ssh.stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true);
        let mut ssh = call::start(ssh, &shared.config)?;
        let order = self.order(place).await?;
        if let Some(mut input) = ssh.stdin.take() {
            // An error is ssh's end, of which its exit status tells more.
            let _ = input.write_all(order.as_bytes()).await;
        }
        let stdout = ssh
            .stdout
            .take()
            .ok_or_else(|| other("it has no output".to_owned()))?;
        let mut words = BufReader::new(stdout).lines();
        while let Ok(Some(line)) = words.next_line().await {
            let Some(word) = line.strip_prefix(MARK) else {
                continue;
            };
            if word.starts_with("started ") {
                self.pending(format!("started on {host}; it has not joined yet"))
                    .await;
                return Ok(Line { ssh, words });
            }
            let host = host.clone();
            if let Some(said) = word.strip_prefix("taken ") {
                let said = said.to_owned();
                return Err(SshError::Taken { host, said });
            }
            if let Some(why) = word.strip_prefix("ended ") {
                let (why, log) = (why.to_owned(), self.log.display().to_string());
                return Err(SshError::NotJoined { host, why, log });
            }
        }
        let status = ssh.wait().await.ok().and_then(|status| status.code());
        Err(tried.failed(status, &last_of(&self.log, log_from)))
    }

    /// What the keeper is told, as one line.
    async fn order(&self, place: &Place<'_>) -> Result<String, SshError> {
        let shared = &self.shared;
        let no_token = |why: String| SshError::NoToken {
            host: self.host.clone(),
            why,
        };
        let (reply, token) = oneshot::channel();
        let wants = LaunchEvent::WantsToken {
            name: self.node.name.clone(),
            valid: shared.config.start_timeout,
            reply,
        };
        let gone = "the head ends";
        let asked = shared.events.send(wants).await;
        asked.map_err(|_| no_token(gone.to_owned()))?;
        let token = token.await.map_err(|_| no_token(gone.to_owned()))?;
        let listen = self.node.listen;
        let order = Order {
            token: token.map_err(no_token)?.to_string(),
            head: shared.head,
            name: self.node.name.clone(),
            listen,
            node: self.node.to_toml(listen).to_string(),
            timeline: shared.timeline,
            program: (!shared.config.keep_program).then(|| place.hash.to_owned()),
        };
        serde_json::to_string(&order).map_err(|e| no_token(e.to_string()))
    }

    async fn pending(&self, what: String) {
        let name = self.node.name.clone();
        let _ = self
            .shared
            .events
            .send(LaunchEvent::Pending { name, what })
            .await;
    }

    pub(super) fn step(&self) -> &'static str {
        *self.step.lock().expect("no panic while held")
    }

    fn is_at(&self, step: &'static str) {
        *self.step.lock().expect("no panic while held") = step;
    }

    fn record(&self, hash: &str) -> Record {
        Record {
            host: self.host.clone(),
            folder: self.shared.config.folder.clone(),
            place: self.place.clone(),
            hash: hash.to_owned(),
            keep_program: self.shared.config.keep_program,
        }
    }

    /// SH-1. What an earlier attempt has left there of another program goes first: nobody would know of it after this.
    async fn write_down(&self, record: &Record) -> Result<()> {
        let (state, name) = (&self.shared.state, &self.node.name);
        if let Some(earlier) = Record::read(state, name).filter(|earlier| earlier != record) {
            remove(&self.shared, name, &earlier).await;
        }
        record.write(state, name)
    }
}

/// What a host says of itself.
struct Facts {
    system: String,
    /// KiB.
    free: Option<u64>,
    has: Option<String>,
}

impl Facts {
    fn of(text: &str) -> Self {
        let word = |key: &str| {
            let mut words = text.lines().filter_map(|line| line.strip_prefix(MARK));
            words.find_map(|word| Some(word.strip_prefix(key)?.trim().to_owned()))
        };
        Self {
            system: word("system ").unwrap_or_else(|| "of a kind that it does not say".to_owned()),
            free: word("free ").and_then(|free| free.parse().ok()),
            // Without `sha256sum` there, the program is copied each time.
            has: word("has ").and_then(|has| has.split_whitespace().next().map(str::to_owned)),
        }
    }
}
/// The end of the log's part that begins there.
fn last_of(log: &Path, from: u64) -> String {
    use std::io::{Read as _, Seek as _};
    let read = || {
        let mut file = std::fs::File::open(log)?;
        let len = file.metadata()?.len();
        file.seek(std::io::SeekFrom::Start(
            from.max(len.saturating_sub(LAST_BYTES)),
        ))?;
        let mut bytes = Vec::new();
        file.take(LAST_BYTES).read_to_end(&mut bytes)?;
        Ok::<_, std::io::Error>(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}
