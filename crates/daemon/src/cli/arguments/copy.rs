use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct CopyArguments {
    /// Sessions on each server that copy rows at the same time, instead of `copy.lanes`.
    #[arg(long, value_name = "SESSIONS",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=64))]
    pub(crate) lanes: Option<usize>,
    /// Read the source as another user than the replicating one; SELECT and REPLICATION CLIENT are
    /// needed in addition to REPLICATION SLAVE, for programs also SHOW_ROUTINE, SHOW VIEW, TRIGGER and EVENT.
    #[arg(long, value_name = "USER", requires = "source_password_file")]
    pub(crate) source_user: Option<String>,
    /// File with that user's password.
    #[arg(long, value_name = "FILE", requires = "source_user")]
    pub(crate) source_password_file: Option<PathBuf>,
    /// Print the tables that would be copied, and copy nothing.
    #[arg(long)]
    pub(crate) plan: bool,
    /// Print nothing but the summary.
    #[arg(long)]
    pub(crate) quiet: bool,
}
