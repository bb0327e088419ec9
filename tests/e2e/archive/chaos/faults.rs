//! The faults. Each begins, holds for a while, and ends with everything running again.

use std::time::{Duration, Instant};

use csa_tests::{Server, eventually};
use mysql_async::prelude::Queryable as _;
use rand::Rng as _;
use rand::seq::IndexedRandom as _;
use tokio::task::block_in_place;
use tokio::time::sleep;

use super::judge::judge;
use super::world::World;
use crate::DRAIN;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    DaemonKilled,
    /// The source continues meanwhile.
    DaemonStopped,
    SourceKilled,
    TargetKilled,
    /// Alone, or while something is killed.
    StoreFails,
    /// The relay store is deleted while the daemon is down.
    RelayLost,
    /// The other daemon takes the channel; the first may wake up again.
    Takeover,
    /// The archive is away for so long that the relay store lets go of transactions.
    GivenUp,
    /// The source's old binary logs are purged.
    Purged,
    /// The source begins another history.
    Reset,
}

impl Kind {
    /// Those of one round, which come in any order.
    pub(super) const ROUND: [Self; 18] = [
        Self::DaemonKilled,
        Self::DaemonKilled,
        Self::DaemonKilled,
        Self::DaemonStopped,
        Self::SourceKilled,
        Self::SourceKilled,
        Self::TargetKilled,
        Self::TargetKilled,
        Self::StoreFails,
        Self::StoreFails,
        Self::StoreFails,
        Self::StoreFails,
        Self::RelayLost,
        Self::RelayLost,
        Self::Takeover,
        Self::Takeover,
        Self::GivenUp,
        Self::Purged,
    ];
}

/// Returns a description if the fault was possible now.
pub(super) async fn run(world: &mut World, kind: Kind) -> Option<String> {
    let span = Duration::from_millis(world.random.random_range(100..1500));
    let what = match kind {
        Kind::DaemonKilled => {
            daemon_killed(world, span).await;
            String::new()
        }
        Kind::DaemonStopped => {
            assert!(block_in_place(|| world.daemon().terminate()).success());
            sleep(span * 3).await;
            world.start_daemon();
            String::new()
        }
        Kind::SourceKilled => {
            killed(&world.source, span).await;
            String::new()
        }
        Kind::TargetKilled => {
            killed(&world.target, span).await;
            String::new()
        }
        Kind::StoreFails => store_fails(world, span).await,
        Kind::RelayLost => relay_lost(world, span).await,
        Kind::Takeover => takeover(world, span).await,
        Kind::GivenUp if world.judge.permits_gaps() => given_up(world).await,
        Kind::GivenUp => return None,
        Kind::Purged => purged(world).await,
        Kind::Reset => reset(world).await,
    };
    Some(what)
}

async fn daemon_killed(world: &mut World, away: Duration) {
    world.daemon().kill9();
    sleep(away).await;
    world.start_daemon();
}

async fn killed(server: &Server, away: Duration) {
    block_in_place(|| server.kill9());
    sleep(away).await;
    block_in_place(|| server.restart());
}

async fn store_fails(world: &mut World, span: Duration) -> String {
    let fault = *world.store.faults().choose(&mut world.random).expect("a fault");
    world.store.begin(fault).await;
    sleep(span).await;
    let meanwhile = match world.random.random_range(0..6) {
        0 => {
            daemon_killed(world, span / 4).await;
            "and the daemon is killed"
        }
        1 => {
            killed(&world.source, span / 4).await;
            "and the source is killed"
        }
        2 => {
            killed(&world.target, span / 4).await;
            "and the target is killed"
        }
        _ => "",
    };
    sleep(span).await;
    world.store.end(fault).await;
    format!("{fault:?} {meanwhile}")
}

/// The source sends again what the target has and the archive lacks.
async fn relay_lost(world: &mut World, span: Duration) -> String {
    world.daemon().kill9();
    std::fs::remove_dir_all(world.daemon().state_dir().join("test")).expect("removed");
    sleep(span).await;
    world.start_daemon();
    String::new()
}

async fn takeover(world: &mut World, span: Duration) -> String {
    block_in_place(|| world.other_daemon().start_again());
    let waits = async || {
        let status = block_in_place(|| world.other_daemon().try_status()).unwrap_or_default();
        status["channels"][0]["state"] == "waiting_for_target"
    };
    eventually("the other daemon waits", DRAIN, waits).await;
    let way = ["stalled", "killed", "stopped"][world.random.random_range(0..3)];
    match way {
        "stalled" => {
            world.daemon().signal("STOP");
            let mut conn = world.target.conn().await;
            let sessions: Vec<u64> = conn
                .query("SELECT id FROM performance_schema.processlist WHERE user='csa'")
                .await
                .expect("sessions");
            for session in sessions {
                let _ = conn.query_drop(format!("KILL {session}")).await;
            }
        }
        "killed" => world.daemon().kill9(),
        _ => assert!(block_in_place(|| world.daemon().terminate()).success()),
    }
    world.swap_daemons();
    world.recovered("a takeover").await;
    if way == "stalled" {
        // Both want to write the next file.
        world.other_daemon().signal("CONT");
        sleep(span * 2).await;
        world.other_daemon().kill9();
    }
    format!("(the first was {way})")
}

async fn given_up(world: &mut World) -> String {
    assert!(block_in_place(|| world.daemon().terminate()).success());
    world.set_required(false);
    world.start_daemon();
    world.recovered("a start").await;
    let first = world.archived_gno().unwrap_or_default() + 1;
    let fault = world.store.faults()[0];
    let given_up =
        |world: &World| world.daemon().log().matches("transactions leave the relay").count();
    let before = given_up(world);
    world.store.begin(fault).await;
    let row = "INSERT INTO other.wide (b) VALUES (REPEAT('g', 400000))";
    let begun = Instant::now();
    while given_up(world) == before {
        assert!(begun.elapsed() < DRAIN, "nothing is given up: {:#}", world.view());
        world.source.exec(row).await;
        sleep(Duration::from_millis(100)).await;
    }
    world.store.end(fault).await;
    world.recovered("a gap").await;
    let last = world.archived_gno().unwrap_or_default();
    world.judge.permit(first..=last);
    let missing = world.view()["missing_transactions_total"].as_u64();
    assert!(missing > Some(0), "{:#}", world.view());
    let metrics = block_in_place(|| world.daemon().metrics());
    let said = format!(
        "csa_archive_missing_transactions_total{{channel=\"test\"}} {}",
        missing.unwrap_or_default()
    );
    assert!(metrics.contains(&said), "no {said}");
    assert!(block_in_place(|| world.daemon().terminate()).success());
    world.set_required(true);
    world.start_daemon();
    String::new()
}

/// Purges what both the target and the archive have.
async fn purged(world: &mut World) -> String {
    world.source.exec("FLUSH BINARY LOGS").await;
    // Counted before the wait: all in the files before it is committed now.
    let name = world.judge.count(&world.source).await;
    world.recovered("nothing").await;
    world.daemon().wait_drained(&world.source, &world.target, DRAIN).await;
    world.source.exec(&format!("PURGE BINARY LOGS TO '{name}'")).await;
    format!("to {name}")
}

/// Begins another history, and perhaps a third one, which soon has more transactions than the second.
async fn reset(world: &mut World) -> String {
    let first = reset_to(world, Duration::ZERO).await;
    if world.random.random() {
        return format!("of {first}");
    }
    world.recovered("a reset").await;
    format!("of {first}, and of {}", reset_to(world, Duration::from_secs(4)).await)
}

/// The clients rest, everything is archived, and both servers begin again: the source with the same numbers, and perhaps as
/// another server. The daemon comes back after a while.
async fn reset_to(world: &mut World, alone: Duration) -> &'static str {
    world.write_no_more().await;
    judge(world, true).await;
    let is_other = world.random.random::<bool>();
    for daemon in world.both() {
        if daemon.pid().is_some() {
            assert!(block_in_place(|| daemon.terminate()).success());
        }
        let _ = std::fs::remove_dir_all(daemon.state_dir().join("test"));
    }
    if is_other {
        block_in_place(|| world.source.stop());
        std::fs::remove_file(world.source.data_directory().join("auto.cnf")).expect("removed");
        block_in_place(|| world.source.restart());
    }
    let source = "DROP DATABASE sbtest; DROP DATABASE other; RESET BINARY LOGS AND GTIDS";
    world.source.exec(source).await;
    let target =
        "DROP DATABASE sbtest; DROP DATABASE other; DROP DATABASE csa; RESET BINARY LOGS AND GTIDS";
    world.target.exec(target).await;
    world.begin_era(alone).await;
    if is_other { "another server" } else { "the same server" }
}
