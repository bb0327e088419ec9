//! The pauses before retries after a deadlock or a lock wait timeout. The retries themselves:
//! `Worker::apply_unit` (group/worker.rs), `StatementExecutor::execute_once` (statement/executor.rs),
//! `Writer::at_once` (statement/not_transactional.rs) and `Keeper::let_pass` (ownership/keeper.rs), for the
//! errors that error/class.rs lists; `take_rows` (ownership/claim.rs) has pauses of its own.

use std::time::Duration;

use csa_provider::seams::{Backoff, Chance};

/// Returns the pauses before the retries of one transaction: up to a second.
pub(crate) const fn conflicts() -> Backoff {
    Backoff::new(Duration::from_millis(20), Duration::from_secs(1))
}

/// Waits before a retry, with jitter so that two transactions don't meet again.
pub(crate) async fn pause(conflicts: &mut Backoff, chance: &dyn Chance) {
    tokio::time::sleep(conflicts.jittered(0.5..1.0, chance)).await;
}
