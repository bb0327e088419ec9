//! README.md and the pages of docs: the scripts run the commands exactly as
//! written, on servers of their own. guides.rs has the blocks that nothing runs.

use std::path::Path;
use std::process::Command;

use csa_tests::{Daemon, Server};

/// Runs a script of this folder to its end.
fn run(script: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(script);
    let output = Command::new(&path)
        .env("CSA_DAEMON_BIN", Daemon::executable())
        .envs(Server::environment())
        .env("CSA_SANDBOX_OWNER", std::process::id().to_string())
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let said = String::from_utf8_lossy(&output.stdout);
    let problems = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {}\n{said}{problems}", output.status);
    assert!(said.contains("source and target are equal"), "{script} compared nothing\n{said}");
}

#[test]
fn a_target_is_copied_while_the_source_is_written_to() {
    run("provisioning/copy.sh");
}

#[test]
fn a_target_is_cloned_while_the_source_is_written_to() {
    run("provisioning/clone.sh");
}

#[test]
fn a_target_is_loaded_from_a_dump_while_the_source_is_written_to() {
    run("provisioning/dump.sh");
}

#[test]
fn a_target_begins_empty_with_the_sources_first_transaction() {
    run("provisioning/empty.sh");
}

#[test]
fn replicas_of_source_and_target_take_over() {
    run("provisioning/failover.sh");
}

#[test]
fn a_native_replica_is_replaced_and_comes_back() {
    run("provisioning/replica.sh");
}

#[test]
fn an_old_server_is_upgraded_and_has_a_way_back() {
    run("provisioning/upgrade.sh");
}

#[test]
fn an_operator_gets_through_a_day() {
    run("provisioning/operate.sh");
}

#[test]
fn passwords_and_definitions_change_while_a_channel_runs() {
    run("provisioning/changes.sh");
}

#[test]
fn daemons_on_several_hosts_work_together() {
    run("provisioning/hosts.sh");
}

#[test]
fn older_targets_and_mariadb_follow() {
    run("provisioning/older.sh");
}

#[test]
fn the_demonstration_ends_with_equal_servers() {
    run("provisioning/demo.sh");
}

#[test]
fn the_debian_package_is_installed_run_upgraded_and_purged() {
    run("packages/deb.sh");
}

#[test]
fn the_files_of_a_release_are_installed_and_run() {
    run("packages/release.sh");
}
