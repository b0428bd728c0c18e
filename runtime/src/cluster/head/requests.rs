//! What processes ask the head.

use super::peers::PeerId;
use super::{Head, HeadEvent};
use crate::cluster::{ActorEvent, ActorState, DriverEvent};
use crate::control::{FromHead, PeerRole, Request, Response};
use crate::ids::ActorId;
use crate::observe::Status;

/// Whom to answer when an actor's state changes.
pub(super) struct Waiter {
    pub peer: PeerId,
    number: u64,
    wish: Wish,
}

/// What a peer waits to hear of an actor.
#[derive(Clone, Copy)]
enum Wish {
    /// That it lives, in a later life than this.
    Life { after: u32 },
    /// What comes after this life.
    AfterLife { incarnation: u32 },
    /// That it is dead, or as good as that: its node was told to use force.
    End,
}

impl Head<'_> {
    pub(super) fn request(&mut self, peer: PeerId, number: u64, request: Request) {
        let response = match request {
            Request::Spawn(spawn) => {
                let waiter = Waiter {
                    peer,
                    number,
                    wish: Wish::Life { after: 0 },
                };
                self.waiting.entry(spawn.actor).or_default().push(waiter);
                self.handle(HeadEvent::Actor(ActorEvent::Spawn(*spawn)));
                return;
            }
            Request::Locate { actor, after } => {
                self.wait(peer, number, actor, Wish::Life { after });
                return;
            }
            Request::AfterLife { actor, incarnation } => {
                self.wait(peer, number, actor, Wish::AfterLife { incarnation });
                return;
            }
            Request::Find { name, type_name } => self.find(&name, &type_name),
            Request::Stop { actor } => {
                let by = match self.peers.get(&peer).map(|p| &p.role) {
                    Some(PeerRole::Driver { name, .. }) => format!("driver {name}"),
                    Some(PeerRole::Node(node)) => format!("an actor on {}", node.hello.name),
                    _ => "an operator".to_owned(),
                };
                self.handle(HeadEvent::Actor(ActorEvent::Stop { actor, by }));
                if self.state.directory().get(actor).is_some() {
                    self.wait(peer, number, actor, Wish::End);
                    return;
                }
                Ok(Response::Done)
            }
            Request::Leave => {
                if let Some(PeerRole::Driver { id, .. }) = self.peers.get(&peer).map(|p| &p.role) {
                    let id = *id;
                    self.handle(HeadEvent::Driver(DriverEvent::Left(id)));
                }
                Ok(Response::Done)
            }
            Request::Status => Ok(Response::Status(Box::new(Status::of(
                &self.name,
                &self.state,
                self.now(),
            )))),
        };
        self.tell(peer, FromHead::Response { number, response });
    }

    /// Answers now if it can be, else when the actor's state allows.
    fn wait(&mut self, peer: PeerId, number: u64, actor: ActorId, wish: Wish) {
        let response = match self.state.directory().get(actor) {
            None => Some(Err(format!("this cluster knows no actor {actor}"))),
            Some(record) => self.fulfil(wish, record.incarnation, &record.state).map(Ok),
        };
        match response {
            Some(response) => self.tell(peer, FromHead::Response { number, response }),
            None => {
                let waiter = Waiter { peer, number, wish };
                self.waiting.entry(actor).or_default().push(waiter);
            }
        }
    }

    /// An actor's state has changed: answers whom that answers.
    pub(super) fn answer_waiting(&mut self, actor: ActorId, incarnation: u32, state: &ActorState) {
        let Some(waiting) = self.waiting.remove(&actor) else {
            return;
        };
        let mut left = Vec::new();
        for waiter in waiting {
            match self.fulfil(waiter.wish, incarnation, state) {
                Some(response) => {
                    let number = waiter.number;
                    let response = Ok(response);
                    self.tell(waiter.peer, FromHead::Response { number, response });
                }
                None => left.push(waiter),
            }
        }
        if !left.is_empty() {
            self.waiting.insert(actor, left);
        }
    }

    /// There will be no such actor.
    pub(super) fn refuse_waiting(&mut self, actor: ActorId, why: &str) {
        for waiter in self.waiting.remove(&actor).unwrap_or_default() {
            let word = FromHead::Response {
                number: waiter.number,
                response: Err(why.to_owned()),
            };
            self.tell(waiter.peer, word);
        }
    }

    fn fulfil(&self, wish: Wish, incarnation: u32, state: &ActorState) -> Option<Response> {
        match (wish, state) {
            (Wish::End, ActorState::Dead { .. } | ActorState::Stopping { forced: true, .. }) => {
                Some(Response::Done)
            }
            (Wish::End, _) => None,
            (_, ActorState::Dead { cause, .. }) => Some(Response::Dead(cause.clone())),
            (Wish::Life { after }, ActorState::Alive { node, .. }) if incarnation > after => {
                self.at(*node, incarnation)
            }
            (Wish::Life { .. }, _) => None,
            (Wish::AfterLife { incarnation: over }, state) => {
                let goes_on = incarnation == over && state.node().is_some();
                (!goes_on).then_some(Response::Restarts)
            }
        }
    }

    fn find(&self, name: &str, type_name: &str) -> Result<Response, String> {
        let record = self
            .state
            .directory()
            .lookup(name)
            .map_err(|e| e.to_string())?;
        let is = &record.spawn.demand.actor_type;
        if is != type_name {
            return Err(format!(
                "the actor named `{name}` is a {is}, not a {type_name}"
            ));
        }
        Ok(Response::Found(record.spawn.actor))
    }
}
