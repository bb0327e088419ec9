//! Tables that all get rows: start and memory.

use std::time::Instant;

use anyhow::Result;
use csa_tests::Daemon;

use super::report::{APART, MIB, Report};
use super::resources::Resources;
use super::site;

/// Definitions, keys and names of one table.
const EACH: u64 = 32 << 10;

pub(super) async fn run(tables: u64) -> Result<Report> {
    let mut report = Report::default();
    let (source, target) = site::servers(&["--table-open-cache=4000", "--sync-binlog=0"]).await?;
    println!("creating {tables} tables on both");
    for server in [&source, &target] {
        server.exec("SET sql_log_bin=0; CREATE DATABASE many").await;
        site::in_sessions(server, 8, tables, |number| {
            format!(
                "SET sql_log_bin=0; CREATE TABLE many.t{number} \
                 (id INT PRIMARY KEY, name VARCHAR(60), a INT, b DATETIME(6), c DECIMAL(12,2), \
                 UNIQUE KEY (name), KEY (a, b))"
            )
        })
        .await?;
    }
    let daemon =
        Daemon::builder(&source, &target).set("applier.event_memory_limit", "64MiB").build();
    report.figure("tables", tables.to_string());
    let seconds = site::started(&daemon).await;
    report.seconds("start", seconds);
    report.rule(seconds < 10.0, "a start does not read every table's definition");
    let before = Resources::of(&daemon, &source, &target).await?;
    report.mebibytes("memory after the start", before.rss_bytes);
    let begun = Instant::now();
    site::in_sessions(&source, 8, tables, |number| {
        format!(
            "INSERT INTO many.t{number} VALUES (1, 'a', 2, NOW(6), 3.5), (2, 'b', 2, NOW(6), 3.5)"
        )
    })
    .await?;
    daemon.wait_drained(&source, &target, site::PATIENCE).await;
    report.seconds("a transaction in each table", begun.elapsed().as_secs_f64());
    let after = Resources::of(&daemon, &source, &target).await?;
    report.mebibytes("memory after it", after.rss_bytes);
    let permitted = 64 * MIB + APART + tables * EACH;
    report
        .rule(after.rss_bytes <= permitted, format!("memory stays under {} MiB", permitted / MIB));
    site::finish(&mut report, &daemon, &source, &target).await;
    Ok(report)
}
