//! The part of a simulated daemon that copies.

use std::convert::Infallible;
use std::sync::atomic::Ordering;

use csa_applier::Converging;
use csa_provider::binlog::GtidSet;
use csa_provider::source::Foreign;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::watch;
use tokio::time::{Duration, sleep};

use super::copies::{Copies, judge};
use super::daemon::Daemon;
use super::reception::Reception;

/// The longest round of a copy.
const ROUND: u64 = 2_000;

impl Daemon<'_> {
    /// Makes the copy with which the channel begins, or continues with it; receives meanwhile what follows its begin.
    pub(super) async fn copy_first(&self, copies: &Copies, reception: &mut Reception<'_>) {
        let driven = copies.driven(self.world, &self.life);
        let (begin, begun) = watch::channel(None);
        let begins = |executed: &GtidSet| {
            begin.send_replace(Some(executed.clone()));
        };
        let copied = tokio::select! {
            biased;
            copied = driven.first(&begins) => copied,
            never = receive(reception, begun) => match never {},
        };
        match copied {
            Ok(_) => {
                copies.made.fetch_add(1, Ordering::Relaxed);
            }
            Err(failure) => {
                judge(&failure);
                self.pause().await;
            }
        }
    }

    /// Copies tables again for a time, if an operator wants it now. The channel does not run meanwhile.
    pub(super) async fn copy_again(&self) {
        let Some(copies) = &self.world.copies else { return };
        let Some((request, Duration::ZERO)) = copies.next(&self.world.server) else { return };
        let driven = copies.driven_again(self.world, &self.life);
        let time = Duration::from_millis(self.chance().random_range(0..ROUND));
        match driven.again(&request.tables, request.integers, time).await {
            Ok(true) => copies.fulfilled(&request),
            Ok(false) => {}
            Err(failure) => {
                judge(&failure);
                let time = self.chance().random_range(0..100_000);
                copies.postpone(&request, Duration::from_millis(time));
                if failure.text.contains("another copy is not finished") {
                    copies.run_another();
                }
            }
        }
    }

    /// Ends a copy whose tables have converged; after an error the next pipeline leads here again.
    pub(super) async fn complete(&self, converging: &Converging) {
        let copies = self.world.copies.as_ref().expect("nothing else converges");
        if let Err(failure) = copies.driven(self.world, &self.life).complete(converging).await {
            judge(&failure);
            self.pause().await;
        }
    }

    /// Makes tables that a copy dropped before it was interrupted.
    pub(super) async fn make_missing(&self, converging: &Converging) {
        let copies = self.world.copies.as_ref().expect("nothing else converges");
        if let Err(failure) = copies.driven(self.world, &self.life).make_missing(converging).await {
            judge(&failure);
            self.pause().await;
        }
    }

    /// Returns the time after which an operator stops the channel for a round; `None` for never.
    pub(super) fn round_after(&self) -> Option<Duration> {
        let (_, left) = self.world.copies.as_ref()?.next(&self.world.server)?;
        Some(left + Duration::from_millis(self.chance().random_range(500..5_000)))
    }

    async fn pause(&self) {
        sleep(Duration::from_millis(self.chance().random_range(0..5_000))).await;
    }

    fn chance(&self) -> StdRng {
        let micros = self.world.clock.now_micros();
        StdRng::seed_from_u64(self.world.case.seed ^ micros)
    }
}

/// Receives what follows a copy's begin, once it is known.
async fn receive(
    reception: &mut Reception<'_>,
    mut begun: watch::Receiver<Option<GtidSet>>,
) -> Infallible {
    while begun.changed().await.is_ok() {
        let executed = begun.borrow_and_update().clone().unwrap_or_default();
        // The process may be dying; its next one begins again.
        let _ = reception.attach(&executed, Foreign::default()).await;
    }
    std::future::pending().await
}
