//! The causes that interrupt a source's stream, set where the error arises, so that advice need not
//! depend on words in a message.

use crate::connection::ConnectionError;
use crate::link::LinkError;
use crate::preflight::PreflightError;
use crate::provider::Error;

/// A cause; each one needs a different action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceCause {
    /// The source does not answer, or the link broke: passes on its own.
    Unreachable,
    /// The source refuses the account.
    Account,
    /// The protection of the link does not suit one of the two sides.
    Protection,
    /// Needed transactions are no longer in its binary logs.
    Purged,
    /// It has lost or never had what was received from it.
    OtherHistory,
    /// A transaction without a GTID.
    Anonymous,
    /// An event that can't be replicated, or is damaged in its binary log.
    Stream,
    /// One of its settings, as the message says.
    Setting,
    /// Our own relay store.
    Spool,
}

/// Words in the server's texts for error 1236, which it uses for all of these causes: nothing but
/// the text differs.
const WORDS: [(&str, SourceCause); 3] = [
    ("anonymous transaction", SourceCause::Anonymous),
    ("purged required", SourceCause::Purged),
    // The source lacks its own transactions: it was reset, or has lost the end of its binary log.
    ("more GTIDs than the", SourceCause::OtherHistory),
];

pub(crate) const AFRESH: &str =
    "; provision the target again (clone or dump) and start from its gtid_executed";

impl SourceCause {
    /// The cause of a dump that the server ended for good with this text.
    pub(crate) fn of_refusal(message: &str) -> Self {
        let known = WORDS.iter().find(|(words, _)| message.contains(words));
        known.map_or(Self::Stream, |&(_, cause)| cause)
    }

    /// The end of an error's line: what to do.
    pub(crate) const fn repair(self) -> &'static str {
        match self {
            Self::Anonymous => "; set gtid_mode=ON on the source, then provision the target again",
            Self::Purged | Self::OtherHistory => AFRESH,
            _ => "",
        }
    }
}

impl ConnectionError {
    #[must_use]
    pub fn cause(&self) -> SourceCause {
        match self {
            Self::Link(error) if error.is_account() => SourceCause::Account,
            Self::Link(error) if error.is_protection() => SourceCause::Protection,
            Self::Link(LinkError::Server { code: crate::provider::SOURCE_FATAL, message }) => {
                SourceCause::of_refusal(message)
            }
            _ => SourceCause::Unreachable,
        }
    }
}

impl PreflightError {
    #[must_use]
    pub const fn cause(&self) -> SourceCause {
        match self {
            Self::Unreachable(_) => SourceCause::Unreachable,
            Self::Account(_) => SourceCause::Account,
            Self::Purged(_) => SourceCause::Purged,
            Self::Refused(_) => SourceCause::Setting,
        }
    }
}

impl Error {
    #[must_use]
    pub const fn cause(&self) -> SourceCause {
        match self {
            Self::Stream(_) | Self::Damaged { .. } => SourceCause::Stream,
            Self::Refused { cause, .. } => *cause,
            Self::Repeated { .. } => SourceCause::OtherHistory,
            Self::Sink(_) => SourceCause::Spool,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(code: u16, message: &str) -> ConnectionError {
        LinkError::Server { code, message: message.to_owned() }.into()
    }

    #[test]
    fn causes_come_from_the_error_and_not_from_what_it_is_about() {
        for (error, cause) in [
            (server(1045, "Access denied for user"), SourceCause::Account),
            (server(3159, "insecure transport"), SourceCause::Protection),
            (LinkError::Tls("no".to_owned()).into(), SourceCause::Protection),
            (LinkError::Closed.into(), SourceCause::Unreachable),
            // Numbers and words of other causes in a message mean nothing.
            (server(1040, "Too many connections, 1236 of them"), SourceCause::Unreachable),
            (ConnectionError::Protocol("purged 1045".to_owned()), SourceCause::Unreachable),
            (server(1236, "the source purged required binary logs"), SourceCause::Purged),
            (server(1236, "Replica has more GTIDs than the source has"), SourceCause::OtherHistory),
            (server(1236, "log event 1:purged:5 exceeds the limit"), SourceCause::Stream),
        ] {
            assert_eq!(error.cause(), cause, "{error}");
        }
        let refused = PreflightError::Refused("error 1045: purged".to_owned());
        assert_eq!(refused.cause(), SourceCause::Setting);
    }
}
