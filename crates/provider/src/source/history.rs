//! Checks that a source has everything received before: only then does it have the same history.
//!
//! A server compares only its own transactions (by its `server_uuid`), so native replication
//! silently follows a source that lacks those of other servers. Here all of them count, except
//! those that never came from the source.

use std::collections::BTreeSet;
use std::mem;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::binlog::gtid::{GtidSet, Uuid};
use crate::seams::planted::{Bug, is_planted};

/// Servers with transactions on the target that the channel's source need not have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Foreign {
    /// The servers of the target, now and before. They stay foreign also where their transactions come back from a
    /// source, which need not have all of them.
    pub own: BTreeSet<Uuid>,
    /// Servers whose transactions the target has from elsewhere: from its copy, or by other channels.
    pub servers: BTreeSet<Uuid>,
    /// Servers of which a source has sent a transaction. From then on their history is the source's, and the next
    /// source must have all of it.
    pub followed: BTreeSet<Uuid>,
    /// More of them may be foreign: those of which the first source that is seen has nothing.
    pub is_undecided: bool,
}

/// Shares [`Foreign`] with a running provider: the target may become reachable later than the source. Clones are the
/// same one. By default a source must have everything that was received.
#[derive(Debug, Clone, Default)]
pub struct SharedForeign(Arc<watch::Sender<Foreign>>);

impl SharedForeign {
    #[must_use]
    pub fn new(foreign: Foreign) -> Self {
        Self(Arc::new(watch::Sender::new(foreign)))
    }

    #[must_use]
    pub fn get(&self) -> Foreign {
        self.0.borrow().clone()
    }

    /// Replaces all of it, for a reception that begins.
    pub fn set(&self, foreign: Foreign) {
        self.0.send_replace(foreign);
    }

    /// Takes the target's answer over, for a reception that continues: the target need not have what it received.
    pub fn answer(&self, answer: Foreign) {
        self.0.send_modify(|now| {
            let followed = mem::take(&mut now.followed);
            *now = answer;
            now.followed.extend(followed);
        });
    }

    /// Returns a receiver of what changes from now on.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<Foreign> {
        self.0.subscribe()
    }

    /// Notes that a source has sent a transaction of the server.
    pub(crate) fn follow(&self, server: Uuid) {
        // The lock for reading suffices for all but the first one.
        let is_known = self.0.borrow().followed.contains(&server);
        if !is_known {
            self.0.send_if_modified(|now| now.followed.insert(server));
        }
    }

    /// Returns the received transactions that a source with `executed` should have and does not.
    pub(crate) fn lacking(&self, received: &GtidSet, executed: &GtidSet) -> GtidSet {
        let foreign = Foreign { is_undecided: false, ..self.decided(received, executed) };
        Known { received: received.clone(), foreign }.lacking(executed)
    }

    /// See [`Foreign::decide`].
    fn decided(&self, received: &GtidSet, executed: &GtidSet) -> Foreign {
        self.0.send_if_modified(|now| {
            now.decide(received, executed);
            // Nobody is woken: another source may decide otherwise after a restart.
            false
        });
        self.get()
    }
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

    /// Returns true if a source need not have the server's transactions.
    #[must_use]
    pub fn has(&self, server: &Uuid) -> bool {
        let is_from_elsewhere = self.servers.contains(server) && !self.followed.contains(server);
        self.own.contains(server) || is_from_elsewhere
    }

    fn required_of(&self, received: &GtidSet) -> GtidSet {
        received.of_servers(|uuid| !self.has(uuid))
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
            // Servers of which it has nothing may be foreign, unless a source has sent some of it.
            true => missing
                .of_servers(|uuid| executed.has_uuid(uuid) || self.foreign.followed.contains(uuid)),
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
        let b = [Uuid::parse_str(B).unwrap()];
        let from_copy = Foreign { servers: b.into(), ..Foreign::default() };
        let own = Foreign { own: b.into(), followed: b.into(), ..Foreign::default() };
        let followed = Foreign { followed: b.into(), ..from_copy.clone() };
        let undecided = Foreign { is_undecided: true, ..Foreign::default() };
        let undecided_and_followed = Foreign { followed: b.into(), ..undecided.clone() };
        for (received, foreign, executed, lacking) in [
            ("A:1-5", &none, "A:1-9", ""),
            ("A:1-5", &none, "A:1-3,B:1", "A:4-5"),
            // It has nothing that was received: a different server.
            ("A:1-5", &none, "B:1-7", "A:1-5"),
            ("A:1-5", &none, "", "A:1-5"),
            ("A:1-5,B:1-2", &none, "A:1-5", "B:1-2"),
            ("A:1-5,B:1-2", &from_copy, "A:1-5", ""),
            ("A:1-5,B:1-2", &from_copy, "A:1-4", "A:5"),
            // It has come back from a source, which lacks a part.
            ("A:1-5,B:1-2", &own, "A:1-5", ""),
            ("A:1-5,B:1-2", &own, "A:1-5,B:1", ""),
            // It has been the source since.
            ("A:1-5,B:1-2", &followed, "A:1-5,B:1-2", ""),
            ("A:1-5,B:1-2", &followed, "A:1-5,B:1", "B:2"),
            ("A:1-5,B:1-2", &followed, "A:1-5", "B:1-2"),
            // Not known yet: servers of which it has nothing are not required.
            ("A:1-5,B:1-2", &undecided, "A:1-5", ""),
            ("A:1-5,B:1-2", &undecided, "A:1-4", "A:5"),
            ("A:1-5,B:1-2", &undecided_and_followed, "A:1-5", "B:1-2"),
        ] {
            let known = Known { received: set(received), foreign: foreign.clone() };
            assert_eq!(known.lacking(&set(executed)), set(lacking), "{received} {executed}");
        }
        assert_eq!(foreign_to(&set("A:1,B:2"), &set("A:7")), b.into());
    }

    #[test]
    fn the_first_source_that_shares_a_server_decides_which_are_foreign() {
        let own = "cccccccc-cccc-cccc-cccc-cccccccccccc:1";
        let received = format!("A:1-5,B:1-2,{own}");
        let own_servers: BTreeSet<Uuid> = set(own).uuids().collect();
        let mut foreign =
            Foreign { own: own_servers.clone(), is_undecided: true, ..Foreign::default() };
        for shares_nothing in ["", own, "dddddddd-dddd-dddd-dddd-dddddddddddd:1-9"] {
            foreign.decide(&set(&received), &set(shares_nothing));
            assert!(foreign.is_undecided, "{shares_nothing}");
        }
        foreign.decide(&set(&received), &set("A:1-2"));
        let decided = Foreign {
            own: own_servers,
            servers: set("B:1").uuids().collect(),
            ..Foreign::default()
        };
        assert_eq!(foreign, decided);
        // It stays decided.
        foreign.decide(&set(&received), &set("B:1"));
        assert_eq!(foreign, decided);
    }

    #[test]
    fn what_a_source_has_sent_outlives_the_answer_of_the_target() {
        let b = Uuid::parse_str(B).unwrap();
        let answer = Foreign { servers: [b].into(), ..Foreign::default() };
        let shared = SharedForeign::new(answer.clone());
        let mut changes = shared.changes();
        assert!(shared.get().has(&b) && !changes.has_changed().unwrap());
        shared.follow(b);
        assert!(!shared.get().has(&b) && changes.has_changed().unwrap());
        changes.mark_unchanged();
        // Each of its transactions leads here.
        shared.follow(b);
        assert!(!changes.has_changed().unwrap());
        // The target has nothing of it yet, and its record is older.
        shared.answer(answer.clone());
        assert!(!shared.get().has(&b));
        shared.set(answer);
        assert!(shared.get().has(&b));
    }
}
