//! Commands that wait to end a channel. The one before them gives way: a skip is given up, and an end gets no more time
//! than the most urgent of them allows.

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Commands that wait for the state of a channel to end it.
#[derive(Debug, Default)]
pub(super) struct Enders {
    /// The moment at which each of them wants the run given up.
    limits: watch::Sender<Vec<Instant>>,
}

impl Enders {
    /// Adds a command.
    pub(super) fn join(&self, limit: Instant) {
        self.limits.send_modify(|limits| limits.push(limit));
    }

    /// Removes a command, which has the state now.
    pub(super) fn leave(&self, limit: Instant) {
        self.limits.send_modify(|limits| {
            if let Some(place) = limits.iter().position(|known| *known == limit) {
                limits.swap_remove(place);
            }
        });
    }

    /// Waits until a command waits to end the channel.
    pub(super) async fn some(&self) {
        // Its sender is here.
        drop(self.limits.subscribe().wait_for(|limits| !limits.is_empty()).await);
    }

    /// Waits until `own`, or until the earlier limit of a command that waits.
    pub(super) async fn out_of_time(&self, own: Instant) {
        let mut limits = self.limits.subscribe();
        loop {
            let first = limits.borrow_and_update().iter().copied().fold(own, Instant::min);
            tokio::select! {
                () = sleep_until(first) => return,
                _ = limits.changed() => {}
            }
        }
    }
}
