//! The servers that seeds share: a source, replicas of MySQL's own, and targets of one daemon in several
//! configurations.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use csa_tests::{Compare, Daemon, DaemonBuilder, Server};
use mysql_async::Row;
use mysql_async::prelude::Queryable as _;
use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

use super::super::replica::Replica;
use super::super::schema::{Schema, Style};
use super::panic_text;
use crate::DRAIN;

/// Time that GTIDs may take after their rows.
const PATIENCE: Duration = Duration::from_secs(20);
/// Seeds that run at the same time, each in a schema of its own.
pub(super) const SLOTS: u64 = 4;
/// A table that all of them write.
pub(super) const COMMON: &str = "rt_common.pool";

/// A channel's configuration, beside what the dice choose for all.
pub(super) struct Kind {
    pub(super) name: &'static str,
    keys: &'static [(&'static str, &'static str)],
    /// Renames schemas, and leaves tables and accounts out.
    renames: bool,
}

const fn kind(name: &'static str, keys: &'static [(&'static str, &'static str)]) -> Kind {
    Kind { name, keys, renames: false }
}

const GROUPED: Kind = kind("grouped", &[]);
const FULL: Kind = kind("full", &[("row_image", "full")]);
const MIRROR: Kind = kind("mirror", &[("target_gtids", "mirror")]);
const ONE: Kind = kind("one", &[("commit", "one-to-one"), ("target_gtids", "source")]);
const ONE_OWN: Kind = kind("one-own", &[("commit", "one-to-one")]);
const SQL: Kind = kind("sql", &[("executor", "sql")]);
const ONE_SQL: Kind =
    kind("one-sql", &[("commit", "one-to-one"), ("target_gtids", "source"), ("executor", "sql")]);
const RENAMED: Kind = Kind { renames: true, ..kind("renamed", &[]) };
const RENAMED_SQL: Kind = Kind { renames: true, ..kind("renamed-sql", &[("executor", "sql")]) };

/// The rules of a channel that renames, beside the renames: relatives, and what triggers write, are left out.
const LEFT_OUT: [&str; 4] = ["%.grandchild", "%.pair", "%.made%", "%.audit"];

/// The servers and channels of a set.
struct Layout {
    by_statements: bool,
    /// Options of the source.
    source: &'static [&'static str],
    /// Options of all others.
    others: &'static [&'static str],
    /// Names have capitals, which the others fold.
    folded: bool,
    kinds: &'static [Kind],
}

const FOLDED: &str = "--lower-case-table-names=1";
const ENCRYPTED: [&str; 2] =
    ["--binlog-encryption=ON", "--binlog-rotate-encryption-master-key-at-startup=ON"];

static LAYOUTS: [Layout; 6] = [
    Layout {
        by_statements: false,
        source: &[],
        others: &[],
        folded: false,
        kinds: &[GROUPED, ONE, MIRROR],
    },
    Layout {
        by_statements: true,
        source: &ENCRYPTED,
        others: &ENCRYPTED,
        folded: false,
        kinds: &[SQL, ONE_SQL, FULL],
    },
    Layout {
        by_statements: false,
        source: &[],
        others: &[FOLDED],
        folded: true,
        kinds: &[GROUPED, ONE, MIRROR],
    },
    Layout {
        by_statements: false,
        source: &["--binlog-transaction-compression=ON"],
        others: &[],
        folded: false,
        kinds: &[RENAMED, ONE, FULL],
    },
    Layout {
        by_statements: true,
        source: &[],
        others: &[],
        folded: false,
        kinds: &[RENAMED_SQL, ONE_OWN, MIRROR],
    },
    Layout {
        by_statements: true,
        source: &[FOLDED],
        others: &[FOLDED],
        folded: true,
        kinds: &[SQL, ONE, GROUPED],
    },
];

/// No test of this kind loses what the kernel has.
const QUICK: [&str; 5] = [
    "--sync-binlog=0",
    "--innodb-flush-log-at-trx-commit=2",
    // A machine has a limit for these, and here are many servers.
    "--innodb-use-native-aio=OFF",
    "--innodb-buffer-pool-size=128M",
    // Small events, so that statements have several.
    "--binlog-row-event-max-size=1024",
];

/// The reason why not all have everything.
pub(super) enum NotLevel {
    /// A replica of MySQL's own and the channels stopped at the same transaction: the log lacks something
    /// that the source did.
    RefusedByAll(String),
    Fault(String),
}

pub(super) struct Set {
    pub(super) source: Server,
    pub(super) replica: Replica,
    /// Follows the rules of the channel that renames.
    renaming: Option<Replica>,
    pub(super) targets: Vec<Target>,
    pub(super) daemon: Daemon,
    pub(super) style: Style,
    /// The tables as the last round left them, by slot.
    pub(super) schemas: Mutex<Vec<Schema>>,
    folded: bool,
}

pub(super) struct Target {
    pub(super) kind: &'static Kind,
    pub(super) server: Server,
}

fn renamed(slot: u64) -> String {
    format!("renamed_{slot}")
}

impl Set {
    /// Returns the name of a slot's schema on the source.
    pub(super) fn schema(&self, slot: u64) -> String {
        format!("{}_{slot}", if self.folded { "Rt" } else { "rt" })
    }

    pub(super) async fn start(number: u64, random: &mut StdRng) -> Self {
        let layout = &LAYOUTS[(number % LAYOUTS.len() as u64) as usize];
        let renames = layout.kinds.iter().any(|kind| kind.renames);
        let durable = random.random_bool(0.15);
        let options = |own: &'static [&'static str]| {
            let quick = if durable { &QUICK[2..] } else { &QUICK };
            [quick, own].concat()
        };
        let (for_source, for_others) = (options(layout.source), options(layout.others));
        let (source, mut others) = std::thread::scope(|scope| {
            let source = scope.spawn(|| Server::start("source", &for_source));
            let start = |name: &'static str| {
                let options = &for_others;
                scope.spawn(move || Server::start(name, options))
            };
            let others = layout.kinds.iter().map(|kind| start(kind.name));
            let replicas = std::iter::repeat_n("replica", 1 + usize::from(renames)).map(start);
            let others: Vec<_> = others.chain(replicas).collect();
            let all: Vec<_> = others.into_iter().map(|started| started.join()).collect();
            let rethrow = |panic| std::panic::resume_unwind(panic);
            let source = source.join().unwrap_or_else(rethrow).borrowed();
            let all = all.into_iter().map(|one| one.unwrap_or_else(rethrow).borrowed());
            (source, all.collect::<Vec<_>>())
        });
        let mut replicas = others.split_off(layout.kinds.len()).into_iter().map(Replica);
        let replica = replicas.next().expect("a replica");
        let renaming = replicas.next();
        let targets = layout.kinds.iter().zip(others);
        let targets: Vec<_> = targets.map(|(kind, server)| Target { kind, server }).collect();
        let daemon = configuration(&source, &targets, random).build();
        let style = Style {
            by_statements: layout.by_statements,
            capitals: layout.folded,
            renamed: renames,
            few: true,
        };
        let folded = layout.folded;
        let schemas = Mutex::default();
        let set = Self { source, replica, renaming, targets, daemon, style, schemas, folded };
        set.prepare().await;
        set
    }

    async fn prepare(&self) {
        self.make_schemas(&self.source, false).await;
        self.make_schemas(&self.replica.0, false).await;
        for target in &self.targets {
            self.make_schemas(&target.server, target.kind.renames).await;
        }
        self.replica.follow(&self.source, "").await;
        if let Some(renaming) = &self.renaming {
            self.make_schemas(&renaming.0, true).await;
            let renames: Vec<String> =
                (0..SLOTS).map(|slot| format!("(rt_{slot},{})", renamed(slot))).collect();
            let patterns = LEFT_OUT.map(|pattern| format!("'{pattern}'")).join(",");
            let filter = format!(
                "REPLICATE_REWRITE_DB=({}), REPLICATE_WILD_IGNORE_TABLE=({patterns},'mysql.%')",
                renames.join(",")
            );
            renaming.follow(&self.source, &filter).await;
        }
        self.daemon.start_again();
    }

    /// The schemas are not replicated: where they have other names, a statement that names them would
    /// not be either.
    async fn make_schemas(&self, server: &Server, renames: bool) {
        for slot in 0..SLOTS {
            let schema = if renames { renamed(slot) } else { self.schema(slot) };
            server.exec(&format!("SET sql_log_bin=0; CREATE DATABASE {schema}")).await;
        }
        let create = format!("CREATE TABLE {COMMON} (id INT PRIMARY KEY, n INT)");
        server.exec(&format!("SET sql_log_bin=0; CREATE DATABASE rt_common; {create}")).await;
    }

    /// Waits until all have everything; returns the time that each took, in their order.
    pub(super) async fn wait_level(self: &Arc<Self>) -> Result<Vec<f32>, NotLevel> {
        let wanted: Arc<str> = self.source.gtid_executed().await.into();
        let started = Instant::now();
        let mut waiting = Vec::new();
        let replicas = 1 + usize::from(self.renaming.is_some());
        for number in 0..replicas + self.targets.len() {
            let (set, wanted) = (Arc::clone(self), Arc::clone(&wanted));
            waiting.push(tokio::spawn(async move {
                match number.checked_sub(replicas).map(|target| &set.targets[target]) {
                    Some(Target { kind, server }) => {
                        let daemon = &set.daemon;
                        daemon.wait_channel_drained(kind.name, &set.source, server, DRAIN).await;
                    }
                    None => {
                        let renaming = set.renaming.as_ref().filter(|_| number == 1);
                        renaming.unwrap_or(&set.replica).wait(&wanted, DRAIN).await?;
                    }
                }
                Ok(started.elapsed().as_secs_f32())
            }));
        }
        let mut times = Vec::new();
        let mut errors = Vec::new();
        for (number, one) in waiting.into_iter().enumerate() {
            match one.await.unwrap_or_else(|error| Err(panic_text(error))) {
                Ok(time) => times.push(time),
                Err(error) => errors.push((number.checked_sub(replicas), error)),
            }
        }
        if errors.is_empty() {
            return Ok(times);
        }
        let all: Vec<_> = errors.iter().map(|(_, error)| error.as_str()).collect();
        let all = all.join("\n");
        Err(match self.refused_by_all(&errors) {
            Some(gtid) => NotLevel::RefusedByAll(format!("{gtid}: {all}")),
            None => NotLevel::Fault(all),
        })
    }

    /// The transaction at which a replica of MySQL's own stopped, and with it each channel that is not level.
    fn refused_by_all(&self, errors: &[(Option<usize>, String)]) -> Option<String> {
        let by_replica = errors.iter().find(|(target, _)| target.is_none())?;
        // "Worker 2 failed executing transaction 'UUID:1560' at source log ..."
        let gtid = by_replica.1.split("executing transaction '").nth(1)?.split('\'').next()?;
        let status = self.daemon.try_status()?;
        let channels = status["channels"].as_array()?;
        let stopped_there = |target: usize| {
            let name = self.targets[target].kind.name;
            let channel = channels.iter().find(|channel| channel["channel_name"] == name);
            channel.is_some_and(|channel| channel["last_error"]["transaction"] == gtid)
        };
        let mut ours = errors.iter().filter_map(|(target, _)| *target).peekable();
        (ours.peek().is_some() && ours.all(stopped_there)).then(|| gtid.to_owned())
    }

    /// Returns the differences between the source and its replica, and between each target and the replica that
    /// follows its rules.
    pub(super) async fn differences(&self) -> Vec<String> {
        let compare = |accounts: bool| match accounts {
            true => Compare::new().users(),
            false => Compare::new(),
        };
        let mut found = Vec::new();
        if !self.folded || self.source_folds().await {
            let compared = compare(true).run(&self.source, &self.replica.0).await;
            found.extend(compared.err().map(|it| format!("MySQL's own replica: {it}")));
        }
        for Target { kind, server } in &self.targets {
            let witness = match &self.renaming {
                Some(renaming) if kind.renames => renaming,
                _ => &self.replica,
            };
            let compared = compare(!kind.renames).run(&witness.0, server).await;
            found.extend(compared.err().map(|it| format!("{}: {it}", kind.name)));
            found.extend(self.missing(kind, server).await);
        }
        found
    }

    async fn source_folds(&self) -> bool {
        self.source.value::<u8>("SELECT @@lower_case_table_names").await != 0
    }

    /// Returns the GTIDs that a target should have executed, and branches that nobody ends.
    async fn missing(&self, kind: &Kind, server: &Server) -> Option<String> {
        let mut conn = server.conn().await;
        let prepared: Vec<Row> = conn.query("XA RECOVER").await.expect("recovers");
        let _ = conn.disconnect().await;
        if !prepared.is_empty() {
            return Some(format!("{}: {} branches are still prepared", kind.name, prepared.len()));
        }
        if !kind.keys.iter().any(|(key, value)| *key == "target_gtids" && *value != "own") {
            return None;
        }
        let executed = self.source.gtid_executed().await;
        let left = format!("SELECT GTID_SUBTRACT('{executed}', @@GLOBAL.gtid_executed)");
        // With "mirror" they follow the rows.
        let started = Instant::now();
        loop {
            let left: String = server.value(&left).await;
            if left.is_empty() {
                return None;
            }
            if started.elapsed() > PATIENCE {
                return Some(format!("{}: lacks the GTIDs {left}", kind.name));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

fn configuration(source: &Server, targets: &[Target], random: &mut StdRng) -> DaemonBuilder {
    let mut builder = Daemon::builder(source, &targets[0].server).without_channels();
    for Target { kind, server } in targets {
        builder = builder
            .channel(kind.name, source, server)
            .set("target.connect_retry", "100ms")
            .set("applier.worker_count", *[1, 2, 4, 8].choose(random).expect("numbers"))
            .set("applier.preserve_commit_order", random.random_bool(0.8))
            .set("applier.replicate_accounts", !kind.renames)
            .set("applier.row_image", *["full", "minimal"].choose(random).expect("ways"))
            .set("applier.begin_early", *["64KiB", "1MiB", "0"].choose(random).expect("sizes"))
            .set("relay.segment_size", *["1MiB", "4MiB", "128MiB"].choose(random).expect("sizes"))
            .set("relay.sync", *["transaction", "1s", "os"].choose(random).expect("ways"));
        for (key, value) in kind.keys {
            builder = builder.set(&format!("applier.{key}"), *value);
        }
        if kind.renames {
            for slot in 0..SLOTS {
                let key = format!("applier.replicate_rewrite_db.rt_{slot}");
                builder = builder.set(&key, renamed(slot));
            }
            let patterns = LEFT_OUT.map(toml::Value::from).to_vec();
            builder = builder.set("applier.replicate_wild_ignore_table", patterns);
        }
    }
    builder
}
