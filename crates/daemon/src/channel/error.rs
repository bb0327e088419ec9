//! Reasons why a channel ended or could not start, and how soon to try again.

use std::time::Duration;

use csa_provider::binlog::Gtid;
use csa_provider::seams::{Backoff, SystemChance};
use csa_provider::source::{PreflightError, ReceptionEnd};
use tokio::time::Instant;
use tracing::info;

use crate::archive::store::ArchiveError;
use crate::config::ChannelSettings;

/// Why a channel ended, or did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChannelError {
    /// The settings ask for something that this target does not do.
    #[error("{0}")]
    Refused(String),
    /// A server refused a statement of a copy, with this number.
    #[error("{why}")]
    Answered { why: String, code: u16 },
    #[error(transparent)]
    Source(csa_provider::source::PreflightError),
    #[error(transparent)]
    Target(csa_applier::PreflightError),
    #[error(transparent)]
    Applier(#[from] csa_applier::Error),
    #[error(transparent)]
    Relay(#[from] csa_relaystore::disk::Error),
    /// Nothing more will come from the source; everything that came is committed.
    #[error(transparent)]
    Reception(#[from] ReceptionEnd),
    /// The archive of a channel without a target.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error("{0}")]
    State(String),
}

impl From<PreflightError> for ChannelError {
    fn from(error: PreflightError) -> Self {
        Self::Source(error)
    }
}

/// A server that does not answer, as opposed to one that refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Absent {
    Source,
    Target,
    /// It takes the place of a target.
    Archive,
}

impl ChannelError {
    /// A server that may come back on its own; everything else needs an operator.
    pub(super) fn absent(&self) -> Option<Absent> {
        match self {
            Self::Source(csa_provider::source::PreflightError::Unreachable(_)) => {
                Some(Absent::Source)
            }
            Self::Target(csa_applier::PreflightError::Unreachable(_)) => Some(Absent::Target),
            Self::Applier(error) if !error.class().is_failure() => Some(Absent::Target),
            Self::Archive(ArchiveError::Away { .. }) => Some(Absent::Archive),
            _ => None,
        }
    }

    /// Returns the pause before the next attempt, where the usual one does not depend on the target's error.
    pub(super) fn pause(&self, usual: Duration) -> Duration {
        match self {
            Self::Applier(error)
            | Self::Target(csa_applier::PreflightError::Unreachable(error)) => {
                error.pause(usual, &SystemChance)
            }
            _ => usual,
        }
    }

    /// Returns true if the channel can try again on its own. Whatever the source's stream holds is the same
    /// next time, and a daemon that was fenced leaves the channel to the other one.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Applier(error) => error.may_pass(),
            Self::Reception(end) => end.error.may_pass(),
            Self::Archive(_) => !self.is_fenced(),
            Self::Refused(_)
            | Self::Answered { .. }
            | Self::Source(_)
            | Self::Target(_)
            | Self::Relay(_)
            | Self::State(_) => true,
        }
    }

    /// Returns the number of the error that a server sent, if one did.
    pub(super) fn code(&self) -> Option<u16> {
        match self {
            Self::Applier(error) => error.code(),
            Self::Reception(end) => end.error.code(),
            Self::Source(error) => error.code(),
            Self::Target(error) => error.code(),
            Self::Answered { code, .. } => Some(*code),
            Self::Refused(_) | Self::Relay(_) | Self::Archive(_) | Self::State(_) => None,
        }
    }

    /// Returns the transaction in which it arose.
    pub(super) fn gtid(&self) -> Option<Gtid> {
        match self {
            Self::Applier(error) => error.gtid(),
            Self::Reception(end) => end.gtid.clone(),
            _ => None,
        }
    }

    /// Another daemon has the channel, so this one must not receive for it.
    pub(super) fn is_fenced(&self) -> bool {
        matches!(
            self,
            Self::Applier(csa_applier::Error::Fenced { .. })
                | Self::Archive(ArchiveError::Overtaken { .. })
        )
    }

    /// Another daemon has the channel, and this one had it never or not any more.
    pub(super) fn is_held_by_another(&self) -> bool {
        self.is_fenced() || matches!(self, Self::Applier(error) if error.is_held_by_another())
    }

    /// The target or the archive is away, or the target is busy with what this daemon left there; what was received is
    /// still wanted.
    pub(super) fn is_worth_receiving(&self) -> bool {
        let by_another = self.is_held_by_another();
        matches!(self, Self::Target(_))
            || self.absent() == Some(Absent::Archive)
            || (self.absent() == Some(Absent::Target) && !by_another)
    }
}

/// Returns the pauses after a refusal: an operator has to act, and a wrong password must not be tried often.
fn refused() -> Backoff {
    Backoff::unhurried(Duration::from_secs(30), Duration::from_secs(300))
}

/// Returns the pauses after a run that failed, before their jitter.
pub(super) fn failed() -> Backoff {
    Backoff::unhurried(Duration::from_secs(60), Duration::from_secs(300))
}

/// A run that lasted so long has overcome what ended the one before it.
pub(super) const OVERCOME: Duration = Duration::from_secs(600);

/// Pauses between the attempts to start a channel.
#[derive(Debug)]
pub(super) struct Pauses {
    absent: Backoff,
    refused: Backoff,
    /// The last attempt failed because a server did not answer.
    was_absent: Option<bool>,
    /// The server that was last found absent, and since when.
    outage: Option<(Absent, Instant)>,
}

impl Pauses {
    pub(super) fn new(settings: &ChannelSettings) -> Self {
        let options = &settings.applier;
        let longest = options.connect_retry_max.max(Duration::from_millis(1));
        Self::of(Backoff::new(options.connect_retry, longest))
    }

    fn of(absent: Backoff) -> Self {
        Self { absent, refused: refused(), was_absent: None, outage: None }
    }

    /// Doubles with each attempt; begins again with the shortest when the kind of failure changes.
    pub(super) fn next(&mut self, is_absent: bool) -> Duration {
        let backoff = if is_absent { &mut self.absent } else { &mut self.refused };
        if self.was_absent.replace(is_absent) != Some(is_absent) {
            backoff.restart();
        }
        backoff.pause()
    }

    /// Returns true at the first of the attempts that fail because this server does not answer: the log has one
    /// line for all of them.
    pub(super) fn is_news(&mut self, server: Absent) -> bool {
        let is_news = self.outage.is_none_or(|(known, _)| known != server);
        if is_news {
            self.outage = Some((server, Instant::now()));
        }
        is_news
    }

    /// Logs the end of an outage, if there was one.
    pub(super) fn over(&mut self) {
        if let Some((server, since)) = self.outage.take() {
            let seconds = since.elapsed().as_secs();
            match server {
                Absent::Source => info!(seconds, "source available again"),
                Absent::Target => info!(seconds, "target available again"),
                Absent::Archive => info!(seconds, "archive available again"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_retried_slowly_and_absence_quickly() {
        let second = Duration::from_secs(1);
        let mut pauses = Pauses::of(Backoff::new(second, second * 3));
        let mut seconds = |is_absent: bool| pauses.next(is_absent).as_secs();
        let said: Vec<u64> =
            [true, true, true, false, false, false, false, false, false, true, false]
                .map(&mut seconds)
                .to_vec();
        assert_eq!(said, [1, 2, 3, 30, 60, 120, 240, 300, 300, 1, 30]);
    }

    #[test]
    fn an_outage_is_news_once() {
        let mut pauses = Pauses::of(Backoff::new(Duration::ZERO, Duration::ZERO));
        let mut news = |server| pauses.is_news(server);
        assert!(news(Absent::Target) && !news(Absent::Target) && !news(Absent::Target));
        assert!(news(Absent::Source), "another server");
        pauses.over();
        assert!(pauses.is_news(Absent::Source), "it was there in between");
    }

    #[test]
    fn what_comes_back_by_itself_is_told_from_what_does_not() {
        let source = csa_provider::source::PreflightError::Unreachable("away".to_owned());
        assert_eq!(ChannelError::Source(source).absent(), Some(Absent::Source));
        let target = csa_applier::PreflightError::Refused("super_read_only".to_owned());
        assert_eq!(ChannelError::Target(target).absent(), None);
        let timeout = csa_applier::Error::Timeout { address: "t:1".to_owned(), seconds: 1 };
        assert_eq!(ChannelError::from(timeout).absent(), Some(Absent::Target));
        assert_eq!(ChannelError::State("full".to_owned()).absent(), None);
    }

    #[test]
    fn a_channel_receives_while_only_the_target_is_busy() {
        let held = |by_another| {
            let (channel, what) = ("c".to_owned(), "held".to_owned());
            ChannelError::from(csa_applier::Error::Held { channel, what, by_another })
        };
        assert!(held(false).is_worth_receiving(), "its own session still executes there");
        assert!(!held(true).is_worth_receiving(), "another daemon receives for it");
        let target = csa_applier::PreflightError::Refused("super_read_only".to_owned());
        assert!(ChannelError::Target(target).is_worth_receiving());
        assert!(!ChannelError::State("full".to_owned()).is_worth_receiving());
    }
}
