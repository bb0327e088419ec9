//! The end of a channel's run, also where another daemon of the fleet gets the channel.

use std::time::Duration;

use tokio::sync::MutexGuard;
use tokio::time::Instant;
use tracing::info;

use super::{RunState, Supervisor};

/// The standing of a channel that this daemon gives to another one of the fleet.
const GIVEN_AWAY: &str = "given away";

impl Supervisor {
    /// Ends a channel that this daemon gives away, with its reception; it starts again when it is claimed
    /// again.
    pub(crate) async fn give_away(&self, patience: Duration) {
        let mut state = self.state_to_end(patience).await;
        self.hand_over(&mut state, patience).await;
    }

    /// Does the same unless an operator holds the channel, also since the move was planned. Returns whether it did.
    pub(crate) async fn give_away_unless_held(&self, patience: Duration) -> bool {
        // A command that is under way may hold it, and is not cut short for a move.
        let free = self.state.try_lock().ok().filter(|_| !self.is_kept_from_applying());
        let Some(mut state) = free else {
            self.span.in_scope(|| info!("stays, because an operator holds it"));
            return false;
        };
        self.hand_over(&mut state, patience).await;
        true
    }

    async fn hand_over(&self, state: &mut RunState, patience: Duration) {
        self.hindrance.set_elsewhere(GIVEN_AWAY, false);
        if state.is_alive() {
            // Its end is no stop that somebody asked for, also while the store is closed.
            self.watch.stands_by_at_its_end(GIVEN_AWAY);
            self.end(state, patience).await;
        }
        self.end_reception().await;
        self.show_elsewhere(GIVEN_AWAY);
    }

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
