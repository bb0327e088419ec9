//! etcd as operators run it: with TLS, and with several servers. The keys for Kubernetes as the guide has them.

use std::path::Path;
use std::time::Duration;

use csa_tests::{Daemon, Etcd, EtcdTls, Guide, Server, compare, eventually};

use crate::connect::Authority;
use crate::{DRAIN, wait_state};

const TTL: Duration = Duration::from_secs(6);
const PATIENCE: Duration = Duration::from_secs(60);

async fn write_rows(source: &Server, schema: &str) {
    let table = format!("{schema}.t");
    source
        .exec(&format!(
            "CREATE DATABASE {schema}; CREATE TABLE {table} (id INT PRIMARY KEY); \
             INSERT INTO {table} VALUES (1), (2)"
        ))
        .await;
}

fn session_is_lost(daemon: &Daemon) -> bool {
    daemon.metrics().contains("\ncsa_claims_session_lost 1\n")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn etcd_with_tls_knows_daemons_by_their_certificates() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let right = Authority::new(directory.path(), "right");
    right.certify("IP:127.0.0.1");
    let wrong = Authority::new(directory.path(), "wrong");
    wrong.certify("IP:127.0.0.1");
    let file = |name: &str| Path::new(&right.text(name)).to_owned();
    let tls = EtcdTls { ca: file("ca.pem"), cert: file("server.pem"), key: file("server-key.pem") };
    let etcd = Etcd::start_with_tls(tls);
    let (source, target) = Server::pair(&[], &[]);
    write_rows(&source, "d").await;
    let daemon = Daemon::builder(&source, &target)
        .set("claims.engine", "etcd")
        .set("claims.endpoints", vec![etcd.endpoint()])
        .set("claims.name", "db1")
        .set("claims.ttl", format!("{}s", TTL.as_secs()))
        .set("claims.tls_ca", right.text("ca.pem"))
        .set("claims.tls_cert", right.text("server.pem"))
        .set("claims.tls_key", right.text("server-key.pem"))
        .start();
    wait_state(&daemon, 0, "running").await;
    let shown = daemon.commanded(&["fleet"]);
    assert!(shown.contains("db1 (this)  100     1      1        member\n"), "{shown}");
    // For longer than a session lasts without renewals.
    tokio::time::sleep(TTL * 2).await;
    assert!(!session_is_lost(&daemon));

    // A daemon that trusts another authority, one whose certificate is of another one, and one without any.
    for (ca, own) in [(&wrong, Some(&right)), (&right, Some(&wrong)), (&right, None)] {
        daemon.terminate();
        daemon.set("claims.tls_ca", ca.text("ca.pem"));
        match own {
            Some(own) => {
                daemon.set("claims.tls_cert", own.text("server.pem"));
                daemon.set("claims.tls_key", own.text("server-key.pem"));
            }
            None => {
                daemon.unset("claims.tls_cert");
                daemon.unset("claims.tls_key");
            }
        }
        daemon.start_again();
        eventually("etcd and the daemon do not agree", PATIENCE, async || {
            let said = daemon.command(&["fleet"]);
            said.code == Some(1) && said.error.contains("etcd does not answer: https://127.0.0.1:")
        })
        .await;
        assert!(session_is_lost(&daemon));
    }
    daemon.terminate();
    daemon.set("claims.tls_cert", right.text("server.pem"));
    daemon.set("claims.tls_key", right.text("server-key.pem"));
    daemon.start_again();
    wait_state(&daemon, 0, "running").await;
    write_rows(&source, "e").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_fleet_survives_the_loss_of_one_of_three_servers_of_etcd() {
    let servers = Etcd::cluster(3);
    let (source, target) = Server::pair(&[], &[]);
    write_rows(&source, "d").await;
    let endpoints: Vec<String> = servers.iter().map(Etcd::endpoint).collect();
    let daemon = |name: &str| {
        Daemon::builder(&source, &target)
            .set("claims.engine", "etcd")
            .set("claims.endpoints", endpoints.clone())
            .set("claims.name", name)
            .set("claims.ttl", format!("{}s", TTL.as_secs()))
            .set("claims.rebalance_delay", "2s")
            .start()
    };
    let daemons = [daemon("db1"), daemon("db2")];
    let is_running = |daemon: &Daemon| {
        daemon.try_status().is_some_and(|status| status["channels"][0]["state"] == "running")
    };
    let runs_on = async |what: &str| {
        eventually(what, PATIENCE, async || {
            daemons.iter().filter(|daemon| is_running(daemon)).count() == 1
        })
        .await;
        daemons.iter().position(is_running).expect("one of them")
    };
    let mut place = runs_on("the channel runs").await;
    // Each of them in turn: the leader of the cluster, and the one that the daemons speak with, are among them.
    for server in &servers {
        server.kill9();
        let until = std::time::Instant::now() + TTL * 2;
        while std::time::Instant::now() < until {
            assert_eq!(daemons.iter().position(is_running), Some(place), "the channel moved");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        // On a busy machine the election of a leader may take longer than a session is known to last.
        eventually("two servers are enough", PATIENCE, async || {
            !daemons.iter().any(session_is_lost)
        })
        .await;
        // Claims change hands without it.
        daemons[place].commanded(&["drain"]);
        let next = runs_on("the channel runs elsewhere").await;
        assert_ne!(next, place);
        daemons[place].commanded(&["drain", "--undo"]);
        server.start_again();
        tokio::time::sleep(TTL).await;
        place = runs_on("the channel runs where it belongs").await;
    }
    // Without a majority nothing is decided, and nothing stops.
    servers[0].kill9();
    servers[1].kill9();
    eventually("the sessions are lost", PATIENCE, async || daemons.iter().all(session_is_lost))
        .await;
    write_rows(&source, "e").await;
    daemons[place].wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

/// The other tests of Leases need an API server; this one shows that the daemon reads the keys and asks there.
#[tokio::test(flavor = "multi_thread")]
async fn the_guides_keys_for_kubernetes_are_understood() {
    let mut guide = Guide::section("kubernetes.md", "A fleet in Kubernetes");
    let (in_a_pod, outside) = (guide.take("toml"), guide.take("toml"));
    drop(guide);
    let (source, target) = Server::pair(&[], &[]);
    let refused = Daemon::builder(&source, &target).append(&in_a_pod).start_unless_refused();
    let refused = refused.expect_err("this is no pod");
    assert!(refused.contains("claims.endpoints"), "{refused}");

    let directory = tempfile::tempdir().expect("a temporary directory");
    let authority = Authority::new(directory.path(), "kubernetes");
    let folder = format!("{}/", directory.path().display());
    let keys = outside
        .replace("https://api.example.com:6443", "https://127.0.0.1:1")
        .replace("/etc/csa-daemon/kubernetes-ca.pem", &authority.text("ca.pem"))
        .replace("/etc/csa-daemon/", &folder);
    let token = directory.path().join("kubernetes.token");
    std::fs::write(&token, "a token").expect("writes");
    std::fs::set_permissions(&token, std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .expect("permissions");
    let daemon = Daemon::builder(&source, &target).append(&keys).start();
    eventually("the daemon asks the API server", PATIENCE, async || {
        let said = daemon.command(&["fleet"]);
        said.code == Some(1) && said.error.contains("https://127.0.0.1:1")
    })
    .await;
    assert!(session_is_lost(&daemon));
}
