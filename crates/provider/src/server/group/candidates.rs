//! The addresses to try one after the other. A server that answers adds those of its group.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

/// Host and port.
pub type Address = (String, u16);

/// The members of a group that were seen last; shared by all that connect to it, cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct KnownMembers(Arc<Mutex<Vec<Address>>>);

impl KnownMembers {
    /// Replaces the members by those seen now.
    pub fn note(&self, members: Vec<Address>) {
        *self.0.lock() = members;
    }

    #[must_use]
    pub fn get(&self) -> Vec<Address> {
        self.0.lock().clone()
    }
}

/// Addresses to try, each once, except for those set aside, which have a second turn.
#[derive(Debug)]
pub struct Candidates {
    queue: VecDeque<Address>,
    seen: Vec<Address>,
    aside: VecDeque<Address>,
    is_second_turn: bool,
}

impl Candidates {
    /// Begins with these; a repeated one counts once.
    #[must_use]
    pub fn new(addresses: impl IntoIterator<Item = Address>) -> Self {
        let mut all = Self {
            queue: VecDeque::new(),
            seen: Vec::new(),
            aside: VecDeque::new(),
            is_second_turn: false,
        };
        all.learn(addresses);
        all
    }

    /// Adds those that are new, after all others.
    pub fn learn(&mut self, addresses: impl IntoIterator<Item = Address>) {
        for address in addresses {
            if !self.seen.contains(&address) {
                self.seen.push(address.clone());
                self.queue.push_back(address);
            }
        }
    }

    /// Gives the address a second turn, after all others had their first; false if it has that already.
    pub fn set_aside(&mut self, address: &Address) -> bool {
        if self.is_second_turn {
            return false;
        }
        self.aside.push_back(address.clone());
        true
    }
}

impl Iterator for Candidates {
    type Item = Address;

    /// Returns the next address to try.
    fn next(&mut self) -> Option<Address> {
        self.queue.pop_front().or_else(|| {
            self.is_second_turn = true;
            self.aside.pop_front()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> Address {
        ("h".to_owned(), port)
    }

    #[test]
    fn each_address_has_a_turn_and_those_set_aside_a_second_one() {
        let mut all = Candidates::new([address(1), address(2), address(1)]);
        assert_eq!(all.next(), Some(address(1)));
        assert!(all.set_aside(&address(1)));
        all.learn([address(3), address(1), address(2)]);
        assert_eq!(all.next(), Some(address(2)));
        assert_eq!(all.next(), Some(address(3)));
        assert_eq!(all.next(), Some(address(1)));
        assert!(!all.set_aside(&address(1)), "no third one");
        assert_eq!(all.next(), None);
    }
}
