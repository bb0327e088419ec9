//! The knowledge that one attempt at a statement, or at rows that can't be rolled back, leaves to the next. Pure.

use crate::error::{Error, Result};

/// The effect on a target that does not record it together with the source's GTID.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Effect {
    /// The entry in `csa.statement` says whether anything was begun.
    #[default]
    Unknown,
    /// It was not sent, or failed and changed nothing. Its entry, if it has one, is still to be removed.
    Nothing,
    /// It is there. The checkpoint is still to be written.
    Whole,
}

/// Rows under their source's GTID that can't be rolled back, of which the target may have a part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Rows {
    /// Their entry in `csa.statement` says whether a part may be there.
    #[default]
    Unsent,
    /// The target has not answered that all of them are there. Another one that takes over has no entry.
    Sent,
    /// It has. Their GTID is as good as their entry.
    Whole,
}

#[derive(Debug, Default)]
pub(super) struct Attempts {
    /// One of them got no answer, and may have written the checkpoint.
    pub(super) may_be_committed: bool,
    /// The error with which the statement ended on the source, if it ended without one here. Only the attempt that
    /// executes it learns that, and a later one may be left to write the checkpoint.
    pub(super) missing: Option<u16>,
    pub(super) effect: Effect,
    /// The session may still be like the source's: an error has kept it from being restored.
    pub(super) is_entered: bool,
    pub(super) rows: Rows,
    /// The error of rows of which a part may be there under their GTID, until the channel ends with it. The next start
    /// would not know why.
    pub(super) partly: Option<Error>,
}

impl Attempts {
    /// Notes how the statement ended.
    pub(super) fn note(&mut self, outcome: &Result<Option<u16>>) {
        if let Ok(missing) = outcome {
            self.missing = *missing;
        }
    }

    /// Returns true if only the channel's own tables are still to be written, and the next start may not know that, or
    /// not all of it. So a lock or a shortage that is in the way is waited for, also by a stop.
    pub(super) fn is_decided(&self) -> bool {
        self.effect != Effect::Unknown || self.missing.is_some() || self.partly.is_some()
    }

    /// The session was lost, and its server may have lost what it had done. What had no effect has none now.
    pub(super) fn lost(&mut self) {
        self.may_be_committed = true;
        self.is_entered = false;
        if self.effect == Effect::Whole {
            self.effect = Effect::Unknown;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use csa_provider::binlog::GtidSet;
    use csa_provider::server::Environment;
    use csa_provider::server::link::LinkError;
    use csa_scheduler::sequence::Sequence;

    use super::*;
    use crate::commits::Commits;
    use crate::group::worker::tests::{group_of, options, transaction};
    use crate::options::{Executor, TargetGtids, TargetOptions};
    use crate::ownership::keeper::tests::keeper;
    use crate::server::reachability::Reachability;
    use crate::server::scripted::{self, Scripted};
    use crate::server::target::Target;
    use crate::statement::parts::Parts;
    use crate::status::ApplierStatus;

    /// Returns the tools of a channel with the source's GTIDs.
    fn under_source(server: &Scripted) -> Parts {
        let target = TargetOptions { gtids: TargetGtids::Source, ..scripted::options() };
        let status = ApplierStatus::new(
            Commits::new(Sequence::default(), GtidSet::new()),
            Reachability::default(),
            Executor::Sql,
            Environment::default().clock,
        );
        Parts {
            target: Target::new(target, server.clone()),
            options: options(),
            status: Arc::new(status),
            tables: Arc::default(),
        }
    }

    #[tokio::test]
    async fn a_failure_half_way_survives_a_lost_link_until_it_is_noted() {
        let server = Scripted::default();
        let parts = under_source(&server);
        let mut keeper = keeper(&server).await;
        let source = LinkError::Server { code: 1062, message: "why".to_owned() };
        let error = Error::Target { address: "t:3306".to_owned(), source };
        let mut attempts = Attempts { partly: Some(error), ..Attempts::default() };
        attempts.lost();
        assert!(attempts.is_decided(), "a stop waits until it is noted");
        let group = group_of(transaction());
        let written = parts.write_group(&mut keeper, &group, "g:1", &mut attempts).await;
        let error = Error::from(written.expect_err("the channel stops"));
        assert_eq!(error.code(), Some(1062));
        assert!(error.to_string().contains("counts its GTID as executed"), "{error}");
        let sent = server.state().sent.clone();
        // Another server has neither the entry nor, perhaps, the table.
        let table = "CREATE TABLE IF NOT EXISTS csa.statement ";
        assert!(sent.iter().any(|sent| sent.starts_with(table)), "{sent:?}");
        assert!(sent.last().is_some_and(|sent| is_note(sent)), "{sent:?}");
        assert!(!attempts.is_decided());
    }

    /// Returns true for a statement that makes the entry of rows of which a part may be there.
    fn is_note(statement: &str) -> bool {
        statement.starts_with("REPLACE INTO csa.statement ") && statement.contains("'g:1', -1, ")
    }

    /// The target records the GTID of the part that it keeps for a session that is gone.
    #[tokio::test]
    async fn rows_without_an_answer_are_not_complete_because_their_gtid_is_executed() {
        for (rows, entry, is_asked) in [
            (Rows::Unsent, Some(-1), true),
            (Rows::Unsent, Some(2), false),
            (Rows::Unsent, None, false),
            (Rows::Sent, Some(-1), true),
            // Another server has taken over.
            (Rows::Sent, None, true),
            // The link was lost after the answer.
            (Rows::Whole, Some(-1), false),
        ] {
            let server = Scripted::default();
            server.state().has_tables = true;
            server.state().entry = entry.map(|state| ("g:1".to_owned(), state));
            let parts = under_source(&server);
            let mut keeper = keeper(&server).await;
            let mut attempts = Attempts { rows, ..Attempts::default() };
            attempts.lost();
            let group = group_of(transaction());
            let written = parts.write_group(&mut keeper, &group, "g:1", &mut attempts).await;
            let error = written.err().map(Error::from);
            let is_partly = matches!(error, Some(Error::PartlyDone { .. }));
            assert_eq!(is_partly, is_asked, "{rows:?} {entry:?}: {error:?}");
            let is_noted = server.state().sent.iter().any(|sent| is_note(sent));
            assert_eq!(is_noted, is_asked, "{rows:?} {entry:?}");
        }
    }

    /// A replica of the target was promoted, and has a part of the rows with their GTID.
    #[tokio::test]
    async fn rows_without_an_answer_are_asked_about_on_the_server_that_takes_over() {
        let older = || Error::Older {
            channel: "c".to_owned(),
            address: "t:3306".to_owned(),
            missing: String::new(),
        };
        for (rows, is_asked) in [(Rows::Sent, true), (Rows::Whole, false), (Rows::Unsent, false)] {
            let server = Scripted::default();
            let parts = under_source(&server);
            let mut keeper = keeper(&server).await;
            let attempts = Attempts { rows, ..Attempts::default() };
            let end = parts.elsewhere(&mut keeper, "g:1", &attempts, older()).await;
            assert_eq!(matches!(end, Error::PartlyDone { .. }), is_asked, "{rows:?}: {end}");
            let is_noted = server.state().sent.iter().any(|sent| is_note(sent));
            assert_eq!(is_noted, is_asked, "{rows:?}");
        }
    }

    #[test]
    fn an_effect_is_known_as_long_as_the_session_lives() {
        for (effect, missing, is_decided, [kept, after_loss]) in [
            (Effect::Unknown, None, false, [false, false]),
            (Effect::Nothing, None, true, [true, true]),
            (Effect::Whole, None, true, [false, false]),
            (Effect::Whole, Some(1051), true, [false, true]),
        ] {
            let mut attempts =
                Attempts { effect, missing, is_entered: true, ..Attempts::default() };
            assert_eq!(attempts.is_decided(), is_decided, "{effect:?}");
            attempts.lost();
            let expected = if kept { effect } else { Effect::Unknown };
            assert_eq!((attempts.effect, attempts.may_be_committed), (expected, true));
            assert!(!attempts.is_entered, "the next session is another one");
            // Whatever became of the effect, the target's GTIDs or checkpoint may show it later.
            assert_eq!(attempts.is_decided(), after_loss, "{effect:?}");
        }
    }
}
