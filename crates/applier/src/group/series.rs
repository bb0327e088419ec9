//! Short transactions with commits of their own, sent together to one session, which commits them one by one:
//! alone, each would cost an answer that wakes both sides. Which transactions make up such a series is decided
//! in crates/scheduler/src/scheduler/forming.rs.
//!
//! Nothing of a series has begun while it waits, so it holds no lock then. A statement that fails ends the
//! packet, and everything before it is committed. When the packet is sent again, the server passes over GTIDs that it
//! has executed; if it fails again, `Worker::apply_singly` (worker.rs) finds these there.

use csa_provider::planted::{Bug, is_planted};
use csa_scheduler::{GroupCommits, GroupLimits, Sequence};

use super::late_tables::whole_tables;
use super::session::WorkerSession;
use super::unit::{Unit, UnitOpening, source_opening};
use crate::activity::{Entered, SessionState};
use crate::error::{Error, Invariant, Result};
use crate::options::{ApplierOptions, Executor, TargetGtids};
use crate::rows::executor::{Opening, RowExecutor};
use crate::rows::steps::Steps;
use crate::server::row_session;

/// Transactions in a series at most: their commits are known when the last is answered.
const LONGEST: usize = 32;

/// The same where series run beside each other. Longer ones have more rows that others wait for.
const LONGEST_BESIDE_OTHERS: usize = 8;

/// Limits of a channel's groups, which are series where transactions are committed under the source's GTIDs.
pub(crate) fn limits(
    limits: GroupLimits,
    gtids: TargetGtids,
    options: &ApplierOptions,
) -> GroupLimits {
    let in_order = options.is_prefix();
    // In a window no COMMIT is sent before all before it were, so nothing after a transaction that fails.
    let is_window = options.preserve_commit_order && !in_order;
    if gtids != TargetGtids::Source || options.executor != Executor::RowImage || is_window {
        return limits;
    }
    let transactions = if in_order { LONGEST } else { LONGEST_BESIDE_OTHERS };
    GroupLimits { transactions, commits: GroupCommits::Each { in_order }, ..limits }
}

impl WorkerSession {
    /// One try to commit everything.
    pub(super) async fn attempt_series(
        &mut self,
        unit: &Unit,
        rows: &RowExecutor,
        limit: usize,
        entered: &Entered,
    ) -> Result<()> {
        // Before the wait, during which the session has nothing else to do.
        let packets = self.packets(unit, rows, limit, entered).await?;
        let turn = self.shared.turn.clone();
        if self.options.preserve_commit_order && !is_planted(Bug::CommitOutOfTurn) {
            let earlier = unit.group.sequence.previous();
            entered.waits(SessionState::WaitingForTurn, earlier);
            turn.wait(earlier).await;
        } else {
            let dependency = unit.group.dependency;
            entered.waits(SessionState::WaitingForDependency, dependency);
            if dependency > turn.low_water() {
                self.shared.status.held_back(whole_tables(&unit.group));
            }
            turn.wait(dependency).await;
        }
        entered.now(SessionState::Applying);
        self.send_packets(unit, packets, entered).await
    }

    /// The statements of all transactions, in packets that the server takes.
    async fn packets(
        &mut self,
        unit: &Unit,
        rows: &RowExecutor,
        limit: usize,
        entered: &Entered,
    ) -> Result<Vec<Opening>> {
        let mut packets = Vec::new();
        let mut packet = Opening::default();
        if let Some(own) = self.session().await?.leave() {
            packet.push(&own, row_session::count(&own));
        }
        for (index, transaction) in (unit.range.0..).zip(unit.transactions()) {
            let (one, size) = ((index, index + 1), (limit, rows.columns()));
            // None of its rows is late, whatever is committed.
            let any = Sequence::default();
            let steps = Steps::of(&unit.group, one, size, any, &entered.progress).await?;
            let images = steps.all().ok_or(Error::Broken(Invariant::SeriesIsSentAtOnce))?;
            let UnitOpening { text, statements, .. } = source_opening(&transaction.relayed.header);
            let bytes: usize = images.iter().map(|images| images.events.len()).sum();
            let session = self.session().await?;
            let is_full = packet.text.len() + text.len() + bytes * 2 > session.packet_bytes();
            if is_full && packet.statements > 0 {
                packets.push(std::mem::take(&mut packet));
            }
            packet.push(&text, statements);
            // Without BEGIN a BINLOG statement is a transaction of its own.
            let is_one = images.len() == 1;
            if !is_one {
                packet.push("BEGIN", 1);
            }
            for images in images {
                packet.push_images(session, &images);
            }
            if !is_one {
                packet.push("COMMIT", 1);
            }
        }
        packets.push(packet);
        Ok(packets)
    }

    async fn send_packets(
        &mut self,
        unit: &Unit,
        packets: Vec<Opening>,
        entered: &Entered,
    ) -> Result<()> {
        let bytes = packets.iter().map(|packet| packet.text.len() as u64).sum();
        entered.progress.begin(bytes);
        let shared = self.shared.clone();
        let Self { session: Some(session), generation, options, .. } = self else {
            return Err(Error::Broken(Invariant::CommitHasSession));
        };
        let committing = shared.generation.commit(session, &options.channel, generation).await?;
        for packet in packets {
            session.run_counted(packet.statements, &packet.text).await?;
            session.settled();
            entered.progress.add(packet.text.len());
        }
        shared.commits.record(unit.transactions());
        drop(committing);
        self.reached();
        Ok(())
    }
}
