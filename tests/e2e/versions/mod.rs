//! Sources and targets of every supported version: a random load with changing definitions arrives, with
//! the daemon killed in the middle.
//!
//! Every test run takes one target for each source. `CSA_VERSIONS=all` takes all pairs, or
//! `CSA_VERSIONS=5.7>9.7` one; `CSA_VERSIONS_SEEDS=20` (or `7-7`) takes that many loads for each pair.
//! `CSA_VERSIONS_TABLE=docs/versions.md` writes the table of a run of all pairs.

pub(crate) mod load;
mod newer;
mod older;
mod verified;

use std::fmt;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use csa_tests::{Compare, Daemon, Server};

use crate::{DRAIN, EXECUTORS, seeds_from};

/// A server that the sandbox can start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    /// 5.7.22.
    V57,
    V8015,
    V8031,
    /// The newest MySQL of Debian.
    Newest,
    /// The MariaDB of this Debian release.
    MariaDb,
    MariaDb114,
}

const SOURCES: [Version; 4] = [Version::V57, Version::V8015, Version::V8031, Version::Newest];
const TARGETS: [Version; 5] =
    [Version::V57, Version::V8031, Version::Newest, Version::MariaDb, Version::MariaDb114];

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V57 => "5.7",
            Self::V8015 => "8.0.15",
            Self::V8031 => "8.0.31",
            Self::Newest => "9.7",
            Self::MariaDb => "mariadb-10.11",
            Self::MariaDb114 => "mariadb-11.4",
        })
    }
}

impl Version {
    pub(crate) fn start(self, name: &str, options: &[&str]) -> Server {
        match self {
            Self::Newest => Server::start(name, options),
            Self::MariaDb => Server::start_mariadb(name, options),
            Self::V57 | Self::V8015 | Self::V8031 | Self::MariaDb114 => {
                Server::start_version(name, &self.to_string(), options)
            }
        }
    }

    pub(crate) fn is_mariadb(self) -> bool {
        matches!(self, Self::MariaDb | Self::MariaDb114)
    }

    /// The TLS of these builds has no cipher suite that is still in use.
    fn has_no_usable_tls(self) -> bool {
        matches!(self, Self::V57 | Self::V8015)
    }

    /// It lacks the default collation of sources since 8.0.
    fn lacks_newer_collations(self) -> bool {
        self.is_mariadb() || self == Self::V57
    }

    /// Returns true from 8.0.20 on, which has `binlog_transaction_compression`.
    fn compresses(self) -> bool {
        matches!(self, Self::V8031 | Self::Newest)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pair {
    source: Version,
    target: Version,
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}>{}", self.source, self.target)
    }
}

fn all_pairs() -> Vec<Pair> {
    let of = |source| TARGETS.map(|target| Pair { source, target });
    SOURCES.into_iter().flat_map(of).collect()
}

fn pairs() -> Vec<Pair> {
    match std::env::var("CSA_VERSIONS").as_deref() {
        Ok("all") => all_pairs(),
        Ok(wanted) => {
            let found: Vec<_> =
                all_pairs().into_iter().filter(|pair| pair.to_string() == wanted).collect();
            assert!(!found.is_empty(), "CSA_VERSIONS={wanted} is none of {:?}", all_pairs());
            found
        }
        // Every source and every target once.
        Err(_) => SOURCES
            .into_iter()
            .zip([Version::Newest, Version::MariaDb, Version::MariaDb114, Version::V8031])
            .map(|(source, target)| Pair { source, target })
            .chain([Pair { source: Version::Newest, target: Version::V57 }])
            .collect(),
    }
}

fn seeds() -> RangeInclusive<u64> {
    seeds_from("CSA_VERSIONS_SEEDS", 1..=2)
}

fn start(pair: Pair) -> (Server, Server) {
    let compression = ["--binlog-transaction-compression=ON"];
    let options: &[&str] = if pair.source.compresses() { &compression } else { &[] };
    let source = || pair.source.start("source", options);
    Server::both(source, || pair.target.start("target", &[]))
}

fn daemon(pair: Pair, source: &Server, target: &Server) -> Daemon {
    let mut builder = Daemon::builder(source, target);
    if pair.source.has_no_usable_tls() {
        builder = builder.set("source.tls", "disabled");
    }
    if pair.target.has_no_usable_tls() {
        builder = builder.set("target.tls", "disabled");
    }
    builder.build()
}

/// The executors that a target of this version can have; seeds take turns.
fn executors(target: Version) -> &'static [&'static str] {
    if target.is_mariadb() || target == Version::V57 { &["sql"] } else { &EXECUTORS }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn every_version_replicates_to_every_other() {
    let mut outcomes = Vec::new();
    for pair in pairs() {
        let run = tokio::spawn(all_seeds(pair)).await;
        let outcome = run.is_ok();
        println!("{pair}: {}", if outcome { "equal" } else { "FAILED" });
        outcomes.push((pair, outcome));
    }
    let failed: Vec<String> =
        outcomes.iter().filter(|(_, ok)| !ok).map(|(pair, _)| pair.to_string()).collect();
    assert!(failed.is_empty(), "failed, again with CSA_VERSIONS=PAIR: {failed:?}");
    if let Ok(path) = std::env::var("CSA_VERSIONS_TABLE") {
        write_table(&path, seeds().count());
    }
}

async fn all_seeds(pair: Pair) {
    let (source, target) = start(pair);
    let daemon = daemon(pair, &source, &target);
    for seed in seeds() {
        let started = Instant::now();
        let executors = executors(pair.target);
        let executor = executors[seed as usize % executors.len()];
        daemon.set("applier.executor", executor);
        let left_out = format!("v_{seed}.t3");
        let is_filtered = seed.is_multiple_of(3);
        match is_filtered {
            true => daemon.set("applier.replicate_ignore_table", vec![left_out.as_str()]),
            false => daemon.unset("applier.replicate_ignore_table"),
        }
        let compare = match is_filtered {
            true => Compare::contents().ignore_table(&left_out),
            false => Compare::contents(),
        };
        let rows = round_trip(pair, &source, &target, &daemon, seed, compare).await;
        let filtered = if is_filtered { ", filtered" } else { "" };
        let seconds = started.elapsed().as_secs_f32();
        println!("{pair} seed {seed} ({executor}{filtered}): {rows} rows equal, {seconds:.1} s");
    }
}

async fn round_trip(
    pair: Pair,
    source: &Server,
    target: &Server,
    daemon: &Daemon,
    seed: u64,
    compare: Compare,
) -> u64 {
    let is_mariadb = pair.target.is_mariadb();
    let plain = pair.source == Version::V57 && !is_mariadb || !pair.target.lacks_newer_collations();
    daemon.start_again();
    let schema = format!("v_{seed}");
    let tables = load::prepare(source, &schema, seed, plain).await;
    let pause = Duration::from_millis(300 + seed * 37 % 400);
    // A definition cut off on MariaDB is for the operator to decide, so there it is an orderly stop.
    tokio::join!(load::write(source, &tables, seed, true), end(daemon, pause, !is_mariadb));
    if is_mariadb {
        // All definitions are applied, so a kill can only hit rows.
        daemon.wait_drained(source, target, DRAIN).await;
    }
    tokio::join!(load::write(source, &tables, seed, false), end(daemon, pause / 2, true));
    daemon.wait_drained(source, target, DRAIN).await;
    let compared = compare.run(source, target).await;
    let compared = compared.unwrap_or_else(|difference| panic!("seed {seed}: {difference}"));
    if plain {
        let collation = format!(
            "SELECT COLLATION_NAME FROM information_schema.COLUMNS \
             WHERE TABLE_SCHEMA='{schema}' AND TABLE_NAME='plain'"
        );
        let of_source: String = source.value(&collation).await;
        assert_eq!(target.value::<String>(&collation).await, of_source);
    }
    verify(daemon, is_mariadb);
    assert!(daemon.terminate().success());
    // What was left out would be a difference to later seeds.
    source.exec(&format!("DROP DATABASE {schema}")).await;
    compared.rows
}

/// Ends the daemon after a pause, and starts it again.
pub(crate) async fn end(daemon: &Daemon, pause: Duration, kill: bool) {
    tokio::time::sleep(pause).await;
    match kill {
        true => daemon.kill9(),
        false => assert!(daemon.terminate().success()),
    }
    daemon.start_again();
}

/// `csa-daemon verify` finds the same; JSON is not compared with MariaDB's text.
pub(crate) fn verify(daemon: &Daemon, is_mariadb: bool) {
    let password = daemon.config_path().with_file_name("source.pw");
    std::fs::write(&password, "admin_pw\n").expect("writable");
    let password = password.display().to_string();
    let arguments = ["verify", "--source-user", "admin", "--source-password-file", &password];
    let said = tokio::task::block_in_place(|| daemon.command(&arguments));
    let leaves_out_json = is_mariadb && said.out.contains("because MariaDB keeps JSON as text");
    let mut unequal = said
        .out
        .lines()
        .filter(|line| line.contains("DIFFERENT") || line.contains("kept changing"));
    assert_eq!(unequal.next(), None, "{}", said.out);
    let expected = if leaves_out_json { 2 } else { 0 };
    assert_eq!(said.code, Some(expected), "{}{}", said.out, said.error);
}

/// Replaces the table between the marks in a document by that of this run.
fn write_table(path: &str, seeds: usize) {
    const MARKS: [&str; 2] = ["<!-- matrix -->\n", "<!-- end of matrix -->"];
    let mut table = "| source \\ target |".to_owned();
    for target in TARGETS {
        table += &format!(" {target} |");
    }
    table += &format!("\n| --- |{}\n", " --- |".repeat(TARGETS.len()));
    let done = pairs();
    for source in SOURCES {
        table += &format!("| {source} |");
        for target in TARGETS {
            let was_run = done.contains(&Pair { source, target });
            let executors = executors(target).join(", ");
            let cell =
                if was_run { format!("equal, {seeds} loads ({executors})") } else { "-".into() };
            table += &format!(" {cell} |");
        }
        table.push('\n');
    }
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    let text = std::fs::read_to_string(&path).expect("the document");
    let (before, rest) = text.split_once(MARKS[0]).expect("the first mark");
    let (_, after) = rest.split_once(MARKS[1]).expect("the last mark");
    std::fs::write(&path, format!("{before}{}{table}{}{after}", MARKS[0], MARKS[1]))
        .expect("writes");
}
