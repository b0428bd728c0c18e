//! Which processes a node needs to know of to start an actor: those that have its program, and the driver that
//! wants its log.

use std::net::SocketAddr;

use super::Head;
use super::peers::PeerId;
use crate::build_id::build_id;
use crate::cluster::{Owner, StartOrder};
use crate::control::{PeerRole, Ways};
use crate::ids::ActorId;

// Processes that a node may ask for a program, one after the other.
const MOST: usize = 4;
// Actors that own each other in a row; more than this are not followed to their driver.
const DEEPEST: usize = 64;

impl Head<'_> {
    /// The build of a peer, where it is not the nodes' own.
    pub(super) fn program_of(&self, peer: PeerId) -> Option<String> {
        let build = &self.peers.get(&peer)?.build;
        (*build != build_id()).then(|| build.clone())
    }

    pub(super) fn ways(&self, order: &StartOrder) -> Ways {
        let driver = self.driver_of(order.actor);
        let is_its =
            |role: &PeerRole| matches!(role, PeerRole::Driver { id, .. } if Some(*id) == driver);
        let logs = self.peers.values().find_map(|peer| match &peer.role {
            PeerRole::Driver { logs: true, .. } if is_its(&peer.role) => Some(peer.address),
            _ => None,
        });
        let Some(program) = &order.program else {
            return Ways {
                logs,
                ..Ways::default()
            };
        };
        let mut programs: Vec<(u8, PeerId, SocketAddr)> = self
            .peers
            .iter()
            .filter(|(_, peer)| peer.build == *program)
            // The worker of its last life is dead, though its connection may not have ended yet.
            .filter(|(_, peer)| !matches!(&peer.role, PeerRole::Worker { actor, .. } if *actor == order.actor))
            .map(|(id, peer)| {
                // Drivers have the program from where it was built; workers had it sent.
                let rank = match &peer.role {
                    role if is_its(role) => 0,
                    PeerRole::Driver { .. } => 1,
                    _ => 2,
                };
                (rank, *id, peer.address)
            })
            .collect();
        programs.sort_unstable();
        programs.truncate(MOST);
        Ways {
            programs: programs.into_iter().map(|(.., address)| address).collect(),
            logs,
        }
    }

    /// The driver to which an actor belongs, by way of whatever actors.
    fn driver_of(&self, mut actor: ActorId) -> Option<u64> {
        for _ in 0..DEEPEST {
            match self.state.directory().get(actor)?.spawn.owner {
                Owner::Driver(driver) => return Some(driver),
                Owner::Actor(parent) => actor = parent,
                Owner::Detached => return None,
            }
        }
        None
    }
}
