//! What processes ask the head.

use std::collections::BTreeMap;

use super::peers::PeerId;
use super::{Head, HeadEvent};
use crate::build_id::build_id;
use crate::cluster::{
    ActorEvent, ActorRecord, ActorState, DriverEvent, GroupState, Owner, PoolEvent,
};
use crate::control::{FromHead, PeerRole, Request, Response};
use crate::ids::{ActorId, GroupId, NodeId};
use crate::observe::Why;

// What the head keeps of one actor's state, in bytes.
const MAX_SAVED: usize = 1 << 20;

/// Whom to answer when an actor's state changes.
pub(super) struct Waiter {
    pub peer: PeerId,
    number: u64,
    wish: Wish,
}

/// Whom to answer when the last actor of a group that was ended is dead.
pub(super) struct Ending {
    pub peer: PeerId,
    number: u64,
    left: BTreeMap<ActorId, Force>,
    /// Those that cannot be ended.
    resist: Vec<ActorId>,
}

/// Whether a node was told to end an actor by force since somebody waits for its end.
#[derive(Clone, Copy, Default)]
struct Force(bool);

impl Force {
    /// The actor's state has changed. True where it goes on though force was used, for as long as a stop may take: its
    /// handler does not return, and lives in no process of its own.
    fn in_vain(&mut self, state: &ActorState) -> bool {
        let forced = matches!(state, ActorState::Stopping { forced: true, .. });
        std::mem::replace(&mut self.0, forced) && forced
    }
}

/// What a peer waits to hear of an actor.
#[derive(Clone, Copy)]
enum Wish {
    /// That it lives, in a later life than this.
    Life { after: u32 },
    /// What comes after this life.
    AfterLife { incarnation: u32 },
    /// That it is dead, or that this is not to be had.
    End(Force),
    /// How it died.
    Death,
}

impl Head<'_> {
    pub(super) fn request(&mut self, peer: PeerId, number: u64, request: Request) {
        let response = match request {
            Request::Spawn(mut spawn) => {
                spawn.demand.program = self.program_of(peer);
                if let Some(why) = self.owner_gone(spawn.owner) {
                    let response = Err(why);
                    self.tell(peer, FromHead::Response { number, response });
                    return;
                }
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
            Request::Closed { actor } => {
                self.wait(peer, number, actor, Wish::Death);
                return;
            }
            Request::Save {
                actor,
                incarnation,
                args,
            } => self.save(actor, incarnation, args),
            Request::Find { name, type_name } => self.find(peer, &name, &type_name),
            Request::Stop { actor } => {
                let by = self.who(peer);
                self.handle(HeadEvent::Actor(ActorEvent::Stop { actor, by }));
                if self.state.directory().get(actor).is_some() {
                    self.wait(peer, number, actor, Wish::End(Force::default()));
                    return;
                }
                Ok(Response::Done)
            }
            Request::Leave { report } => {
                if let Some(peer) = self.peers.get(&peer)
                    && let PeerRole::Driver { id, .. } = peer.role
                {
                    self.process.below.ends(peer.address, Some(*report));
                    self.handle(HeadEvent::Driver(DriverEvent::Left(id)));
                }
                Ok(Response::Done)
            }
            Request::Reserve(request) => {
                self.groups_waiting
                    .entry(request.group)
                    .or_default()
                    .push((peer, number));
                self.handle(HeadEvent::Actor(ActorEvent::ReserveGroup(*request)));
                return;
            }
            Request::EndGroup { group } => {
                let inside = self.state.directory().inside(group);
                let by = self.who(peer);
                self.handle(HeadEvent::Actor(ActorEvent::EndGroup { group, by }));
                let left = inside.into_iter().filter(|actor| !self.is_dead(*actor));
                let ending = Ending {
                    peer,
                    number,
                    left: left.map(|actor| (actor, Force::default())).collect(),
                    resist: Vec::new(),
                };
                if !ending.left.is_empty() {
                    self.groups_ending.push(ending);
                    return;
                }
                Ok(Response::Done)
            }
            Request::Pool(request) => match self.wish_for_pool(peer, number, request) {
                Some(response) => response,
                None => return,
            },
            Request::FindPool { name, type_name } => self.find_pool(peer, &name, &type_name),
            Request::Scale { name, size } => self.scale_pool(peer, name, size),
            Request::EndPool { pool } => {
                let by = self.who(peer);
                self.handle(HeadEvent::Pool(PoolEvent::End { pool, by }));
                Ok(Response::Done)
            }
            Request::Metrics(served) => {
                if let Some(node) = self.peers.get(&peer).and_then(|p| p.node) {
                    self.observers.node_serves(node, served);
                }
                Ok(Response::Done)
            }
            Request::Why { which } => {
                let why = Why::of(&self.state, &which, self.now());
                let why = why.or_else(|unknown| self.why_launch(&which).ok_or(unknown));
                why.map(|why| Response::Why(Box::new(why)))
            }
            Request::Token { expires, uses } => self.make_token(expires, uses),
            Request::Drain { node, within } => {
                return self.drain_asked(peer, number, node, within);
            }
            Request::Status => Ok(Response::Status(Box::new(self.status()))),
        };
        self.tell(peer, FromHead::Response { number, response });
    }

    /// Why nothing can be made for this owner, if it is a driver that is gone. Of actors the directory knows.
    pub(super) fn owner_gone(&self, owner: Owner) -> Option<String> {
        let Owner::Driver(driver) = owner else {
            return None;
        };
        let here = self
            .peers
            .values()
            .any(|peer| matches!(peer.role, PeerRole::Driver { id, .. } if id == driver));
        (!here).then(|| {
            format!("{owner}, which was to own it, is gone; spawn it from a driver that runs, or `.detached()`")
        })
    }

    fn save(
        &mut self,
        actor: ActorId,
        incarnation: u32,
        args: Vec<u8>,
    ) -> Result<Response, String> {
        if args.len() > MAX_SAVED {
            return Err(format!(
                "its state of {} bytes is over the limit of {MAX_SAVED}; keep large parts elsewhere, for example in an \
                 object that another actor put, and only their names in the state",
                args.len()
            ));
        }
        let event = ActorEvent::Save {
            actor,
            incarnation,
            args,
        };
        let actions = self.state.handle(HeadEvent::Actor(event), self.now());
        let taken = !actions.is_empty();
        self.write_and_act(actions);
        let over = format!("life {incarnation} of actor {actor} is over: nothing is saved for it");
        taken.then_some(Response::Done).ok_or(over)
    }

    /// Who a peer is, as a reason for what it orders.
    pub(super) fn who(&self, peer: PeerId) -> String {
        match self.peers.get(&peer).map(|p| &p.role) {
            Some(PeerRole::Driver { name, .. }) => format!("driver {name}"),
            Some(PeerRole::Node(node)) => format!("an actor on {}", node.hello.name),
            Some(PeerRole::Worker { node, .. }) => format!("an actor on {node}"),
            _ => "an operator".to_owned(),
        }
    }

    /// A placement group's state has changed: answers who waits for it.
    pub(super) fn answer_group(&mut self, group: GroupId, state: &GroupState) {
        let answer = match state {
            GroupState::Pending { .. } => return,
            GroupState::Reserved { .. } => Ok(Response::Done),
            GroupState::Ended { cause } => Err(cause.to_string()),
        };
        for (peer, number) in self.groups_waiting.remove(&group).unwrap_or_default() {
            let response = answer.clone();
            self.tell(peer, FromHead::Response { number, response });
        }
    }

    fn is_dead(&self, actor: ActorId) -> bool {
        let record = self.state.directory().get(actor);
        record.is_none_or(|record| matches!(record.state, ActorState::Dead { .. }))
    }

    /// An actor is stopping or has ended: answers who waits for its group's end, if it was the last.
    fn answer_ending(&mut self, actor: ActorId, state: Option<&ActorState>) {
        for ending in &mut self.groups_ending {
            let Some(force) = ending.left.get_mut(&actor) else {
                continue;
            };
            match state {
                Some(ActorState::Dead { .. }) | None => {
                    ending.left.remove(&actor);
                }
                Some(state) if force.in_vain(state) => {
                    ending.left.remove(&actor);
                    ending.resist.push(actor);
                }
                Some(_) => {}
            }
        }
        for over in self
            .groups_ending
            .extract_if(.., |e| e.left.is_empty())
            .collect::<Vec<_>>()
        {
            let response = match over.resist.first() {
                None => Ok(Response::Done),
                Some(first) => Err(goes_on(*first)),
            };
            let number = over.number;
            self.tell(over.peer, FromHead::Response { number, response });
        }
    }

    /// Answers now if it can be, else when the actor's state allows.
    fn wait(&mut self, peer: PeerId, number: u64, actor: ActorId, wish: Wish) {
        let response = match self.state.directory().get(actor) {
            None => Some(Err(format!("this cluster knows no actor {actor}"))),
            // Types of one name are not the same type in two programs.
            Some(record)
                if matches!(wish, Wish::Life { .. })
                    && record.spawn.demand.program != self.program_of(peer) =>
            {
                Some(Ok(other_program(record)))
            }
            Some(record) => self
                .fulfil(wish, actor, record.incarnation, &record.state)
                .map(Ok),
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
        self.answer_ending(actor, Some(state));
        let Some(waiting) = self.waiting.remove(&actor) else {
            return;
        };
        let mut left = Vec::new();
        for mut waiter in waiting {
            let in_vain = match &mut waiter.wish {
                Wish::End(force) => force.in_vain(state),
                _ => false,
            };
            let response = match in_vain {
                true => Some(Err(goes_on(actor))),
                false => self.fulfil(waiter.wish, actor, incarnation, state).map(Ok),
            };
            match response {
                Some(response) => {
                    let number = waiter.number;
                    self.tell(waiter.peer, FromHead::Response { number, response });
                }
                None => left.push(waiter),
            }
        }
        if !left.is_empty() {
            self.waiting.insert(actor, left);
        }
    }

    /// A node is here (again): answers who waits to hear where its actors are. After the head's restart that is known
    /// only now, though nothing has changed for the actors.
    pub(super) fn answer_where(&mut self, node: NodeId) {
        let here = self.state.directory().on_node(node);
        let asked = here.filter(|record| self.waiting.contains_key(&record.spawn.actor));
        let asked: Vec<_> = asked
            .map(|record| (record.spawn.actor, record.incarnation, record.state.clone()))
            .collect();
        for (actor, incarnation, state) in asked {
            let mut left = Vec::new();
            for waiter in self.waiting.remove(&actor).unwrap_or_default() {
                let response = match waiter.wish {
                    Wish::Life { .. } => self.fulfil(waiter.wish, actor, incarnation, &state),
                    _ => None,
                };
                match response {
                    Some(response) => {
                        let (number, response) = (waiter.number, Ok(response));
                        self.tell(waiter.peer, FromHead::Response { number, response });
                    }
                    None => left.push(waiter),
                }
            }
            if !left.is_empty() {
                self.waiting.insert(actor, left);
            }
        }
    }

    /// There will be no such actor.
    pub(super) fn refuse_waiting(&mut self, actor: ActorId, why: &str) {
        self.answer_ending(actor, None);
        for waiter in self.waiting.remove(&actor).unwrap_or_default() {
            let word = FromHead::Response {
                number: waiter.number,
                response: Err(why.to_owned()),
            };
            self.tell(waiter.peer, word);
        }
    }

    fn fulfil(
        &self,
        wish: Wish,
        actor: ActorId,
        incarnation: u32,
        state: &ActorState,
    ) -> Option<Response> {
        let record = self.state.directory().get(actor);
        let death = || record.and_then(|record| record.death.clone());
        match (wish, state) {
            (Wish::End(_), ActorState::Dead { .. }) => Some(Response::Done),
            (_, ActorState::Dead { .. }) => death().map(Response::Dead),
            (Wish::Life { after }, ActorState::Alive { node, .. }) if incarnation > after => {
                let worker = record.filter(|r| r.incarnation == incarnation);
                self.at(*node, incarnation, worker.and_then(|r| r.worker))
            }
            (Wish::Life { .. } | Wish::Death | Wish::End(_), _) => None,
            (Wish::AfterLife { incarnation: over }, state) => {
                let goes_on = incarnation == over && state.node().is_some();
                (!goes_on).then(|| {
                    // A later life may have ended since: that is another death.
                    let death = death().filter(|d| d.incarnation == over);
                    Response::Restarts(death)
                })
            }
        }
    }

    fn find(&self, peer: PeerId, name: &str, type_name: &str) -> Result<Response, String> {
        let record = self
            .state
            .directory()
            .lookup(name)
            .map_err(|e| e.to_string())?;
        if record.spawn.demand.program != self.program_of(peer) {
            return Ok(other_program(record));
        }
        let is = &record.spawn.demand.actor_type;
        if is != type_name {
            return Err(format!(
                "the actor named `{name}` is a {is}, not a {type_name}"
            ));
        }
        Ok(Response::Found(record.spawn.actor))
    }
}

fn other_program(record: &ActorRecord) -> Response {
    let program = record.spawn.demand.program.clone();
    Response::OtherProgram {
        build: program.unwrap_or_else(build_id),
    }
}

/// What who wants an actor's end hears where that is not to be had.
fn goes_on(actor: ActorId) -> String {
    format!(
        "actor {actor} was told to stop, by force at last, and is still at work: its handler does not return. It ends \
         when its thread pauses next; an actor spawned with `.process()` is killed instead"
    )
}
