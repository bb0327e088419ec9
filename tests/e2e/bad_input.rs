//! Bad input: one clear line, exit code 2, nothing written.

use csa_tests::{Daemon, DaemonBuilder, Server};

/// The daemon refuses with a reason on one line, and has written nothing on either side.
pub(crate) async fn refused(builder: DaemonBuilder, target: &Server, words: &[&str]) {
    let state = tempfile::tempdir().expect("a temporary directory");
    let said =
        builder.set("daemon.state_dir", state.path().display().to_string()).run_expect_exit(2);
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("csa-daemon: ")).collect();
    assert_eq!(lines.len(), 1, "{said}");
    for word in words {
        assert!(lines[0].contains(word), "{word:?} is missing in: {}", lines[0]);
    }
    let files = std::fs::read_dir(state.path()).expect("readable").count();
    assert_eq!(files, 0, "the state directory was written to");
    let schemas: u64 = target
        .value("SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = 'csa'")
        .await;
    assert_eq!(schemas, 0, "the target was written to");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_settings_and_servers_are_refused() {
    let (source, target) = Server::pair(&[], &[]);
    let builder = || Daemon::builder(&source, &target);
    refused(
        builder().set("applier.worker_cuont", 4),
        &target,
        &["applier.worker_cuont: unknown key, did you mean worker_count?"],
    )
    .await;
    let login = |side: &str| builder().set(&format!("{side}.password"), "wrong");
    refused(login("source"), &target, &["refused user 'repl'", "[channel.source]"]).await;
    refused(login("target"), &target, &["refused user 'csa'", "[channel.target]"]).await;
    let same_id = i64::from(source.value::<u32>("SELECT @@server_id").await);
    refused(
        builder().set("source.server_id", same_id),
        &target,
        &["server_id", "also the channel's own", "unique in the topology"],
    )
    .await;

    source.exec("CREATE USER weak@'%' IDENTIFIED BY 'weak_pw'").await;
    let weak = |side: &str| {
        builder().set(&format!("{side}.user"), "weak").set(&format!("{side}.password"), "weak_pw")
    };
    refused(weak("source"), &target, &["GRANT REPLICATION SLAVE ON *.* TO 'weak'@'%'"]).await;
    target.exec("CREATE USER weak@'%' IDENTIFIED BY 'weak_pw'").await;
    target.exec("GRANT SELECT, INSERT ON *.* TO weak@'%'").await;
    let by = |executor: &str| weak("target").set("applier.executor", executor);
    let grant = "GRANT UPDATE, DELETE, CREATE, REPLICATION_APPLIER ON *.* TO 'weak'@'%'";
    refused(by("row-image"), &target, &[grant]).await;
    let grant = "GRANT UPDATE, DELETE, CREATE, TRIGGER ON *.* TO 'weak'@'%'";
    refused(by("sql"), &target, &[grant]).await;
    refused(by("auto"), &target, &[grant]).await;
    let idempotent = builder().set("applier.exec_mode", "idempotent");
    let why = ["exec_mode", "row images"];
    refused(idempotent.set("applier.executor", "sql"), &target, &why).await;

    source.exec("SET GLOBAL binlog_format=STATEMENT").await;
    refused(builder(), &target, &["binlog_format: STATEMENT", "SET PERSIST binlog_format=ROW"])
        .await;
    source.exec("SET GLOBAL binlog_format=ROW").await;

    target.exec("SET GLOBAL super_read_only=ON").await;
    refused(builder(), &target, &["super_read_only", "SET PERSIST super_read_only=OFF"]).await;
    target.exec("SET GLOBAL read_only=OFF").await;

    source.exec("CREATE DATABASE gone").await;
    source.exec("FLUSH BINARY LOGS").await;
    let file: String = {
        use mysql_async::prelude::Queryable as _;
        let mut conn = source.conn().await;
        let row: Option<mysql_async::Row> =
            conn.query_first("SHOW BINARY LOG STATUS").await.expect("a status");
        row.and_then(|row| row.get(0)).expect("a file name")
    };
    source.exec(&format!("PURGE BINARY LOGS TO '{file}'")).await;
    let purged: String = source.value("SELECT @@GLOBAL.gtid_purged").await;
    refused(builder(), &target, &["has purged transactions", &purged]).await;

    for mode in ["ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF"] {
        source.exec(&format!("SET GLOBAL gtid_mode={mode}")).await;
    }
    refused(
        builder(),
        &target,
        &["source", "gtid_mode: OFF", "SET PERSIST gtid_mode=OFF_PERMISSIVE"],
    )
    .await;
}
