//! The causes that interrupt a source's stream, set where the error arises, so that advice need not
//! depend on words in a message.

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
    /// Our own relay store, or reception itself.
    Spool,
}

/// Words in the server's texts for error 1236, which it uses for all of these causes: nothing but
/// the text differs.
const WORDS: [(&str, SourceCause); 4] = [
    ("anonymous transaction", SourceCause::Anonymous),
    ("purged required", SourceCause::Purged),
    // MySQL 5.7.
    ("purged binary logs", SourceCause::Purged),
    // The source lacks its own transactions: it was reset, or has lost the end of its binary log.
    ("more GTIDs than the", SourceCause::OtherHistory),
];

/// Words in texts for that error that point to something temporary: a later dump of the same replica, perhaps of the
/// daemon before this one.
const PASSING: &str = "same server_uuid";
/// Words in the text for a binary log in which an event is not whole. It may be about to be written, or be cut off for
/// good.
const CUT_OFF: &str = "truncated in the middle of event";

/// Returns true if a dump that ended with this text can be requested again at once.
pub(crate) fn passes(message: &str) -> bool {
    message.contains(PASSING)
}

/// Returns true if a dump that ended with this text can be requested again once.
pub(crate) fn may_pass(message: &str) -> bool {
    message.contains(CUT_OFF)
}

pub(crate) const AFRESH: &str = "; provision the target again (docs/provisioning.md#copy-again)";

impl SourceCause {
    /// Returns the cause of a dump that the server ended for good with this text.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The beginnings of the texts of MySQL 5.7.22, 8.0.15, 8.0.31 and 9.7.
    #[test]
    fn each_version_names_the_cause_in_its_own_words() {
        for (cause, texts) in [
            (
                SourceCause::Purged,
                [
                    "The slave is connecting using CHANGE MASTER TO MASTER_AUTO_POSITION = 1, but the master has \
                     purged binary logs containing GTIDs that the slave requires.",
                    "Cannot replicate because the master purged required binary logs. Replicate the missing",
                    "Cannot replicate because the source purged required binary logs. Replicate the missing",
                ]
                .as_slice(),
            ),
            (
                SourceCause::OtherHistory,
                &[
                    "Slave has more GTIDs than the master has, using the master's SERVER_UUID.",
                    "Replica has more GTIDs than the source has, using the source's SERVER_UUID.",
                ],
            ),
            (
                SourceCause::Anonymous,
                &["Cannot replicate anonymous transaction when AUTO_POSITION = 1, at file x, position 4."],
            ),
            (SourceCause::Stream, &["bogus data in log event"]),
        ] {
            for text in texts {
                assert_eq!(SourceCause::of_refusal(text), cause, "{text}");
            }
        }
    }
}
