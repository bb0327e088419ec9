//! A restore that is stopped ends, whatever holds it up on the restored server.

use csa_tests::compare;
use mysql_async::prelude::Queryable as _;

use super::*;

fn interrupt(pid: &str) {
    let sent = Command::new("kill").args(["-INT", pid]).status().expect("running kill");
    assert!(sent.success(), "{pid}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_that_waits_for_a_lock_ends_with_the_second_signal() {
    let (source, target) = Server::pair(&[], &[]);
    let archive = folder();
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT)").await;
    source.exec("INSERT INTO d.t VALUES (1, 0)").await;
    let daemon =
        archiving(&source, &target, archive.path()).set("daemon.stop_timeout", "300s").start();
    archived(&daemon, &source).await;
    let server = Server::start("restored", &[]);
    restored(&daemon, &server, &[]);
    source.exec("UPDATE d.t SET v = 1").await;
    archived(&daemon, &source).await;
    let mut reader = server.conn().await;
    reader.query_drop("BEGIN; SELECT * FROM d.t FOR UPDATE").await.expect("locks");
    let mut running = Command::new(Daemon::executable())
        .arg("--config")
        .arg(daemon.config_path())
        .args(into(&server))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("running restore");
    let pid = running.id().to_string();
    eventually("it waits for the row", DRAIN, async || {
        let waits = "SELECT COUNT(*) FROM performance_schema.data_lock_waits";
        server.value::<u64>(waits).await > 0
    })
    .await;
    interrupt(&pid);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(running.try_wait().expect("a child").is_none(), "it lets the running group finish");
    interrupt(&pid);
    eventually("it ends", Duration::from_secs(30), async || {
        running.try_wait().expect("a child").is_some()
    })
    .await;
    assert_eq!(running.wait().expect("its end").code(), Some(1));
    reader.query_drop("ROLLBACK").await.expect("unlocks");
    restored(&daemon, &server, &[]);
    compare(&source, &server).await;
}
