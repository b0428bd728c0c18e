//! Who knocks, and who is let in.

use super::peers::{Peer, PeerId};
use super::{Head, HeadAction, HeadEvent};
use crate::build_id::{RUNTIME_ID, build_id};
use crate::cluster::{DriverEvent, MemberAction, Return};
use crate::control::{FromHead, PeerRole};
use crate::ids::NodeId;
use crate::observe::timeline;
use crate::process::Knock;
use crate::wire::{Hello, PROTOCOL, decode};

/// What a process wants to be, or why it cannot be that here.
fn role_of(hello: &Hello) -> Result<PeerRole, String> {
    if hello.protocol != PROTOCOL {
        return Err(format!(
            "this program speaks protocol {}, the cluster {PROTOCOL}: run one version of corehold everywhere",
            hello.protocol
        ));
    }
    let garbled = |e| format!("its greeting is not understood: {e}");
    let (runtime, role) = hello.introduction().map_err(garbled)?;
    let theirs = &hello.build_id;
    if runtime != RUNTIME_ID {
        return Err(format!(
            "this program (build {theirs}) has other sources of corehold in it ({runtime}) than the cluster \
             ({RUNTIME_ID}): build it with the cluster's, or end the cluster (`corehold down`) and start it with the \
             `corehold` of this program's sources"
        ));
    }
    let role = decode::<PeerRole>(&role).map_err(garbled)?;
    let ours = build_id();
    if matches!(role, PeerRole::Node(_)) && *theirs != ours {
        return Err(format!(
            "this node is build {theirs}, the cluster runs build {ours}: end the cluster (`corehold down`) and start \
             it with this program, or start the node with the cluster's own build"
        ));
    }
    Ok(role)
}

impl Head<'_> {
    /// A process wants to be a member.
    pub(super) fn knock(&mut self, knock: Knock) {
        let role = role_of(&knock.hello);
        let peer = self.next_peer;
        self.next_peer += 1;
        let role = match role {
            Ok(role) => role,
            Err(why) => {
                tracing::warn!(%why, from = %knock.from, "refused a process");
                Peer::start(peer, PeerRole::Client, knock, self.inbox.clone())
                    .send(FromHead::Refused { why });
                return;
            }
        };
        let from = knock.from;
        let started = Peer::start(peer, role.clone(), knock, self.inbox.clone());
        self.peers.insert(peer, started);
        match role {
            PeerRole::Node(back) => self.node_joins(peer, back),
            PeerRole::Driver { id, name, .. } => {
                timeline::mark(None, format!("driver {name} joined"));
                self.process.below.begins(from);
                self.handle(HeadEvent::Driver(DriverEvent::Joined(id)));
                self.welcome(peer, None, true);
            }
            PeerRole::Worker { .. } | PeerRole::Client => self.welcome(peer, None, true),
        }
    }

    fn welcome(&mut self, peer: PeerId, node: Option<NodeId>, again: bool) {
        self.tell(peer, FromHead::Welcome { node, again });
    }

    fn node_joins(&mut self, peer: PeerId, back: Box<Return>) {
        let (name, address) = (back.hello.name.clone(), back.hello.address);
        let heard: Vec<_> = back
            .ended
            .iter()
            .map(|(actor, life, ..)| (*actor, *life))
            .collect();
        let actions = self.state.handle(HeadEvent::Return(back), self.now());
        let joined = actions.iter().find_map(|action| match action {
            HeadAction::Node(MemberAction::Joined { node, .. }) => Some((*node, false)),
            HeadAction::Node(MemberAction::Rejoined(node)) => Some((*node, true)),
            _ => None,
        });
        let Some((node, again)) = joined else {
            return;
        };
        if let Some((before, _)) = self.nodes.insert(node, (peer, address)) {
            // An earlier connection whose end has not been noticed yet: what it says is old.
            self.peers.remove(&before);
        }
        if let Some(p) = self.peers.get_mut(&peer) {
            p.node = Some(node);
        }
        self.launchers.joined(&name);
        self.revoke_launch_token(&name);
        tracing::info!(%name, %node, %address, again, "a node joined");
        timeline::mark(None, format!("node {name} joined"));
        let changes = self.state.take_changes(self.now());
        if !changes.is_empty()
            && let Err(why) = self.writer.write(changes)
        {
            self.ending = Some(why);
            return;
        }
        self.welcome(peer, Some(node), again);
        for (actor, incarnation) in heard {
            self.tell(peer, FromHead::Heard { actor, incarnation });
        }
        self.act(actions);
        self.answer_where(node);
    }
}
