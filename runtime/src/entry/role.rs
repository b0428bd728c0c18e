//! What a process of a cluster is, by its arguments.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::error::{Error, Result};

/// What this process was launched as.
pub(super) enum Role {
    Guard {
        config: PathBuf,
    },
    Head {
        config: PathBuf,
    },
    Node {
        config: PathBuf,
        name: String,
        head: SocketAddr,
    },
    /// Keeps a node that was launched on this machine.
    Keeper {
        state: PathBuf,
    },
    /// Is that node.
    Launched {
        state: PathBuf,
    },
    /// Ends it.
    Reap {
        state: PathBuf,
    },
    /// A process of one actor, started by a node.
    Worker {
        config: PathBuf,
        vitals: i32,
    },
}

impl Role {
    pub(super) fn from_args(args: impl Iterator<Item = String>) -> Option<Result<Self>> {
        let (mut role, mut config, mut name, mut head, mut vitals) = (None, None, None, None, None);
        let mut state = None;
        for arg in args {
            let Some((key, value)) = arg
                .strip_prefix("--corehold-")
                .and_then(|a| a.split_once('='))
            else {
                continue;
            };
            match key {
                "role" => role = Some(value.to_owned()),
                "cluster" => config = Some(PathBuf::from(value)),
                "state" => state = Some(PathBuf::from(value)),
                "name" => name = Some(value.to_owned()),
                "head" => head = value.parse().ok(),
                "vitals" => vitals = value.parse().ok(),
                _ => {}
            }
        }
        let role = role?;
        if let Some(state) = state {
            let role = match role.as_str() {
                "keeper" => Role::Keeper { state },
                "launched" => Role::Launched { state },
                "reap" => Role::Reap { state },
                other => {
                    return Some(Err(Error::Misuse(format!(
                        "no `{other}` has a state folder"
                    ))));
                }
            };
            return Some(Ok(role));
        }
        let role = match (role.as_str(), config, name, head, vitals) {
            ("guard", Some(config), ..) => Ok(Role::Guard { config }),
            ("head", Some(config), ..) => Ok(Role::Head { config }),
            ("node", Some(config), Some(name), Some(head), _) => {
                Ok(Role::Node { config, name, head })
            }
            ("worker", Some(config), .., Some(vitals)) => Ok(Role::Worker { config, vitals }),
            _ => Err(Error::Misuse(
                "a head needs --corehold-cluster=FILE; a node also --corehold-name=NAME and \
                 --corehold-head=ADDRESS"
                    .to_owned(),
            )),
        };
        Some(role)
    }
}
