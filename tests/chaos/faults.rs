//! The kinds of faults: each begins, holds for a while, and ends with its server answering again.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use csa_tests::{FaultyProxy, Server, eventually};
use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::task::{JoinSet, block_in_place};
use tokio::time::sleep;

use crate::load::{ACCOUNTS, CLIENTS};
use crate::servers::{follow, kill_sessions};
use crate::world::{Recovery, World};

const PATIENCE: Duration = Duration::from_secs(30);

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    DaemonKilled,
    DaemonStalled,
    TargetKilled,
    TargetStalled,
    SourceKilled,
    SourceStalled,
    SourceLinkSlow,
    SourceLinkHalfOpen,
    SourceLinkReset,
    SourceLinkSwallows,
    TargetLinkSlow,
    TargetLinkHalfOpen,
    TargetLinkReset,
    TargetLinkSwallows,
    DiskFull,
    SuperReadOnly,
    ReadOnly,
    SessionsKilled,
    DumpKilled,
    TableLocked,
    RowsLocked,
    Failover,
    SecondDaemon,
    ClockStepped,
}

/// A part of the world. Faults of different parts can happen at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Everything,
    Daemon,
    Source,
    Target,
    SourceLink,
    TargetLink,
    Disk,
    Clock,
}

impl Kind {
    pub(crate) const ALL: [Self; 24] = [
        Self::DaemonKilled,
        Self::DaemonStalled,
        Self::TargetKilled,
        Self::TargetStalled,
        Self::SourceKilled,
        Self::SourceStalled,
        Self::SourceLinkSlow,
        Self::SourceLinkHalfOpen,
        Self::SourceLinkReset,
        Self::SourceLinkSwallows,
        Self::TargetLinkSlow,
        Self::TargetLinkHalfOpen,
        Self::TargetLinkReset,
        Self::TargetLinkSwallows,
        Self::DiskFull,
        Self::SuperReadOnly,
        Self::ReadOnly,
        Self::SessionsKilled,
        Self::DumpKilled,
        Self::TableLocked,
        Self::RowsLocked,
        Self::Failover,
        Self::SecondDaemon,
        Self::ClockStepped,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::DaemonKilled => "daemon killed",
            Self::DaemonStalled => "daemon stalled",
            Self::TargetKilled => "target killed",
            Self::TargetStalled => "target stalled",
            Self::SourceKilled => "source killed",
            Self::SourceStalled => "source stalled",
            Self::SourceLinkSlow => "source link slow",
            Self::SourceLinkHalfOpen => "source link half open",
            Self::SourceLinkReset => "source link reset",
            Self::SourceLinkSwallows => "source link swallows",
            Self::TargetLinkSlow => "target link slow",
            Self::TargetLinkHalfOpen => "target link half open",
            Self::TargetLinkReset => "target link reset",
            Self::TargetLinkSwallows => "target link swallows",
            Self::DiskFull => "relay disk full",
            Self::SuperReadOnly => "target super_read_only",
            Self::ReadOnly => "target read_only",
            Self::SessionsKilled => "target sessions killed",
            Self::DumpKilled => "source session killed",
            Self::TableLocked => "table locked on target",
            Self::RowsLocked => "rows locked on target",
            Self::Failover => "failover of the source",
            Self::SecondDaemon => "second daemon takes over",
            Self::ClockStepped => "daemon's clock stepped",
        }
    }

    const fn part(self) -> Part {
        match self {
            Self::DaemonKilled | Self::DaemonStalled => Part::Daemon,
            Self::TargetKilled
            | Self::TargetStalled
            | Self::SuperReadOnly
            | Self::ReadOnly
            | Self::SessionsKilled
            | Self::TableLocked
            | Self::RowsLocked => Part::Target,
            Self::SourceKilled | Self::SourceStalled | Self::DumpKilled => Part::Source,
            Self::SourceLinkSlow
            | Self::SourceLinkHalfOpen
            | Self::SourceLinkReset
            | Self::SourceLinkSwallows => Part::SourceLink,
            Self::TargetLinkSlow
            | Self::TargetLinkHalfOpen
            | Self::TargetLinkReset
            | Self::TargetLinkSwallows => Part::TargetLink,
            Self::DiskFull => Part::Disk,
            Self::ClockStepped => Part::Clock,
            Self::Failover | Self::SecondDaemon => Part::Everything,
        }
    }

    pub(crate) fn is_apart_from(self, other: Self) -> bool {
        let (own, other) = (self.part(), other.part());
        own != other && own != Part::Everything && other != Part::Everything
    }
}

/// The end of a step's last fault, and its time to recovery.
pub(crate) struct Outcome {
    pub(crate) recovery: Result<Recovery, String>,
    pub(crate) notes: String,
}

/// Runs the faults at the same time, and waits for the channel to recover from all of them.
pub(crate) async fn run(world: &Arc<World>, step: &[Kind], random: &mut StdRng) -> Outcome {
    match step {
        [Kind::Failover] => return failover(world, random).await,
        [Kind::SecondDaemon] => return second_daemon(world, random).await,
        _ => {}
    }
    let mut faults = JoinSet::new();
    for kind in step {
        let (world, kind, seed) = (Arc::clone(world), *kind, random.random());
        faults.spawn(async move { one(&world, kind, &mut StdRng::seed_from_u64(seed)).await });
    }
    let ended = faults.join_all().await.into_iter().max().expect("a fault");
    Outcome { recovery: world.recovered(ended).await, notes: String::new() }
}

/// Returns the time from which the channel can recover.
async fn one(world: &World, kind: Kind, random: &mut StdRng) -> Instant {
    let mut span = |least: u64, most: u64| Duration::from_millis(random.random_range(least..most));
    sleep(span(0, 400)).await;
    let short = span(300, 2500);
    let either = span(0, 3).as_millis() as usize;
    match kind {
        Kind::DaemonKilled => {
            world.daemon().kill9();
            sleep(short / 3).await;
            world.daemon().spawn();
        }
        Kind::DaemonStalled => {
            world.daemon().signal("STOP");
            sleep(span(300, 3000)).await;
            world.daemon().signal("CONT");
        }
        Kind::TargetKilled => restart(&world.servers.target, short / 4).await,
        Kind::SourceKilled => restart(world.primary(), short / 4).await,
        Kind::TargetStalled => stall(&world.servers.target, span(300, 3000)).await,
        Kind::SourceStalled => stall(world.primary(), span(300, 3000)).await,
        Kind::SourceLinkSlow
        | Kind::SourceLinkHalfOpen
        | Kind::SourceLinkReset
        | Kind::SourceLinkSwallows => {
            let [a, b] = &world.source_links;
            let links = [vec![a, b], vec![a], vec![b]];
            link(kind, &links[either], short).await;
        }
        Kind::TargetLinkSlow
        | Kind::TargetLinkHalfOpen
        | Kind::TargetLinkReset
        | Kind::TargetLinkSwallows => link(kind, &[&world.target_link], short).await,
        Kind::DiskFull => {
            let disk = world.disk();
            disk.fill();
            sleep(short).await;
            disk.free();
        }
        Kind::SuperReadOnly | Kind::ReadOnly => {
            let name = if kind == Kind::ReadOnly { "read_only" } else { "super_read_only" };
            world.servers.target.exec(&format!("SET GLOBAL {name}=ON")).await;
            sleep(short).await;
            world.servers.target.exec("SET GLOBAL super_read_only=OFF, read_only=OFF").await;
        }
        Kind::SessionsKilled => kill_sessions(&world.servers.target, "user='csa'").await,
        Kind::DumpKilled => {
            for source in &world.servers.sources {
                kill_sessions(source, "command LIKE 'Binlog Dump%' AND user='repl'").await;
            }
        }
        Kind::TableLocked => {
            let table = ["entry", "account", "scratch"][either];
            hold(
                &world.servers.target,
                &format!("LOCK TABLES chaos.{table} READ"),
                span(500, 2500),
            )
            .await;
        }
        Kind::RowsLocked => {
            let rows = match either {
                0 => format!("chaos.counter WHERE client={}", span(1, CLIENTS).as_millis()),
                1 => format!("chaos.account WHERE id={}", span(1, ACCOUNTS).as_millis()),
                _ => "csa.checkpoint".into(),
            };
            let sql = format!("BEGIN; SELECT * FROM {rows} FOR UPDATE");
            hold(&world.servers.target, &sql, span(500, 2500)).await;
        }
        Kind::ClockStepped => {
            let step = span(2_000, 90_000_000).as_secs() as i64;
            world.clock.step(if either == 0 { step } else { -step });
            sleep(short + Duration::from_secs(1)).await;
            world.clock.step(0);
        }
        Kind::Failover | Kind::SecondDaemon => unreachable!("they happen alone"),
    }
    Instant::now()
}

/// Kills and starts the server.
pub(crate) async fn restart(server: &Server, away: Duration) {
    block_in_place(|| server.kill9());
    sleep(away).await;
    block_in_place(|| server.restart());
}

async fn stall(server: &Server, length: Duration) {
    signal(server, "STOP");
    sleep(length).await;
    signal(server, "CONT");
}

fn signal(server: &Server, signal: &str) {
    let pid = server.pid().to_string();
    let sent = Command::new("kill").arg(format!("-{signal}")).arg(pid).status();
    assert!(sent.expect("running kill").success(), "kill -{signal} {}", server.name);
}

async fn link(kind: Kind, links: &[&FaultyProxy], length: Duration) {
    for link in links {
        match kind {
            Kind::SourceLinkSlow | Kind::TargetLinkSlow => link.delay(length / 25),
            Kind::SourceLinkReset | Kind::TargetLinkReset => link.reset(),
            _ => link.black_hole(),
        }
    }
    sleep(length).await;
    for link in links {
        if matches!(kind, Kind::SourceLinkHalfOpen | Kind::TargetLinkHalfOpen) {
            link.forget();
        }
        link.heal();
    }
}

/// Runs the statement in a session that ends after this time.
async fn hold(server: &Server, sql: &str, length: Duration) {
    let mut conn: Conn = server.conn().await;
    conn.query_drop("SET lock_wait_timeout=5, innodb_lock_wait_timeout=5").await.expect("allowed");
    // A deadlock ends it before it has begun.
    let patience = Instant::now() + PATIENCE;
    while let Err(error) = conn.query_drop(sql).await {
        assert!(Instant::now() < patience, "{sql}: {error}");
        sleep(Duration::from_millis(50)).await;
    }
    sleep(length).await;
    let _ = conn.query_drop("ROLLBACK; UNLOCK TABLES").await;
    let _ = conn.disconnect().await;
}

/// The peer takes over, and the old primary dies or becomes its replica.
async fn failover(world: &World, random: &mut StdRng) -> Outcome {
    let old = world.servers.promote_other().await;
    let dies = random.random_bool(0.7);
    if dies {
        block_in_place(|| old.kill9());
    } else {
        follow(old, world.primary()).await;
    }
    let recovery = world.recovered(Instant::now()).await;
    if dies {
        block_in_place(|| old.restart());
        follow(old, world.primary()).await;
    }
    Outcome {
        recovery,
        notes: format!("(the old primary {})", if dies { "died" } else { "follows" }),
    }
}

/// Another daemon takes the channel from the first, which must not write any more.
async fn second_daemon(world: &World, random: &mut StdRng) -> Outcome {
    let (first, second) = (world.daemon(), world.other_daemon());
    second.spawn();
    let waits = async || {
        let status = block_in_place(|| second.try_status()).unwrap_or_default();
        status["channels"][0]["state"] == "waiting_for_target"
    };
    eventually("the second daemon waits", PATIENCE, waits).await;
    let way = ["stalled", "killed", "stopped"][random.random_range(0..3)];
    match way {
        "stalled" => {
            first.signal("STOP");
            kill_sessions(&world.servers.target, "user='csa'").await;
        }
        "killed" => first.kill9(),
        _ => assert!(block_in_place(|| first.terminate()).success(), "{}", first.log_tail()),
    }
    let ended = Instant::now();
    world.swap_daemons();
    let recovery = world.recovered(ended).await;
    if way == "stalled" {
        first.signal("CONT");
        eventually("the first daemon is fenced", PATIENCE, async || {
            let status = block_in_place(|| first.try_status()).unwrap_or_default();
            let channel = &status["channels"][0];
            let fenced = channel["last_error"]["message"].to_string().contains("another daemon");
            fenced || channel["state_detail"].to_string().contains("another daemon")
        })
        .await;
        first.kill9();
    }
    Outcome { recovery, notes: format!("(the first daemon {way})") }
}
