//! Checks that a source has everything received before: only then does it have the same history.
//!
//! A server compares only its own transactions (by its `server_uuid`), so native replication
//! silently follows a source that lacks those of other servers. Here all of them count, except
//! those that never came from the source.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::binlog::gtid::{GtidSet, Uuid};
use crate::seams::planted::{Bug, is_planted};

/// Servers with transactions on the target that the channel's source need not have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Foreign {
    /// The target itself, and those of other channels.
    pub servers: BTreeSet<Uuid>,
    /// More of them may be foreign: those of which the first source that is seen has nothing.
    pub is_undecided: bool,
}

/// The same for a running provider: the target may become reachable later than the source.
pub type SharedForeign = Arc<Mutex<Foreign>>;

/// No servers: a source must have everything that was received.
#[must_use]
pub fn no_foreign() -> SharedForeign {
    Arc::default()
}

impl Foreign {
    /// Takes the servers of which a source with `executed` has nothing for foreign, if that is not decided
    /// yet. A source that has nothing of any server decides nothing: it is another one, or an empty replica.
    pub(crate) fn decide(&mut self, received: &GtidSet, executed: &GtidSet) {
        let required = self.required_of(received);
        if self.is_undecided && required.uuids().any(|uuid| executed.has_uuid(&uuid)) {
            self.servers.extend(foreign_to(&required, executed));
            self.is_undecided = false;
        }
    }

    fn required_of(&self, received: &GtidSet) -> GtidSet {
        received.of_servers(|uuid| !self.servers.contains(uuid))
    }
}

/// The part of its source's history that a channel has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// Transactions applied, or received and not yet applied.
    pub received: GtidSet,
    pub foreign: Foreign,
}

impl Known {
    /// Returns the transactions that a source must have.
    #[must_use]
    pub fn required(&self) -> GtidSet {
        self.foreign.required_of(&self.received)
    }

    /// Returns the required transactions that are not in the source's `executed`.
    #[must_use]
    pub fn lacking(&self, executed: &GtidSet) -> GtidSet {
        if is_planted(Bug::OtherHistoryAccepted) {
            return GtidSet::new();
        }
        let missing = self.required().difference(executed);
        match self.foreign.is_undecided {
            false => missing,
            // Servers of which it has nothing may be foreign.
            true => missing.of_servers(|uuid| executed.has_uuid(uuid)),
        }
    }
}

/// Returns the servers of which `received` has transactions and `executed` has none.
fn foreign_to(received: &GtidSet, executed: &GtidSet) -> BTreeSet<Uuid> {
    received.uuids().filter(|uuid| !executed.has_uuid(uuid)).collect()
}

/// The error text, to follow the source's name.
pub(crate) fn lacks(missing: &GtidSet) -> String {
    format!(
        "lacks transactions we already have: {missing}; it is another server, was restored to an \
         earlier state, or is a replica that is catching up: nothing is received from it until it \
         has them"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";
    const B: &str = "bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb";

    fn set(text: &str) -> GtidSet {
        text.replace("A:", &format!("{A}:")).replace("B:", &format!("{B}:")).parse().unwrap()
    }

    #[test]
    fn a_source_has_what_was_received_but_for_what_came_from_elsewhere() {
        let none = Foreign::default();
        let b = Foreign { servers: [Uuid::parse_str(B).unwrap()].into(), is_undecided: false };
        let undecided = Foreign { is_undecided: true, ..Foreign::default() };
        for (received, foreign, executed, lacking) in [
            ("A:1-5", &none, "A:1-9", ""),
            ("A:1-5", &none, "A:1-3,B:1", "A:4-5"),
            // It has nothing that was received: a different server.
            ("A:1-5", &none, "B:1-7", "A:1-5"),
            ("A:1-5", &none, "", "A:1-5"),
            ("A:1-5,B:1-2", &none, "A:1-5", "B:1-2"),
            ("A:1-5,B:1-2", &b, "A:1-5", ""),
            ("A:1-5,B:1-2", &b, "A:1-4", "A:5"),
            // Not known yet: servers of which it has nothing are not required.
            ("A:1-5,B:1-2", &undecided, "A:1-5", ""),
            ("A:1-5,B:1-2", &undecided, "A:1-4", "A:5"),
        ] {
            let known = Known { received: set(received), foreign: foreign.clone() };
            assert_eq!(known.lacking(&set(executed)), set(lacking), "{received} {executed}");
        }
        assert_eq!(foreign_to(&set("A:1,B:2"), &set("A:7")), b.servers);
    }

    #[test]
    fn the_first_source_that_shares_a_server_decides_which_are_foreign() {
        let own = "cccccccc-cccc-cccc-cccc-cccccccccccc:1";
        let received = format!("A:1-5,B:1-2,{own}");
        let mut foreign = Foreign { servers: set(own).uuids().collect(), is_undecided: true };
        for shares_nothing in ["", own, "dddddddd-dddd-dddd-dddd-dddddddddddd:1-9"] {
            foreign.decide(&set(&received), &set(shares_nothing));
            assert!(foreign.is_undecided, "{shares_nothing}");
        }
        foreign.decide(&set(&received), &set("A:1-2"));
        assert_eq!(foreign.servers, set(&format!("B:1,{own}")).uuids().collect());
        assert!(!foreign.is_undecided);
        // It stays decided.
        foreign.decide(&set(&received), &set("B:1"));
        assert_eq!(foreign.servers.len(), 2);
    }
}
