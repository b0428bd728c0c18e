//! `corehold node`, `token`, `drain`: nodes that come and go.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use corehold::entry::{self, Joiner};
use corehold::wire::JoinToken;

use super::{Failure, out};

/// Be a node of a cluster whose head runs already
///
/// With a token (`corehold token` at the head) of any such cluster: its keys are made here, in its state folder, and the head
/// signs them. Started again, it finds them there. Without, of the cluster whose file and keys are here.
#[derive(Args)]
pub(super) struct Node {
    /// Its name in the cluster's file; with a token any that is free: this machine's unless given
    name: Option<String>,
    /// The same
    #[arg(long = "name", conflicts_with = "name", value_name = "NAME")]
    named: Option<String>,
    /// The head's address
    #[arg(long, value_name = "HEAD")]
    join: SocketAddr,
    /// The cluster's file; its keys must be beside it, as on the head's machine
    #[arg(long, default_value = "cluster.toml")]
    cluster: PathBuf,
    /// What `corehold token` has printed
    #[arg(long, conflicts_with = "cluster")]
    token: Option<JoinToken>,
    /// A label, such as role=bench; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = label, requires = "token")]
    label: Vec<(String, String)>,
    /// The cores that all its actors share, such as 0-3,8: all that are not held unless given
    #[arg(long, value_parser = cores, requires = "token")]
    cores: Option<Cores>,
    /// The cores that an actor can hold
    #[arg(long, value_parser = cores, requires = "token")]
    held: Option<Cores>,
    /// Its memory, such as 8GiB: nine tenths of what the machine has unless given
    #[arg(long, requires = "token")]
    memory: Option<String>,
    /// Where it listens: any free port of the address that leads to the head unless given
    #[arg(long, requires = "token")]
    listen: Option<SocketAddr>,
    /// The folder of its keys and logs: .corehold-NAME unless given
    #[arg(long, requires = "token")]
    state: Option<PathBuf>,
}

impl Node {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let name = self.name.or(self.named);
        let Some(token) = self.token else {
            let name = name.ok_or(
                "which node of the cluster's file is it? `corehold node NAME --join HEAD`; or, with a token from \
                 `corehold token`, `corehold node --join HEAD --token TOKEN`",
            )?;
            entry::node(&self.cluster, &name, self.join)?;
            return Ok(ExitCode::SUCCESS);
        };
        let name = match name {
            Some(name) => name,
            None => host_name()?,
        };
        let state = self.state;
        let joiner = Joiner {
            state: state.unwrap_or_else(|| format!(".corehold-{name}").into()),
            name,
            head: self.join,
            token,
            listen: self.listen,
            labels: self.label,
            cores: self.cores.map(|cores| cores.0),
            held: self.held.map(|cores| cores.0).unwrap_or_default(),
            memory: self.memory,
        };
        entry::join_cluster(&joiner)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn host_name() -> Result<String, Failure> {
    let text = std::fs::read_to_string("/proc/sys/kernel/hostname").map_err(|e| {
        format!("this machine's name is not to be had ({e}); give the node one with --name")
    })?;
    Ok(text.trim().to_owned())
}

fn label(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let (key, value) = pair.ok_or_else(|| format!("`{text}` is no label; write KEY=VALUE"))?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Numbers of cores, as the kernel writes them.
#[derive(Clone, Debug)]
struct Cores(Vec<u32>);

fn cores(text: &str) -> Result<Cores, String> {
    let wrong = || format!("`{text}` names no cores; write numbers and ranges, such as 0-3,8");
    let number = |text: &str| text.trim().parse::<u32>().ok().filter(|n| *n < 8_192);
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let range = number(first).zip(number(last)).ok_or_else(wrong)?;
        cores.extend(range.0..=range.1);
    }
    match cores.is_empty() {
        true => Err(wrong()),
        false => Ok(Cores(cores)),
    }
}

/// Make a join token: with it another machine's node can join, without the cluster's file or keys
#[derive(Args)]
pub(super) struct Token {
    /// How long it is valid, such as 15m or 24h
    #[arg(long, default_value = "1h", value_parser = duration)]
    expires: Duration,
    /// How many nodes it lets in
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    uses: u32,
    /// The cluster's file
    #[arg(long, default_value = "cluster.toml")]
    cluster: PathBuf,
    /// For programs
    #[arg(long)]
    json: bool,
}

impl Token {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let (token, head) = entry::token(&self.cluster, self.expires, self.uses)?;
        if self.json {
            let json = serde_json::json!({ "token": token, "head": head.to_string() });
            out::line(json)?;
            return Ok(ExitCode::SUCCESS);
        }
        let (uses, minutes) = (self.uses, self.expires.as_secs() / 60);
        let nodes = if uses == 1 {
            "one node"
        } else {
            "so many nodes"
        };
        out::line(format_args!(
            "{token}\n\nA secret that lets {nodes} in ({uses}), for {minutes} min. On the new machine, with this program:\n  \
             corehold node --join {head} --token {token}"
        ))?;
        if head.ip().is_loopback() {
            out::line(format_args!(
                "\nThe head listens on {head}: no other machine reaches that. Set `listen` in [cluster] to an address of the \
                 network first."
            ))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Empty a node of its actors, and let it leave the cluster
///
/// Actors that can move (detached, or with a restart policy) finish the messages in their hands and go on elsewhere;
/// what waits in their mailboxes goes with them. The others are waited for until the deadline, and then ended.
#[derive(Args)]
pub(super) struct Drain {
    /// The node's name, as `corehold status` shows it
    node: String,
    /// How long its actors may take, such as 60s or 10m
    #[arg(long, default_value = "60s", value_parser = duration)]
    deadline: Duration,
    /// Let it stay, where it drains and has not left yet
    #[arg(long, conflicts_with = "deadline")]
    cancel: bool,
    /// The cluster's file
    #[arg(long, default_value = "cluster.toml")]
    cluster: PathBuf,
}

impl Drain {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let node = &self.node;
        let within = (!self.cancel).then_some(self.deadline);
        entry::drain(&self.cluster, node, within)?;
        match self.cancel {
            true => out::line(format_args!("node {node} stays"))?,
            false => out::line(format_args!(
                "node {node} has left; it is back when it is started again by hand: corehold node {node} --join HEAD (and --token \
                 where it joined by one)"
            ))?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A number of seconds, minutes or hours.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong =
        || format!("`{text}` is no time; write seconds, minutes or hours, such as 60s, 10m or 2h");
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[number.len()..] {
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        _ => return Err(wrong()),
    };
    let seconds = number.parse::<f64>().map_err(|_| wrong())? * unit;
    // A year is as good as for ever.
    match (0.0..=31_557_600.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err(wrong()),
    }
}
