//! What is kept here of processes that have ended: the last [`MOST`] handlers, asks and marks of them all.

use std::collections::VecDeque;
use std::sync::{LazyLock, Mutex};

use super::record::{Recorded, RecordedProcess};

/// Handlers, asks and marks of ended processes that one process keeps: as many as a process that records keeps of its own.
const MOST: usize = 2 * super::SPANS;

static KEPT: LazyLock<Mutex<Kept>> = LazyLock::new(Mutex::default);

/// What ended processes have left, the oldest first.
#[derive(Debug, Default)]
struct Kept {
    processes: VecDeque<(RecordedProcess, usize)>,
    size: usize,
    /// Handlers and asks of processes that had to make room.
    lost: u64,
}

impl Kept {
    fn add(&mut self, process: RecordedProcess, most: usize) {
        let size = process.recorded.as_ref().map_or(0, size);
        self.size += size;
        self.processes.push_back((process, size));
        while self.size > most {
            let Some((over, size)) = self.processes.pop_front() else {
                return;
            };
            self.size -= size;
            let gone = over.recorded.as_ref();
            self.lost += gone.map_or(0, |r| r.lost + (r.handlers.len() + r.asks.len()) as u64);
        }
    }
}

fn size(recorded: &Recorded) -> usize {
    // One that has recorded nothing takes room as well.
    1 + recorded.handlers.len() + recorded.asks.len() + recorded.marks.len()
}

/// Keeps what a process has left.
pub(crate) fn keep(process: RecordedProcess) {
    KEPT.lock().expect("no panic while held").add(process, MOST);
}

/// All that is kept, and how many handlers and asks are not any more.
pub(crate) fn kept() -> (Vec<RecordedProcess>, u64) {
    let kept = KEPT.lock().expect("no panic while held");
    let processes = kept.processes.iter().map(|(process, _)| process.clone());
    (processes.collect(), kept.lost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::timeline::Mark;

    #[test]
    fn the_oldest_makes_room_for_the_last() {
        let process = |who: &str, marks: usize, lost: u64| {
            let mark = Mark {
                at_ns: 1,
                actor: None,
                incarnation: 0,
                what: String::new(),
            };
            let recorded = Recorded {
                marks: vec![mark; marks],
                lost,
                ..Recorded::default()
            };
            RecordedProcess {
                who: who.to_owned(),
                recorded: Ok(recorded),
                offset_ns: 0,
                error_ns: 0,
            }
        };
        let mut kept = Kept::default();
        kept.add(process("a", 4, 7), 10);
        kept.add(process("b", 4, 0), 10);
        assert_eq!((kept.processes.len(), kept.lost), (2, 0));
        kept.add(process("c", 0, 0), 10);
        let who = kept.processes.iter().map(|(p, _)| p.who.as_str());
        assert_eq!(who.collect::<Vec<_>>(), ["b", "c"]);
        assert_eq!((kept.size, kept.lost), (6, 7));
        // One that is too much by itself is not kept, and nothing is that came before it.
        kept.add(process("d", 10, 1), 10);
        assert_eq!((kept.processes.len(), kept.size, kept.lost), (0, 0, 8));
    }
}
