//! A source with a new history.

use super::Pair;
use crate::{DRAIN, wait_state};

/// Its GTIDs begin again and now mean other transactions: none of them may be taken for one that is
/// already applied.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn the_source_is_reset_while_it_is_followed() {
    let pair = Pair::start(&[], &[]).await;
    pair.run(["CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)"]).await;
    pair.run(["INSERT INTO t VALUES (2)", "INSERT INTO t VALUES (3)"]).await;
    pair.equal().await;
    pair.source.exec("RESET BINARY LOGS AND GTIDS").await;
    pair.run(["INSERT INTO t VALUES (100)", "INSERT INTO t VALUES (101)"]).await;
    stopped(&pair).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_source_is_reset_while_nobody_follows() {
    let pair = Pair::start(&[], &[]).await;
    pair.run(["CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)"]).await;
    pair.run(["INSERT INTO t VALUES (2)", "INSERT INTO t VALUES (3)"]).await;
    pair.daemon.wait_drained(&pair.source, &pair.target, DRAIN).await;
    pair.daemon.kill9();
    pair.source.exec("RESET BINARY LOGS AND GTIDS").await;
    pair.run(["INSERT INTO t VALUES (100)", "INSERT INTO t VALUES (101)"]).await;
    pair.daemon.start_again();
    stopped(&pair).await;
}

/// Nothing of the new history is on the target, and the error says how to proceed.
async fn stopped(pair: &Pair) {
    wait_state(&pair.daemon, 0, "failed").await;
    let message = pair.daemon.status()["channels"][0]["last_error"]["message"].to_string();
    assert!(message.contains("provision the target again"), "{message}");
    let applied: u64 = pair.target.value("SELECT COUNT(*) FROM c.t WHERE id >= 100").await;
    assert_eq!(applied, 0);
}
