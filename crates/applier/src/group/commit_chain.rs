//! COMMITs that are sent before the one before them is answered, and that the target keeps in order: each waits
//! there until the GTID before it is executed. Else the target would wait between two commits for an answer to reach
//! the daemon and the next COMMIT to come back. They are sent so only where each group is one transaction under its
//! source's GTID.
//!
//! A COMMIT fails if the one before it was lost with its session, and `Worker::apply_unit` (worker.rs) rolls its
//! transaction back and begins it again.

use csa_provider::binlog::Gtid;
use csa_provider::seams::planted::{Bug, is_planted};
use csa_scheduler::sequence::Sequence;

use super::commit_turn::{CommitTurn, Sending};
use super::unit::Unit;
use crate::options::{ApplierOptions, TargetGtids};
use crate::server::target::Target;

/// COMMITs sent and not answered at most. Each commit wakes all that wait for a GTID, so few.
const MOST: u64 = 3;

/// Seconds that a COMMIT waits for the one before it, which is under way. Meanwhile its session can't yield.
const PATIENCE: u32 = 2;

/// The place of one unit's COMMIT among those that are under way.
#[derive(Debug, Clone)]
pub(super) struct CommitChain {
    sequence: Sequence,
    /// The source's GTID, under which it commits.
    gtid: Gtid,
}

impl CommitChain {
    /// Returns the place of a unit for which the target can make the COMMIT wait for the one before it.
    pub(super) fn of(unit: &Unit, options: &ApplierOptions, target: &Target) -> Option<Self> {
        // One of several transactions of a group is followed by the others.
        let is_chained =
            options.preserve_commit_order && target.gtids == TargetGtids::Source && unit.is_whole();
        let only = unit.transactions().first().filter(|_| is_chained)?;
        Some(Self { sequence: unit.group.sequence, gtid: only.relayed.header.gtid.clone() })
    }

    /// Returns the group that has to be committed before this one's COMMIT is sent.
    pub(super) fn earlier(&self) -> Sequence {
        Sequence::new(self.sequence.get().saturating_sub(MOST))
    }

    /// Waits until COMMIT may be sent, and returns the statements to send.
    pub(super) async fn commit(&self, turn: &CommitTurn, sending: &Sending) -> String {
        turn.wait(self.earlier()).await;
        sending.wait_before(self.sequence).await;
        let previous = self.sequence.previous();
        // Asked once: a COMMIT that is sent again takes the place of the last one.
        let under_way = sending.gtid_of(previous);
        if under_way.is_none() {
            turn.wait(previous).await;
        }
        let is_committed = previous <= turn.low_water() || is_planted(Bug::CommitUnguarded);
        match under_way.filter(|_| !is_committed) {
            Some(gtid) => commit_after(&gtid),
            None => "COMMIT".to_owned(),
        }
    }

    /// Notes that COMMIT was sent.
    pub(super) fn sent(self, sending: &Sending) {
        sending.sent(self.sequence, self.gtid);
    }
}

/// The statements that commit after the transaction with this GTID, and fail if it does not commit. Texts have an
/// introducer because the session may have the source's `collation_connection`, whose characters may be wider.
fn commit_after(gtid: &Gtid) -> String {
    // With another number than 1 ELT is NULL, which is an error, and an error ends the packet.
    format!(
        "SET SESSION completion_type=ELT(1-WAIT_FOR_EXECUTED_GTID_SET(_utf8mb4'{gtid}',{PATIENCE}),\
         _utf8mb4'NO_CHAIN');COMMIT"
    )
}
