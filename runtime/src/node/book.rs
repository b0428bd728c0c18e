//! What a node runs, and which ends of lives the head may not have heard of.
//!
//! Invariants:
//! - NB-1: a life is begun once, however often it is ordered.
//! - NB-2: the end of a life is kept until the head has written it down, and told again to each head that this node joins.

use std::collections::BTreeMap;

use crate::cluster::{DeathCause, LastWords};
use crate::ids::ActorId;

type Life = (ActorId, u32);

/// The lives of a node.
#[derive(Debug, Default)]
pub(crate) struct Book {
    lives: BTreeMap<Life, Stage>,
    /// Bounded by the lives that the head has ordered here.
    ended: BTreeMap<Life, (DeathCause, LastWords)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Starting,
    Alive,
}

/// What is to be done about an order to begin a life.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Begin it.
    Begin,
    /// It begins already: its answer comes.
    Wait,
    /// It lives: say so again.
    Lives,
    /// It ended: say so again.
    Ended(Box<(DeathCause, LastWords)>),
}

impl Book {
    pub(crate) fn ordered(&mut self, actor: ActorId, incarnation: u32) -> Order {
        let life = (actor, incarnation);
        if let Some(end) = self.ended.get(&life) {
            return Order::Ended(Box::new(end.clone()));
        }
        match self.lives.get(&life) {
            Some(Stage::Starting) => Order::Wait,
            Some(Stage::Alive) => Order::Lives,
            None => {
                self.lives.insert(life, Stage::Starting);
                Order::Begin
            }
        }
    }

    pub(crate) fn began(&mut self, actor: ActorId, incarnation: u32) {
        if let Some(stage) = self.lives.get_mut(&(actor, incarnation)) {
            *stage = Stage::Alive;
        }
    }

    pub(crate) fn ended(
        &mut self,
        actor: ActorId,
        incarnation: u32,
        cause: DeathCause,
        words: LastWords,
    ) {
        if self.lives.remove(&(actor, incarnation)).is_some() {
            self.ended.insert((actor, incarnation), (cause, words));
        }
    }

    /// The head has written it down.
    pub(crate) fn heard(&mut self, actor: ActorId, incarnation: u32) {
        self.ended.remove(&(actor, incarnation));
    }

    /// Everything here was given up by the head.
    pub(crate) fn clear(&mut self) {
        *self = Book::default();
    }

    pub(crate) fn lives(&self) -> Vec<Life> {
        self.lives.keys().copied().collect()
    }

    pub(crate) fn unheard(&self) -> Vec<(ActorId, u32, DeathCause, LastWords)> {
        self.ended
            .iter()
            .map(|(&(actor, incarnation), (cause, words))| {
                (actor, incarnation, cause.clone(), words.clone())
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ActorId = ActorId(7);

    #[test]
    fn a_life_begins_once_nb1() {
        let mut book = Book::default();
        assert_eq!(book.ordered(A, 1), Order::Begin);
        assert_eq!(book.ordered(A, 1), Order::Wait);
        book.began(A, 1);
        assert_eq!(book.ordered(A, 1), Order::Lives);
        book.ended(A, 1, DeathCause::Finished, LastWords::default());
        assert_eq!(
            book.ordered(A, 1),
            Order::Ended(Box::new((DeathCause::Finished, LastWords::default())))
        );
        assert_eq!(book.ordered(A, 2), Order::Begin);
    }

    #[test]
    fn an_end_is_told_until_it_is_heard_nb2() {
        let mut book = Book::default();
        book.ordered(A, 3);
        book.ended(A, 3, DeathCause::Finished, LastWords::default());
        assert_eq!(
            book.unheard(),
            [(A, 3, DeathCause::Finished, LastWords::default())]
        );
        assert!(book.lives().is_empty());
        book.heard(A, 3);
        assert!(book.unheard().is_empty());
    }
}
