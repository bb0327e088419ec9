//! Compares a target that was away with what it had before. Pure.

use csa_provider::binlog::GtidSet;
use csa_provider::seams::planted::{Bug, is_planted};

/// The channel as the target records it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RecordedProgress {
    /// The highest of the rows; `None` without rows.
    pub(crate) epoch: Option<u64>,
    /// Everything executed there.
    pub(crate) executed: GtidSet,
}

/// The outcome for a daemon that held the channel before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Continuity {
    Same,
    /// Another daemon has raised the epoch to this.
    TakenOver(u64),
    /// It is older than it was: it lacks these transactions, which are known to be committed.
    Older(GtidSet),
    /// It has nothing of the channel any more.
    Gone,
}

/// `epoch` is this daemon's, `committed` everything known to be committed. The target may have
/// more: then the answer to a COMMIT was lost.
pub(crate) fn judge(epoch: u64, committed: &GtidSet, said: &RecordedProgress) -> Continuity {
    let missing = committed.difference(&said.executed);
    if is_planted(Bug::OlderTargetAccepted) && said.epoch.is_some_and(|found| found <= epoch) {
        return Continuity::Same;
    }
    match said.epoch {
        None => Continuity::Gone,
        Some(found) if found > epoch => Continuity::TakenOver(found),
        Some(found) if found < epoch || !missing.is_empty() => Continuity::Older(missing),
        Some(_) => Continuity::Same,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

    fn set(intervals: &str) -> GtidSet {
        match intervals {
            "" => GtidSet::new(),
            _ => format!("{UUID}:{intervals}").parse().expect("a GTID set"),
        }
    }

    #[test]
    fn a_target_that_comes_back_is_compared_with_what_is_known() {
        for (epoch, executed, verdict) in [
            (Some(5), "1-20", Continuity::Same),
            // A COMMIT whose answer was lost.
            (Some(5), "1-21", Continuity::Same),
            (Some(5), "1-17", Continuity::Older(set("18-20"))),
            (Some(5), "1-3:7-20", Continuity::Older(set("4-6"))),
            // From before this daemon took the channel, with nothing applied since.
            (Some(4), "1-20", Continuity::Older(set(""))),
            (Some(4), "1-10", Continuity::Older(set("11-20"))),
            (Some(6), "1-20", Continuity::TakenOver(6)),
            (Some(6), "1-10", Continuity::TakenOver(6)),
            (None, "1-20", Continuity::Gone),
            (None, "", Continuity::Gone),
        ] {
            let said = RecordedProgress { epoch, executed: set(executed) };
            assert_eq!(judge(5, &set("1-20"), &said), verdict, "{said:?}");
        }
    }
}
