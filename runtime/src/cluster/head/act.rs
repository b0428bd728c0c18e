//! What the head's decisions have done: orders to nodes, answers to who waits, words in the log.

use super::Head;
use crate::cluster::{ActorAction, HeadAction, MemberAction};
use crate::control::FromHead;
use crate::observe::timeline;

impl Head<'_> {
    /// Carries the actions out, in their order.
    pub(super) fn act(&mut self, actions: Vec<HeadAction>) {
        for action in actions {
            match action {
                HeadAction::Node(MemberAction::Lost { node, name, why }) => {
                    tracing::warn!(%name, %why, "lost a node");
                    timeline::mark(None, format!("lost node {name}: {why}"));
                    self.not_drained(&name, &why);
                    self.node_gone(node, name, why);
                }
                HeadAction::Node(MemberAction::Left { node, name }) => {
                    timeline::mark(None, format!("node {name} left"));
                    self.left(node, &name);
                    self.node_gone(node, name, "it left".to_owned());
                }
                HeadAction::Node(MemberAction::Draining { node, on }) => self.drains(node, on),
                HeadAction::Node(MemberAction::Emptied(node)) => self.dismiss(node),
                HeadAction::Node(_) => {}
                HeadAction::Actor(ActorAction::Start(order)) => {
                    let ways = self.ways(&order);
                    self.tell_node(order.node, FromHead::Start(Box::new(order), ways));
                }
                HeadAction::Actor(ActorAction::Stop {
                    node,
                    actor,
                    incarnation,
                    force,
                }) => self.tell_node(
                    node,
                    FromHead::Stop {
                        actor,
                        incarnation,
                        force,
                    },
                ),
                HeadAction::Actor(ActorAction::Update {
                    actor,
                    incarnation,
                    state,
                }) => self.answer_waiting(actor, incarnation, &state),
                HeadAction::Actor(ActorAction::Group { group, state }) => {
                    self.answer_group(group, &state);
                }
                HeadAction::Actor(ActorAction::SpawnRefused { actor, why }) => {
                    self.refuse_waiting(actor, &why.to_string());
                }
                HeadAction::Pool(action) => self.act_for_pool(action),
            }
        }
    }
}
