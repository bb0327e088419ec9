//! The consequence of an error for the channel. The table of server errors is csa_provider's
//! (link/server_errors); here it meets the place where the error arose.

use csa_provider::seams::planted::{Bug, is_planted};
use csa_provider::server::link::{About, Consequence, LinkError, Rule, rule_of};

use super::Error;

/// `ER_TOO_MANY_CONCURRENT_TRXS`. As long as others hold all undo slots each transaction meets it, and none is named.
const NO_UNDO_SLOT: u16 = 1637;

/// Consequence of an error for the channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// Deadlock or lock wait timeout: roll back and try again.
    Retry,
    /// The target is away or refuses writes for now: wait for it, then find out what was committed.
    Unavailable,
    /// Repeating at once would not help, and the cause can pass: the channel fails, and tries again slowly.
    Slow,
    /// Repeating would not help: the channel stops.
    Stop,
}

impl ErrorClass {
    /// Returns the class of an error of a statement, or of a link in use.
    #[must_use]
    pub fn of(error: &LinkError) -> Self {
        match error {
            LinkError::Server { code, message } if is_conflict(*code, message) => Self::Retry,
            LinkError::Server { code, .. } => class_of_code(*code),
            // It would be as long next time.
            LinkError::TooLong(_) => Self::Stop,
            // Even a login that is refused while the channel runs: a server in between may refuse it,
            // or a certificate that is being replaced. At a start it stops the channel.
            _ => Self::Unavailable,
        }
    }

    /// Returns true if the channel fails.
    #[must_use]
    pub const fn is_failure(self) -> bool {
        matches!(self, Self::Slow | Self::Stop)
    }
}

/// Returns true if a transaction of another member of the group came first. That is the storage engine's error for a
/// deadlock (149) at COMMIT; its other errors there mean a disk that fails.
fn is_conflict(code: u16, message: &str) -> bool {
    code == 1180 && message.contains("error 149")
}

fn class_of_code(code: u16) -> ErrorClass {
    match rule_of(code).map(|rule| rule.consequence) {
        Some(Consequence::Retry) => ErrorClass::Retry,
        Some(Consequence::Wait) => ErrorClass::Unavailable,
        Some(Consequence::Slowly) => ErrorClass::Slow,
        Some(Consequence::Stop) | None => ErrorClass::Stop,
    }
}

impl Error {
    /// Returns the consequence for the channel.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Target { source, .. } | Self::Server { source, .. } => ErrorClass::of(source),
            Self::Timeout { .. }
            | Self::Silent { .. }
            | Self::Unfit { .. }
            | Self::Held { .. }
            | Self::Elsewhere { .. } => ErrorClass::Unavailable,
            Self::Connecting(error) if is_planted(Bug::RefusedLoginIsFailure) => error.class(),
            Self::Connecting(_) => ErrorClass::Unavailable,
            Self::Bookkeeping(error) => match error.class() {
                ErrorClass::Stop => ErrorClass::Slow,
                class => class,
            },
            Self::Keys { error, .. } => error.class(),
            Self::Transaction { code, half_way: false, .. } => match class_of_code(*code) {
                ErrorClass::Slow => ErrorClass::Slow,
                // It was repeated already, without success.
                _ => ErrorClass::Stop,
            },
            _ => ErrorClass::Stop,
        }
    }

    /// Returns true for an error that has no cause in a transaction, and may pass once somebody sees to the server.
    pub(super) fn passes_slowly(&self) -> bool {
        self.class() == ErrorClass::Slow
    }

    /// Returns true for an error that passes with time: no reason to stop a channel.
    pub(crate) fn is_passing(&self) -> bool {
        !self.class().is_failure()
    }

    /// Returns true for what is worth another attempt at once: the transactions that are in the way may end soon. Undo
    /// slots may also stay full, so attempts at those are counted.
    pub(crate) fn is_brief(&self) -> bool {
        let is_of_slots =
            |error: &LinkError| matches!(error, LinkError::Server { code: NO_UNDO_SLOT, .. });
        self.class() == ErrorClass::Retry || self.link().is_some_and(is_of_slots)
    }

    /// True if the channel can try again on its own: the cause is neither in a transaction, nor a question that a
    /// person has to answer before anything is applied again.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Transaction { .. } => self.class() == ErrorClass::Slow,
            // Reading definitions again does no harm.
            Self::Keys { error, .. } => error.may_pass(),
            Self::Target { .. }
            | Self::Timeout { .. }
            | Self::Silent { .. }
            | Self::Unfit { .. }
            | Self::Product { .. }
            | Self::Server { .. }
            | Self::Connecting(_)
            | Self::Bookkeeping(_)
            | Self::Held { .. }
            | Self::Elsewhere { .. }
            | Self::Answer { .. }
            | Self::Task { .. }
            | Self::Broken(_) => true,
            _ => false,
        }
    }

    /// Returns true if the error is about the contents of a transaction, so that a group must be taken apart to
    /// name it. The place counts first: whatever a session meets that is being opened, or a statement of our
    /// bookkeeping, every transaction would meet.
    pub(crate) fn is_of_transaction(&self) -> bool {
        match self {
            Self::Target { source: LinkError::Server { code, .. }, .. }
            | Self::Server { source: LinkError::Server { code, .. }, .. } => {
                // A lock wait may be shorter for a part of the group.
                let is_its = |rule: &Rule| {
                    rule.about == About::Transaction || rule.consequence == Consequence::Retry
                };
                rule_of(*code).is_none_or(is_its)
            }
            Self::Rows { .. } => true,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use csa_provider::binlog::Gtid;
    use csa_provider::seams::SystemChance;
    use csa_provider::server::link::{Opening, RULES};

    use super::*;

    /// An error that is in no table.
    const UNKNOWN: u16 = 4999;

    fn met(code: u16) -> Error {
        let source = LinkError::Server { code, message: "why".to_owned() };
        Error::Target { address: "t:3306".to_owned(), source }
    }

    #[test]
    fn a_session_that_is_refused_ends_no_channel_and_blames_no_transaction() {
        let codes = RULES.iter().flat_map(|rule| rule.errors).map(|(code, _)| *code);
        for code in codes.chain([UNKNOWN]) {
            let error = met(code).connecting();
            assert_eq!(error.class(), ErrorClass::Unavailable, "{code}");
            assert!(!error.is_of_transaction() && error.may_pass() && error.gtid().is_none());
            assert_eq!(error.code(), Some(code), "the status shows it");
            let opening = rule_of(code).map_or(Opening::Away, |rule| rule.opening);
            let pause = error.refused_pause(&SystemChance);
            assert_eq!(pause.is_some(), opening != Opening::Away, "{code}");
            assert!(pause.is_none_or(|pause| (22..38).contains(&pause.as_secs())), "{pause:?}");
            assert_eq!(error.is_of_room(), opening == Opening::Full, "{code}");
            // The same number in a statement says nothing about the room for sessions.
            assert!(!met(code).is_of_room());
        }
    }

    #[test]
    fn our_own_bookkeeping_ends_no_channel_for_good() {
        let codes = RULES.iter().flat_map(|rule| rule.errors).map(|(code, _)| *code);
        for code in codes.chain([UNKNOWN]) {
            let error = met(code).of_bookkeeping();
            assert_ne!(error.class(), ErrorClass::Stop, "{code}");
            assert!(!error.is_of_transaction() && error.may_pass(), "{code}");
        }
    }

    #[test]
    fn definitions_that_cannot_be_read_are_read_again() {
        let gtid: Gtid = "3e11fa47-71ca-11e1-9e33-c80aa9429562:5".parse().expect("a GTID");
        let codes = RULES.iter().flat_map(|rule| rule.errors).map(|(code, _)| *code);
        for code in codes.chain([UNKNOWN]) {
            let refusal =
                csa_scheduler::error::Error::Keys { gtid: gtid.clone(), source: met(code).into() };
            let error = Error::from(refusal);
            let class = met(code).class();
            assert_eq!((error.class(), error.code()), (class, Some(code)));
            assert!(error.may_pass() && !error.is_of_transaction(), "{code}");
            assert_eq!(error.gtid().is_none(), class == ErrorClass::Slow, "{code}");
            assert!(error.to_string().contains(":5: reading the keys"), "{error}");
        }
        let source = Error::Stopping.into();
        assert!(!Error::from(csa_scheduler::error::Error::Keys { gtid, source }).may_pass());
    }

    #[test]
    fn a_statement_has_the_class_of_the_table() {
        for rule in RULES {
            for (code, _) in rule.errors {
                let (error, about) = (met(*code), rule.about);
                let class = error.class();
                let expected = match rule.consequence {
                    Consequence::Retry => ErrorClass::Retry,
                    Consequence::Wait => ErrorClass::Unavailable,
                    Consequence::Slowly => ErrorClass::Slow,
                    Consequence::Stop => ErrorClass::Stop,
                };
                assert_eq!(class, expected, "{code}");
                let is_taken_apart = about == About::Transaction || class == ErrorClass::Retry;
                assert_eq!(error.is_of_transaction(), is_taken_apart, "{code}");
            }
        }
        assert_eq!(met(UNKNOWN).class(), ErrorClass::Stop);
        assert!(met(UNKNOWN).is_of_transaction(), "to be named");
        // No undo slot is left: any transaction would meet it.
        assert_eq!((met(1637).class(), met(1637).is_of_transaction()), (ErrorClass::Slow, false));
        // A burst of short ones lasts for milliseconds.
        assert!(met(1637).is_brief() && met(1637).of_bookkeeping().is_brief());
        assert!(!met(1637).is_passing() && !met(1637).of_bookkeeping().is_passing());
        assert!(met(1213).is_brief() && !met(1114).is_brief() && !met(1114).is_passing());
    }
}
