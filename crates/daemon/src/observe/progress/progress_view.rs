//! A channel's progress at one moment. Pure.

use std::sync::Arc;
use std::time::Duration;

use csa_applier::{ApplierView as Applied, HeldUntil};
use csa_provider::binlog::{GtidSet, TransactionHeader, Uuid};
use csa_provider::source::SourceView;
use csa_relaystore::state::{Queued, RelayUsage};
use tokio::time::Instant;

use super::backlog::{Count, ReadUpTo, done};
use super::lag::{Pending, Seen, Tail};

/// The time of a view, by both clocks.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Microseconds since the epoch.
    pub micros: u64,
    pub instant: Instant,
}

/// Everything from which progress is computed.
#[derive(Debug, Clone, Default)]
pub struct ProgressView {
    pub source: SourceView,
    /// A source heard from within this time counts as present.
    pub fresh_within: Duration,
    /// The last moment at which nothing was left to receive or to apply.
    pub level_at: Option<Instant>,
    /// The usage of the relay store, or of the last one.
    pub usage: RelayUsage,
    /// Everything received into the relay store, or into the last one.
    pub relayed: Arc<GtidSet>,
    /// A pipeline runs and a relay store is open.
    pub is_applying: bool,
    /// Of the running pipeline; otherwise with what is known without one.
    pub applied: Applied,
    /// Totals of earlier pipelines.
    pub earlier: Applied,
    /// Everything up to there was committed when reading began, or when applying ended.
    pub base: Option<Count>,
    pub read_up_to: Option<ReadUpTo>,
    /// The transaction that the intake holds back, or the last one that it did.
    pub held_back: Option<HeldUntil>,
    /// Relay ordinal of the transaction before it that the intake handed over; 0 for none.
    pub handed_over: u64,
}

impl ProgressView {
    /// Returns the transactions and bytes received and not committed on the target.
    #[must_use]
    pub fn backlog(&self) -> Option<Count> {
        let done = done(self.base, self.read_up_to, &self.applied)?;
        Some(Count::received(&self.usage).without(done))
    }

    /// Everything received; what was executed counts, wherever it came from.
    #[must_use]
    pub fn received(&self) -> GtidSet {
        let mut received = GtidSet::clone(&self.relayed);
        received.union(&self.applied.executed);
        received
    }

    /// Returns the transaction that is held back, if it is the oldest one not applied. Transactions before
    /// it may be on their way to an applier that waits for its target.
    #[must_use]
    pub fn held_back(&self) -> Option<HeldUntil> {
        let is_oldest = self.applied.oldest_pending.is_none()
            && self.applied.committed_ordinal >= self.handed_over;
        self.held_back.filter(|_| is_oldest)
    }

    /// True if nothing was applied after the first transaction of the backlog, as it can be with
    /// `preserve_commit_order = false`.
    fn is_in_order(&self, backlog: u64) -> bool {
        backlog == 0 || self.relayed.difference(&self.applied.executed).count() >= backlog
    }

    /// The end of what the source has sent.
    #[must_use]
    pub fn tail(&self) -> Tail {
        let is_stored = |TransactionHeader { gtid, .. }: &TransactionHeader| {
            self.relayed.contains(gtid) || self.applied.executed.contains(gtid)
        };
        let stored = self.source.last_queued.as_ref().is_none_or(is_stored);
        let queued = self.usage.queued;
        let queued = queued.map(|Queued { committed, since }| Pending { committed, since });
        Tail::of(&self.source, stored, queued)
    }

    /// Returns true if nothing is left to receive or to apply.
    #[must_use]
    pub fn is_level(&self, now: Instant) -> bool {
        let is_done = self.backlog().is_some_and(|backlog| backlog.transactions == 0);
        is_done && self.is_current(now)
    }

    /// Returns true if everything that the source has is received, as far as is known.
    #[must_use]
    pub fn is_current(&self, now: Instant) -> bool {
        self.is_fresh(now) && self.tail().is_caught_up()
    }

    /// The source commits its own transactions. One that is itself a replica, and lags, sends what was committed
    /// long before it arrives.
    fn is_of_its_origin(&self) -> bool {
        let applied = self.applied.last_applied.as_ref().map(|group| &group.last);
        let source = self.source.source_uuid.as_ref().and_then(|uuid| uuid.parse::<Uuid>().ok());
        let is_own = |header: &TransactionHeader| match header.original_commit_timestamp {
            // MySQL 5.7 logs no commit times.
            0 => source == Some(header.gtid.uuid),
            original => original == header.immediate_commit_timestamp,
        };
        self.source.last_queued.as_ref().is_some_and(is_own) && applied.is_none_or(is_own)
    }

    fn is_fresh(&self, now: Instant) -> bool {
        let heard = self.source.last_event.map(|last| now.saturating_duration_since(last));
        self.source.connected && heard.is_some_and(|since| since <= self.fresh_within)
    }

    /// Returns the seconds since the source's commit of the oldest transaction that is not committed on the
    /// target; `None` where that is not known.
    #[must_use]
    pub fn lag(&self, at: Moment) -> Option<f64> {
        let pending = self.applied.oldest_pending;
        let pending = pending.map(|(committed, since)| Pending { committed, since });
        let held = self.held_back();
        let held = held.map(|held| Pending { committed: held.committed, since: held.since });
        let backlog = self.backlog()?.transactions;
        let pending = pending.or(held);
        let last = self.applied.last_applied.as_ref();
        let last = last.filter(|_| pending.is_none() && self.is_in_order(backlog));
        let seen = Seen {
            backlog,
            pending,
            applied: last.map(|group| group.last.commit_times()),
            tail: self.tail(),
            fresh: self.is_fresh(at.instant),
            level_at: self.level_at.filter(|_| self.is_of_its_origin()),
            clock_ahead: self.source.clock.most(),
        };
        seen.lag(at.micros, at.instant)
    }
}

#[cfg(test)]
mod tests {
    use csa_provider::binlog::CommitTimes;

    use super::*;

    /// With `preserve_commit_order = false`, 15 and 16 can be left when 17 and 18 were applied.
    #[test]
    fn what_was_applied_last_says_nothing_of_gaps_before_it() {
        let set = |text: &str| -> GtidSet {
            format!("05050505-0505-0505-0505-050505050505:{text}").parse().expect("a set")
        };
        let view = |executed| ProgressView {
            relayed: set("1-20").into(),
            applied: Applied { executed: set(executed).into(), ..Applied::default() },
            ..ProgressView::default()
        };
        assert!(view("1-14").is_in_order(6));
        assert!(!view("1-14:17-18").is_in_order(6));
    }

    #[test]
    fn a_source_that_is_a_replica_is_told_from_the_origin() {
        let view = |original, immediate| {
            let last = TransactionHeader {
                gtid: "05050505-0505-0505-0505-050505050505:1".parse().expect("a GTID"),
                original_commit_timestamp: original,
                immediate_commit_timestamp: immediate,
                transaction_length: 0,
                last_committed: 0,
                sequence_number: 0,
                original_server_version: 0,
                immediate_server_version: 0,
            };
            let source = SourceView { last_queued: Some(last), ..SourceView::default() };
            ProgressView { source, ..ProgressView::default() }
        };
        assert!(view(7, 7).is_of_its_origin());
        assert!(!view(7, 9).is_of_its_origin());
        assert!(!ProgressView::default().is_of_its_origin(), "nothing has arrived yet");
        let unlogged = |source: &str| {
            let mut view = view(0, 9);
            view.source.source_uuid = Some(source.to_owned());
            view.is_of_its_origin()
        };
        assert!(unlogged("05050505-0505-0505-0505-050505050505"));
        assert!(!unlogged("06060606-0606-0606-0606-060606060606"), "of a server before it");
    }

    /// The intake holds one back while the applier has not taken the one before it.
    #[test]
    fn what_is_held_back_counts_once_everything_before_it_is_applied() {
        let held = HeldUntil {
            committed: CommitTimes { original: 7, immediate: 7 },
            since: Instant::now(),
            due: 9,
        };
        let applied = |committed_ordinal| Applied { committed_ordinal, ..Applied::default() };
        let view = |applied| ProgressView {
            held_back: Some(held),
            handed_over: 3,
            applied,
            ..ProgressView::default()
        };
        assert_eq!(view(applied(2)).held_back(), None);
        assert_eq!(view(applied(3)).held_back(), Some(held));
        let pending = Some((held.committed, held.since));
        let known = Applied { oldest_pending: pending, ..applied(3) };
        assert_eq!(view(known).held_back(), None, "the applier has it");
    }
}
