use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use csa_daemon::verify::{TableName, VerifyOptions};

use crate::config::DurationValue;

/// An external replica of MySQL: receives a source's change stream and applies it to a target.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
pub(crate) struct Cli {
    /// Configuration file.
    #[arg(
        long,
        short,
        global = true,
        env = "CSA_DAEMON_CONFIG",
        default_value = "/etc/csa-daemon/csa-daemon.toml"
    )]
    pub(crate) config: PathBuf,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Replicate until stopped.
    Run,
    /// Check the configuration file, and on request both servers of every channel.
    Check {
        /// Log in to sources and targets and check what a first start needs; writes nothing.
        #[arg(long)]
        connect: bool,
    },
    /// Show what the running daemon does.
    Status {
        /// Print the JSON of /status.
        #[arg(long)]
        json: bool,
        /// Repeat every so many seconds.
        #[arg(long, value_name = "SECONDS")]
        watch: Option<u64>,
    },
    /// Compare source and target while both are in use: exit code 0 equal, 1 different, 2 not
    /// everything could be compared.
    Verify(VerifyArguments),
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArguments {
    /// Only this channel; otherwise all, one after the other.
    #[arg(long, value_name = "NAME")]
    pub(crate) channel: Option<String>,
    /// Only this schema of the source; can be given several times.
    #[arg(long, value_name = "SCHEMA")]
    pub(crate) schema: Vec<String>,
    /// Only this table of the source; can be given several times.
    #[arg(long, value_name = "SCHEMA.TABLE")]
    pub(crate) table: Vec<TableName>,
    /// Rows in one statement at most; slow ones are made smaller anyway.
    #[arg(long, value_name = "ROWS", default_value_t = VerifyOptions::CHUNK_ROWS,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) chunk_rows: u64,
    /// Rows per second at most.
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_rate: Option<u64>,
    /// Pause while the target lags behind further, like 500ms, 10s or 2m.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) max_lag: Option<Duration>,
    /// Compare rows by the columns that both sides have alike where definitions differ.
    #[arg(long)]
    pub(crate) common_columns: bool,
    /// Differing rows named for a table; its rest is then left out.
    #[arg(long, value_name = "ROWS", default_value_t = VerifyOptions::MAX_DIFFERENCES,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    pub(crate) max_differences: usize,
    /// Give up when the target gets no nearer to the source for so long.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "60s")]
    pub(crate) catch_up_timeout: Duration,
    /// Read the source as another user than the one that replicates; SELECT is enough.
    #[arg(long, value_name = "USER", requires = "source_password_file")]
    pub(crate) source_user: Option<String>,
    /// File with that user's password.
    #[arg(long, value_name = "FILE", requires = "source_user")]
    pub(crate) source_password_file: Option<PathBuf>,
    /// Print what was found as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration = DurationValue::parse(text).map(|duration| duration.0);
    duration.ok_or_else(|| format!("{text:?} is not a duration like \"500ms\", \"5s\" or \"2m\""))
}
