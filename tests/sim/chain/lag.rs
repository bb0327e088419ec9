//! Judges lag: it is never lower than the truth, and absent where it can't be known.

use csa_daemon::observe::progress::{Moment, ProgressView};
use csa_provider::binlog::GtidSet;
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

/// Commits of the history's transactions, by the sources' clock.
#[derive(Debug, Default)]
pub(super) struct CommitTimes(Mutex<Times>);

#[derive(Debug, Default)]
struct Times {
    first: Vec<u64>,
    /// The commits on the source and on its peer.
    there: [Vec<u64>; 2],
}

impl CommitTimes {
    /// Notes a commit on one of the servers; returns the time of the first.
    pub(super) fn commit(&self, index: usize, server: usize, now: u64) -> u64 {
        let mut times = self.0.lock();
        if index == times.first.len() {
            times.first.push(now);
        }
        times.there[server].push(now);
        times.first[index]
    }
}

/// Returns the microseconds by which the sources' clock is ahead of the daemons'.
pub(super) fn clock_ahead(case: Case) -> i64 {
    let mut random = StdRng::seed_from_u64(case.seed ^ 0x000c_10c4);
    let hour = 3_600_000_000;
    [0, random.random_range(-hour..hour)][random.random_range(0..2)]
}

/// Time since the first commit of the oldest transaction that the source of this link has and the target
/// lacks, and since it was committed on that source.
fn truth(world: &World, view: &ProgressView) -> Option<(Duration, Duration)> {
    let Sources([source, peer]) = &world.sources;
    let linked = view.source.source_uuid.as_ref().filter(|_| view.source.connected);
    let (there, server) = match linked {
        Some(uuid) if *uuid == PEER.to_string() => (peer.executed(), 1),
        Some(_) => (source.executed(), 0),
        None => {
            let mut all = source.executed();
            all.union(&peer.executed());
            (all, 0)
        }
    };
    let applied: GtidSet = world.server.with_state(oracle::checkpoint).unwrap_or_default();
    let times = world.committed.0.lock();
    let now = world.their_clock.now_micros();
    let index = world.history.transactions.iter().position(|transaction| {
        there.contains(&transaction.gtid) && !applied.contains(&transaction.gtid)
    })?;
    let since = |at: u64| Duration::from_micros(now.saturating_sub(at));
    let first = times.first[index];
    let committed = times.there[server].get(index).copied().unwrap_or(first);
    Some((since(first), since(committed)))
}

/// Returns the lag that the daemon shows.
///
/// # Panics
/// It is lower than the truth.
pub(super) fn judged(world: &World, machine: &Machine, view: &ProgressView) -> Option<f64> {
    let now = Instant::now();
    let lag = view.lag(Moment { micros: world.clock.now_micros(), instant: now });
    // Commits that a crash of the target takes back are missed once its sessions are found to be lost.
    // Until a process has reached the source it takes the source's clock for right.
    let is_judged = world.may_lose == 0 && view.source.connects_total > 0;
    if let (Some(lag), Some((truth, there)), true) = (lag, truth(world, view), is_judged) {
        let heard = view.source.last_event.map_or(now, |heard| machine.departed.of(heard));
        let is_unheard = lag == 0.0 && there <= SOON + now.duration_since(heard) + TIMERS;
        let shown = Duration::from_secs_f64(lag) + TIMERS;
        assert!(
            shown >= truth || is_unheard,
            "lag {lag} is shown, and is {truth:?}, {there:?} on this source, heard {:?} ago: {view:?}",
            now.duration_since(heard)
        );
    }
    lag
}
