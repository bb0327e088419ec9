use std::fmt;
use std::sync::Arc;

use csa_provider::binlog::{Gtid, GtidSet, TransactionHeader};
use csa_provider::seams::rfc3339;
use parking_lot::Mutex;

/// The point at which a channel stops on its own, like `START REPLICA UNTIL`
/// (<https://dev.mysql.com/doc/refman/en/start-replica.html>); by time like `mysqlbinlog
/// --stop-datetime` (<https://dev.mysql.com/doc/refman/en/mysqlbinlog.html>).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Until {
    /// Stops before the first transaction of the set.
    BeforeGtids(GtidSet),
    /// Stops after the last transaction of the set.
    AfterGtids(GtidSet),
    /// Before the first transaction committed on the source at this time or later, or with an
    /// unknown commit time; microseconds since the epoch.
    BeforeTime(u64),
    /// As [`Self::BeforeTime`], and after the last transaction of the set at the latest: no more will come.
    BeforeTimeWithin(u64, GtidSet),
}

impl Until {
    /// Returns true if nothing is left to apply once `executed` is. A time is never reached here:
    /// GTID sets have no times.
    #[must_use]
    pub fn is_reached(&self, executed: &GtidSet) -> bool {
        match self {
            Self::BeforeGtids(set) => set.intersects(executed),
            Self::AfterGtids(set) | Self::BeforeTimeWithin(_, set) => set.is_subset_of(executed),
            Self::BeforeTime(_) => false,
        }
    }

    fn ends_before(&self, gtid: &Gtid, committed: u64) -> bool {
        match self {
            Self::BeforeGtids(set) => set.contains(gtid),
            Self::AfterGtids(_) => false,
            Self::BeforeTime(time) | Self::BeforeTimeWithin(time, _) => {
                committed == 0 || committed >= *time
            }
        }
    }

    /// Returns the transactions after the last of which it ends.
    const fn last(&self) -> Option<&GtidSet> {
        match self {
            Self::AfterGtids(set) | Self::BeforeTimeWithin(_, set) => Some(set),
            Self::BeforeGtids(_) | Self::BeforeTime(_) => None,
        }
    }
}

impl fmt::Display for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BeforeGtids(set) => write!(f, "sql_before_gtids = {set}"),
            Self::AfterGtids(set) => write!(f, "sql_after_gtids = {set}"),
            Self::BeforeTime(time) | Self::BeforeTimeWithin(time, _) => {
                write!(f, "sql_before_time = {}", rfc3339(*time))
            }
        }
    }
}

/// An end that the channel has already passed: transactions after it are applied or in a group.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("until {until} is past: {passed}")]
pub struct UntilPast {
    pub until: Until,
    /// The transactions that have passed it.
    pub passed: String,
}

/// The way in which a stream ended without being stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamEnd {
    /// At this end, where the channel is now stopped.
    Until(Until),
    /// At an end that was changed meanwhile: the channel has to continue.
    Moved,
    Elsewhere,
}

/// The end of a channel's stream, which can be changed while it runs: a change applies to every
/// transaction that is in no group yet. Shared by the relay reader, the scheduler and the commands
/// that change it.
#[derive(Debug, Clone, Default)]
pub struct UntilGate {
    state: Arc<Mutex<UntilState>>,
}

#[derive(Debug, Default)]
struct UntilState {
    until: Option<Until>,
    /// Executed, or in a group.
    passed: GtidSet,
    /// The latest commit time on the source among them, as far as it was seen; microseconds since
    /// the epoch.
    latest: u64,
    /// No further group is formed.
    reached: bool,
    /// The end has been changed since the stream began.
    moved: bool,
    /// The channel has stopped at the end.
    stopped: bool,
}

impl UntilGate {
    #[must_use]
    pub fn new(until: Option<Until>) -> Self {
        let state = UntilState { until, ..UntilState::default() };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    #[must_use]
    pub fn get(&self) -> Option<Until> {
        self.state.lock().until.clone()
    }

    /// Sets another end, or none. Returns true if the channel had stopped at the previous one: the
    /// caller then has to start it.
    ///
    /// # Errors
    /// The new end is past; nothing was changed.
    pub fn set(&self, until: Option<Until>) -> Result<bool, UntilPast> {
        // `pass` takes the same lock, so no transaction can pass between check and change.
        let mut state = self.state.lock();
        if let Some(until) = &until
            && let Some(passed) = state.past(until)
        {
            return Err(UntilPast { until: until.clone(), passed });
        }
        if state.until == until {
            return Ok(false);
        }
        state.until = until;
        state.reached = false;
        state.moved = true;
        Ok(std::mem::take(&mut state.stopped))
    }

    /// The channel is started; `replaced` is its new end (or none), if that changes.
    pub fn start(&self, replaced: Option<Option<Until>>) {
        let mut state = self.state.lock();
        if let Some(until) = replaced {
            state.until = until;
        }
        state.stopped = false;
    }

    /// The stream begins after `executed`. Returns the end if it is already reached: the channel is
    /// then stopped there.
    pub fn begin(&self, executed: &GtidSet) -> Option<Until> {
        let mut state = self.state.lock();
        state.settle(executed);
        let reached = state.until.clone().filter(|until| until.is_reached(executed));
        state.stopped = reached.is_some();
        state.moved = false;
        reached
    }

    /// The stream has ended on its own after `executed`. `read_to` is the end that reading ahead
    /// met.
    pub fn end(&self, executed: &GtidSet, read_to: Option<&Until>) -> StreamEnd {
        let mut state = self.state.lock();
        // An end that reading ahead met says nothing after a change: the applier may have ended at the
        // former one, with transactions read up to the new one and not applied. The next run finds out.
        let reached = state.reached || !state.moved && read_to == state.until.as_ref();
        let until = state.until.clone().filter(|_| reached);
        state.stopped = until.is_some();
        state.settle(executed);
        match until {
            Some(until) => StreamEnd::Until(until),
            None if state.moved => StreamEnd::Moved,
            None => StreamEnd::Elsewhere,
        }
    }

    /// The stream was stopped after `executed`.
    pub fn rest(&self, executed: &GtidSet) -> StreamEnd {
        self.state.lock().settle(executed);
        StreamEnd::Elsewhere
    }

    /// Returns true if the channel has stopped at its end, and not on request.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        self.state.lock().stopped
    }

    /// Returns the end, if it lies before this transaction.
    #[must_use]
    pub fn ends_before(&self, header: &TransactionHeader) -> Option<Until> {
        let state = self.state.lock();
        // By the immediate source's clock, like `source_delay`.
        let (gtid, committed) = (&header.gtid, header.immediate_commit_timestamp);
        state.until.as_ref().filter(|until| until.ends_before(gtid, committed)).cloned()
    }

    /// True if the next transaction may join a group; it then counts as passed.
    pub(crate) fn pass(&self, header: &TransactionHeader) -> bool {
        let mut state = self.state.lock();
        let state = &mut *state;
        let (gtid, committed) = (&header.gtid, header.immediate_commit_timestamp);
        let ends = |until: &Until| until.ends_before(gtid, committed);
        // It stays reached until it is changed: later transactions may have earlier commit times.
        state.reached |= state.until.as_ref().is_some_and(ends);
        if state.reached {
            return false;
        }
        state.passed.add(gtid);
        state.latest = state.latest.max(committed);
        // The set may come in any order, so all of it has to have passed.
        if let Some(set) = state.until.as_ref().and_then(Until::last) {
            state.reached = set.contains(gtid) && set.is_subset_of(&state.passed);
        }
        true
    }

    /// Returns true if no further group may be formed.
    #[must_use]
    pub fn is_reached(&self) -> bool {
        self.state.lock().reached
    }
}

impl UntilState {
    /// Starts over from `executed`, with no transaction in a group.
    fn settle(&mut self, executed: &GtidSet) {
        // If a passed transaction was given up, `latest` may be its time.
        if !self.passed.is_subset_of(executed) {
            self.latest = 0;
        }
        self.passed.clone_from(executed);
        self.reached = false;
    }

    /// The reason the end is past, if it is.
    fn past(&self, until: &Until) -> Option<String> {
        match until {
            Until::BeforeGtids(set) => {
                let passed = set.difference(&set.difference(&self.passed));
                (!passed.is_empty()).then(|| format!("{passed} is applied, or about to be"))
            }
            Until::AfterGtids(set) => set
                .is_subset_of(&self.passed)
                .then(|| "all of it is applied, or about to be".to_owned()),
            Until::BeforeTime(time) | Until::BeforeTimeWithin(time, _) => (self.latest >= *time)
                .then(|| {
                    let latest = rfc3339(self.latest);
                    format!("what the source committed at {latest} is applied, or about to be")
                }),
        }
    }
}

#[cfg(test)]
mod tests {
    use csa_provider::binlog::{Tag, Uuid};
    use csa_provider::test_util::gtid_event;

    use super::*;

    fn gtid(server: u8, gno: u64) -> Gtid {
        Gtid { uuid: Uuid::from_bytes([server; 16]), tag: Tag::untagged(), gno }
    }

    fn set(gtids: &[Gtid]) -> GtidSet {
        gtids.iter().cloned().collect()
    }

    /// Makes the header of a transaction that was committed at `gno` microseconds.
    fn header(gtid: Gtid) -> TransactionHeader {
        let parsed = TransactionHeader::parse(&gtid_event(&gtid, 1)).expect("well-formed");
        TransactionHeader { immediate_commit_timestamp: gtid.gno, ..parsed }
    }

    fn gate(until: Option<Until>, executed: &[Gtid]) -> UntilGate {
        let gate = UntilGate::new(until);
        assert_eq!(gate.begin(&set(executed)), None);
        gate
    }

    #[test]
    fn before_ends_in_front_of_the_first_of_the_set() {
        let wanted = set(&[gtid(1, 4), gtid(1, 6), gtid(2, 1)]);
        let until = Until::BeforeGtids(wanted);
        assert!(!until.is_reached(&set(&[gtid(1, 5), gtid(2, 2)])));
        assert!(until.is_reached(&set(&[gtid(1, 5), gtid(1, 6)])));
        let gate = gate(Some(until.clone()), &[]);
        for (gtid, ends) in [(gtid(1, 3), false), (gtid(3, 1), false), (gtid(2, 1), true)] {
            let header = header(gtid);
            assert_eq!(gate.ends_before(&header).is_some(), ends);
            assert_eq!(gate.pass(&header), !ends);
        }
        assert!(!gate.pass(&header(gtid(3, 2))), "nothing after the end");
        assert_eq!(gate.end(&set(&[gtid(1, 3), gtid(3, 1)]), None), StreamEnd::Until(until));
    }

    #[test]
    fn after_ends_with_the_last_of_the_set_whatever_the_order() {
        let wanted = set(&[gtid(1, 1), gtid(1, 2), gtid(2, 7)]);
        let until = Until::AfterGtids(wanted.clone());
        assert!(!until.is_reached(&set(&[gtid(1, 1), gtid(1, 2)])));
        assert!(until.is_reached(&wanted));
        let gate = gate(Some(until), &[gtid(1, 1)]);
        for (gtid, ends) in
            [(gtid(2, 7), false), (gtid(1, 3), false), (gtid(2, 8), false), (gtid(1, 2), true)]
        {
            let header = header(gtid);
            assert!(gate.ends_before(&header).is_none() && gate.pass(&header));
            assert_eq!(gate.is_reached(), ends);
        }
        assert!(!gate.pass(&header(gtid(2, 9))));
    }

    #[test]
    fn a_time_that_nothing_reaches_ends_with_the_last_transaction() {
        let all = set(&[gtid(1, 1), gtid(1, 2), gtid(1, 3)]);
        for (time, passed) in [(3, 2), (4, 3)] {
            let until = Until::BeforeTimeWithin(time, all.clone());
            let gate = gate(Some(until.clone()), &[]);
            for gno in 1..=3 {
                assert_eq!(gate.pass(&header(gtid(1, gno))), gno <= passed);
            }
            assert!(gate.is_reached());
            let applied: Vec<_> = (1..=passed).map(|gno| gtid(1, gno)).collect();
            assert_eq!(gate.end(&set(&applied), None), StreamEnd::Until(until.clone()));
            assert_eq!(until.is_reached(&set(&applied)), passed == 3);
        }
    }

    #[test]
    fn a_time_ends_in_front_of_the_first_commit_then_or_later() {
        let until = Until::BeforeTime(5);
        assert!(!until.is_reached(&set(&[gtid(1, 9)])));
        for last in [5, 9] {
            let gate = gate(Some(until.clone()), &[]);
            assert!(gate.pass(&header(gtid(1, 4))) && gate.pass(&header(gtid(1, 3))));
            assert!(!gate.pass(&header(gtid(2, last))), "{last}");
            // An earlier one does not open it again.
            assert!(!gate.pass(&header(gtid(1, 4))));
        }
        let unknown = TransactionHeader { immediate_commit_timestamp: 0, ..header(gtid(1, 1)) };
        assert!(!gate(Some(until), &[]).pass(&unknown));
        let shown = Until::BeforeTime(951_782_400_000_001).to_string();
        assert_eq!(shown, "sql_before_time = 2000-02-29T00:00:00.000001Z");
    }

    #[test]
    fn what_is_past_is_refused_and_changes_nothing() {
        let gate = gate(None, &[gtid(1, 1)]);
        assert!(gate.pass(&header(gtid(1, 2))) && gate.pass(&header(gtid(1, 3))));
        let kept = Until::AfterGtids(set(&[gtid(1, 3), gtid(1, 4)]));
        assert_eq!(gate.set(Some(kept.clone())), Ok(false));
        for until in [
            Until::BeforeGtids(set(&[gtid(1, 3), gtid(1, 9)])),
            Until::AfterGtids(set(&[gtid(1, 1), gtid(1, 3)])),
            Until::BeforeTime(3),
        ] {
            let refused = gate.set(Some(until.clone())).expect_err("past");
            assert_eq!(refused.until, until);
        }
        assert_eq!(gate.get(), Some(kept));
        assert!(gate.set(Some(Until::BeforeTime(4))).is_ok());
        assert!(gate.set(Some(Until::BeforeGtids(set(&[gtid(1, 4)])))).is_ok());
        // Given up, they are no longer past, and no time is known for the executed ones.
        gate.rest(&set(&[gtid(1, 1), gtid(1, 2)]));
        assert!(gate.set(Some(Until::BeforeGtids(set(&[gtid(1, 3)])))).is_ok());
        assert!(gate.set(Some(Until::BeforeTime(1))).is_ok());
    }

    #[test]
    fn a_channel_told_to_resume_before_it_has_stopped_does_not_stop() {
        let before = |gno| Until::BeforeGtids(set(&[gtid(1, gno)]));
        let executed = set(&[gtid(1, 1)]);
        let at_two = || {
            let gate = gate(Some(before(2)), &[gtid(1, 1)]);
            assert!(!gate.pass(&header(gtid(1, 2))));
            gate
        };
        let gate = at_two();
        assert_eq!(gate.set(None), Ok(false));
        assert!(gate.pass(&header(gtid(1, 2))), "it continues unchanged");
        let gate = at_two();
        assert_eq!(gate.set(Some(before(3))), Ok(false));
        assert_eq!(gate.end(&executed, Some(&before(2))), StreamEnd::Moved, "read up to it");
        let gate = at_two();
        assert_eq!(gate.set(Some(before(4))), Ok(false));
        let ended = gate.end(&executed, Some(&before(4)));
        assert_eq!(ended, StreamEnd::Moved, "read up to the new end, applied up to the former one");
        let gate = at_two();
        assert_eq!(gate.rest(&executed), StreamEnd::Elsewhere);
        assert!(!gate.has_stopped(), "it was stopped before its end");
        let gate = at_two();
        assert_eq!(gate.end(&executed, None), StreamEnd::Until(before(2)));
        assert!(gate.has_stopped());
        assert_eq!(gate.set(Some(before(2))), Ok(false), "the same again");
        assert_eq!(gate.set(Some(before(3))), Ok(true));
        assert_eq!(gate.set(None), Ok(false), "started once");
        // Met by reading ahead, with nothing after it in any group.
        let gate = UntilGate::new(Some(before(2)));
        assert_eq!(gate.begin(&executed), None);
        assert_eq!(gate.end(&executed, Some(&before(2))), StreamEnd::Until(before(2)));
        gate.start(None);
        assert_eq!(gate.set(None), Ok(false), "it was started already");
    }

    #[test]
    fn without_an_end_nothing_ends() {
        let gate = gate(None, &[]);
        assert!(gate.ends_before(&header(gtid(1, 1))).is_none() && gate.pass(&header(gtid(1, 1))));
        assert_eq!(gate.end(&set(&[gtid(1, 1)]), None), StreamEnd::Elsewhere);
    }
}
