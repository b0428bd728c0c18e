//! Orders to a cluster that is up.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::{absolute, in_system, join};
use crate::cluster::client::Cluster;
use crate::cluster::{ClusterConfig, Owner};
use crate::control::{PeerRole, Request, Response};
use crate::error::{Error, Result};

/// Drains node `node` of the cluster of the file `config`, as [`Cluster::drain`] does; without a time, lets it stay.
///
/// # Errors
/// [`Error::NotUp`] where there is none; else those of [`Cluster::drain`] and [`Cluster::cancel_drain`].
pub fn drain(config: &Path, node: &str, within: Option<Duration>) -> Result<()> {
    let loaded = ClusterConfig::load(absolute(config)?)?;
    in_system(async {
        join(&loaded, PeerRole::Client).await?;
        let cluster = Cluster::of(Owner::Detached);
        match within {
            Some(within) => cluster.drain(node, within).await,
            None => cluster.cancel_drain(node).await,
        }
    })
}

/// Makes a join token of the cluster of the file `config`: with it, `uses` nodes can join ([`join_cluster`](super::join_cluster))
/// within the time `expires`. Gives its text, and the head's address. It is a secret; a head that starts again forgets it.
///
/// # Errors
/// [`Error::NotUp`] where there is none; [`Error::Refused`] where its head cannot let anybody in.
pub fn token(config: &Path, expires: Duration, uses: u32) -> Result<(String, SocketAddr)> {
    let loaded = ClusterConfig::load(absolute(config)?)?;
    in_system(async {
        let process = join(&loaded, PeerRole::Client).await?;
        let request = Request::Token { expires, uses };
        match process.head.request(request).await? {
            Ok(Response::Token { text, head }) => Ok((text, head)),
            Ok(other) => Err(Error::Refused(format!("the head answered {other:?}"))),
            Err(why) => Err(Error::Refused(why)),
        }
    })
}

/// Gives the pool of this name in the cluster of the file `config` so many members, or with `None` has it choose again.
///
/// # Errors
/// [`Error::NotUp`] where there is no cluster, [`Error::NotFound`] where there is no such pool or too many are wanted.
pub fn scale(config: &Path, pool: &str, size: Option<u32>) -> Result<()> {
    let loaded = ClusterConfig::load(absolute(config)?)?;
    in_system(async {
        join(&loaded, PeerRole::Client).await?;
        Cluster::of(Owner::Detached).scale(pool, size).await
    })
}
