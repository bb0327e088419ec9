//! The server's process list.

use super::session::Session;
use crate::error::Result;

/// A line of the server's process list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) host: String,
    pub(crate) command: String,
    pub(crate) seconds: i64,
    pub(crate) stage: String,
}

/// Says how long a session has been in the command that the list shows. MySQL counts the seconds of `Sleep` from the
/// beginning of the statement before, MariaDB from its end; either is at least the time that the session has been idle.
pub(crate) fn time_in(command: &str, seconds: i64) -> String {
    match command {
        "Sleep" | "Killed" => format!("up to {seconds} s"),
        _ => format!("{seconds} s"),
    }
}

/// Without PROCESS the server hides sessions of other accounts.
pub(crate) async fn process(session: &mut Session, connection: u64) -> Result<Option<Process>> {
    let query = format!(
        "SELECT HOST, COMMAND, CAST(TIME AS SIGNED), COALESCE(STATE, '') \
         FROM information_schema.PROCESSLIST WHERE ID={connection}"
    );
    let rows: Vec<(String, String, i64, String)> = session.rows(&query).await?;
    Ok(rows.into_iter().next().map(|(host, command, seconds, stage)| Process {
        host,
        command,
        seconds,
        stage,
    }))
}
