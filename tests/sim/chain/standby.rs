//! Two daemons of one channel, of which one stands by while the other is killed, stalled or cut off: the
//! channel has a daemon again soon, and never two that apply.

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::time::{Duration, Instant, sleep, sleep_until, timeout};

use super::machine::Machine;
use super::{PATIENCE, World, runtime};
use crate::oracle;
use crate::seeds::{self, Case};

/// The target frees the lock of a silent session after 6 s, and the standby looks every second.
const TAKEOVER: Duration = Duration::from_secs(10);
/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(100);
/// Until it applies, a daemon's session may be silent for longer: it may have a large relay store to open.
const SETTLED: Duration = Duration::from_secs(1);
/// A daemon that was killed is back after this time, and one that was stalled, once it learns of it.
const RESTART: Duration = Duration::from_secs(4);
const RETURN: Duration = Duration::from_secs(10);
/// Disturbances of one run.
const DISTURBANCES: usize = 5;

/// Kills or stalls the daemon that has the channel, so many times.
///
/// # Panics
/// No daemon takes the channel in time.
pub(super) async fn disturb(world: &World, machines: &[Machine], times: usize) {
    let mut random = StdRng::seed_from_u64(world.case.seed ^ 0x0005_7a11);
    let epoch = || world.server.with_state(oracle::epoch).cast_unsigned();
    for _ in 0..times {
        sleep(Duration::from_millis(random.random_range(0..8_000))).await;
        let applying = async {
            loop {
                let found = machines.iter().find_map(|one| one.applying(epoch(), SETTLED));
                match found {
                    Some(life) => return life,
                    None => sleep(LOOK).await,
                }
            }
        };
        let life = timeout(PATIENCE, applying).await.expect("no daemon applies");
        let before = epoch();
        let disturbed = Instant::now();
        let stall = Duration::from_millis(random.random_range(10_000..60_000));
        let back = match random.random_bool(0.5) {
            true => {
                life.end();
                RESTART
            }
            false => {
                life.stall(stall);
                stall + RETURN
            }
        };
        let taken = async {
            while epoch() == before {
                sleep(LOOK).await;
            }
        };
        timeout(TAKEOVER, taken).await.expect("no daemon took the channel over");
        // With both away nobody could.
        sleep_until(disturbed + back).await;
    }
}

/// One run.
pub(crate) fn run(case: Case) {
    let times = DISTURBANCES.min(case.kills);
    let calm = Case { faults: 0, kills: 0, ..case };
    runtime().block_on(async { Box::pin(World::new(calm, true).run(times)).await });
}

#[test]
fn a_standby_takes_over_in_time() {
    seeds::each("a_standby", 0..100, run);
}
