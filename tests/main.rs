//! End-to-end tests: a real source, a real target, the daemon as a process. Where a test ends with all of the source
//! applied, it compares the contents of both servers. A missing server is a failure, never a skipped test.

#[path = "e2e/accounts.rs"]
mod accounts;
#[path = "e2e/admin_port.rs"]
mod admin_port;
#[path = "e2e/archive/mod.rs"]
mod archive;
#[path = "e2e/bad_input.rs"]
mod bad_input;
#[path = "e2e/cascades.rs"]
mod cascades;
#[path = "e2e/check/mod.rs"]
mod check;
#[path = "e2e/claims/mod.rs"]
mod claims;
#[path = "e2e/collations.rs"]
mod collations;
#[path = "e2e/conflicts.rs"]
mod conflicts;
#[path = "e2e/connect.rs"]
mod connect;
#[path = "e2e/control.rs"]
mod control;
#[path = "e2e/control_access.rs"]
mod control_access;
#[path = "e2e/copy/mod.rs"]
mod copy;
#[path = "e2e/coverage/mod.rs"]
mod coverage;
#[path = "e2e/crash.rs"]
mod crash;
#[path = "e2e/delay_until.rs"]
mod delay_until;
#[path = "e2e/deployments/mod.rs"]
mod deployments;
#[path = "e2e/distributed.rs"]
mod distributed;
#[path = "e2e/durations.rs"]
mod durations;
#[path = "e2e/early.rs"]
mod early;
#[path = "e2e/fencing.rs"]
mod fencing;
#[path = "e2e/filters/mod.rs"]
mod filters;
#[path = "e2e/fleet.rs"]
mod fleet;
#[path = "e2e/ghosts.rs"]
mod ghosts;
#[path = "e2e/group/mod.rs"]
mod group;
#[path = "e2e/gtids.rs"]
mod gtids;
#[path = "e2e/health.rs"]
mod health;
#[path = "e2e/holes.rs"]
mod holes;
#[path = "e2e/hostile.rs"]
mod hostile;
#[path = "e2e/lag.rs"]
mod lag;
#[path = "e2e/lock_waits.rs"]
mod lock_waits;
#[path = "e2e/managed.rs"]
mod managed;
#[path = "e2e/mariadb/mod.rs"]
mod mariadb;
#[path = "e2e/memory.rs"]
mod memory;
#[path = "e2e/monitoring.rs"]
mod monitoring;
#[path = "e2e/moving/mod.rs"]
mod moving;
#[path = "e2e/notify/mod.rs"]
mod notify;
#[path = "e2e/older_target.rs"]
mod older_target;
#[path = "e2e/operation.rs"]
mod operation;
#[path = "e2e/outages.rs"]
mod outages;
#[path = "e2e/page.rs"]
mod page;
#[path = "e2e/pairs.rs"]
mod pairs;
#[path = "e2e/parallel.rs"]
mod parallel;
#[path = "e2e/passwords.rs"]
mod passwords;
#[path = "e2e/peers.rs"]
mod peers;
#[path = "e2e/reception.rs"]
mod reception;
#[path = "e2e/refusals.rs"]
mod refusals;
#[path = "e2e/refused_sessions.rs"]
mod refused_sessions;
#[path = "e2e/relations.rs"]
mod relations;
#[path = "e2e/renamed.rs"]
mod renamed;
#[path = "e2e/replicate.rs"]
mod replicate;
#[path = "e2e/roundtrip/mod.rs"]
mod roundtrip;
#[path = "e2e/semi_sync.rs"]
mod semi_sync;
#[path = "e2e/series.rs"]
mod series;
#[path = "e2e/server_settings.rs"]
mod server_settings;
#[path = "e2e/set_back.rs"]
mod set_back;
#[path = "e2e/several.rs"]
mod several;
#[path = "e2e/shortages.rs"]
mod shortages;
#[path = "e2e/sql_executor.rs"]
mod sql_executor;
#[path = "e2e/sql_status.rs"]
mod sql_status;
#[path = "e2e/standby.rs"]
mod standby;
#[path = "e2e/start.rs"]
mod start;
#[path = "e2e/statement_text.rs"]
mod statement_text;
#[path = "e2e/status.rs"]
mod status;
#[path = "e2e/stream_errors.rs"]
mod stream_errors;
#[path = "e2e/systemd.rs"]
mod systemd;
#[path = "e2e/target_login.rs"]
mod target_login;
#[path = "e2e/timeline.rs"]
mod timeline;
#[path = "e2e/undone.rs"]
mod undone;
#[path = "e2e/until_control.rs"]
mod until_control;
#[path = "e2e/updated_again.rs"]
mod updated_again;
#[path = "e2e/values/mod.rs"]
mod values;
#[path = "e2e/verify/mod.rs"]
mod verify;
#[path = "e2e/versions/mod.rs"]
mod versions;
#[path = "e2e/watching.rs"]
mod watching;
#[path = "e2e/worker_count.rs"]
mod worker_count;

use std::ops::RangeInclusive;
use std::time::Duration;

use csa_tests::Daemon;

/// Enough for any drain of these tests on a slow machine.
const DRAIN: Duration = Duration::from_secs(120);

/// The ways of writing rows, as `applier.executor` has them.
const EXECUTORS: [&str; 2] = ["row-image", "sql"];

fn seed_number(text: &str) -> u64 {
    text.trim().parse().expect("a seed is a number")
}

/// Returns the seeds that an environment variable names, as `200` (so many) or `100-300`.
fn seeds_from(variable: &str, unset: RangeInclusive<u64>) -> RangeInclusive<u64> {
    match std::env::var(variable) {
        Ok(seeds) => match seeds.split_once('-') {
            Some((first, last)) => seed_number(first)..=seed_number(last),
            None => 1..=seed_number(&seeds),
        },
        Err(_) => unset,
    }
}

/// Waits until a channel is in `state`. One that converges after a copy has a backlog to apply.
async fn wait_state(daemon: &Daemon, channel: usize, state: &str) {
    csa_tests::eventually(&format!("state {state}"), 2 * DRAIN, async || {
        daemon.status()["channels"][channel]["state"] == state
    })
    .await;
}
