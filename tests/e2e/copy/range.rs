//! `csa-daemon copy --table --range`: only rows of a range are copied again.

use csa_tests::{Daemon, Server, compare, eventually};
use mysql_async::prelude::Queryable as _;

use super::restless::{Restless, restless_pair};
use super::{copy_log, ends_well, refused_with, start_copying};
use crate::{DRAIN, wait_state};

/// Rows outside of the range that no client changes: a reader has to see all of them, always.
const STILL: &str = "SELECT COUNT(*) FROM restless.person WHERE id <= -100000";

/// No reader misses a row outside of the range, and the table keeps its keys and triggers.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_range_is_copied_again_under_load() {
    let (source, target) = restless_pair().await;
    for statement in [
        "INSERT INTO restless.person SELECT -100000 - id, NULL, 'still' FROM restless.parent",
        "CREATE TABLE restless.fired (id INT PRIMARY KEY)",
        "CREATE TRIGGER restless.fires AFTER INSERT ON restless.person FOR EACH ROW \
         INSERT IGNORE INTO restless.fired VALUES (NEW.id)",
    ] {
        source.exec(statement).await;
    }
    let still: u64 = source.value(STILL).await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let bounds = damaged(&source, &target).await;
    let told = format!("--table restless.person --range {bounds}");
    is_advised(&daemon, &told);
    let restless = Restless::start(&source, 2).await;
    let range = ["--table", "restless.person", "--range", &bounds];
    // Two seconds pass between the first chunk and the next one.
    let slowly = ["--rows-per-second", "100"];
    let mut copying = start_copying(&daemon, &[&range[..], &slowly[..]].concat());
    let mut conn = target.conn().await;
    eventually("a chunk is copied", DRAIN, async || {
        assert_eq!(target.value::<u64>(STILL).await, still, "other rows were deleted");
        assert_eq!(copying.try_wait().expect("a child"), None, "{}", copy_log(&daemon));
        let more = "SELECT COALESCE(SUM(rows_copied), 0) > 0 FROM csa.copy_range";
        conn.query_first(more).await.unwrap_or_default() == Some(1)
    })
    .await;
    copying.kill().expect("kills");
    copying.wait().expect("ends");
    let unique: u64 = target
        .value(
            "SELECT COUNT(*) FROM information_schema.STATISTICS WHERE TABLE_SCHEMA='restless' \
             AND TABLE_NAME='person' AND NON_UNIQUE=0 AND INDEX_NAME<>'PRIMARY'",
        )
        .await;
    assert!(unique > 0, "the table has lost its unique keys");
    let unfinished: u64 = target.value("SELECT COUNT(*) FROM csa.copy_state").await;
    assert!(unfinished > 0, "{}", copy_log(&daemon));
    eventually("the range of the unfinished copy is named", DRAIN, async || {
        refused_with(&daemon, &["--table", "restless.person"]).contains(&told)
    })
    .await;
    let mut copying = start_copying(&daemon, &range);
    eventually("the copy ends", 3 * DRAIN, async || {
        assert_eq!(target.value::<u64>(STILL).await, still, "other rows were deleted");
        copying.try_wait().expect("a child").is_some()
    })
    .await;
    ends_well(copying, &daemon).await;
    restless.stop().await;
    wait_state(&daemon, 0, "running").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

/// Damages rows on the target; returns the range from the first to the last one.
async fn damaged(source: &Server, target: &Server) -> String {
    let rows: i64 = source.value("SELECT MAX(id) FROM restless.person").await;
    let (first, last) = (rows / 4, rows / 2);
    // Nobody changes a damaged row before it is found.
    target
        .exec(&format!(
            "SET sql_log_bin=0; DELETE FROM restless.person WHERE id IN ({first}, {last}); \
             UPDATE restless.person SET body='damaged' WHERE id BETWEEN {first} AND {last} AND id % 3 = 0"
        ))
        .await;
    format!("{first}..{last}")
}

/// `csa-daemon verify` names the command.
fn is_advised(daemon: &Daemon, told: &str) {
    let said = tokio::task::block_in_place(|| {
        let arguments = ["--max-differences", "100000", "--source-user", "admin"];
        let password = daemon.config_path().with_file_name("source.pw");
        std::fs::write(&password, "admin_pw\n").expect("writable");
        let password = password.display().to_string();
        let verify = ["verify", "--source-password-file", password.as_str()];
        daemon.command(&verify.into_iter().chain(arguments).collect::<Vec<_>>())
    });
    assert!(said.code == Some(1) && said.out.contains(told), "{said:?}");
}
