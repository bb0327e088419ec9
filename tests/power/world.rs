//! A source that never loses power, a machine with three targets, and a machine with the daemon.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use csa_provider::binlog::GtidSet;
use csa_relaystore::disk::{RealFs, RelayStoreOptions, SyncPolicy};
use csa_relaystore::opening::survey;
use csa_tests::{Daemon, Mount, Server, compare};
use rand::Rng as _;
use rand::rngs::StdRng;
use serde_json::Value;

use crate::kinds::{Kind, Machine};
use crate::load;

/// Each has a target and a channel of this name.
pub(crate) const MODES: [&str; 3] = ["own", "mirror", "source"];
/// Enough for the backlog of any round on a slow machine.
pub(crate) const DRAIN: Duration = Duration::from_secs(120);

pub(crate) struct World {
    pub(crate) daemon: Daemon,
    pub(crate) targets: Vec<Server>,
    pub(crate) source: Server,
    target_disk: Mount,
    daemon_disk: Mount,
}

/// The sets that a daemon states for a channel.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stated {
    pub(crate) received: GtidSet,
    pub(crate) applied: GtidSet,
}

impl World {
    /// The error says why this machine can't run it.
    pub(crate) async fn start(random: &mut StdRng) -> Result<Self, String> {
        let target_disk = Mount::ext4(6 << 30, mount_options(random))?;
        let daemon_disk = Mount::ext4(1 << 30, mount_options(random))?;
        let redo = ["--loose-innodb-redo-log-capacity=64M"];
        let folder = target_disk.path().to_owned();
        let target = || {
            let target = Server::start("target", &redo);
            target.stop();
            target.move_data(&folder);
            target.restart();
            target
        };
        let (source, targets) = std::thread::scope(|scope| {
            let targets = MODES.map(|_| scope.spawn(target));
            let source = scope.spawn(|| Server::start("source", &redo)).join();
            let targets = targets.map(|target| target.join());
            let rethrow = |panic| std::panic::resume_unwind(panic);
            let targets = targets.into_iter().map(|target| target.unwrap_or_else(rethrow));
            (source.unwrap_or_else(rethrow), targets.collect::<Vec<_>>())
        });
        load::fill(&source).await;
        let daemon = daemon(&source, &targets, &daemon_disk, &Kind::ALL[0]);
        let world = Self { daemon, targets, source, target_disk, daemon_disk };
        world.drained_and_equal().await;
        Ok(world)
    }

    /// Starts the daemon again with the settings of this kind, and sets those of the targets.
    pub(crate) async fn prepare(&mut self, kind: &Kind) {
        assert!(self.daemon.terminate().success(), "{}", self.daemon.log_tail());
        self.daemon = daemon(&self.source, &self.targets, &self.daemon_disk, kind);
        for (mode, target) in MODES.iter().zip(&self.targets) {
            let (sync_binlog, flush) = kind.commits_of(mode);
            target
                .exec(&format!(
                    "SET GLOBAL sync_binlog={sync_binlog}, GLOBAL innodb_flush_log_at_trx_commit={flush}"
                ))
                .await;
        }
        // What the machines had before is on disk.
        self.write_back();
    }

    /// The sets of every channel, as the daemon states them.
    pub(crate) fn stated(&self) -> Vec<Stated> {
        let status = self.daemon.status();
        let set = |view: &Value, key: &str| {
            let text = view[key].as_str().unwrap_or_default();
            text.parse().unwrap_or_else(|error| panic!("{key}: {error}: {text}"))
        };
        MODES
            .iter()
            .map(|mode| {
                let view = self.view_in(&status, mode);
                Stated {
                    received: set(view, "received_transaction_set"),
                    applied: set(view, "applied_transaction_set"),
                }
            })
            .collect()
    }

    fn view_in<'a>(&self, status: &'a Value, channel: &str) -> &'a Value {
        let views = status["channels"].as_array().expect("channels");
        let view = views.iter().find(|view| view["channel_name"] == channel);
        view.unwrap_or_else(|| panic!("no channel {channel}: {status:#}"))
    }

    pub(crate) fn view(&self, channel: &str) -> Value {
        self.view_in(&self.daemon.status(), channel).clone()
    }

    /// Cuts the power: from here on nothing reaches the disks of the machine, and its processes are
    /// gone. They are stopped first, so that none acts on the failure of its disk.
    pub(crate) fn cut(&self, machine: Machine) {
        let mut processes = Vec::new();
        if machine != Machine::Daemon {
            processes.extend(self.targets.iter().map(Server::pid));
        }
        if machine != Machine::Target {
            processes.push(self.daemon.pid().expect("running"));
        }
        signal("STOP", &processes);
        if machine != Machine::Daemon {
            self.target_disk.lose_power();
            self.targets.iter().for_each(Server::kill9);
        }
        if machine != Machine::Target {
            self.daemon_disk.lose_power();
            self.daemon.kill9();
        }
    }

    /// Brings the targets back, without the daemon noticing yet; returns what each has executed.
    pub(crate) async fn return_targets(&self, random: &mut StdRng) -> Vec<GtidSet> {
        if let Some(daemon) = self.daemon.pid() {
            signal("STOP", &[daemon]);
        }
        self.target_disk.return_power(mount_options(random));
        std::thread::scope(|scope| {
            for target in &self.targets {
                scope.spawn(|| target.restart());
            }
        });
        let executed = self.executed().await;
        if let Some(daemon) = self.daemon.pid() {
            signal("CONT", &[daemon]);
        }
        executed
    }

    /// Every target's own statement of what it has.
    pub(crate) async fn executed(&self) -> Vec<GtidSet> {
        let mut all = Vec::new();
        for (mode, target) in MODES.iter().zip(&self.targets) {
            let text = match *mode {
                "source" => target.gtid_executed().await,
                // In commit order the newest row has all.
                _ => {
                    target
                        .value::<String>(&format!(
                            "SELECT gtid_executed FROM csa.checkpoint WHERE channel='{mode}' \
                         ORDER BY sequence DESC LIMIT 1"
                        ))
                        .await
                }
            };
            all.push(text.parse().expect("a GTID set"));
        }
        all
    }

    /// Brings the daemon's disk back; returns what each relay store holds or has held.
    pub(crate) fn return_relay(&self, executed: &[GtidSet], random: &mut StdRng) -> Vec<GtidSet> {
        self.daemon_disk.return_power(mount_options(random));
        let state = self.daemon_disk.path().join("state");
        let held = MODES.iter().zip(executed).map(|(mode, executed)| {
            let options = relay_options(state.join(mode).join("relay"));
            let found = survey(&options, executed).expect("readable").unwrap_or_default();
            found.received
        });
        held.collect()
    }

    /// Writes part of what is in the kernel's memory, as the kernel does at times of its own.
    pub(crate) fn write_back(&self) {
        for disk in [&self.target_disk, &self.daemon_disk] {
            let synced = Command::new("sync").arg("-f").arg(disk.path()).status();
            assert!(synced.expect("running sync").success(), "sync -f");
        }
    }

    pub(crate) async fn drained_and_equal(&self) {
        for (mode, target) in MODES.iter().zip(&self.targets) {
            self.daemon.wait_channel_drained(mode, &self.source, target, DRAIN).await;
            compare(&self.source, target).await;
        }
    }
}

fn signal(signal: &str, processes: &[u32]) {
    let mut kill = Command::new("kill");
    kill.arg(format!("-{signal}")).args(processes.iter().map(u32::to_string));
    assert!(kill.status().expect("running kill").success(), "{kill:?}");
}

/// Returns the options that decide what a power loss leaves of files that no program synced:
/// nothing, a part, or the right size with other contents.
fn mount_options(random: &mut StdRng) -> &'static str {
    ["commit=5", "commit=1", "commit=1,nodelalloc", "commit=1,nodelalloc,data=writeback"]
        [random.random_range(0..4)]
}

fn daemon(source: &Server, targets: &[Server], disk: &Mount, kind: &Kind) -> Daemon {
    let mut builder = Daemon::builder(source, &targets[0]).set("name", MODES[0]);
    for (number, (mode, target)) in MODES.iter().zip(targets).enumerate() {
        if number > 0 {
            builder = builder.channel(mode, source, target);
        }
        builder = builder
            .set("applier.target_gtids", *mode)
            .set("applier.commit", if *mode == "source" { "one-to-one" } else { "grouped" })
            .set("relay.sync", kind.relay_sync)
            // Segments begin and end all the time.
            .set("relay.segment_size", "1MiB")
            .set("target.connect_retry", "100ms")
            .set("target.connect_retry_max", "500ms");
    }
    builder.set("daemon.state_dir", disk.path().join("state").display().to_string()).start()
}

fn relay_options(directory: PathBuf) -> RelayStoreOptions {
    RelayStoreOptions {
        directory,
        segment_size: 1 << 20,
        space_limit: 0,
        min_free_disk: 0,
        sync: SyncPolicy::Os,
        archived: false,
        tail_bytes: RelayStoreOptions::TAIL_BYTES,
        frame_bytes: RelayStoreOptions::FRAME_BYTES,
        wake_bytes: RelayStoreOptions::WAKE_BYTES,
        files: Arc::new(RealFs),
    }
}
