//! A source, a target and a daemon, and what every mode does with them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use csa_tests::{Compare, Daemon, Server};
use tokio::task::{block_in_place, spawn_blocking};

use super::report::Report;

/// Enough for every size that fits a machine; a failed channel ends a wait at once.
pub(super) const PATIENCE: Duration = Duration::from_secs(4 * 3600);

pub(super) async fn servers(options: &'static [&'static str]) -> Result<(Server, Server)> {
    println!("starting a source and a target");
    spawn_blocking(move || Server::pair(options, options)).await.context("starting the servers")
}

/// Starts it, and returns the seconds until all channels run.
pub(super) async fn started(daemon: &Daemon) -> f64 {
    let begun = Instant::now();
    block_in_place(|| daemon.start_again());
    csa_tests::eventually("all channels run", PATIENCE, async || {
        let status = block_in_place(|| daemon.try_status()).unwrap_or_default();
        let channels = status["channels"].as_array().cloned().unwrap_or_default();
        !channels.is_empty() && channels.iter().all(|channel| channel["state"] == "running")
    })
    .await;
    begun.elapsed().as_secs_f64()
}

/// Ends the daemon and compares everything.
pub(super) async fn finish(report: &mut Report, daemon: &Daemon, source: &Server, target: &Server) {
    let status = block_in_place(|| daemon.terminate());
    report.rule(status.success(), format!("the daemon ends cleanly, not with {status}"));
    match Compare::new().run(source, target).await {
        Ok(compared) => {
            report.figure("equal", format!("{} tables, {} rows", compared.tables, compared.rows));
        }
        Err(difference) => report.rule(false, difference.to_string()),
    }
}

/// Runs statements in so many sessions at once.
pub(super) async fn in_sessions(
    server: &Server,
    sessions: u64,
    statements: u64,
    statement: impl Fn(u64) -> String + Clone + Send + Sync + 'static,
) -> Result<()> {
    use mysql_async::prelude::Queryable as _;
    let mut tasks = tokio::task::JoinSet::new();
    for session in 0..sessions {
        let (opts, statement) = (server.opts(), statement.clone());
        tasks.spawn(async move {
            let mut conn = mysql_async::Conn::new(opts).await?;
            for number in (session..statements).step_by(sessions as usize) {
                conn.query_drop(statement(number)).await?;
            }
            conn.disconnect().await
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}
