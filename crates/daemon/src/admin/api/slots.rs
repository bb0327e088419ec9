//! Places for connections, and the choice of one to give up. Pure.
//!
//! Clients that send nothing, or what they may not ask, must not keep others out: when all places are taken, the
//! oldest connection of those gives up its own. Clients that wait take half of the places, so that commands find one.

use std::collections::BTreeMap;

/// Connections in the order of their arrival.
#[derive(Debug)]
pub(super) struct Slots<A> {
    total: usize,
    of_one: usize,
    next: u64,
    taken: BTreeMap<u64, Slot<A>>,
}

#[derive(Debug)]
struct Slot<A> {
    address: A,
    /// It has sent a request that needs rights, and has them.
    has_asked: bool,
    /// Its request waits for transactions.
    waits: bool,
}

/// The place of a new connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Given {
    Free(u64),
    /// The place of another, which is to be closed.
    Of(u64, u64),
    /// Refused: every other connection has asked.
    None,
}

impl<A: PartialEq> Slots<A> {
    /// At most `total` places, at most `of_one` for one address.
    pub(super) fn new(total: usize, of_one: usize) -> Self {
        Self { total, of_one, next: 0, taken: BTreeMap::new() }
    }

    pub(super) fn take(&mut self, address: A) -> Given {
        let alike = self.taken.values().filter(|slot| slot.address == address).count();
        let silent = |only_alike: bool| {
            let mut slots = self.taken.iter();
            // Ids grow with time: the first one that has not asked is the oldest.
            let found = slots.find(|(_, s)| !s.has_asked && (!only_alike || s.address == address));
            found.map(|(id, _)| *id)
        };
        let out = match (alike >= self.of_one, self.taken.len() >= self.total) {
            (false, false) => None,
            (is_alike, _) => match silent(is_alike) {
                Some(out) => Some(out),
                None => return Given::None,
            },
        };
        if let Some(out) = out {
            self.taken.remove(&out);
        }
        let id = self.next;
        self.next += 1;
        self.taken.insert(id, Slot { address, has_asked: false, waits: false });
        out.map_or(Given::Free(id), |out| Given::Of(id, out))
    }

    pub(super) fn asked(&mut self, id: u64) {
        if let Some(slot) = self.taken.get_mut(&id) {
            slot.has_asked = true;
        }
    }

    /// Begins a wait; returns false where half of the places, or half of those for one address, wait already.
    pub(super) fn begin_wait(&mut self, id: u64) -> bool {
        let Some(own) = self.taken.get(&id) else { return false };
        let waiting = self.taken.values().filter(|slot| slot.waits);
        let alike = waiting.clone().filter(|slot| slot.address == own.address).count();
        let has_room = alike < self.of_one / 2 && waiting.count() < self.total / 2;
        self.set_waits(id, has_room);
        has_room
    }

    pub(super) fn end_wait(&mut self, id: u64) {
        self.set_waits(id, false);
    }

    fn set_waits(&mut self, id: u64, waits: bool) {
        if let Some(slot) = self.taken.get_mut(&id) {
            slot.waits = waits;
        }
    }

    pub(super) fn leave(&mut self, id: u64) {
        self.taken.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_silent_longest_makes_room() {
        let mut slots = Slots::new(3, 3);
        assert_eq!(slots.take("a"), Given::Free(0));
        assert_eq!(slots.take("b"), Given::Free(1));
        assert_eq!(slots.take("c"), Given::Free(2));
        slots.asked(0);
        assert_eq!(slots.take("d"), Given::Of(3, 1));
        assert_eq!(slots.take("d"), Given::Of(4, 2));
        slots.asked(3);
        slots.asked(4);
        assert_eq!(slots.take("e"), Given::None);
        slots.leave(0);
        assert_eq!(slots.take("e"), Given::Free(5));
    }

    #[test]
    fn one_address_has_its_own_limit() {
        let mut slots = Slots::new(10, 2);
        slots.take("other");
        assert_eq!(slots.take("a"), Given::Free(1));
        assert_eq!(slots.take("a"), Given::Free(2));
        assert_eq!(slots.take("a"), Given::Of(3, 1), "its own, not another's");
        slots.asked(2);
        slots.asked(3);
        assert_eq!(slots.take("a"), Given::None);
        assert_eq!(slots.take("b"), Given::Free(4));
    }

    #[test]
    fn those_who_wait_leave_half_of_the_places_to_others() {
        let mut slots = Slots::new(6, 4);
        for (id, address) in ["a", "a", "a", "b", "b"].into_iter().enumerate() {
            assert_eq!(slots.take(address), Given::Free(id as u64));
        }
        assert!(slots.begin_wait(0) && slots.begin_wait(1));
        assert!(!slots.begin_wait(2), "half of those for one address");
        assert!(slots.begin_wait(3));
        assert!(!slots.begin_wait(4), "half of all");
        slots.end_wait(0);
        assert!(slots.begin_wait(4));
        slots.leave(3);
        assert!(slots.begin_wait(2), "one that went away waits no more");
        assert!(!slots.begin_wait(3), "nor does it begin to");
    }
}
