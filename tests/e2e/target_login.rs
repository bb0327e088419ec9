//! Logins to the target: errors refused with the key to change, and errors that the daemon waits out.

use std::time::Duration;

use csa_tests::{Daemon, HostileServer, Hostility, Server, compare, eventually};

use crate::DRAIN;
use crate::connect::{Authority, refused};

#[tokio::test(flavor = "multi_thread")]
async fn what_the_target_refuses_is_told_from_its_absence() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let right = Authority::new(directory.path(), "right");
    right.certify("IP:127.0.0.1");
    let wrong = Authority::new(directory.path(), "wrong");
    let options = right.server_options();
    let (source, target) = Server::pair(&[], &options.each_ref().map(String::as_str));
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let builder = || Daemon::builder(&source, &target);
    let tls = |mode: &str, authority: &Authority| {
        builder().set("target.tls", mode).set("target.tls_ca", authority.text("ca.pem"))
    };

    let address = format!("target 127.0.0.1:{}", target.port);
    refused(tls("verify-ca", &wrong), &[&address, "certificate", "[channel.target] tls_ca"]);
    let other_host = tls("verify-identity", &right).set("target.host", "localhost");
    refused(other_host, &["not valid for name", "localhost", "[channel.target]"]);
    let bare = HostileServer::start(Hostility::AsksForPassword);
    let without = tls("required", &right).set("target.port", i64::from(bare.port));
    refused(without, &["offers no TLS", "[channel.target] tls"]);
    refused(builder().set("target.password", "wrong"), &["1045", "[channel.target] user"]);
    let account = "[channel.target] user and password";
    for (state, words) in [
        ("ACCOUNT LOCK", ["3118", account]),
        ("ACCOUNT UNLOCK PASSWORD EXPIRE", ["1862", account]),
        ("REQUIRE X509 PASSWORD EXPIRE NEVER", ["1045", account]),
    ] {
        // A new password is no longer expired.
        target
            .exec(&format!(
                "SET sql_log_bin=0; ALTER USER csa@'%' IDENTIFIED BY 'csa_pw'; \
                 ALTER USER csa@'%' {state}"
            ))
            .await;
        refused(builder(), &words);
    }
    target.exec("SET sql_log_bin=0; ALTER USER csa@'%' REQUIRE NONE; FLUSH PRIVILEGES").await;

    // The server has not cached the password, and nobody may read it on the wire.
    let plain = || builder().set("target.tls", "disabled");
    let keys = ["[channel.target]", "public_key_file", "get_public_key"];
    refused(plain(), &keys);
    let key = target.data_to_read().join("public_key.pem").display().to_string();
    // Inside TLS with an unverified peer the key could not protect it.
    refused(builder().set("target.public_key_file", key.clone()), &["verify-ca", "disabled"]);
    refused(plain().set("target.public_key_file", right.text("ca.pem")), &["public key"]);
    let daemon = plain().set("target.public_key_file", key).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    daemon.terminate();
    target.exec("FLUSH PRIVILEGES").await;
    let daemon = plain().set("target.get_public_key", true).start();
    source.exec("INSERT INTO d.t VALUES (1)").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    daemon.terminate();
    for mode in ["verify-ca", "verify-identity"] {
        let daemon = tls(mode, &right).start();
        source.exec("INSERT INTO d.t SELECT MAX(id) + 1 FROM d.t").await;
        daemon.wait_drained(&source, &target, DRAIN).await;
        let encrypted: u64 = target
            .value(
                "SELECT COUNT(*) FROM performance_schema.threads \
                 WHERE processlist_user='csa' AND connection_type='SSL/TLS'",
            )
            .await;
        assert!(encrypted > 0, "{mode}");
        daemon.terminate();
    }
    compare(&source, &target).await;

    // The password may go through the Unix socket, which nobody else can read.
    target.exec("FLUSH PRIVILEGES").await;
    let socket = target.socket.display().to_string();
    let local = builder().set("target.socket", socket).start();
    source.exec("INSERT INTO d.t VALUES (100)").await;
    local.wait_drained(&source, &target, DRAIN).await;
    local.terminate();
    compare(&source, &target).await;

    // Like an old server: no cipher suite in common.
    target
        .exec(
            "SET GLOBAL tls_version='TLSv1.2'; SET GLOBAL ssl_cipher='DHE-RSA-AES128-GCM-SHA256'; \
             ALTER INSTANCE RELOAD TLS",
        )
        .await;
    let suites = ["no TLS version or cipher suite", "tls_version", "ssl_cipher"];
    refused(tls("verify-ca", &right), &suites);

    // The daemon waits for a server that is down.
    target.stop();
    let daemon = builder().set("target.tls", "disabled").build();
    daemon.set("target.get_public_key", true);
    daemon.spawn();
    eventually("it waits", Duration::from_secs(60), async || {
        daemon.log().contains("refused (os error") && daemon.try_status().is_some()
    })
    .await;
    target.restart();
    source.exec("INSERT INTO d.t VALUES (200)").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}
