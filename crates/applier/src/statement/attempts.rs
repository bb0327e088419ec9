//! The knowledge that one attempt at a statement, or at rows that can't be rolled back, leaves to the next. Pure.

use crate::error::Result;

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
        self.effect != Effect::Unknown || self.missing.is_some()
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
    use super::*;

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
