//! A node that a launcher started on this machine: all that it needs to know comes on standard input.

use std::io::Read as _;
use std::net::SocketAddr;
use std::path::Path;

use toml::{Table, Value};

use super::join::{Applied, apply, own_address};
use crate::cluster::ClusterConfig;
use crate::cluster::state_dir::StateDir;
use crate::error::{Error, Result};
use crate::node::keeper::{self, Order};
use crate::wire::Identity;

/// Joins as the order on standard input says, with its folder at `root`, and is that node until it ends.
pub(super) async fn run(root: &Path) -> Result<()> {
    let joined = join(root).await;
    if let Err(e) = &joined {
        keeper::tell_why(root, &e.to_string());
    }
    let (config, name, head) = joined?;
    let ended = crate::node::run(config, &name, head).await;
    if let Err(e) = &ended {
        keeper::tell_why(root, &e.to_string());
    }
    ended
}

async fn join(root: &Path) -> Result<(ClusterConfig, String, SocketAddr)> {
    let mut text = String::new();
    let order = std::io::stdin().lock().read_to_string(&mut text);
    let order = order.and_then(|_| Ok(serde_json::from_str(&text)?));
    let order: Order =
        order.map_err(|e| Error::Misuse(format!("the order is not understood: {e}")))?;
    let token = order
        .token
        .parse()
        .map_err(|e| Error::Misuse(format!("{e}")))?;
    let listen = match order.listen.ip().is_unspecified() {
        true => SocketAddr::new(own_address(order.head)?, order.listen.port()),
        false => order.listen,
    };
    let file = root.join("cluster.toml");
    // What this machine has not must not cost the token.
    let trial = describe(&order, root, listen, None)?;
    super::join::check(&ClusterConfig::parse(&trial, &file)?)?;
    let (admission, key) = apply(&Applied {
        head: order.head,
        token: &token,
        name: &order.name,
    })
    .await?;
    Identity::store(
        &root.join("keys"),
        &admission.ca_pem,
        &admission.cert_pem,
        &key,
    )?;
    let text = describe(&order, root, listen, Some(&admission))?;
    super::join::write(&file, &text)?;
    let config = ClusterConfig::parse(&text, &file)?;
    StateDir::of(&config).create()?;
    Ok((config, order.name, order.head))
}

/// The node's own cluster file, which its workers read.
fn describe(
    order: &Order,
    root: &Path,
    listen: SocketAddr,
    admission: Option<&crate::wire::Admission>,
) -> Result<String> {
    let wrong = |e: &dyn std::fmt::Display| {
        Error::Misuse(format!("the node's description is not understood: {e}"))
    };
    let mut node: Table = toml::from_str(&order.node).map_err(|e| wrong(&e))?;
    node.insert("listen".to_owned(), listen.to_string().into());
    let mut cluster = Table::new();
    cluster.insert("listen".to_owned(), order.head.to_string().into());
    cluster.insert("state".to_owned(), root.display().to_string().into());
    if let Some(admission) = admission {
        let seconds = |time: std::time::Duration| Value::Float(time.as_secs_f64());
        cluster.insert("name".to_owned(), admission.cluster.clone().into());
        cluster.insert("head_lease_s".to_owned(), seconds(admission.head_lease));
        cluster.insert("drain_s".to_owned(), seconds(admission.drain));
    }
    let mut observe = Table::new();
    observe.insert("timeline".to_owned(), order.timeline.into());
    // Whoever runs the cluster has allowed it there, or the address is no other than this machine's.
    observe.insert("expose".to_owned(), true.into());
    let mut file = Table::new();
    file.insert("cluster".to_owned(), Value::Table(cluster));
    file.insert("observe".to_owned(), Value::Table(observe));
    file.insert("node".to_owned(), Value::Array(vec![Value::Table(node)]));
    toml::to_string(&file).map_err(|e| wrong(&e))
}
