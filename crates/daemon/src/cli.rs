use std::path::PathBuf;

use clap::{Parser, Subcommand};

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
}
