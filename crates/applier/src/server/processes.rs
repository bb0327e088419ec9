//! The server's process list.

/// A line of the server's process list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) host: String,
    pub(crate) command: String,
    pub(crate) seconds: i64,
    pub(crate) stage: String,
}

/// The columns of [`query`].
pub(crate) type ProcessRow = (String, String, i64, String);

impl From<ProcessRow> for Process {
    fn from((host, command, seconds, stage): ProcessRow) -> Self {
        Self { host, command, seconds, stage }
    }
}

impl Process {
    /// Says how long the session has been in its command.
    pub(crate) fn time(&self) -> String {
        time_in(&self.command, self.seconds)
    }
}

/// Returns the query for the line of one connection: a session sends it, or a link that no session has.
pub(crate) fn query(connection: u64) -> String {
    format!(
        "SELECT HOST, COMMAND, CAST(TIME AS SIGNED), COALESCE(STATE, '') \
         FROM information_schema.PROCESSLIST WHERE ID={connection}"
    )
}

/// Says how long a session has been in the command that the list shows. MySQL counts the seconds of `Sleep` from the
/// beginning of the statement before, MariaDB from its end; either is at least the time that the session has been idle.
pub(crate) fn time_in(command: &str, seconds: i64) -> String {
    match command {
        "Sleep" | "Killed" => format!("up to {seconds} s"),
        _ => format!("{seconds} s"),
    }
}
