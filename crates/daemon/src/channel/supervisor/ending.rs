//! The end of a channel's run.

use std::time::Duration;

use tokio::sync::MutexGuard;
use tokio::time::Instant;
use tracing::info;

use super::{RunState, Supervisor};

impl Supervisor {
    /// Locks the state for a command that ends the channel and allows `patience` for that.
    pub(super) async fn state_to_end(&self, patience: Duration) -> MutexGuard<'_, RunState> {
        // Commands run to their end, so that no dropped future leaves its limit here.
        let limit = Instant::now() + patience;
        self.enders.join(limit);
        let state = self.state.lock().await;
        self.enders.leave(limit);
        state
    }

    /// Lets running groups finish for `patience`, or for less if a command waits that allows less. Returns whether all
    /// of them finished.
    pub(super) async fn end(&self, state: &mut RunState, patience: Duration) -> bool {
        // Commands run to their end (`to_its_end` in admin/api/control.rs): no dropped future leaves a
        // task that nothing waits for.
        let Some(mut life) = state.life.take() else { return true };
        self.span.in_scope(|| info!(?patience, "stopping: finishing running groups"));
        life.stop.cancel();
        let finished = tokio::select! {
            biased;
            ended = &mut life.task => Some(ended),
            () = self.enders.out_of_time(Instant::now() + patience) => None,
        };
        let in_time = finished.is_some();
        let ended = match finished {
            Some(ended) => ended,
            None => {
                // The target rolls back what is given up; the next start applies it again.
                life.kill.cancel();
                life.task.await
            }
        };
        state.outcome = ended.unwrap_or_else(|panic| Err(panic.to_string()));
        in_time && !life.kill.is_cancelled()
    }
}
