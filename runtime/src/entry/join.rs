//! A node that is not in the cluster's file joins by a token.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{absolute, allow_many_files, in_system};
use crate::build_id::build_id;
use crate::cluster::ClusterConfig;
use crate::cluster::state_dir::StateDir;
use crate::error::{Error, Result};
use crate::node;
use crate::observe::log_to_stderr;
use crate::wire::{
    Admission, Applicant, Identity, JoinRequest, JoinToken, PROTOCOL, ask_admission,
};

/// A node that wants to join.
#[derive(Clone, Debug)]
pub struct Joiner {
    /// Its name: no other node of the cluster has it.
    pub name: String,
    /// The head's address.
    pub head: SocketAddr,
    /// The token. It is not looked at where the node has a certificate of the token's cluster already.
    pub token: JoinToken,
    /// The folder of its keys, logs and state; made where it is not there. One for each node.
    pub state: PathBuf,
    /// Where it listens (UDP); `None`: any free port of the address that the head is reached from.
    pub listen: Option<SocketAddr>,
    /// Labels.
    pub labels: Vec<(String, String)>,
    /// The cores that it shares among its actors; `None`: all that are not held.
    pub cores: Option<Vec<u32>>,
    /// The cores that actors may hold.
    pub held: Vec<u32>,
    /// Memory, as in the cluster's file (`8GiB`); `None`: nine tenths of what the machine has.
    pub memory: Option<String>,
}

/// Joins a cluster that is up, and is its node until it is drained, the cluster ends, or it has had no head for too long.
/// The node's private key is made in `joiner.state` and leaves it never; the head signs its certificate. A node that ended is started
/// again by the same call: it needs no other token.
///
/// # Errors
/// Where the head is out of reach, is another cluster's, or does not take the token; where this machine has not what the
/// node is to have.
pub fn join_cluster(joiner: &Joiner) -> Result<()> {
    log_to_stderr();
    allow_many_files();
    let state = absolute(&joiner.state)?;
    let file = state.join("cluster.toml");
    let keys = state.join("keys");
    let known = Identity::load(&keys).is_ok_and(|id| id.fingerprint() == joiner.token.ca);
    if !known || !file.exists() {
        // What this machine has not, or nobody can read, must not cost a token.
        let trial = describe(joiner, &state, "trial", Duration::ZERO, Duration::ZERO)?;
        check(&ClusterConfig::parse(&trial, &file)?)?;
        let (admission, key) = in_system(apply(&Applied {
            head: joiner.head,
            token: &joiner.token,
            name: &joiner.name,
        }))?;
        Identity::store(&keys, &admission.ca_pem, &admission.cert_pem, &key)?;
        let Admission {
            cluster,
            head_lease,
            drain,
            ..
        } = &admission;
        let text = describe(joiner, &state, cluster, *head_lease, *drain)?;
        write(&file, &text)?;
        tracing::info!(cluster = %admission.cluster, "let in by the token");
    }
    let config = ClusterConfig::load(&file)?;
    check(&config)?;
    StateDir::of(&config).create()?;
    in_system(node::run(config, &joiner.name, joiner.head))
}

pub(super) fn check(config: &ClusterConfig) -> Result<()> {
    let facts = node::discover().map_err(|e| Error::Refused(e.to_string()))?;
    Ok(config.validate(&facts)?)
}

/// Who wants a certificate, and where.
pub(super) struct Applied<'a> {
    pub head: SocketAddr,
    pub token: &'a JoinToken,
    pub name: &'a str,
}

/// Asks for a certificate; gives it, and the private key that was made for it.
pub(super) async fn apply(applied: &Applied<'_>) -> Result<(Admission, String)> {
    let Applicant { key_pem, csr } = Applicant::new()?;
    let request = JoinRequest {
        protocol: PROTOCOL,
        build: build_id(),
        secret: applied.token.secret.clone(),
        name: applied.name.to_owned(),
        csr,
    };
    let admission = ask_admission(applied.head, applied.token.ca, request).await;
    Ok((admission.map_err(Error::Refused)?, key_pem))
}

/// The node's own cluster file: its workers read it, and so does who starts it again.
fn describe(
    joiner: &Joiner,
    state: &Path,
    cluster: &str,
    head_lease: Duration,
    drain: Duration,
) -> Result<String> {
    let listen = match joiner.listen {
        Some(listen) => listen,
        None => SocketAddr::new(own_address(joiner.head)?, 0),
    };
    let mut text = String::from(
        "# Written when this node joined. It is read again when the node is started again.\n",
    );
    let mut line = |key: &str, value: String| {
        // A string takes everything.
        let _ = writeln!(text, "{key} = {value}");
    };
    line("[cluster]\nname", quoted(cluster));
    line("listen", quoted(&joiner.head.to_string()));
    line("state", quoted(&state.display().to_string()));
    line("head_lease_s", format!("{:?}", head_lease.as_secs_f64()));
    line("drain_s", format!("{:?}", drain.as_secs_f64()));
    line("\n[[node]]\nname", quoted(&joiner.name));
    line("host", quoted("local"));
    line("listen", quoted(&listen.to_string()));
    let labels = joiner.labels.iter();
    let labels: Vec<_> = labels
        .map(|(key, value)| format!("{} = {}", quoted(key), quoted(value)))
        .collect();
    line("labels", format!("{{ {} }}", labels.join(", ")));
    if let Some(cores) = &joiner.cores {
        line("cores", format!("{cores:?}"));
    }
    line("held", format!("{:?}", joiner.held));
    if let Some(memory) = &joiner.memory {
        line("memory", quoted(memory));
    }
    Ok(text)
}

/// A TOML string.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\U{:08X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// The address of this machine from which `head` is reached. No byte is sent.
pub(super) fn own_address(head: SocketAddr) -> Result<IpAddr> {
    let any: SocketAddr = match head {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0u16; 8], 0).into(),
    };
    let found = UdpSocket::bind(any).and_then(|socket| {
        socket.connect(head)?;
        socket.local_addr()
    });
    found.map(|address| address.ip()).map_err(|e| {
        Error::Refused(format!(
            "no way leads from here to the head at {head}: {e}; check the address and this machine's network"
        ))
    })
}

pub(super) fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|source| Error::Io {
        path: path.to_owned(),
        source,
        advice: "the node's state folder must be writable and its disk have room",
    })
}
