//! `--keep`: everything stays, with the commands to use it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use csa_tests::{Daemon, Server};
use tokio::task::spawn_blocking;

use super::options::SCHEMA;
use super::site::Site;

/// Prints how to use what runs, and starts csa-daemon again whenever it ends; returns only with an error.
pub(super) async fn keep(site: &Site) -> Result<()> {
    let daemon = format!(
        "{} --config {}",
        shown(&Daemon::executable()),
        site.daemon.config_path().display()
    );
    println!("\neverything keeps running, and csa-daemon starts again when it ends");
    println!("Ctrl-C ends all and removes its files\n");
    println!("status page      {}", site.daemon.url("/"));
    for (role, server) in
        [("source", &site.source), ("target", &site.target), ("native replica", &site.native)]
    {
        println!("{role:<16} 127.0.0.1:{}, user admin, password admin_pw", server.port);
        println!("{:16} {}", "", client(server));
    }
    println!("a row to follow  on the source: INSERT INTO {SCHEMA}.account VALUES (1000000, 1)");
    println!("csa-daemon       {daemon} status --watch");
    println!("{:16} {daemon} verify", "");
    println!("its log          {}", site.daemon.log_path().display());
    println!("kill it          kill -9 {}", site.daemon.pid().unwrap_or_default());
    loop {
        tokio::time::sleep(Duration::from_millis(250)).await;
        let daemon = Arc::clone(&site.daemon);
        let supervised = spawn_blocking(move || supervise(&daemon)).await;
        if let Some(status) = supervised.context("starting csa-daemon again")? {
            let pid = site.daemon.pid().unwrap_or_default();
            println!("csa-daemon ended ({status}) and was started again; kill -9 {pid}");
        }
    }
}

fn supervise(daemon: &Daemon) -> Option<std::process::ExitStatus> {
    if !daemon.has_exited() {
        return None;
    }
    let status = daemon.wait_exit(Duration::ZERO);
    daemon.start_again();
    Some(status)
}

/// Returns the command that opens a client on the server.
fn client(server: &Server) -> String {
    let script = shown(&Server::script_path());
    let folder = server.data_directory().ancestors().nth(2).unwrap_or(Path::new(""));
    // The folder in which the script looks by default.
    let folder = match folder.parent() == Some(&std::env::temp_dir()) {
        true => String::new(),
        false => format!("CSA_SANDBOX_DIR={} ", folder.display()),
    };
    format!("{folder}{script} mysql {}", server.name)
}

/// Returns the path as seen from the working directory.
fn shown(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(here).unwrap_or(path).display().to_string()
}
