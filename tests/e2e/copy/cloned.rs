//! `csa-daemon copy --clone`: the clone plugin makes the target, and the channel follows.

use std::time::Duration;

use csa_tests::{Daemon, Load, Server, compare, eventually, prepare};

use super::{busy, copy_log, ends_well, refused_with, start_copying};
use crate::DRAIN;

const PLUGIN: &str = "INSTALL PLUGIN clone SONAME 'mysql_clone.so'";

/// Returns the arguments of a clone; the target's administrator is its own.
fn arguments(daemon: &Daemon) -> Vec<String> {
    let password = daemon.config_path().with_file_name("target.pw");
    std::fs::write(&password, "admin_pw\n").expect("writable");
    let password = password.display().to_string();
    ["--clone", "--target-user", "admin", "--target-password-file", &password]
        .map(str::to_owned)
        .into()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_target_becomes_a_clone_while_clients_write() {
    let (source, target) = Server::pair(&[], &[]);
    prepare(&source, &busy()).await;
    // The clone has this account, and makes another one for the channel.
    source.exec("SET sql_log_bin=0; DROP USER csa@'%'").await;
    let builder = Daemon::builder(&source, &target).set("source.tls", "required");
    let daemon = builder.unset("applier.start_from").build();
    let more = arguments(&daemon);
    let more: Vec<&str> = more.iter().map(String::as_str).collect();
    // Each reason is named before anything is changed, also in the relay store.
    let relay = daemon.state_dir().join("test/relay");
    let segment = relay.join("segment-0000000000000001.relay");
    std::fs::create_dir_all(relay).expect("created");
    std::fs::write(&segment, "received").expect("written");
    let said = refused_with(&daemon, &more);
    assert!(said.contains("INSTALL PLUGIN clone"), "{said}");
    source.exec(PLUGIN).await;
    source.exec("CREATE TABLE sbtest.other (id INT PRIMARY KEY) ENGINE=MyISAM").await;
    let said = refused_with(&daemon, &more);
    assert!(said.contains("sbtest.other are not InnoDB"), "{said}");
    source.exec("DROP TABLE sbtest.other").await;
    target.exec("CREATE DATABASE mine; CREATE TABLE mine.t (id INT PRIMARY KEY)").await;
    let said = refused_with(&daemon, &more);
    assert!(said.contains("mine.t") && said.contains("replaces everything"), "{said}");
    target.exec("DROP DATABASE mine").await;
    assert!(segment.exists(), "it was received, and nothing is cloned");
    let load = Load::start(&source, &busy());
    let cloning = start_copying(&daemon, &more);
    // Nothing restarts a server of the tests.
    eventually("the target wants to be started", DRAIN, async || {
        copy_log(&daemon).contains("start it now")
    })
    .await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    target.restart();
    ends_well(cloning, &daemon).await;
    assert!(!segment.exists(), "the clone has another place");
    let said = copy_log(&daemon);
    assert!(said.contains("making the account csa") && said.contains("MiB cloned in"), "{said}");
    assert!(!said.contains("admin_pw") && !said.contains("csa_pw"), "{said}");
    daemon.start_again();
    tokio::time::sleep(Duration::from_secs(1)).await;
    load.stop().await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    assert!(daemon.terminate().success());
    let said = refused_with(&daemon, &more);
    assert!(said.contains("and a clone replaces everything there"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_clone_is_waited_for_where_its_progress_is_not_shown() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec(PLUGIN).await;
    target.exec(PLUGIN).await;
    // It takes longer than the pause before the first look.
    target.exec("SET GLOBAL clone_autotune_concurrency=OFF, clone_max_concurrency=1").await;
    target.exec("SET GLOBAL clone_max_data_bandwidth=2").await;
    // It may not read performance_schema.
    let grants = "GRANT CLONE_ADMIN, SYSTEM_VARIABLES_ADMIN ON *.* TO cloner@'%'";
    let user = "SET sql_log_bin=0; CREATE USER cloner@'%' IDENTIFIED BY 'admin_pw'";
    target.exec(&format!("{user}; {grants}")).await;
    let daemon = Daemon::builder(&source, &target).unset("applier.start_from").build();
    let more = arguments(&daemon);
    let more: Vec<&str> =
        more.iter().map(|word| if word == "admin" { "cloner" } else { word.as_str() }).collect();
    let cloning = start_copying(&daemon, &more);
    let long = Duration::from_secs(300);
    let says = async |words: &str| {
        eventually(words, long, async || copy_log(&daemon).contains(words)).await;
    };
    says("the progress of the clone is not known any more").await;
    says("start it now").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    target.restart();
    ends_well(cloning, &daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn releases_that_differ_are_not_cloned() {
    let source = Server::start_version("source", "8.0.31", &[]);
    let target = Server::start("target", &[]);
    let daemon = Daemon::builder(&source, &target).build();
    let more = arguments(&daemon);
    let said = refused_with(&daemon, &more.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(said.contains("8.0.31") && said.contains("works between releases"), "{said}");
}
