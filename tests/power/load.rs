//! Transactions and definitions on the source.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use csa_tests::{LoadOptions, Server, prepare};
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error};
use tokio::task::JoinHandle;

fn options() -> LoadOptions {
    // A rate that the appliers of three targets reach on a busy machine.
    LoadOptions { rate: Some(250.0), changes: 2, ..LoadOptions::default() }
}

pub(crate) async fn fill(source: &Server) {
    prepare(source, &options()).await;
    source.exec("CREATE DATABASE made").await;
}

/// A load that runs until it is stopped.
pub(crate) struct Load {
    rows: csa_tests::Load,
    stop: Arc<AtomicBool>,
    definitions: JoinHandle<Result<(), Error>>,
}

impl Load {
    pub(crate) fn start(source: &Server) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let definitions = tokio::spawn(define(source.opts(), Arc::clone(&stop)));
        Self { rows: csa_tests::Load::start(source, &options()), stop, definitions }
    }

    /// Returns the transactions with rows that were committed.
    pub(crate) async fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.definitions.await.expect("a client").expect("the source takes definitions");
        self.rows.stop().await.committed
    }
}

/// Statements of every kind that servers write to their data dictionary, and one with rows.
async fn define(opts: mysql_async::Opts, stop: Arc<AtomicBool>) -> Result<(), Error> {
    const ROUND: [&str; 9] = [
        "CREATE TABLE IF NOT EXISTS made.t (id INT AUTO_INCREMENT PRIMARY KEY, v INT)",
        "INSERT INTO made.t (v) VALUES (1), (2), (3)",
        "ALTER TABLE made.t ADD COLUMN w INT DEFAULT 7",
        "CREATE TABLE made.copy (PRIMARY KEY (id)) SELECT * FROM made.t",
        "CREATE OR REPLACE VIEW made.seen AS SELECT * FROM made.t",
        "CREATE INDEX by_v ON made.t (v)",
        "TRUNCATE TABLE made.copy",
        "RENAME TABLE made.copy TO made.renamed",
        "DROP TABLE made.t, made.renamed",
    ];
    let mut conn = Conn::new(opts).await?;
    for statement in ROUND.iter().cycle() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        match conn.query_drop(*statement).await {
            // An earlier load ended in the middle of a round.
            Err(Error::Server(error)) if [1050, 1051, 1060, 1061, 1146].contains(&error.code) => {}
            other => other?,
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    conn.disconnect().await
}
