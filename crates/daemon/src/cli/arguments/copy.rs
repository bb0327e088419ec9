use std::path::PathBuf;

use clap::Args;

use crate::verify::TableName;

#[derive(Debug, Args)]
pub(crate) struct CopyArguments {
    /// Copy only this table of the source, on a channel that has its copy. The rows on the target are dropped first,
    /// and the channel follows its source meanwhile. Can be given several times.
    #[arg(long, value_name = "SCHEMA.TABLE", conflicts_with = "plan")]
    pub(crate) table: Vec<TableName>,
    /// Sessions on each server that copy rows at the same time, instead of `copy.lanes`.
    #[arg(long, value_name = "SESSIONS",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=64))]
    pub(crate) lanes: Option<usize>,
    /// Most rows that are copied in a second, instead of `copy.rows_per_second`; 0 for any number.
    #[arg(long, value_name = "ROWS")]
    pub(crate) rows_per_second: Option<u32>,
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
    /// Drop the tables that an interrupted copy has made on the target.
    #[arg(long, conflicts_with_all = ["plan", "table"])]
    pub(crate) cancel: bool,
    /// Print nothing but the summary.
    #[arg(long)]
    pub(crate) quiet: bool,
}
