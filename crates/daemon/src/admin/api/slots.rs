//! Places for connections, and the choice of one to give up. Pure.
//!
//! Clients that connect and send nothing must not keep others out: when all places are taken, the
//! connection that has been silent longest gives up its own.

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
    /// It has sent a whole request.
    has_asked: bool,
}

/// The place of a new connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Given {
    Free(u64),
    /// The place of another, which is to be closed.
    Of(u64, u64),
    /// Refused: every other connection has sent a request.
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
            // Ids grow with time: the first silent one has been silent longest.
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
        self.taken.insert(id, Slot { address, has_asked: false });
        out.map_or(Given::Free(id), |out| Given::Of(id, out))
    }

    pub(super) fn asked(&mut self, id: u64) {
        if let Some(slot) = self.taken.get_mut(&id) {
            slot.has_asked = true;
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
}
