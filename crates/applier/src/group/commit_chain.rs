//! COMMITs that are sent before the one before them is answered, and that the target keeps in order: each waits
//! there until the GTID before it is executed. Else the target would wait between two commits for an answer to reach
//! the daemon and the next COMMIT to come back. Only where each group is one transaction under its source's GTID.
//!
//! A COMMIT that waits in vain, because the one before it was lost with its session, fails, and
//! `WorkerSession::attempt` (attempt.rs) rolls its transaction back and begins it again.

use csa_provider::Gtid;
use csa_provider::planted::{Bug, is_planted};
use csa_scheduler::Sequence;

use super::commit_turn::{CommitTurn, Sending};
use super::unit::Unit;
use crate::options::{ApplierOptions, TargetGtids};
use crate::server::port::Target;

/// COMMITs sent and not answered at most. Each commit wakes all that wait for a GTID, so few.
const MOST: u64 = 3;

/// Seconds that a COMMIT waits for the one before it, which is under way. Meanwhile its session can't yield.
const PATIENCE: u32 = 2;

/// How the COMMIT of one unit finds its place.
#[derive(Debug, Clone, Copy)]
pub(super) struct CommitChain {
    sequence: Sequence,
    /// The target can make it wait for the one before it.
    is_chained: bool,
}

/// The GTID under which the unit commits on the target, where that is the source's.
pub(super) fn gtid_of(unit: &Unit, target: &Target) -> Option<Gtid> {
    let is_sources = target.gtids == TargetGtids::Source;
    let only = unit.transactions().first().filter(|_| is_sources);
    only.map(|transaction| transaction.relayed.header.gtid.clone())
}

impl CommitChain {
    pub(super) fn of(unit: &Unit, options: &ApplierOptions, target: &Target) -> Self {
        let is_chained =
            options.is_prefix() && target.gtids == TargetGtids::Source && unit.is_whole();
        Self { sequence: unit.group.sequence, is_chained }
    }

    /// The group that has to be committed before this one's COMMIT is sent.
    pub(super) fn commits_after(self, options: &ApplierOptions) -> Sequence {
        match self.is_chained {
            true => Sequence::new(self.sequence.get().saturating_sub(MOST)),
            false => options.commits_after(self.sequence),
        }
    }

    /// Waits until COMMIT may be sent. Returns the GTID of the transaction before it, if that is still being
    /// committed: COMMIT has to be sent with [`commit_after`] then.
    pub(super) async fn wait(
        self,
        earlier: Sequence,
        turn: &CommitTurn,
        sending: &Sending,
    ) -> Option<Gtid> {
        turn.wait(earlier).await;
        sending.wait_before(self.sequence).await;
        if !self.is_chained {
            return None;
        }
        let previous = self.sequence.previous();
        // Asked once: a COMMIT that is sent again takes the place of the last one.
        let under_way = sending.gtid_of(previous);
        if under_way.is_none() {
            turn.wait(previous).await;
        }
        under_way.filter(|_| previous > turn.low_water() && !is_planted(Bug::CommitUnguarded))
    }
}

/// The statements that commit after the transaction with this GTID, and fail if it does not commit. Texts have an
/// introducer because the session may have the source's `collation_connection`, whose characters may be wider.
pub(super) fn commit_after(gtid: &Gtid) -> String {
    // With another number than 1 ELT is NULL, which is an error, and an error ends the packet.
    format!(
        "SET SESSION completion_type=ELT(1-WAIT_FOR_EXECUTED_GTID_SET(_utf8mb4'{gtid}',{PATIENCE}),\
         _utf8mb4'NO_CHAIN');COMMIT"
    )
}
