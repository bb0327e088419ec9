//! Servers that are not what they claim to be, and what they can get from the daemon.

use std::time::Duration;

use csa_tests::{Daemon, DaemonBuilder, HostileServer, Hostility, Server, eventually, peak_memory};

/// Returns a channel with a hostile server on one side and a real one on the other.
fn builder(side: &str, hostile: &HostileServer, real: &Server) -> DaemonBuilder {
    Daemon::builder(real, real)
        .set(&format!("{side}.port"), i64::from(hostile.port))
        .set(&format!("{side}.password"), "the one secret")
        .set(&format!("{side}.connect_retry"), "100ms")
        .set(&format!("{side}.connect_retry_max"), "100ms")
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_for_the_password_in_the_clear_gets_nothing() {
    let real = Server::start("real", &[]);
    for side in ["source", "target"] {
        for hostility in [
            Hostility::AsksForPassword,
            Hostility::Switches("mysql_clear_password"),
            Hostility::Switches("sha256_password"),
            Hostility::Switches("mysql_old_password"),
        ] {
            let hostile = HostileServer::start(hostility.clone());
            let daemon = builder(side, &hostile, &real).build();
            daemon.write_config();
            let said = daemon.command(&["check", "--connect"]);
            let text = format!("{}{}", said.out, said.error);
            let key = format!("[channel.{side}]");
            assert!(text.contains(&key), "{key} is missing in {text}");
            if matches!(hostility, Hostility::AsksForPassword) {
                for key in ["tls", "public_key_file", "get_public_key"] {
                    assert!(text.contains(key), "{key} is missing in {text}");
                }
            }
            daemon.spawn();
            let what = format!("{side} logs in to {hostility:?}");
            eventually(&what, Duration::from_secs(60), async || hostile.received().len() >= 2)
                .await;
            // Nothing follows the login packet, neither a password nor a request for a key.
            eventually("the end", Duration::from_secs(60), async || {
                hostile.ended() == hostile.received().len()
            })
            .await;
            let received = hostile.received();
            assert!(received.iter().all(Vec::is_empty), "{side} {hostility:?}: {received:?}");
            daemon.kill9();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_never_ends_takes_no_memory() {
    let real = Server::start("real", &[]);
    let version = ("SELECT @@version, @@version_comment", "9.7.4|MySQL Community Server");
    let target = vec![
        ("SELECT @@version, @@version_comment, CONNECTION_ID()", "9.7.4|MySQL Community Server|7"),
        ("SELECT @@SESSION.max_allowed_packet", "67108864"),
        ("SHOW GLOBAL VARIABLES", "version|9.7.4"),
        ("SELECT CURRENT_USER()", "csa@%"),
    ];
    let source = vec![
        version,
        ("SHOW GLOBAL VARIABLES", "version|9.7.4"),
        ("SELECT CURRENT_USER()", "repl@%"),
    ];
    let value = "more than 65536 bytes in answer to SELECT @@version";
    let list = "more than 1048576 rows in answer to SHOW GRANTS";
    for (side, answers) in [("source", source), ("target", target)] {
        for (hostility, words) in [
            (Hostility::EndlessGreeting, "16384 bytes before the login was complete"),
            (Hostility::EndlessRows(Vec::new()), "more than 1 rows in answer to SELECT @@version"),
            (Hostility::EndlessValue(Vec::new()), value),
            (Hostility::EndlessRows(answers.clone()), list),
        ] {
            let hostile = HostileServer::start(hostility.clone());
            let daemon = builder(side, &hostile, &real).build();
            daemon.spawn();
            let pid = daemon.pid().expect("it runs");
            eventually(words, Duration::from_secs(120), async || {
                hostile.ended() >= 2 && daemon.log().contains(words)
            })
            .await;
            let memory = peak_memory(pid).expect("running") >> 20;
            assert!(memory < 400, "{side} {hostility:?}: {memory} MiB");
            daemon.kill9();
        }
    }
}
