//! Connections to the source: passwords, TLS, and the request to a source with tagged GTIDs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use csa_tests::{Daemon, DaemonBuilder, Server, compare, eventually};
use mysql_async::prelude::Queryable as _;

use crate::DRAIN;

/// The protection of the source's dump connections, as the source names it.
async fn dump_connections(source: &Server) -> Vec<String> {
    let mut conn = source.conn().await;
    conn.query(
        "SELECT connection_type FROM performance_schema.threads \
         WHERE processlist_command = 'Binlog Dump GTID'",
    )
    .await
    .expect("a list")
}

async fn write_rows(source: &Server, database: &str) {
    source.exec(&format!("CREATE DATABASE {database}")).await;
    source.exec(&format!("CREATE TABLE {database}.t (id INT PRIMARY KEY)")).await;
    source.exec(&format!("INSERT INTO {database}.t VALUES (1), (2)")).await;
}

async fn write_another_row(source: &Server) {
    source.exec("INSERT INTO d.t SELECT MAX(id) + 1 FROM d.t").await;
}

/// Replicates over the expected kind of link.
async fn replicates(daemon: &Daemon, source: &Server, target: &Server, connection_type: &str) {
    daemon.wait_drained(source, target, DRAIN).await;
    compare(source, target).await;
    // The source notices the end of an earlier daemon's link at its next heartbeat.
    let what = format!("one link, by {connection_type}");
    eventually(&what, Duration::from_secs(20), async || {
        dump_connections(source).await == [connection_type]
    })
    .await;
}

/// The daemon exits on its own, with the reason.
pub(crate) fn refused(builder: DaemonBuilder, words: &[&str]) {
    let said = builder.run_expect_exit(2);
    for word in words {
        assert!(said.contains(word), "{word:?} is missing in {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_the_source_has_not_cached_without_tls() {
    let (source, target) = Server::pair(&[], &[]);
    // The password is longer than the nonce that masks it.
    let password = "not cached, and over twenty bytes";
    source
        .exec(&format!(
            "CREATE USER cold@'%' IDENTIFIED WITH caching_sha2_password BY '{password}'; \
             GRANT REPLICATION SLAVE ON *.* TO cold@'%'; FLUSH PRIVILEGES"
        ))
        .await;
    write_rows(&source, "cold").await;
    let daemon = Daemon::builder(&source, &target)
        .set("source.user", "cold")
        .set("source.password", password)
        .set("source.tls", "disabled");
    refused(daemon.clone(), &["[channel.source]", "public_key_file", "get_public_key"]);
    let key = source.data_to_read().join("public_key.pem").display().to_string();
    let daemon = daemon.set("source.public_key_file", key).start();
    replicates(&daemon, &source, &target, "TCP/IP").await;
    daemon.terminate();

    // With `get_public_key` any key of the source will do.
    source.exec("FLUSH PRIVILEGES").await;
    daemon.unset("source.public_key_file");
    daemon.set("source.get_public_key", true);
    daemon.start_again();
    write_rows(&source, "asked").await;
    replicates(&daemon, &source, &target, "TCP/IP").await;

    // The daemon must do so after a lost link too.
    source.exec("FLUSH PRIVILEGES").await;
    let dump: u64 = source
        .value("SELECT id FROM information_schema.processlist WHERE command = 'Binlog Dump GTID'")
        .await;
    source.exec(&format!("KILL {dump}")).await;
    eventually("the link is back", Duration::from_secs(30), async || {
        daemon.status()["channels"][0]["connection"]["connects_total"] == 2
    })
    .await;
    write_rows(&source, "cold_again").await;
    replicates(&daemon, &source, &target, "TCP/IP").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_with_the_certificates_a_server_makes_for_itself() {
    let (source, target) = Server::pair(&[], &[]);
    let file = |name: &str| source.data_to_read().join(name).display().to_string();
    let builder = || Daemon::builder(&source, &target);
    write_rows(&source, "d").await;
    for mode in ["preferred", "required", "verify-ca"] {
        let daemon = builder().set("source.tls", mode).set("source.tls_ca", file("ca.pem")).start();
        replicates(&daemon, &source, &target, "SSL/TLS").await;
        write_another_row(&source).await;
        replicates(&daemon, &source, &target, "SSL/TLS").await;
        daemon.terminate();
    }

    let mut admin = source.conn().await;
    admin.query_drop("SET GLOBAL require_secure_transport=ON").await.expect("allowed");
    refused(builder().set("source.tls", "disabled"), &["3159", "[channel.source]", "required"]);
    admin.query_drop("SET GLOBAL require_secure_transport=OFF").await.expect("allowed");
    // The servers' own certificates name no host.
    let identity =
        builder().set("source.tls", "verify-identity").set("source.tls_ca", file("ca.pem"));
    refused(identity, &["not valid for name", "127.0.0.1"]);

    source.exec("ALTER USER repl@'%' REQUIRE X509").await;
    refused(builder().set("source.tls", "required"), &["refused user 'repl'"]);
    let daemon = builder()
        .set("source.tls", "required")
        .set("source.tls_cert", file("client-cert.pem"))
        .set("source.tls_key", file("client-key.pem"))
        .start();
    write_another_row(&source).await;
    replicates(&daemon, &source, &target, "SSL/TLS").await;
}

/// A certificate authority made for a test.
pub(crate) struct Authority {
    directory: PathBuf,
}

impl Authority {
    pub(crate) fn new(directory: &Path, name: &str) -> Self {
        let directory = directory.join(name);
        std::fs::create_dir(&directory).expect("a directory");
        let authority = Self { directory };
        authority.openssl(
            "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=Test-CA \
             -keyout ca-key.pem -out ca.pem",
        );
        authority
    }

    /// A certificate `server.pem`, with its key, for a host.
    pub(crate) fn certify(&self, host: &str) {
        self.openssl(
            "req -newkey rsa:2048 -nodes -subj /CN=source -keyout server-key.pem -out server.csr",
        );
        std::fs::write(self.path("names"), format!("subjectAltName={host}\n")).expect("writable");
        self.openssl(
            "x509 -req -in server.csr -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days 2 \
             -extfile names -out server.pem",
        );
    }

    /// Returns a server's options for that certificate.
    pub(crate) fn server_options(&self) -> [String; 3] {
        [("ca", "ca.pem"), ("cert", "server.pem"), ("key", "server-key.pem")]
            .map(|(name, file)| format!("--ssl-{name}={}", self.text(file)))
    }

    fn openssl(&self, arguments: &str) {
        let output = Command::new("openssl")
            .args(arguments.split_whitespace())
            .current_dir(&self.directory)
            .output()
            .expect("running openssl");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "openssl {arguments}: {said}");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_tells_the_right_authority_from_a_wrong_one_and_a_host_from_another() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let right = Authority::new(directory.path(), "right");
    right.certify("IP:127.0.0.1");
    let wrong = Authority::new(directory.path(), "wrong");
    let options = right.server_options();
    let (source, target) = Server::pair(&options.each_ref().map(String::as_str), &[]);
    write_rows(&source, "d").await;
    let builder = |mode: &str, authority: &Authority| {
        Daemon::builder(&source, &target)
            .set("source.tls", mode)
            .set("source.tls_ca", authority.text("ca.pem"))
    };
    for mode in ["verify-ca", "verify-identity"] {
        // Both authorities have the same name, as those that servers generate do.
        let address = format!("source 127.0.0.1:{}", source.port);
        refused(builder(mode, &wrong), &[&address, "certificate", "tls_ca"]);
        let daemon = builder(mode, &right).start();
        write_another_row(&source).await;
        replicates(&daemon, &source, &target, "SSL/TLS").await;
    }
    // The right authority, and a host that the certificate does not name.
    let other_host = builder("verify-identity", &right).set("source.host", "localhost");
    refused(other_host, &["not valid for name", "localhost"]);
    let daemon = builder("verify-ca", &right).set("source.host", "localhost").start();
    write_another_row(&source).await;
    replicates(&daemon, &source, &target, "SSL/TLS").await;
}

/// Creates the target's account again, with exactly the privileges in the documentation.
fn documented_grants() -> String {
    let target = include_str!("../../config/grants-target.sql");
    let statements = target.lines().filter(|line| !line.starts_with("--"));
    format!("SET sql_log_bin=OFF; DROP USER csa@'%'; {}", statements.collect::<Vec<_>>().join("\n"))
}

/// The checkpoint holds exactly what the source has executed.
async fn assert_checkpoint_is_the_sources(source: &Server, target: &Server) {
    let executed = source.gtid_executed().await;
    let checkpoint: String = target
        .value("SELECT gtid_executed FROM csa.checkpoint ORDER BY sequence DESC LIMIT 1")
        .await;
    let difference = |from: &str, what: &str| format!("GTID_SUBTRACT('{from}', '{what}')");
    let (missing, extra) = (difference(&executed, &checkpoint), difference(&checkpoint, &executed));
    let differences: String = target.value(&format!("SELECT CONCAT({missing}, {extra})")).await;
    assert_eq!(differences, "", "source: {executed}\ncheckpoint: {checkpoint}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tagged_transactions_arrive_and_a_killed_daemon_asks_behind_them() {
    let (source, target) = Server::pair(&[], &[]);
    let uuid: String = source.value("SELECT @@server_uuid").await;
    write_rows(&source, "d").await;
    target.exec(&documented_grants()).await;
    let daemon = Daemon::builder(&source, &target).set("target.password", "change me").start();
    let mut conn = source.conn().await;
    let mut run = async |statements: &[&str]| {
        for statement in statements {
            let statement = statement.replace("UUID", &uuid);
            conn.query_drop(&statement).await.unwrap_or_else(|e| panic!("{statement}: {e}"));
        }
    };
    run(&[
        "SET gtid_next='AUTOMATIC:blue'",
        "INSERT INTO d.t VALUES (10)",
        "CREATE TABLE d.made (id INT PRIMARY KEY)",
        "INSERT INTO d.made VALUES (1)",
        "SET gtid_next='UUID:tag:5'",
        "INSERT INTO d.t VALUES (11)",
        "SET gtid_next='UUID:tag:7'",
        "CREATE TABLE d.made_too (id INT PRIMARY KEY)",
        "SET gtid_next='AUTOMATIC'",
        "INSERT INTO d.t VALUES (12)",
    ])
    .await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    assert_checkpoint_is_the_sources(&source, &target).await;
    let before = source.gtid_executed().await;
    assert!(before.contains(":blue:1-3:tag:5:7"), "{before}");

    daemon.kill9();
    run(&[
        "SET gtid_next='UUID:tag:6'",
        "INSERT INTO d.t VALUES (20)",
        "SET gtid_next='AUTOMATIC:tag'",
        "INSERT INTO d.t VALUES (21)",
        "SET gtid_next='AUTOMATIC:a_tag_of_thirty_two_characters_1'",
        "INSERT INTO d.t VALUES (22)",
        "SET gtid_next='AUTOMATIC'",
        "INSERT INTO d.t VALUES (23)",
    ])
    .await;
    daemon.start_again();
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    assert_checkpoint_is_the_sources(&source, &target).await;
    let connection = &daemon.status()["channels"][0]["connection"];
    assert_eq!(connection["received_transactions_total"], 4, "only what is new: {connection}");
}

#[tokio::test(flavor = "multi_thread")]
async fn checksums_switched_on_and_off_in_the_middle() {
    let (source, target) = Server::pair(&[], &[]);
    write_rows(&source, "d").await;
    let switch = async |algorithm: &str| {
        source.exec(&format!("SET GLOBAL binlog_checksum={algorithm}")).await;
        write_another_row(&source).await;
    };
    switch("NONE").await;
    switch("CRC32").await;
    switch("NONE").await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    for algorithm in ["CRC32", "NONE", "CRC32"] {
        switch(algorithm).await;
        daemon.wait_drained(&source, &target, DRAIN).await;
        // Heartbeats come between the files' events.
        tokio::time::sleep(Duration::from_millis(1500)).await;
    }
    compare(&source, &target).await;
    let connection = &daemon.status()["channels"][0]["connection"];
    assert_eq!(connection["checksum_failures_total"], 0, "{connection}");
    assert_eq!(connection["connects_total"], 1, "{connection}");
    assert!(connection["count_received_heartbeats"].as_u64() >= Some(3), "{connection}");
}
