//! The end of rows that can't be rolled back, of which a part may be there.

use csa_scheduler::group::Group;
use tracing::warn;

use super::attempts::{Attempts, Rows};
use super::context;
use super::parts::Parts;
use crate::error::transaction::tables_of;
use crate::error::{Error, Result};
use crate::options::TargetGtids;
use crate::ownership::bookkeeping;
use crate::ownership::intent;
use crate::ownership::keeper::Keeper;
use crate::server::as_source;
use crate::server::session::Session;

impl Parts {
    /// Ends rows of which a part may be there under their GTID: their entry says so, and they fail. As long as
    /// [`Attempts`] has the failure, another attempt does the same.
    pub(super) async fn end_partly(
        &self,
        session: &mut Session,
        group: &Group,
        gtid: &str,
        attempts: &mut Attempts,
    ) -> Result<()> {
        // Under the GTID of the rows the server would pass over the note.
        self.leave_rows(session, true).await?;
        let is_recorded = session.has_executed(gtid).await?;
        if is_recorded {
            self.note_part(session, gtid).await?;
        }
        let failed = attempts.partly.take();
        failed.map_or(Ok(()), |error| Err(self.half_done(session, group, gtid, is_recorded, error)))
    }

    /// Makes the entry of rows of which a part may be there. A server that has taken over since they were begun has none.
    pub(super) async fn note_part(&self, session: &mut Session, gtid: &str) -> Result<()> {
        let entry = intent::announce_rows(&self.options.channel, gtid, false);
        let noted = match intent::create(session).await {
            Ok(()) => session.run(entry).await.map(drop),
            refused => refused,
        };
        noted.map_err(Error::of_bookkeeping)
    }

    /// Returns the error with which the channel ends, where the target is another server now. That one may have a part
    /// of the rows, and no sign of it but their GTID.
    pub(super) async fn elsewhere(
        &self,
        keeper: &mut Keeper,
        gtid: &str,
        attempts: &Attempts,
        error: Error,
    ) -> Error {
        let session = keeper.session();
        if attempts.rows != Rows::Sent
            || !matches!(error, Error::Older { .. })
            || session.has_executed(gtid).await.is_ok_and(|has| !has)
        {
            return error;
        }
        if let Err(error) = self.note_part(session, gtid).await {
            warn!(gtid, %error, "the target has no entry of rows of which a part may be there");
        }
        intent::partly_done(session, &self.options.channel, gtid.to_owned())
    }

    /// Restores the session's own settings. If the link is lost here, the entry stays, and the next attempt finds it half
    /// done.
    pub(super) async fn leave_rows(&self, session: &mut Session, took_images: bool) -> Result<()> {
        session.run("ROLLBACK").await?;
        session.leave_now().await?;
        if took_images {
            // BINLOG leaves the time of its last event, and the channel's own tables have times by this session's clock.
            session.run(context::NOW).await?;
        }
        if self.target.gtids == TargetGtids::Source {
            session.run(as_source::AUTOMATIC).await?;
            session.log(false).await?;
        }
        Ok(())
    }

    /// Returns the error with what the operator has to do about the rows before it.
    pub(super) fn half_done(
        &self,
        session: &Session,
        group: &Group,
        gtid: &str,
        is_recorded: bool,
        error: Error,
    ) -> Error {
        let Some(code) = error.code().filter(|_| error.class().is_failure()) else { return error };
        let by_hand = bookkeeping::by_hand(session.logs());
        let channel = self.options.channel.clone();
        let if_done = intent::if_done(&channel, by_hand);
        let half_done = match is_recorded {
            true => Error::PartlyDone { gtid: gtid.to_owned(), if_done },
            false => Error::HalfDone { gtid: gtid.to_owned(), channel, by_hand, if_done },
        };
        let mut message = error.server_text();
        message.push(&format!("; {half_done}"));
        let of = group.transactions.first().map(tables_of).unwrap_or_default();
        Error::Transaction { gtid: gtid.to_owned(), of, code, message, row: None, half_way: true }
    }
}
