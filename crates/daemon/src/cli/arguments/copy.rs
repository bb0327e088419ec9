use std::path::PathBuf;

use clap::Args;

use crate::copy::CopyOptions;

#[derive(Debug, Args)]
pub(crate) struct CopyArguments {
    /// Sessions on each server that copy rows at the same time.
    #[arg(long, value_name = "SESSIONS", default_value_t = CopyOptions::LANES,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=64))]
    pub(crate) lanes: usize,
    /// Read all rows in one snapshot of the source if its tables are no larger than this together. Larger ones
    /// are read in chunks, so that no snapshot is open for long.
    #[arg(long, value_name = "MIB", default_value_t = CopyOptions::SNAPSHOT_BYTES >> 20)]
    pub(crate) snapshot_mib: u64,
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
