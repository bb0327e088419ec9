//! The servers, the daemons and the links between them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use csa_tests::{Clock, Daemon, DaemonBuilder, FaultyProxy, Mount, Server, eventually};
use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use rand::Rng as _;
use rand::rngs::StdRng;
use serde_json::Value;
use tempfile::TempDir;

use crate::DRAIN;
use crate::load;
use crate::report::Report;
use crate::servers::{Servers, follow, run};

/// Time after which a channel counts as not recovered.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time after which the report says what channel and target are doing.
const SLOW: Duration = Duration::from_secs(3);

/// Times since the end of the faults.
#[derive(Debug, Clone)]
pub(crate) struct Recovery {
    /// The time until the target showed a transaction committed on the source since.
    pub(crate) total: Duration,
    /// The time until the source had committed it, which is no work of the daemon.
    pub(crate) source: Duration,
    /// The activity in a recovery that was not quick.
    pub(crate) slow: String,
}

pub(crate) struct World {
    pub(crate) servers: Arc<Servers>,
    pub(crate) source_links: [FaultyProxy; 2],
    pub(crate) target_link: FaultyProxy,
    pub(crate) daemons: [Daemon; 2],
    active: AtomicUsize,
    disks: [Disk; 2],
    pub(crate) clock: Clock,
    markers: AtomicU64,
    /// Ends of the daemon that no fault asked for.
    exits: AtomicU64,
}

impl World {
    pub(crate) async fn start(random: &mut StdRng) -> Self {
        let servers = Arc::new(Servers::start(&["source-a", "source-b"]));
        let (a, b) = (&servers.sources[0], &servers.sources[1]);
        let source_links = [FaultyProxy::start(a).await, FaultyProxy::start(b).await];
        let target_link = FaultyProxy::start(&servers.target).await;
        load::prepare(a).await;
        follow(b, a).await;
        let mirror = random.random_bool(0.3);
        let workers: i64 = random.random_range(2..=8);
        println!("target_gtids mirror: {mirror}, {workers} workers");
        let clock = Clock::start();
        let disks = [Disk::new(), Disk::new()];
        let daemons = [0, 1].map(|number: usize| {
            let mut other = toml::Table::new();
            other.insert("host".into(), "127.0.0.1".into());
            other.insert("port".into(), i64::from(source_links[1].port).into());
            let builder = quick(Daemon::builder(a, &servers.target))
                .set("source.port", i64::from(source_links[0].port))
                .set("source.failover", vec![toml::Value::from(other)])
                .set("target.port", i64::from(target_link.port))
                .set("relay.segment_size", "1MiB")
                .set("relay.min_free_disk", "1MiB")
                .set("applier.worker_count", workers)
                .set("applier.begin_early", "64KiB")
                .set("applier.target_gtids", if mirror { "mirror" } else { "own" })
                .set("daemon.state_dir", disks[number].path.display().to_string());
            clock.given_to(builder).build()
        });
        let world = Self {
            servers: Arc::clone(&servers),
            source_links,
            target_link,
            daemons,
            active: AtomicUsize::new(0),
            disks,
            clock,
            markers: AtomicU64::new(0),
            exits: AtomicU64::new(0),
        };
        world.daemon().start_again();
        world.daemon().wait_drained(world.primary(), &world.servers.target, DRAIN).await;
        world
    }

    pub(crate) fn primary(&self) -> &Server {
        self.servers.primary()
    }

    /// The daemon that has the channel, or will have it.
    pub(crate) fn daemon(&self) -> &Daemon {
        &self.daemons[self.active.load(Ordering::SeqCst)]
    }

    pub(crate) fn other_daemon(&self) -> &Daemon {
        &self.daemons[1 - self.active.load(Ordering::SeqCst)]
    }

    pub(crate) fn swap_daemons(&self) {
        self.active.fetch_xor(1, Ordering::SeqCst);
    }

    /// The disk of the active daemon's relay store.
    pub(crate) fn disk(&self) -> &Disk {
        &self.disks[self.active.load(Ordering::SeqCst)]
    }

    /// Commits a transaction on the primary and waits until the target shows it. Starts the daemon
    /// again when it exits, as systemd would.
    pub(crate) async fn recovered(&self, ended: Instant) -> Result<Recovery, String> {
        let id = self.markers.fetch_add(1, Ordering::Relaxed);
        let mark = format!("INSERT IGNORE INTO chaos.marker VALUES ({id})");
        let mut conn = None;
        while let Err(error) = run(&mut conn, self.primary(), &mark).await {
            if ended.elapsed() > PATIENCE {
                return Err(format!("the source took no transaction: {error}"));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let source = ended.elapsed();
        let look = format!("SELECT COUNT(*) FROM chaos.marker WHERE id={id}");
        let mut conn = None;
        let mut slow = String::new();
        loop {
            if run(&mut conn, &self.servers.target, &look).await.is_ok_and(|found| found == Some(1))
            {
                return Ok(Recovery { total: ended.elapsed(), source, slow });
            }
            if self.daemon().has_exited() {
                self.exits.fetch_add(1, Ordering::Relaxed);
                self.daemon().wait_exit(PATIENCE);
                self.daemon().spawn();
            }
            if ended.elapsed() > PATIENCE {
                return Err(format!("the target lacks marker {id} after {PATIENCE:?}"));
            }
            if slow.is_empty() && ended.elapsed() > SLOW {
                slow = self.activity().await;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Describes what channel and target are doing.
    async fn activity(&self) -> String {
        let status = self.daemon().try_status().unwrap_or_default();
        let channel = &status["channels"][0];
        let query = "SELECT CONCAT_WS(' ', id, command, time, state, LEFT(info, 80)) \
                     FROM performance_schema.processlist WHERE user='csa'";
        let sessions = async {
            let mut conn = Conn::new(self.servers.target.opts()).await?;
            conn.query::<String, _>(query).await
        };
        let sessions = tokio::time::timeout(Duration::from_secs(2), sessions).await;
        format!(
            "{} {}; backlog {}; target: {sessions:?}",
            channel["state_detail"],
            channel["bottleneck"]["detail"],
            channel["backlog_transactions"]
        )
    }

    pub(crate) fn exits(&self) -> u64 {
        self.exits.load(Ordering::Relaxed)
    }

    /// Everything needed to investigate: status, the relay store, what the target says, the log.
    pub(crate) fn evidence(&self) -> String {
        let daemon = self.daemon();
        let status = daemon.try_status().unwrap_or_default();
        let missing = format!(
            "received {}\napplied {}",
            status["channels"][0]["received_transaction_set"],
            status["channels"][0]["applied_transaction_set"]
        );
        let relay = daemon.command(&["relay", "dump"]).out;
        let relay: Vec<&str> = relay.lines().collect();
        let relay = relay[relay.len().saturating_sub(40)..].join("\n");
        let log = daemon.log();
        let log: Vec<&str> = log.lines().collect();
        let log = log[log.len().saturating_sub(200)..].join("\n");
        format!(
            "{missing}\n--- status ---\n{status:#}\n--- end of the relay store ---\n{relay}\n\
             --- end of the daemon's log ---\n{log}"
        )
    }

    /// The channel is in no error state, and a daemon that ends leaves no session.
    pub(crate) async fn ends_well(&self, report: &mut Report) {
        let view = || self.daemon().status()["channels"][0].clone();
        eventually("the channel runs", PATIENCE, async || view()["state"] == "running").await;
        assert_eq!(view()["last_error"], Value::Null, "{}", self.evidence());
        let sessions = "SELECT COUNT(*) FROM performance_schema.processlist WHERE user='csa'";
        // Forgotten links keep theirs for a while; the daemon ends those that matter to it.
        report.sessions = self.servers.target.value(sessions).await;
        assert!(self.daemon().terminate().success(), "{}", self.daemon().log_tail());
        eventually("no session is left", PATIENCE, async || {
            self.servers.target.value::<u64>(sessions).await == 0
        })
        .await;
        let open = "SELECT COUNT(*) FROM information_schema.innodb_trx";
        assert_eq!(self.servers.target.value::<u64>(open).await, 0, "open transactions");
    }
}

/// Notices quickly that a link is dead, and tries again soon.
pub(crate) fn quick(builder: DaemonBuilder) -> DaemonBuilder {
    builder
        .set("source.heartbeat_interval", "500ms")
        .set("source.connect_timeout", "2s")
        .set("source.connect_retry_max", "500ms")
        .set("target.connect_timeout", "2s")
        .set("target.connect_retry", "100ms")
        .set("target.connect_retry_max", "500ms")
        .set("target.net_timeout", "1s")
}

/// A disk for a relay store. It is small where this process may mount one.
pub(crate) struct Disk {
    path: PathBuf,
    pub(crate) is_small: bool,
    _kept: (Option<Mount>, TempDir),
}

impl Disk {
    fn new() -> Self {
        let directory = TempDir::with_prefix("csa-chaos-").expect("a temporary directory");
        let mount = Mount::memory("32m").ok();
        let path = mount.as_ref().map_or(directory.path(), Mount::path).to_owned();
        Self { path, is_small: mount.is_some(), _kept: (mount, directory) }
    }

    /// Takes all space.
    pub(crate) fn fill(&self) {
        use std::io::Write as _;
        let mut file = std::fs::File::create(self.path.join("filler")).expect("a file");
        let zeros = vec![0; 64 << 10];
        while file.write_all(&zeros).is_ok() {}
    }

    pub(crate) fn free(&self) {
        std::fs::remove_file(self.path.join("filler")).expect("the file that fills the disk");
    }
}
