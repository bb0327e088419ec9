//! Every server error that a session of ours is known to meet, with its meaning for a channel. The table covers
//! target and source, MySQL 5.7 to 9.7 and MariaDB, and the proxies between (MySQL Router, ProxySQL, MaxScale,
//! RDS Proxy). docs/server-errors.md has the table for operators, and tests walk it.
//!
//! An error that is not listed is [`Consequence::Stop`] in a statement, because repeating what is not understood may
//! hide a difference, and [`Opening::Away`] where a session is opened, because nothing was begun there.

mod rules;

pub use rules::{RULES, rule_of};

/// The server's error for a dump that it can't serve.
pub(crate) const SOURCE_FATAL: u16 = 1236;

/// A session could not be opened: the pause before the next attempt, and whether a channel may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// Somebody has to change the account. A start is refused; a channel that runs tries again every half minute.
    Account,
    /// The server wants another protection of the link; otherwise as for an account.
    Protection,
    /// There is no room for another session: a channel continues with those it has, and asks again every half minute.
    Full,
    /// The server refuses this host for now: tried again every half minute.
    Blocked,
    /// The server is away, busy, or does not say why: tried again soon.
    Away,
}

impl Opening {
    /// An attempt a second would fill the server's log, and might keep an account locked.
    #[must_use]
    pub const fn is_tried_slowly(self) -> bool {
        !matches!(self, Self::Away)
    }
}

/// The meaning of an error of a statement for the channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consequence {
    /// Another transaction was in the way: rolled back, and tried again at once.
    Retry,
    /// The target is away or takes no writes for now: waited for.
    Wait,
    /// The channel fails and tries again slowly, for ever: the cause is the server's and can pass.
    Slowly,
    /// The channel fails until a person restarts it.
    Stop,
}

/// The cause of an error of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// The server: every transaction would meet it, so none is named, and none is to be skipped.
    Server,
    /// A privilege of our account. A statement that lacks one is named, as nobody may be able to grant it.
    Privilege,
    /// The contents of the transaction.
    Transaction,
}

/// Errors with the same meaning.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    pub opening: Opening,
    pub consequence: Consequence,
    pub about: About,
    pub why: &'static str,
    /// Sent by what stands between us and the server: it says nothing about the server itself.
    pub is_between: bool,
    /// Numbers and names. Those above 4150 and of MariaDB are in no list of MySQL's.
    pub errors: &'static [(u16, &'static str)],
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::About::Server;
    use super::Consequence::{Retry, Wait};
    use super::*;

    #[test]
    fn each_error_is_in_one_rule() {
        let all: Vec<u16> =
            RULES.iter().flat_map(|rule| rule.errors).map(|(code, _)| *code).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "{all:?}");
        for (code, _) in RULES.iter().flat_map(|rule| rule.errors) {
            let rule = rule_of(*code).expect("listed");
            assert!(rule.errors.iter().any(|(known, _)| known == code));
            // What waits or passes is never blamed on a transaction.
            let passes = matches!(rule.consequence, Retry | Wait);
            assert!(!passes || rule.about == Server, "{code}: {rule:?}");
        }
        assert!(rule_of(2061).is_some_and(|rule| rule.is_between), "any of the client library's");
        assert!(rule_of(4999).is_none());
    }
}
