//! The servers, the two daemons of the channel, the archive, and the clients of the source.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use csa_tests::{Daemon, Load, LoadOptions, Server, prepare};
use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::Value;
use tokio::task::{JoinHandle, block_in_place};

use super::judge::Judge;
use super::store::Store;
use crate::archive::others;

/// Time after which an archive counts as not recovered: the daemon's pauses are up to a minute.
const PATIENCE: Duration = Duration::from_secs(180);
const LIMIT: &str = "96MiB";

pub(super) struct World {
    pub(super) source: Server,
    pub(super) target: Server,
    daemons: [Daemon; 2],
    active: usize,
    pub(super) store: Store,
    pub(super) random: StdRng,
    pub(super) judge: Judge,
    load: Option<(Load, Others)>,
    /// Transactions of the clients so far, and statements of the other client.
    pub(super) committed: u64,
    pub(super) others: u64,
    /// Ends of a daemon that no fault asked for.
    pub(super) exits: u64,
}

impl World {
    pub(super) async fn start(store: Store, seed: u64) -> Self {
        let (source, target) = Server::pair(&["--sync-binlog=1"], &[]);
        let daemons = [0, 1].map(|_| {
            store
                .configured(Daemon::builder(&source, &target))
                .set("archive.interval", "1s")
                .set("archive.keep", "0s")
                .set("archive.required", true)
                .set("relay.segment_size", "1MiB")
                .set("relay.space_limit", LIMIT)
                .set("source.connect_retry_max", "500ms")
                .set("source.connect_timeout", "2s")
                .set("target.connect_timeout", "2s")
                .set("target.connect_retry", "100ms")
                .set("target.connect_retry_max", "500ms")
                .set("target.net_timeout", "1s")
                .build()
        });
        let mut world = Self {
            source,
            target,
            daemons,
            active: 0,
            store,
            random: StdRng::seed_from_u64(seed),
            judge: Judge::default(),
            load: None,
            committed: 0,
            others: 0,
            exits: 0,
        };
        world.begin_era(Duration::ZERO).await;
        world
    }

    /// Makes the tables, and lets the clients begin, and after a while the daemon.
    pub(super) async fn begin_era(&mut self, alone: Duration) {
        let uuid: String = self.source.value("SELECT @@server_uuid").await;
        let permits_gaps = self.random.random();
        self.judge.begins(&uuid, permits_gaps);
        prepare(&self.source, &options(0)).await;
        others::prepare(&self.source).await;
        self.write();
        tokio::time::sleep(alone).await;
        self.start_daemon();
    }

    pub(super) fn daemon(&self) -> &Daemon {
        &self.daemons[self.active]
    }

    pub(super) fn other_daemon(&self) -> &Daemon {
        &self.daemons[1 - self.active]
    }

    pub(super) fn both(&self) -> &[Daemon; 2] {
        &self.daemons
    }

    pub(super) fn swap_daemons(&mut self) {
        self.active = 1 - self.active;
    }

    /// Starts the active daemon, with a form and a size of the archive's files by chance.
    pub(super) fn start_daemon(&mut self) {
        let form = ["none", "zstd"][self.random.random_range(0..2)];
        let size = ["1MiB", "4MiB", "64MiB"][self.random.random_range(0..3)];
        self.daemon().set("archive.compression", form);
        self.daemon().set("archive.file_size", size);
        block_in_place(|| self.daemon().start_again());
    }

    /// Lets the relay store go of what is not archived, or not.
    pub(super) fn set_required(&self, is_required: bool) {
        self.daemon().set("archive.required", is_required);
        self.daemon().set("relay.space_limit", if is_required { LIMIT } else { "4MiB" });
    }

    pub(super) fn write(&mut self) {
        let load = Load::start(&self.source, &options(self.random.random_range(1..1000)));
        self.load = Some((load, Others::start(&self.source, self.random.random())));
    }

    pub(super) async fn write_no_more(&mut self) {
        let Some((load, others)) = self.load.take() else { return };
        self.committed += load.stop().await.committed;
        self.others += others.stop().await;
    }

    /// Returns the number of the source's last transaction.
    pub(super) async fn last_gno(&self) -> u64 {
        gno(&self.source.gtid_executed().await)
    }

    /// Returns the number up to which everything is archived or known to be missing, as the daemon says.
    pub(super) fn archived_gno(&self) -> Option<u64> {
        let status = block_in_place(|| self.daemon().try_status())?;
        let set = status["channels"][0]["archive"]["archived_transaction_set"].as_str()?.to_owned();
        let (_, numbers) = set.split_once(':')?;
        // One interval from the first: otherwise something is missing that nobody has noticed.
        numbers.strip_prefix("1-")?.parse().ok()
    }

    /// Waits until the archive has everything that the source has now. Starts the daemon again when it exits, as systemd
    /// would.
    pub(super) async fn recovered(&mut self, what: &str) {
        let (goal, begun) = (self.last_gno().await, Instant::now());
        while self.archived_gno().is_none_or(|archived| archived < goal) {
            if self.daemon().has_exited() {
                self.exits += 1;
                block_in_place(|| self.daemon().wait_exit(PATIENCE));
                self.start_daemon();
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "after {what}: transaction {goal} is not archived\n{:#}",
                self.daemon().try_status().unwrap_or_default()["channels"][0]
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(super) fn view(&self) -> Value {
        block_in_place(|| super::view(self.daemon()))
    }
}

impl Drop for World {
    /// Keeps what explains a failure, where `CSA_ARCHIVE_CHAOS_KEEP` names a folder for it.
    fn drop(&mut self) {
        let Some(folder) = std::env::var_os("CSA_ARCHIVE_CHAOS_KEEP") else { return };
        if std::thread::panicking() {
            let folder = std::path::PathBuf::from(folder);
            let _ = std::fs::create_dir_all(&folder);
            for (number, daemon) in self.daemons.iter().enumerate() {
                let _ =
                    std::fs::copy(daemon.log_path(), folder.join(format!("daemon-{number}.log")));
            }
            let root = self.store.root();
            let _ = std::process::Command::new("cp").arg("-a").arg(root).arg(&folder).status();
        }
    }
}

/// Returns the last number of a set without holes.
pub(super) fn gno(executed: &str) -> u64 {
    let number = executed.rsplit(['-', ':']).next().and_then(|number| number.parse().ok());
    number.unwrap_or_default()
}

fn options(seed: u64) -> LoadOptions {
    LoadOptions {
        rows: 300,
        tables: 2,
        clients: 3,
        rate: Some(70.0),
        seed,
        ..LoadOptions::default()
    }
}

/// A client for what the load lacks.
struct Others {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Others {
    fn start(source: &Server, seed: u64) -> Self {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&done));
        let (options, mut random) = (source.opts(), StdRng::seed_from_u64(seed));
        let task = tokio::spawn(async move {
            let mut session = None;
            while !stopped.load(Ordering::Relaxed) {
                let pause = random.random_range(50..1500);
                tokio::time::sleep(Duration::from_millis(pause)).await;
                let mut conn = match session.take() {
                    Some(conn) => conn,
                    // The source is down.
                    None => match Conn::new(options.clone()).await {
                        Ok(conn) => conn,
                        Err(_) => continue,
                    },
                };
                match conn.query_drop(others::statement(&mut random)).await {
                    Ok(()) => drop(counted.fetch_add(1, Ordering::Relaxed)),
                    Err(mysql_async::Error::Server(error)) if others::is_expected(&error) => {}
                    Err(_) => continue,
                }
                session = Some(conn);
            }
        });
        Self { stop, done, task }
    }

    async fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.expect("the other client");
        self.done.load(Ordering::Relaxed)
    }
}
