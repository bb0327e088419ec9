//! The archive of a channel: what it holds, what a restore makes of it, and the day on which everything around it
//! goes wrong.

mod alone;
pub(crate) mod chaos;
mod day;
mod faults;
mod gaps;
mod histories;
mod missing;
mod others;
mod restore;
mod stopped;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use csa_tests::{Daemon, DaemonBuilder, Server, eventually};
use serde_json::Value;
use tempfile::TempDir;

use crate::DRAIN;

/// Returns a daemon with an archive in `directory`.
fn archiving(source: &Server, target: &Server, directory: &Path) -> DaemonBuilder {
    Daemon::builder(source, target)
        .set("archive.url", format!("file://{}", directory.display()))
        .set("archive.interval", "1s")
}

fn folder() -> TempDir {
    TempDir::with_prefix("csa-archive-").expect("a temporary directory")
}

pub(crate) fn view(daemon: &Daemon) -> Value {
    daemon.status()["channels"][0]["archive"].clone()
}

/// Waits until everything that the source has committed is archived.
pub(crate) async fn archived(daemon: &Daemon, source: &Server) {
    let executed = source.gtid_executed().await;
    eventually("all is archived", DRAIN, async || {
        let archive = view(daemon);
        archive["archived_transaction_set"] == executed && archive["lag_seconds"] == 0.0
    })
    .await;
}

/// Returns the arguments that restore into `server`.
fn into(server: &Server) -> Vec<String> {
    ["restore".to_owned(), "--to".to_owned(), format!("127.0.0.1:{}", server.port)].into()
}

/// Runs `restore` into a server, with more arguments, to its end.
#[track_caller]
fn restored(daemon: &Daemon, server: &Server, more: &[&str]) -> String {
    let arguments = into(server);
    let arguments: Vec<&str> =
        arguments.iter().map(String::as_str).chain(more.iter().copied()).collect();
    daemon.commanded(&arguments)
}

/// Returns what `restore` says when it must not work.
#[track_caller]
fn not_restored(daemon: &Daemon, server: &Server, more: &[&str]) -> String {
    let arguments = into(server);
    let arguments: Vec<&str> =
        arguments.iter().map(String::as_str).chain(more.iter().copied()).collect();
    let said = daemon.command(&arguments);
    assert_ne!(said.code, Some(0), "{said:?}");
    said.error
}

/// Returns what mysqlbinlog makes of files.
#[track_caller]
fn mysqlbinlog(files: &[PathBuf]) -> String {
    let read = Command::new(Server::script_path())
        .args(["client", "mysqlbinlog", "--no-defaults", "--verify-binlog-checksum"])
        .args(["--base64-output=decode-rows", "-v"])
        .args(files)
        .stdin(Stdio::null())
        .output()
        .expect("running mysqlbinlog");
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    String::from_utf8_lossy(&read.stdout).into_owned()
}

/// Returns the files of a folder, in order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("readable");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
    files.sort();
    files
}

/// Returns the only history of the channel in an archive.
fn history(archive: &Path) -> PathBuf {
    let names = files(&archive.join("test"));
    let others = ["pins", "histories"];
    let histories: Vec<_> =
        names.iter().filter(|name| !others.iter().any(|other| name.ends_with(other))).collect();
    assert_eq!(histories.len(), 1, "{histories:?}");
    histories[0].clone()
}

/// Writes transactions until a time has passed.
async fn write_for(source: &Server, options: &csa_tests::LoadOptions, length: Duration) -> u64 {
    csa_tests::Load::run(source, options, length).await.committed
}
