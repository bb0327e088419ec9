//! Checks that a source has everything received before: only then does it have the same history.
//!
//! A server compares only its own transactions (by its `server_uuid`), so native replication
//! silently follows a source that lacks those of other servers. Here all of them count, except
//! those that never came from the source.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::gtid::{GtidSet, Uuid};
use crate::planted::{Bug, is_planted};

/// Servers with transactions on the target that the channel's source need not have: the target
/// itself and those of other channels. `None` until a source was seen; then they are the servers
/// of which it has nothing.
pub type Foreign = Option<BTreeSet<Uuid>>;

/// The same for a running provider: the target may become reachable later than the source.
pub type SharedForeign = Arc<Mutex<Foreign>>;

/// No servers: a source must have everything that was received.
#[must_use]
pub fn no_foreign() -> SharedForeign {
    Arc::new(Mutex::new(Some(BTreeSet::new())))
}

/// The part of its source's history that a channel has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// Transactions applied, or received and not yet applied.
    pub received: GtidSet,
    pub foreign: Foreign,
}

impl Known {
    /// The transactions that a source must have.
    #[must_use]
    pub fn required(&self) -> GtidSet {
        let foreign = self.foreign.as_ref();
        self.received.of_servers(|uuid| foreign.is_none_or(|foreign| !foreign.contains(uuid)))
    }

    /// The required transactions that are not in the source's `executed`.
    #[must_use]
    pub fn lacking(&self, executed: &GtidSet) -> GtidSet {
        if is_planted(Bug::OtherHistoryAccepted) {
            return GtidSet::new();
        }
        let missing = self.required().difference(executed);
        match self.foreign {
            Some(_) => missing,
            // Servers of which it has nothing may be foreign, which is not known yet.
            None => missing.of_servers(|uuid| executed.has_uuid(uuid)),
        }
    }
}

/// Servers of which `received` has transactions and `executed` has none.
#[must_use]
pub fn foreign_to(received: &GtidSet, executed: &GtidSet) -> BTreeSet<Uuid> {
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
        let none: Foreign = Some(BTreeSet::new());
        let b: Foreign = Some([Uuid::parse_str(B).unwrap()].into());
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
            ("A:1-5,B:1-2", &None, "A:1-5", ""),
            ("A:1-5,B:1-2", &None, "A:1-4", "A:5"),
        ] {
            let known = Known { received: set(received), foreign: foreign.clone() };
            assert_eq!(known.lacking(&set(executed)), set(lacking), "{received} {executed}");
        }
        assert_eq!(Some(foreign_to(&set("A:1,B:2"), &set("A:7"))), b);
    }
}
