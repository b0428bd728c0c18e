//! Binaries of sources seen before. Rewards are never cached, only these.

use std::collections::{HashMap, VecDeque};

use crate::kernel::binary::Binary;

/// A bounded map that forgets its oldest entry first.
#[derive(Debug)]
pub(super) struct Cache {
    capacity: usize,
    binaries: HashMap<[u8; 32], Binary>,
    order: VecDeque<[u8; 32]>,
}

impl Cache {
    pub(super) fn new(capacity: usize) -> Cache {
        Cache {
            capacity,
            binaries: HashMap::new(),
            order: VecDeque::new(),
        }
    }

    pub(super) fn get(&self, key: &[u8; 32]) -> Option<Binary> {
        self.binaries.get(key).cloned()
    }

    pub(super) fn insert(&mut self, key: [u8; 32], binary: Binary) {
        if self.capacity == 0 || self.binaries.insert(key, binary).is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > self.capacity
            && let Some(oldest) = self.order.pop_front()
        {
            self.binaries.remove(&oldest);
        }
    }
}
