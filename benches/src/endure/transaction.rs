//! One transaction of rows of 1 MiB.

use anyhow::Result;
use csa_tests::Daemon;
use mysql_async::prelude::Queryable as _;

use super::report::{APART, GIB, MIB, Report};
use super::site;
use crate::process::peak_rss_bytes;

/// `event_memory_limit`.
const LIMIT: u64 = 64 * MIB;

pub(super) async fn run(gib: u64) -> Result<Report> {
    let mut report = Report::default();
    let (source, target) = site::servers(&["--max-allowed-packet=64M"]).await?;
    source.exec("CREATE DATABASE big; CREATE TABLE big.t (id INT PRIMARY KEY, v LONGTEXT)").await;
    // Rows in the target's binary log would be a third copy there.
    let daemon = Daemon::builder(&source, &target)
        .set("applier.event_memory_limit", "64MiB")
        .set("applier.target_gtids", "mirror")
        .build();
    site::started(&daemon).await;
    println!("writing one transaction of {gib} GiB");
    let mut conn = source.conn().await;
    conn.query_drop("BEGIN").await?;
    for id in 0..gib * GIB / MIB {
        let letter = char::from(b'a' + (id % 26) as u8);
        conn.query_drop(format!("INSERT INTO big.t VALUES ({id}, REPEAT('{letter}', {MIB}))"))
            .await?;
    }
    let begun = std::time::Instant::now();
    conn.query_drop("COMMIT").await?;
    conn.disconnect().await?;
    let mut relay = 0;
    let mut watch = std::pin::pin!(daemon.wait_drained(&source, &target, site::PATIENCE));
    loop {
        tokio::select! {
            () = &mut watch => break,
            () = tokio::time::sleep(std::time::Duration::from_millis(200)) => {}
        }
        let status = tokio::task::block_in_place(|| daemon.try_status()).unwrap_or_default();
        let used = status["channels"][0]["relay"]["bytes"].as_u64();
        relay = relay.max(used.unwrap_or_default());
    }
    report.figure("transaction", format!("{gib} GiB"));
    report.seconds(
        "from its commit on the source to that on the target",
        begun.elapsed().as_secs_f64(),
    );
    let peak = peak_rss_bytes(daemon.pid().expect("running"))?;
    report.mebibytes("peak memory, event_memory_limit 64MiB", peak);
    report.rule(peak <= LIMIT + APART, format!("memory stays under {} MiB", (LIMIT + APART) / MIB));
    report.mebibytes("most in the relay store", relay);
    let permitted = gib * GIB / 100 * 102 + 256 * MIB;
    report
        .rule(relay <= permitted, format!("the relay store takes at most {} MiB", permitted / MIB));
    report.rule(relay >= gib * GIB / 2, "the relay store held the transaction");
    site::finish(&mut report, &daemon, &source, &target).await;
    Ok(report)
}
