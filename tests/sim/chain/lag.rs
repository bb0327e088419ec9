//! Judges lag: it is never lower than the truth, and absent where it can't be known.

use csa_daemon::progress::{Moment, ProgressView};
use csa_provider::GtidSet;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::time::{Duration, Instant};

use super::machine::Machine;
use super::{Sources, World};
use crate::history::PEER;
use crate::oracle;
use crate::seeds::Case;

/// Commits so soon before the source was last heard from need not show.
const SOON: Duration = Duration::from_secs(1);
/// Timers have a granularity of a millisecond.
const TIMERS: Duration = Duration::from_millis(2);

/// First commits of the history's transactions, by the sources' clock.
#[derive(Debug, Default)]
pub(super) struct CommitTimes(Mutex<Vec<u64>>);

impl CommitTimes {
    /// The time of the first commit, which is `now` if there was none.
    pub(super) fn first(&self, index: usize, now: u64) -> u64 {
        let mut times = self.0.lock();
        if index == times.len() {
            times.push(now);
        }
        times[index]
    }
}

/// Microseconds by which the sources' clock is ahead of the daemons'.
pub(super) fn clock_ahead(case: Case) -> i64 {
    let mut random = StdRng::seed_from_u64(case.seed ^ 0x000c_10c4);
    let hour = 3_600_000_000;
    [0, random.random_range(-hour..hour)][random.random_range(0..2)]
}

/// Time since the first commit of the oldest transaction that the source of this link has and the target
/// lacks.
fn truth(world: &World, view: &ProgressView) -> Option<Duration> {
    let Sources([source, peer]) = &world.sources;
    let linked = view.source.source_uuid.as_ref().filter(|_| view.source.connected);
    let there = match linked {
        Some(uuid) if *uuid == PEER.to_string() => peer.executed(),
        Some(_) => source.executed(),
        None => {
            let mut all = source.executed();
            all.union(&peer.executed());
            all
        }
    };
    let applied: GtidSet = world.server.with_state(oracle::checkpoint).unwrap_or_default();
    let times = world.committed.0.lock();
    let now = world.their_clock.now_micros();
    let lacking = world.history.transactions.iter().zip(&*times).find(|(transaction, _)| {
        there.contains(&transaction.gtid) && !applied.contains(&transaction.gtid)
    });
    lacking.map(|(_, &committed)| Duration::from_micros(now.saturating_sub(committed)))
}

/// The lag that the daemon shows.
///
/// # Panics
/// It is lower than the truth.
pub(super) fn judged(world: &World, machine: &Machine, view: &ProgressView) -> Option<f64> {
    let now = Instant::now();
    let lag = view.lag(Moment { micros: world.clock.now_micros(), instant: now });
    // Commits that a crash of the target takes back are missed once its sessions are found to be lost.
    // Until a process has reached the source it takes the source's clock for right.
    let is_judged = world.may_lose == 0 && view.source.connects_total > 0;
    if let (Some(lag), Some(truth), true) = (lag, truth(world, view), is_judged) {
        let heard = view.source.last_event.map_or(now, |heard| heard.min(machine.departed.at()));
        let unheard = match lag == 0.0 {
            true => SOON + now.duration_since(heard),
            false => Duration::ZERO,
        };
        let shown = Duration::from_secs_f64(lag).max(unheard) + TIMERS;
        assert!(shown >= truth, "lag {lag} is shown, and is {truth:?}: {view:?}");
    }
    lag
}
