//! One round over the addresses of a source, and its result where none of them serves.

use super::end::{Error, LinkEnd};
use crate::server::link::LinkError;
use crate::source::cause::SourceCause;
use crate::source::connection::ConnectionError;

/// The way in which the attempt to follow one address ended.
#[derive(Debug)]
enum Outcome {
    /// It may serve later.
    Away(ConnectionError),
    /// It ended the stream for good, after so many transactions had been handed over.
    Ended { error: Error, after: u64 },
}

/// The outcome for each address that had its turn; of one with two turns the later.
#[derive(Debug, Default)]
pub(super) struct Round(Vec<(String, Outcome)>);

impl Round {
    pub(super) fn away(&mut self, address: &str, error: ConnectionError) {
        self.note(address, Outcome::Away(error));
    }

    pub(super) fn ended(&mut self, address: &str, error: Error, after: u64) {
        self.note(address, Outcome::Ended { error, after });
    }

    fn note(&mut self, address: &str, outcome: Outcome) {
        self.0.retain(|(noted, _)| noted != address);
        self.0.push((address.to_owned(), outcome));
    }

    /// Returns true if an address has ended the stream for good.
    pub(super) fn has_ended(&self) -> bool {
        self.0.iter().any(|(_, outcome)| matches!(outcome, Outcome::Ended { .. }))
    }

    /// Returns the end of the round, after `handed_over` transactions. Reception ends only if none of the addresses
    /// can send what comes next.
    pub(super) fn end(self, handed_over: u64) -> LinkEnd {
        let mut ended = Vec::new();
        let mut others = Vec::new();
        let mut away: Option<ConnectionError> = None;
        for (address, outcome) in self.0 {
            match outcome {
                Outcome::Ended { error, after } if after == handed_over => ended.push(error),
                // Another address has sent since then what this one was asked for.
                Outcome::Ended { error, .. } => others.push(error.reason()),
                Outcome::Away(error) => {
                    others.push(format!("{address}: {error}"));
                    away = Some(match away {
                        Some(last) => more_telling(last, error),
                        None => error,
                    });
                }
            }
        }
        let Some(cause) = ended.first().map(Error::cause) else {
            return LinkEnd::Fault(away.unwrap_or_else(|| LinkError::Closed.into()));
        };
        if others.is_empty() {
            return LinkEnd::Fatal(Error::of_all(ended));
        }
        let reasons: Vec<String> = ended.iter().map(Error::reason).collect();
        LinkEnd::Fault(ConnectionError::OthersMayServe {
            ended: reasons.join("; "),
            cause,
            others: others.join("; "),
            away: away.map(Box::new),
        })
    }
}

/// Returns the one of two errors to show, which also decides how long the pause is.
fn more_telling(last: ConnectionError, next: ConnectionError) -> ConnectionError {
    if weight(&next) >= weight(&last) { next } else { last }
}

/// Returns how much an error says: most if the server refuses the account, least if it is away.
fn weight(error: &ConnectionError) -> u8 {
    match error {
        _ if error.cause() != SourceCause::Unreachable => 2,
        ConnectionError::Protocol(_) => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(address: &str, message: &str) -> Error {
        Error::Refused {
            address: address.to_owned(),
            at: "the start".to_owned(),
            message: message.to_owned(),
            cause: SourceCause::of_refusal(message),
        }
    }

    const PURGED: &str = "the source purged required binary logs";

    #[test]
    fn reception_ends_only_if_no_address_can_send_what_comes_next() {
        let mut round = Round::default();
        round.away("a:1", LinkError::Closed.into());
        round.ended("a:1", refused("a:1", PURGED), 3);
        round.ended("b:1", refused("b:1", "log event entry exceeded"), 3);
        let LinkEnd::Fatal(error) = round.end(3) else { panic!("not for good") };
        assert_eq!(error.cause(), SourceCause::Purged);
        assert!(!error.is_of_transaction());
        let text = error.to_string();
        for words in ["no address", "source a:1 can't", PURGED, "source b:1 can't", "exceeded"] {
            assert!(text.contains(words), "{words:?} is missing in {text}");
        }
        assert_eq!(text.matches("provision the target again").count(), 1, "{text}");
    }

    #[test]
    fn an_address_that_may_serve_later_is_waited_for() {
        let denied = LinkError::Server { code: 1045, message: "denied".to_owned() };
        let mut round = Round::default();
        round.ended("a:1", refused("a:1", PURGED), 3);
        round.away("b:1", denied.into());
        round.away("c:1", LinkError::Closed.into());
        let LinkEnd::Fault(error) = round.end(3) else { panic!("for good") };
        assert_eq!(error.cause(), SourceCause::Purged);
        let text = error.to_string();
        for words in ["source a:1 can't", PURGED, "b:1: error 1045", "c:1: the server closed"] {
            assert!(text.contains(words), "{words:?} is missing in {text}");
        }
        // One may have what it lacked then, because another has sent something since.
        let mut round = Round::default();
        round.ended("a:1", refused("a:1", PURGED), 3);
        round.ended("b:1", refused("b:1", PURGED), 4);
        assert!(matches!(round.end(4), LinkEnd::Fault(_)));
        // Alone it ends as before.
        let mut round = Round::default();
        round.ended("a:1", refused("a:1", PURGED), 3);
        assert!(matches!(round.end(3), LinkEnd::Fatal(Error::Refused { .. })));
    }

    #[test]
    fn of_errors_that_may_pass_the_most_telling_is_shown() {
        let denied = || LinkError::Server { code: 1045, message: "denied".to_owned() };
        let mut round = Round::default();
        round.away("a:1", LinkError::Closed.into());
        round.away("b:1", ConnectionError::Protocol("it is RECOVERING".to_owned()));
        round.away("c:1", LinkError::Closed.into());
        assert!(matches!(round.end(0), LinkEnd::Fault(ConnectionError::Protocol(_))));
        let orders: [[LinkError; 2]; 2] =
            [[LinkError::Closed, denied()], [denied(), LinkError::Closed]];
        for [first, second] in orders {
            let mut round = Round::default();
            round.away("a:1", first.into());
            round.away("b:1", second.into());
            let LinkEnd::Fault(error) = round.end(0) else { panic!("for good") };
            assert_eq!(error.cause(), SourceCause::Account);
        }
        assert!(matches!(Round::default().end(0), LinkEnd::Fault(_)));
    }
}
