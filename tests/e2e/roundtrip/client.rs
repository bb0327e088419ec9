//! Sessions that write: transactions of every shape, under settings that change meanwhile.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use csa_tests::Server;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};

use super::schema::{Schema, Style};
use super::{ddl, dml};

/// State shared by the clients of a seed.
pub(super) struct Shared {
    pub(super) seed: u64,
    pub(super) schema: Mutex<Schema>,
    /// The source's data directory.
    data_directory: PathBuf,
    target_data_directory: PathBuf,
    /// The target's error log.
    target_log: PathBuf,
    /// All statements run, with their outcome.
    transcript: Mutex<Vec<String>>,
    pub(super) worked: AtomicU64,
    pub(super) refused: AtomicU64,
    /// Transactions ended, by commit or rollback.
    pub(super) ended: AtomicU64,
    /// Branches that were prepared and left for others to end.
    branches: Mutex<Vec<String>>,
    /// A table that all seeds share.
    common: Option<&'static str>,
}

impl Shared {
    pub(super) fn new(seed: u64, schema: Schema, source: &Server, target: &Server) -> Self {
        Self {
            seed,
            schema: Mutex::new(schema),
            data_directory: source.data_to_read().to_owned(),
            target_data_directory: target.data_to_read().to_owned(),
            target_log: target.log.clone(),
            branches: Mutex::default(),
            common: None,
            transcript: Mutex::default(),
            worked: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            ended: AtomicU64::new(0),
        }
    }

    /// Lets the clients use this table together with the schema's own.
    pub(super) fn with_common(mut self, table: &'static str) -> Self {
        self.common = Some(table);
        self
    }

    fn leave_branch(&self, xid: String) {
        self.branches.lock().unwrap_or_else(PoisonError::into_inner).push(xid);
    }

    fn branch_to_end(&self) -> Option<String> {
        self.branches.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    pub(super) fn with_schema<T>(&self, look: impl FnOnce(&mut Schema) -> T) -> T {
        look(&mut self.schema.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// On a failure, keeps the statements run, the binary logs of both servers, and the target's error log.
impl Drop for Shared {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let kept = std::env::temp_dir().join(format!("csa-roundtrip-{}", self.seed));
            match self.keep(&kept) {
                Ok(()) => eprintln!("statements and binary logs: {}", kept.display()),
                Err(error) => eprintln!("keeping what was run in {}: {error}", kept.display()),
            }
        }
    }
}

impl Shared {
    /// Copies the statements run, the binary logs of both servers and the target's error log.
    pub(super) fn keep(&self, directory: &Path) -> std::io::Result<()> {
        std::fs::create_dir_all(directory)?;
        let lines = self.transcript.lock().unwrap_or_else(PoisonError::into_inner);
        std::fs::write(directory.join(format!("statements-{}.sql", self.seed)), lines.join("\n"))?;
        std::fs::copy(&self.target_log, directory.join("target.log"))?;
        copy_binary_logs(&self.data_directory, directory)?;
        copy_binary_logs(&self.target_data_directory, &directory.join("target"))
    }
}

fn copy_binary_logs(data_directory: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for file in std::fs::read_dir(data_directory)? {
        let file = file?;
        let name = file.file_name();
        if name.to_string_lossy().starts_with("binlog.") {
            std::fs::copy(file.path(), to.join(name))?;
        }
    }
    Ok(())
}

/// One session.
pub(super) struct Client {
    shared: Arc<Shared>,
    number: u32,
    random: StdRng,
    conn: Conn,
    /// Counts the transactions that this client numbers or names itself.
    own: u64,
    /// The last statement was not refused.
    worked: bool,
    /// Its foreign keys are not checked.
    is_unchecked: bool,
}

/// How often a session's settings change, and their new values.
const SETTINGS: [&str; 33] = [
    "binlog_row_image=FULL",
    "binlog_row_image=FULL",
    "binlog_row_image=MINIMAL",
    "binlog_row_image=NOBLOB",
    "binlog_row_value_options=PARTIAL_JSON",
    "binlog_row_value_options=''",
    "binlog_transaction_compression=ON",
    "binlog_transaction_compression=OFF",
    "binlog_rows_query_log_events=ON",
    "binlog_rows_query_log_events=OFF",
    "foreign_key_checks=0",
    "foreign_key_checks=1",
    "foreign_key_checks=1",
    "unique_checks=0",
    "unique_checks=1",
    "sql_mode=''",
    "sql_mode=''",
    "sql_mode=DEFAULT",
    "sql_mode='NO_AUTO_VALUE_ON_ZERO,TIME_TRUNCATE_FRACTIONAL'",
    "sql_mode='ANSI_QUOTES,NO_BACKSLASH_ESCAPES,ALLOW_INVALID_DATES'",
    "time_zone='+05:30'",
    "time_zone='-11:00'",
    "time_zone='SYSTEM'",
    "NAMES latin1",
    "NAMES gbk",
    "NAMES utf8mb4",
    "NAMES utf8mb4 COLLATE utf8mb4_bin",
    "transaction_isolation='READ-COMMITTED'",
    "transaction_isolation='REPEATABLE-READ'",
    "auto_increment_increment=3, auto_increment_offset=2",
    "auto_increment_increment=1, auto_increment_offset=1",
    "gtid_next='AUTOMATIC:blue'",
    "gtid_next='AUTOMATIC'",
];

/// Settings of the whole server, and a new binary log file.
const GLOBAL: [&str; 5] = [
    "FLUSH BINARY LOGS",
    "SET GLOBAL binlog_row_metadata=FULL",
    "SET GLOBAL binlog_row_metadata=MINIMAL",
    "SET GLOBAL binlog_checksum=NONE",
    "SET GLOBAL binlog_checksum=CRC32",
];

/// Parts of the names of tables that refer to others.
const CHILDREN: [&str; 3] = ["child", "pair", "tree"];

const DEADLOCK: u16 = 1213;
const LOCK_WAIT_TIMEOUT: u16 = 1205;
/// Errors that only a mistake in here can cause: syntax.
const MISTAKES: [u16; 2] = [1064, 1149];

impl Client {
    pub(super) async fn start(shared: Arc<Shared>, number: u32, source: &Server) -> Self {
        let random = StdRng::seed_from_u64(shared.seed << 8 | u64::from(number));
        let conn = source.conn().await;
        let mut client =
            Self { shared, number, random, conn, own: 0, worked: true, is_unchecked: false };
        let schema = client.shared.with_schema(|schema| schema.name.clone());
        client.run(&format!("USE {schema}")).await;
        // The seed also decides the time.
        client
            .run(
                "SET lock_wait_timeout=2, innodb_lock_wait_timeout=1, sql_mode='', \
                 timestamp=1767225600.25, rand_seed1=1, rand_seed2=2",
            )
            .await;
        client
    }

    /// Runs this many transactions.
    pub(super) async fn work(mut self, transactions: u32) {
        for _ in 0..transactions {
            if self.random.random_bool(0.25) {
                let setting = *SETTINGS.choose(&mut self.random).expect("settings");
                self.run(&format!("SET {setting}")).await;
                if let Some(checks) = setting.strip_prefix("foreign_key_checks=") {
                    self.is_unchecked = checks == "0";
                }
            }
            if self.number == 0 && self.random.random_bool(0.04) {
                let setting = *GLOBAL.choose(&mut self.random).expect("settings");
                self.run(setting).await;
            }
            self.transaction().await;
            self.shared.ended.fetch_add(1, Ordering::Relaxed);
        }
        while let Some(xid) = self.shared.branch_to_end() {
            self.end_branch(&xid).await;
        }
        let _ = self.conn.disconnect().await;
    }

    async fn transaction(&mut self) {
        // They hold locks, so no branch waits for long.
        if let Some(xid) = self.shared.branch_to_end() {
            self.end_branch(&xid).await;
        }
        let Style { few, renamed, .. } = self.shared.with_schema(|schema| schema.style);
        match self.random.random_range(0..100) {
            0..22 => {
                for statement in self.changes() {
                    self.run(&statement).await;
                }
            }
            22..72 => self.explicit().await,
            72..80 => self.with_savepoints().await,
            // A channel reads the definitions again after each.
            80..84 if few => self.explicit().await,
            80..87 => self.define().await,
            87 | 88 => self.nothing().await,
            89 => self.load().await,
            // MySQL's own replica refuses a branch of which it filters anything.
            90..94 if renamed => self.explicit().await,
            90..94 => self.distributed().await,
            94 => {
                for statement in dml::bulk(&mut self.random) {
                    self.run(&statement).await;
                }
            }
            95 | 96 => {
                let random = &mut self.random;
                for statement in self.shared.with_schema(|schema| dml::routines(schema, random)) {
                    self.run(&statement).await;
                }
            }
            _ => {
                let random = &mut self.random;
                let statements = self.shared.with_schema(|schema| dml::temporary(schema, random));
                for statement in statements {
                    self.run(&statement).await;
                }
            }
        }
    }

    fn changes(&mut self) -> Vec<String> {
        let random = &mut self.random;
        if let Some(common) = self.shared.common
            && random.random_bool(0.06)
        {
            return self.shared.with_schema(|schema| dml::shared(schema, common, random));
        }
        let mut statements = self.shared.with_schema(|schema| dml::any(schema, random));
        // A row that is written to a child without checks does not wait for a change of its parent that is not
        // committed. Where it commits first, replicas cascade to it, MySQL's own included, and the source does not.
        if self.is_unchecked {
            let is_child = |text: &str| CHILDREN.iter().any(|name| text.contains(name));
            statements.retain(|statement| !is_child(statement));
        }
        statements
    }

    async fn explicit(&mut self) {
        self.run("BEGIN").await;
        for _ in 0..self.random.random_range(1..6) {
            for statement in self.changes() {
                if !self.run(&statement).await {
                    return;
                }
            }
        }
        let end = match self.random.random_range(0..12) {
            0 => "ROLLBACK",
            // Another one begins; the statements after it are in it.
            1 => "COMMIT AND CHAIN",
            // Commits implicitly.
            2 => "BEGIN",
            _ => "COMMIT",
        };
        self.run(end).await;
        if end != "COMMIT" && end != "ROLLBACK" {
            for statement in self.changes() {
                if !self.run(&statement).await {
                    return;
                }
            }
            self.run("COMMIT").await;
        }
    }

    async fn with_savepoints(&mut self) {
        const NAMES: [&str; 3] = ["a", "B", "`ü x`"];
        self.run("BEGIN").await;
        for _ in 0..self.random.random_range(2..7) {
            let name = *NAMES.choose(&mut self.random).expect("names");
            let statement = match self.random.random_range(0..6) {
                0 | 1 => format!("SAVEPOINT {name}"),
                2 => format!("ROLLBACK TO {name}"),
                3 => format!("RELEASE SAVEPOINT {name}"),
                _ => {
                    for statement in self.changes() {
                        if !self.run(&statement).await {
                            return;
                        }
                    }
                    continue;
                }
            };
            self.run(&statement).await;
        }
        self.run("COMMIT").await;
    }

    /// A change of a definition, sometimes in the middle of a transaction that it commits.
    async fn define(&mut self) {
        if self.random.random_bool(0.3) {
            self.run("BEGIN").await;
            for statement in self.changes() {
                self.run(&statement).await;
            }
        }
        let random = &mut self.random;
        let Some(definition) = self.shared.with_schema(|schema| ddl::any(schema, random)) else {
            self.run("COMMIT").await;
            return;
        };
        let mut worked = true;
        for statement in &definition.statements {
            self.run(statement).await;
            worked &= self.worked;
        }
        if worked {
            self.shared.with_schema(|schema| definition.done(schema));
        }
        self.run("COMMIT").await;
    }

    /// A transaction that changes nothing in the end: its changes are undone, or it has none, under a GTID
    /// of our own.
    async fn nothing(&mut self) {
        if self.random.random_bool(0.6) {
            let statements = dml::undone(&mut self.random);
            for statement in statements {
                self.run(&statement).await;
            }
            return;
        }
        self.own += 1;
        let (seed, number, own) = (self.shared.seed, self.number, self.own);
        self.run(&format!("SET gtid_next='{seed:08x}-0000-4000-8000-{number:012x}:{own}'")).await;
        self.run("BEGIN").await;
        self.run("COMMIT").await;
        self.run("SET gtid_next='AUTOMATIC'").await;
    }

    async fn distributed(&mut self) {
        self.own += 1;
        let xid = format!("'{}-{}-{}'", self.shared.seed, self.number, self.own);
        self.run(&format!("XA START {xid}")).await;
        for statement in self.changes() {
            self.run(&statement).await;
        }
        // After a deadlock it can only be rolled back.
        self.run(&format!("XA END {xid}")).await;
        if self.random.random_bool(0.3) {
            self.run(&format!("XA COMMIT {xid} ONE PHASE")).await;
        } else {
            self.run(&format!("XA PREPARE {xid}")).await;
            if self.worked && self.random.random_bool(0.5) {
                self.shared.leave_branch(xid);
                return;
            }
            for statement in self.changes() {
                self.run(&statement).await;
            }
        }
        self.end_branch(&xid).await;
    }

    async fn end_branch(&mut self, xid: &str) {
        let end = if self.random.random_bool(0.7) { "COMMIT" } else { "ROLLBACK" };
        self.run(&format!("XA {end} {xid}")).await;
        self.run(&format!("XA ROLLBACK {xid}")).await;
    }

    async fn load(&mut self) {
        let random = &mut self.random;
        let Some(load) = self.shared.with_schema(|schema| dml::load(schema, random)) else {
            return;
        };
        // The only folder that the source may read.
        let files = self.shared.data_directory.with_file_name("files");
        let path = files.join(format!("load-{}-{}.txt", self.shared.seed, self.number));
        std::fs::write(&path, load.content).expect("writes the file");
        self.run(&load.statement.replace(dml::FILE, &path.to_string_lossy())).await;
        std::fs::remove_file(&path).expect("removes the file");
    }

    /// Returns `false` when the server rolled the transaction back.
    async fn run(&mut self, statement: &str) -> bool {
        let outcome = self.conn.query_drop(statement).await;
        self.worked = outcome.is_ok();
        let (what, continues) = match outcome {
            Ok(()) => {
                self.shared.worked.fetch_add(1, Ordering::Relaxed);
                (String::new(), true)
            }
            Err(Error::Server(error)) => {
                assert!(!MISTAKES.contains(&error.code), "{statement}: {error}");
                self.shared.refused.fetch_add(1, Ordering::Relaxed);
                let lost = [DEADLOCK, LOCK_WAIT_TIMEOUT].contains(&error.code);
                if lost {
                    // A distributed transaction ends with its own statements.
                    let _ = self.conn.query_drop("ROLLBACK").await;
                }
                (format!(" -- {}: {}", error.code, error.message), !lost)
            }
            Err(error) => panic!("{statement}: {error}"),
        };
        let line = format!("/* {} */ {statement};{what}", self.number);
        let mut transcript = self.shared.transcript.lock().unwrap_or_else(PoisonError::into_inner);
        transcript.push(line);
        continues
    }
}
