//! The room in a mailbox, given out in the order in which it was asked for.
//!
//! Who finds none leaves a deposit, which gets the room when it comes free, before anybody who asks later. (With
//! a semaphore, one that was given its permit but has not been polled yet can be overtaken, and its message too.)

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::oneshot;

/// Room for so many messages.
pub(crate) struct Gate {
    inner: Mutex<Inner>,
}

struct Inner {
    room: usize,
    free: usize,
    /// By their places, which count up. As many as there are futures that wait.
    waiting: VecDeque<(u64, Deposit)>,
    next: u64,
    /// Whether a thread is giving room to the waiting.
    giving: bool,
}

type Deposit = Box<dyn FnOnce(Permit) + Send>;

/// Room for one message, until it is dropped.
pub(crate) struct Permit {
    gate: Arc<Gate>,
}

impl Gate {
    pub(super) fn new(room: usize) -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::new(Inner {
                room,
                free: room,
                waiting: VecDeque::new(),
                next: 0,
                giving: false,
            }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No deposit is called or dropped while it is held.
        self.inner.lock().expect("no panic while held")
    }

    /// How many have room or wait for it.
    pub(super) fn accepted(&self) -> usize {
        let inner = self.lock();
        inner.room.saturating_sub(inner.free) + inner.waiting.len()
    }

    /// Room, if there is any and nobody waits for it.
    pub(super) fn try_enter(self: &Arc<Self>) -> Option<Permit> {
        let mut inner = self.lock();
        if inner.free == 0 || !inner.waiting.is_empty() {
            return None;
        }
        inner.free -= 1;
        Some(Permit { gate: self.clone() })
    }

    /// Calls `deposit` with room: now, or when it comes free. In that case it gives the place in the queue.
    pub(super) fn enter(
        self: &Arc<Self>,
        deposit: impl FnOnce(Permit) + Send + 'static,
    ) -> Option<u64> {
        let mut inner = self.lock();
        if inner.free == 0 || !inner.waiting.is_empty() {
            let place = inner.next;
            inner.next += 1;
            inner.waiting.push_back((place, Box::new(deposit)));
            return Some(place);
        }
        inner.free -= 1;
        drop(inner);
        deposit(Permit { gate: self.clone() });
        None
    }

    /// Takes a deposit back; false where it has been called.
    pub(super) fn leave(&self, place: u64) -> bool {
        let deposit = {
            let mut inner = self.lock();
            let found = inner.waiting.binary_search_by_key(&place, |(p, _)| *p);
            found.ok().and_then(|index| inner.waiting.remove(index))
        };
        deposit.is_some()
    }

    /// Waits for room.
    pub(super) async fn entered(self: &Arc<Self>) -> Permit {
        let (send, receive) = oneshot::channel();
        self.enter(move |permit| {
            // Nobody waits any more: the permit is dropped, which gives it to the next.
            let _ = send.send(permit);
        });
        receive.await.expect("every deposit is called in the end")
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut inner = self.gate.lock();
        inner.free += 1;
        // A deposit that drops its permit comes here again: the outermost call gives, so that none nests.
        if inner.giving {
            return;
        }
        inner.giving = true;
        while inner.free > 0 {
            let Some((_, deposit)) = inner.waiting.pop_front() else {
                break;
            };
            inner.free -= 1;
            drop(inner);
            deposit(Permit {
                gate: self.gate.clone(),
            });
            inner = self.gate.lock();
        }
        inner.giving = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entering(gate: &Arc<Gate>, name: u32, log: &Arc<Mutex<Vec<u32>>>) -> Option<u64> {
        let log = log.clone();
        // Keeps its room for no time.
        gate.enter(move |_permit| log.lock().unwrap().push(name))
    }

    #[test]
    fn room_is_given_in_the_order_of_asking() {
        let gate = Gate::new(1);
        let log = Arc::default();
        let held = gate.try_enter().unwrap();
        let places: Vec<_> = (1..=4).map(|n| entering(&gate, n, &log)).collect();
        assert!(gate.try_enter().is_none());
        assert!(gate.leave(places[2].unwrap()));
        drop(held);
        assert_eq!(*log.lock().unwrap(), [1, 2, 4]);
        assert!(!gate.leave(places[0].unwrap()));
        assert!(gate.try_enter().is_some());
    }

    #[test]
    fn many_that_give_up_do_not_nest() {
        let gate = Gate::new(1);
        let log = Arc::default();
        let held = gate.try_enter().unwrap();
        for n in 0..200_000 {
            entering(&gate, n, &log);
        }
        drop(held);
        assert_eq!(log.lock().unwrap().len(), 200_000);
    }
}
