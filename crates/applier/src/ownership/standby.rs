//! Watches a channel that another daemon holds on the target, at the cost of one session and one short
//! query for each look. It takes nothing: of those that find the channel free, its lock decides.

use csa_provider::sql_text::quote;

use crate::error::Result;
use crate::ownership::{bookkeeping, checkpoint, locks};
use crate::server::lock_names::{daemon_lock, lock_name};
use crate::server::session::Session;
use crate::server::target::Target;

/// A session on the target that writes nothing.
#[derive(Debug)]
pub struct Standby {
    session: Session,
    channel: String,
    query: String,
    /// The holder that was found last, in words.
    known: Option<(u64, String)>,
}

impl Standby {
    /// # Errors
    /// The target can't be reached.
    pub async fn open(target: &Target, channel: &str, identity: &str) -> Result<Self> {
        target.route.forget();
        let mut session = Session::connect(target).await?;
        session.end_when_idle(bookkeeping::IDLE_LIMIT).await?;
        let (name, own) = (quote(&lock_name(channel)), quote(&daemon_lock(identity)));
        let query =
            format!("SELECT COALESCE(IS_USED_LOCK({name}), 0), COALESCE(IS_USED_LOCK({own}), 0)");
        Ok(Self { session, channel: channel.to_owned(), query, known: None })
    }

    /// Returns the daemon that holds the channel, in words; `None` if no other daemon does.
    ///
    /// # Errors
    /// The target can't be reached.
    pub async fn holder(&mut self) -> Result<Option<&str>> {
        let rows: Vec<(u64, u64)> = self.session.rows(&self.query).await?;
        let (connection, own) = rows.into_iter().next().unwrap_or_default();
        if connection == 0 {
            return Ok(None);
        }
        if self.known.as_ref().is_none_or(|(known, _)| *known != connection) {
            let text = match connection == own {
                true => locks::namesake(&mut self.session, connection).await?,
                false => Some(locks::describe(&mut self.session, connection).await?),
            };
            // A session that this daemon left there is ended or waited for when the channel is taken.
            let Some(text) = text else { return Ok(None) };
            self.known = Some((connection, text));
        }
        Ok(self.known.as_ref().map(|(_, text)| text.as_str()))
    }

    /// Returns true if the channel has a checkpoint: the holder may be its first copy.
    ///
    /// # Errors
    /// The target can't be reached.
    pub async fn has_checkpoint(&mut self) -> Result<bool> {
        Ok(bookkeeping::has_table(&mut self.session, "checkpoint").await?
            && !checkpoint::workers(&mut self.session, &self.channel).await?.is_empty())
    }

    pub async fn close(self) {
        self.session.close().await;
    }
}
