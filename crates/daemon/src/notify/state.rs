//! The part of a channel's state that receivers know. Pure.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::EventKind;
use crate::observe::view::{ChannelState, ChannelView};

/// A channel does not run again before it has run for so long: one whose next attempt fails, too, has not recovered.
pub(super) const RECOVERED_AFTER: Duration = Duration::from_secs(3);

/// The state of a channel as it was sent last, or is to be sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SentState {
    /// It does what it should.
    Well,
    /// Its error, as far as it stays the same from one attempt to the next.
    Failed(String),
    Waiting(ChannelState),
    Paused,
    Stopped,
    Standby,
    /// It was sent, and its file can't be read any more. It counts as a failure: a "recovered" too many is better than
    /// one that never comes.
    #[serde(skip)]
    Unreadable,
}

impl SentState {
    /// Returns `None` for a state that says nothing about how it will end.
    pub(super) fn of(view: &ChannelView) -> Option<Self> {
        Some(match view.state {
            ChannelState::Starting | ChannelState::Unknown => return None,
            // In a fleet it is not decided yet where the channel runs.
            ChannelState::Standby if view.is_joining => return None,
            ChannelState::Running | ChannelState::WaitingForDelay => Self::Well,
            ChannelState::Failed => Self::Failed(cause(view)),
            ChannelState::Paused => Self::Paused,
            ChannelState::Stopped => Self::Stopped,
            ChannelState::Standby => Self::Standby,
            state @ (ChannelState::WaitingForSource
            | ChannelState::WaitingForTarget
            | ChannelState::WaitingForArchive
            | ChannelState::WaitingForLock
            | ChannelState::WaitingForSpace) => Self::Waiting(state),
        })
    }

    /// Returns the event of a change to this state; `None` if nobody needs to know.
    pub(super) fn event_after(&self, before: Option<&Self>) -> Option<EventKind> {
        Some(match (self, before) {
            (Self::Failed(_), _) => EventKind::Failed,
            (Self::Waiting(ChannelState::WaitingForSource), _) => EventKind::WaitingForSource,
            (Self::Waiting(ChannelState::WaitingForLock), _) => EventKind::WaitingForLock,
            (Self::Waiting(ChannelState::WaitingForArchive), _) => EventKind::WaitingForArchive,
            (Self::Waiting(ChannelState::WaitingForSpace), _) => EventKind::WaitingForSpace,
            (Self::Waiting(_), _) => EventKind::WaitingForTarget,
            (Self::Paused, _) => EventKind::Paused,
            (Self::Stopped, _) => EventKind::Stopped,
            (Self::Well, Some(Self::Failed(_) | Self::Waiting(_) | Self::Unreadable)) => {
                EventKind::Recovered
            }
            (Self::Well, Some(Self::Paused | Self::Stopped)) => EventKind::Resumed,
            (Self::Well, Some(Self::Standby)) => EventKind::TookOver,
            (Self::Standby, Some(_)) => EventKind::Standby,
            // A daemon that starts.
            (Self::Well | Self::Standby, None) | (Self::Well, Some(Self::Well)) => return None,
            // No view has it.
            (Self::Unreadable, _) => return None,
        })
    }

    /// Returns how long the state has to last before it is sent; `after` is the configured time of a wait.
    pub(super) fn lasts(&self, before: Option<&Self>, after: Duration) -> Duration {
        match (self, before) {
            // A channel of a fleet may stand by on its way from one daemon back to the same one.
            (Self::Waiting(_), _) | (Self::Standby, Some(_)) => after,
            (Self::Well, Some(Self::Failed(_) | Self::Waiting(_) | Self::Unreadable)) => {
                RECOVERED_AFTER
            }
            _ => Duration::ZERO,
        }
    }
}

/// A message may name the number of a session, so the number of the error and its transaction count, where they are known.
fn cause(view: &ChannelView) -> String {
    let Some(error) = &view.last_error else { return view.state_detail.clone() };
    match (error.number, &error.transaction) {
        (0, None) => error.message.clone(),
        (number, transaction) => format!("{number} {}", transaction.as_deref().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(30);

    #[test]
    fn a_channel_that_may_be_claimed_here_says_nothing() {
        let standby = ChannelView { state: ChannelState::Standby, ..ChannelView::default() };
        assert_eq!(SentState::of(&standby), Some(SentState::Standby));
        assert_eq!(SentState::of(&ChannelView { is_joining: true, ..standby }), None);
    }

    #[test]
    fn a_standby_is_told_when_it_lasts() {
        for before in [SentState::Well, SentState::Paused, SentState::Failed(String::new())] {
            assert_eq!(SentState::Standby.lasts(Some(&before), AFTER), AFTER, "{before:?}");
        }
        // It has no event, and is what a takeover is measured against.
        assert_eq!(SentState::Standby.lasts(None, AFTER), Duration::ZERO);
        assert_eq!(SentState::Well.lasts(Some(&SentState::Standby), AFTER), Duration::ZERO);
    }
}
