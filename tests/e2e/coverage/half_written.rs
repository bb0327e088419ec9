//! Rows that are half written under the source's GTID, which the target counts as executed.

use csa_tests::{Compare, Daemon, Server};

use super::run;
use crate::{DRAIN, wait_state};

/// Returns the error at which the channel has stopped.
async fn stopped(daemon: &Daemon) -> String {
    wait_state(daemon, 0, "failed").await;
    daemon.status()["channels"][0]["last_error"]["message"].to_string()
}

/// Starts the daemon again with other GTIDs on the target.
fn start_with(daemon: &Daemon, gtids: &str) {
    daemon.kill9();
    daemon.set("applier.target_gtids", gtids);
    daemon.start_again();
}

/// Under the source's GTID the events of all statements are one: those before the failing one are there.
#[tokio::test(flavor = "multi_thread")]
async fn rows_of_several_statements_under_one_gtid_may_be_half_written() {
    let (source, target) = Server::pair(&[], &[]);
    let daemon = Daemon::builder(&source, &target)
        .set("applier.commit", "one-to-one")
        .set("applier.target_gtids", "source")
        .start();
    source.exec("CREATE DATABASE c").await;
    let tables = ["CREATE TABLE log (v INT)", "CREATE TABLE t (id INT PRIMARY KEY, v INT)"];
    run(&source, tables).await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    let altered = "ALTER TABLE c.log ENGINE=MyISAM; ALTER TABLE c.t ENGINE=MyISAM";
    target.exec(&format!("SET sql_log_bin=0; {altered}; INSERT INTO c.t VALUES (51,9)")).await;
    start_with(&daemon, "source");
    let rows = ["BEGIN", "INSERT INTO log VALUES (1)", "INSERT INTO t VALUES (51,1)", "COMMIT"];
    run(&source, rows).await;
    let why = stopped(&daemon).await;
    assert!(why.contains("1062") && why.contains("csa.statement SET executed=1"), "{why}");
    let ways = daemon.status()["channels"][0]["last_error"]["ways_on"].to_string();
    assert!(ways.contains("csa-daemon skip") && !ways.contains("idempotent"), "{ways}");
    assert_eq!(target.value::<u64>("SELECT COUNT(*) FROM csa.statement").await, 1);
    assert_eq!(target.value::<u64>("SELECT COUNT(*) FROM c.log").await, 1);
    // The target has recorded the GTID, and not all of the rows. Other GTIDs do not complete them.
    for gtids in ["source", "own", "source"] {
        start_with(&daemon, gtids);
        let why = stopped(&daemon).await;
        assert!(why.contains("counts its GTID as executed"), "{gtids}: {why}");
    }
    let completed = "UPDATE c.t SET v=1 WHERE id=51; UPDATE csa.statement SET executed=1";
    target.exec(&format!("SET sql_log_bin=0; {completed}")).await;
    daemon.commanded(&["restart"]);
    daemon.wait_drained(&source, &target, DRAIN).await;
    let compared = Compare::contents().run(&source, &target).await.expect("equal");
    assert_eq!(compared.rows, 2);
    assert_eq!(target.value::<u64>("SELECT COUNT(*) FROM csa.statement").await, 0);

    // The next one is skipped.
    target.exec("SET sql_log_bin=0; INSERT INTO c.t VALUES (52,9)").await;
    let rows = ["BEGIN", "INSERT INTO log VALUES (2)", "INSERT INTO t VALUES (52,1)", "COMMIT"];
    run(&source, rows).await;
    stopped(&daemon).await;
    start_with(&daemon, "source");
    stopped(&daemon).await;
    let gtid: String = target.value("SELECT gtid FROM csa.statement").await;
    daemon.commanded(&["skip", &gtid]);
    source.exec("INSERT INTO c.log VALUES (3)").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    let audited = "SELECT gtid FROM csa.audit WHERE action='skip'";
    assert_eq!(target.value::<String>(audited).await, gtid);
    assert_eq!(target.value::<u64>("SELECT v FROM c.t WHERE id=52").await, 9);
    assert_eq!(target.value::<u64>("SELECT COUNT(*) FROM csa.statement").await, 0);
}
