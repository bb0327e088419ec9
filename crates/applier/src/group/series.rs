//! Short transactions with commits of their own, sent together to one session, which commits them one by one:
//! alone, each would cost an answer that wakes both sides. Which transactions make up such a series is decided
//! in crates/scheduler/src/scheduler/forming.rs.
//!
//! Nothing of a series has begun while it waits, so it holds no lock then. A statement that fails ends the
//! packet, and everything before it is committed. When the packet is sent again, the server passes over GTIDs that it
//! has executed; if it fails again, `Worker::apply_singly` (worker.rs) finds these there.

use csa_provider::seams::planted::{Bug, is_planted};
use csa_scheduler::group::{GroupCommits, GroupLimits};
use csa_scheduler::sequence::Sequence;

use super::attempt::Tried;
use super::gtid_use::{Committed, proof};
use super::late_tables::whole_tables;
use super::unit::{Unit, UnitOpening, source_opening};
use super::worker_session::WorkerSession;
use crate::activity::sessions::{Entered, SessionState};
use crate::error::{Error, Invariant, Result};
use crate::options::{ApplierOptions, Executor, TargetGtids};
use crate::rows::executor::{Opening, RowExecutor};
use crate::rows::steps::Steps;
use crate::server::row_session;
use crate::server::session::Session;

/// Transactions in a series at most: their commits are known when the last is answered.
const LONGEST: usize = 32;

/// Transactions in a series at most where series run beside each other. Longer ones have more rows that others wait for.
const LONGEST_BESIDE_OTHERS: usize = 8;

/// Limits of a channel's groups, which are series where transactions are committed under the source's GTIDs.
pub(crate) fn limits(
    limits: GroupLimits,
    gtids: TargetGtids,
    options: &ApplierOptions,
) -> GroupLimits {
    let in_order = options.preserve_commit_order;
    if gtids != TargetGtids::Source || options.executor != Executor::RowImage {
        return limits;
    }
    let transactions = if in_order { LONGEST } else { LONGEST_BESIDE_OTHERS };
    GroupLimits { transactions, commits: GroupCommits::Each { in_order }, ..limits }
}

impl WorkerSession {
    /// Commits everything; `rows` with the bytes of row images in a step.
    pub(super) async fn commit_series(
        &mut self,
        unit: &Unit,
        rows: (&RowExecutor, usize),
        committed: Committed,
        entered: &Entered,
    ) -> Tried {
        // Before the wait, during which the session has nothing else to do.
        let packets = self.packets(unit, rows, committed, entered).await?;
        if self.options.preserve_commit_order && !is_planted(Bug::CommitOutOfTurn) {
            self.wait_for_turn(&unit.group, entered).await?;
        } else {
            let held_back = || whole_tables(&unit.group);
            self.wait_for(unit.group.dependency, held_back, entered).await?;
        }
        entered.now(SessionState::Applying);
        Ok(self.send_packets(unit, packets, entered).await?)
    }

    /// Returns the statements of all transactions, in packets that the server takes.
    async fn packets(
        &mut self,
        unit: &Unit,
        (rows, limit): (&RowExecutor, usize),
        committed: Committed,
        entered: &Entered,
    ) -> Result<Vec<Opening>> {
        let mut packets = Vec::new();
        let mut packet = Opening::default();
        if let Some(own) = self.session().await?.row_settings.leave() {
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
            let is_full =
                packet.text.len() + text.len() + bytes * 2 > session.server().packet_bytes();
            if is_full && packet.statements > 0 {
                packets.push(std::mem::take(&mut packet));
            }
            packet.push(&text, statements);
            // Without BEGIN a BINLOG statement is a transaction of its own.
            let is_undone = images.iter().all(|images| images.is_undone);
            let is_one = images.len() == 1 && committed.is_by_statement(is_undone);
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
        // The next SET in a packet, or in the next one, proves it of all others.
        packet.push(proof(), 1);
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
        let send = async |session: &mut Session| {
            for packet in packets {
                session.run_counted(packet.statements, &packet.text).await?;
                session.row_settings.settled();
                entered.progress.add(packet.text.len());
            }
            Ok(())
        };
        self.record(unit, send).await
    }
}
