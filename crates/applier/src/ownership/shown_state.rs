//! `csa.status` on the target: a row for each channel, for clients that ask the target and not the daemon.
//!
//! The control session writes it between two groups, at most once a second. No group begins meanwhile, so while
//! groups run this takes a hundredth of the time at most. It waits no longer than a second for locks of others, and
//! after a failure the row stays as it is for a minute.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use csa_provider::sql_text::quote;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::bookkeeping;
use super::keeper::Keeper;
use crate::error::{Error, ErrorClass, Result};
use crate::server::session::Session;

/// Time between two writes, and after one that failed.
const INTERVAL: Duration = Duration::from_secs(1);
/// While groups run, the pause between two writes is so many times longer than the last one took.
const PAUSES: u32 = 100;
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const AFTER_FAILURE: Duration = Duration::from_secs(60);
/// ER_NO_SUCH_TABLE and ER_BAD_DB_ERROR.
const NO_TABLE: [u16; 2] = [1146, 1049];
/// ER_SPECIFIC_ACCESS_DENIED_ERROR: without the privilege nothing was changed.
const NO_PRIVILEGE: u16 = 1227;
const UNLOGGED: &str = "SET SESSION sql_log_bin=0";
const LOGGED: &str = "SET SESSION sql_log_bin=1";

const CREATE: &str = "CREATE TABLE IF NOT EXISTS csa.status (\
     channel VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY, \
     state VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, \
     reason VARCHAR(1024) CHARACTER SET utf8mb4 NOT NULL, \
     lag_seconds DOUBLE NULL, \
     backlog_transactions BIGINT UNSIGNED NULL, \
     received_transaction_set LONGTEXT CHARACTER SET ascii NOT NULL, \
     applied_transaction_set LONGTEXT CHARACTER SET ascii NOT NULL, \
     last_error_number SMALLINT UNSIGNED NOT NULL, \
     last_error VARCHAR(1024) CHARACTER SET utf8mb4 NOT NULL, \
     updated_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)) ENGINE=InnoDB";

/// The state of a channel, as its row has it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ShownState {
    pub state: String,
    /// The state in a sentence.
    pub reason: String,
    /// `None` while it is unknown.
    pub lag_seconds: Option<f64>,
    pub backlog_transactions: Option<u64>,
    pub received: String,
    pub applied: String,
    /// 0 for none.
    pub error_number: u16,
    pub error: String,
}

/// Knows the state of a channel.
pub trait StateSource: fmt::Debug + Send + Sync {
    /// Returns the state at this moment.
    fn state(&self) -> ShownState;

    /// Returns number and text of the error with which the stream of transactions has ended, if it was one.
    fn stream_failure(&self) -> Option<(u16, String)> {
        None
    }
}

impl ShownState {
    fn replace(&self, channel: &str) -> String {
        let text = |text: &str| quote(&text.chars().take(1024).collect::<String>());
        let or_null = |value: Option<String>| value.unwrap_or_else(|| "NULL".to_owned());
        format!(
            "REPLACE INTO csa.status (channel, state, reason, lag_seconds, backlog_transactions, \
             received_transaction_set, applied_transaction_set, last_error_number, last_error, updated_at) \
             VALUES ({}, {}, {}, {}, {}, {}, {}, {}, {}, NOW(6))",
            quote(channel),
            quote(&self.state),
            text(&self.reason),
            or_null(self.lag_seconds.map(|lag| format!("{lag:.6}"))),
            or_null(self.backlog_transactions.map(|backlog| backlog.to_string())),
            quote(&self.received),
            quote(&self.applied),
            self.error_number,
            text(&self.error),
        )
    }
}

/// Writes the row from time to time.
#[derive(Debug)]
pub(crate) struct ShownStateWriter {
    source: Option<Arc<dyn StateSource>>,
    due: Instant,
    /// A session, and whether its writes have to be kept out of the target's binary log.
    hides: Option<(u32, bool)>,
    /// The log says already that the row is not written.
    has_warned: bool,
}

impl ShownStateWriter {
    /// Writes nothing without a source.
    pub(crate) fn new(source: Option<Arc<dyn StateSource>>) -> Self {
        Self { source, due: Instant::now(), hides: None, has_warned: false }
    }

    /// Writes the row if it is time to; `busy`: groups run, and others may wait for this.
    ///
    /// # Errors
    /// The channel can't be held any more. That the row could not be written is none.
    pub(crate) async fn note(&mut self, keeper: &mut Keeper, busy: bool) -> Result<()> {
        let Some(source) = self.source.as_ref().filter(|_| Instant::now() >= self.due) else {
            return Ok(());
        };
        let (state, begun) = (source.state(), Instant::now());
        let written = self.write(keeper, &state).await;
        if busy {
            self.due += pause_after(begun.elapsed());
        }
        let Err(error) = written else {
            self.has_warned = false;
            return Ok(());
        };
        self.due = Instant::now() + AFTER_FAILURE;
        if error.class() == ErrorClass::Unavailable {
            return keeper.keep_alive().await;
        }
        self.failed(&error);
        Ok(())
    }

    /// A disk of the target that is full, or a privilege that is missing, may be so for a while only.
    fn failed(&mut self, error: &Error) {
        if error.class() == ErrorClass::Stop {
            warn!(%error, "csa.status can't be written: clients of the target don't see the channel's state");
            self.source = None;
        } else if error.is_passing() || std::mem::replace(&mut self.has_warned, true) {
            debug!(%error, "csa.status not written");
        } else {
            warn!(%error, "csa.status not written: clients of the target see an old state until it can be");
        }
    }

    /// Another session may be one on another server.
    async fn hides(&mut self, session: &mut Session) -> Result<bool> {
        if let Some((id, hides)) = self.hides
            && id == session.id()
        {
            return Ok(hides);
        }
        let hides = is_logged(session).await?;
        self.hides = Some((session.id(), hides));
        Ok(hides)
    }

    /// Writes the row once more at the end of a run; `is_cut_off`: it ended with its stream.
    pub(crate) async fn note_end(
        &mut self,
        keeper: &mut Keeper,
        outcome: &Result<()>,
        is_cut_off: bool,
    ) {
        let Some(source) = &self.source else { return };
        let Some(state) = at_end(&**source, outcome, is_cut_off) else { return };
        if let Err(error) = self.write(keeper, &state).await {
            debug!(%error, "csa.status not written at the end");
        }
    }

    async fn write(&mut self, keeper: &mut Keeper, state: &ShownState) -> Result<()> {
        if !keeper.is_held() {
            return Ok(());
        }
        self.due = Instant::now() + INTERVAL;
        let text = state.replace(keeper.channel());
        let session = keeper.session();
        let written = match self.hides(session).await {
            Ok(hides) => write(session, &text, hides).await,
            Err(error) => Err(error),
        };
        // Its timeouts and the binary log must be as they were before anything else uses the session.
        if written.is_err() {
            restore(session).await;
        }
        written
    }
}

/// Returns the state at the end of a run; `None` if the row is another daemon's.
fn at_end(source: &dyn StateSource, outcome: &Result<()>, is_cut_off: bool) -> Option<ShownState> {
    let failure = match outcome {
        Err(Error::Fenced { .. }) => return None,
        Err(error) => Some((error.code().unwrap_or_default(), error.to_string())),
        Ok(()) => source.stream_failure().filter(|_| is_cut_off),
    };
    let state = source.state();
    Some(match failure {
        Some((error_number, error)) => ShownState {
            state: "failed".to_owned(),
            reason: error.clone(),
            error_number,
            error,
            ..state
        },
        None => ShownState {
            state: "stopped".to_owned(),
            reason: "applying has ended".to_owned(),
            ..state
        },
    })
}

/// Returns the pause after a write that took so long, beyond the usual one.
fn pause_after(took: Duration) -> Duration {
    (took * PAUSES).min(LONGEST_PAUSE).saturating_sub(INTERVAL)
}

/// Writes the row with brief waits for locks of others.
async fn write(session: &mut Session, text: &str, hides: bool) -> Result<()> {
    session.wait_briefly(true).await?;
    let packet = match hides {
        true => format!("{UNLOGGED};{text};{LOGGED}"),
        false => text.to_owned(),
    };
    match session.run(&packet).await {
        Err(error) if error.code().is_some_and(|code| NO_TABLE.contains(&code)) => {
            if hides {
                session.run(LOGGED).await?;
            }
            // Logged like our other tables: an operator who drops it does so on replicas of the target, too.
            bookkeeping::create(session, "status", &[CREATE]).await?;
            session.run(&packet).await?;
        }
        other => drop(other?),
    }
    session.wait_briefly(false).await
}

/// Returns true if the row would be in the target's binary log, once a second and under GTIDs of its own.
pub(super) async fn is_logged(session: &mut Session) -> Result<bool> {
    if !session.logs() {
        return Ok(false);
    }
    let logs: Option<bool> = session.setting("SELECT @@GLOBAL.log_bin").await?;
    Ok(logs.unwrap_or(true))
}

/// Ends a session that can't be restored: the next statement finds it lost, and it is opened again.
async fn restore(session: &mut Session) {
    let is_restored = match session.logs() {
        true => match session.run(LOGGED).await {
            Ok(_) => true,
            Err(error) => error.code() == Some(NO_PRIVILEGE),
        },
        false => true,
    };
    if !is_restored || session.wait_briefly(false).await.is_err() {
        session.hang_up().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_write_is_repeated_rarely() {
        let millis = Duration::from_millis;
        let pauses = [1, 10, 50, 1000].map(|took| pause_after(millis(took)).as_millis());
        assert_eq!(pauses, [0, 0, 4000, 29_000]);
    }

    #[test]
    fn only_what_does_not_pass_ends_the_row() {
        use csa_provider::server::link::LinkError;

        #[derive(Debug)]
        struct Nothing;

        impl StateSource for Nothing {
            fn state(&self) -> ShownState {
                ShownState::default()
            }
        }

        let mut writer = ShownStateWriter::new(Some(Arc::new(Nothing)));
        let mut continues = |code| {
            let source = LinkError::Server { code, message: "why".to_owned() };
            writer.failed(&Error::Target { address: "t:1".to_owned(), source });
            writer.source.is_some()
        };
        // The disk is full, a deadlock, memory, descriptors, a privilege.
        assert!([1114, 1021, 1213, 1037, 23, 1142].into_iter().all(&mut continues));
        assert!(!continues(1064), "the text of the statement");
    }

    #[test]
    fn a_stream_that_has_failed_ends_the_run_with_its_error() {
        #[derive(Debug)]
        struct Purged;

        impl StateSource for Purged {
            fn state(&self) -> ShownState {
                ShownState::default()
            }

            fn stream_failure(&self) -> Option<(u16, String)> {
                Some((1236, "purged".to_owned()))
            }
        }

        let shown = |is_cut_off| {
            let state = at_end(&Purged, &Ok(()), is_cut_off).expect("a row of ours");
            (state.state, state.error_number, state.error)
        };
        assert_eq!(shown(true), ("failed".to_owned(), 1236, "purged".to_owned()));
        assert_eq!(shown(false), ("stopped".to_owned(), 0, String::new()), "on request");
    }

    #[test]
    fn a_state_is_a_row_whatever_is_in_it() {
        let state = ShownState {
            state: "failed".to_owned(),
            reason: format!("o'n{}", "x".repeat(2000)),
            lag_seconds: Some(1.5),
            error_number: 1062,
            ..ShownState::default()
        };
        let text = state.replace("c");
        let row = "VALUES ('c', 'failed', 'o''nxxx";
        assert!(text.contains(row), "{text}");
        assert!(text.ends_with("x', 1.500000, NULL, '', '', 1062, '', NOW(6))"), "{text}");
        assert!(text.len() < 1400, "{text}");
    }
}
