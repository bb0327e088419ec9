//! The stage that a channel is at, and the error that led there.

use csa_provider::binlog::Gtid;
use tokio::time::Instant;

use super::describe::state::Phase;
use crate::observe::view::ErrorView;

/// The phase of a channel, and why it is in it.
#[derive(Debug, Default)]
pub(super) struct Stage {
    pub(super) phase: Phase,
    pub(super) detail: String,
    pub(super) last_error: Option<ErrorView>,
    /// The transaction that the last error is about.
    pub(super) stopped_at: Option<Gtid>,
    /// Number and text of the error with which the stream of the run has ended; what it had is still applied.
    pub(super) stream_failure: Option<(u16, String)>,
    /// The time of the next attempt, of a channel that waits for one.
    pub(super) next_attempt: Option<Instant>,
    /// Why the channel stands by once it has stopped; `None` unless another daemon gets it.
    pub(super) given_away: Option<String>,
}

impl Stage {
    /// Begins a start. The detail stays until there is news.
    pub(super) fn start(&mut self) {
        self.phase = Phase::Starting;
        self.next_attempt = None;
        self.given_away = None;
        self.forget_error();
    }

    /// Ends a run that has not failed. A channel that is given away never shows as stopped.
    pub(super) fn stop(&mut self, why: &str) {
        match self.given_away.take() {
            Some(why) => self.enter(Phase::Standby, &why),
            None => self.enter(Phase::Stopped, why),
        }
    }

    /// Changes the phase; the last error stays.
    pub(super) fn enter(&mut self, phase: Phase, detail: &str) {
        self.phase = phase;
        self.next_attempt = None;
        detail.clone_into(&mut self.detail);
    }

    /// Forgets the last error, where the channel does something else now.
    pub(super) fn forget_error(&mut self) {
        self.last_error = None;
        self.stopped_at = None;
        self.stream_failure = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_that_is_given_away_never_shows_as_stopped() {
        let mut stage = Stage::default();
        stage.start();
        stage.stop("stopped on request");
        assert_eq!((stage.phase, stage.detail.as_str()), (Phase::Stopped, "stopped on request"));

        stage.start();
        stage.enter(Phase::Running, "from the checkpoint");
        stage.given_away = Some("given away".to_owned());
        assert_eq!(stage.phase, Phase::Running, "running groups still finish");
        stage.stop("stopped on request");
        assert_eq!((stage.phase, stage.detail.as_str()), (Phase::Standby, "given away"));

        // It comes back, and somebody stops it.
        stage.given_away = Some("given away".to_owned());
        stage.start();
        stage.stop("stopped on request");
        assert_eq!(stage.phase, Phase::Stopped);
    }
}
