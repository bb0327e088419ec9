use std::path::PathBuf;
use std::time::Duration;

use crate::verify::{TableName, VerifyOptions};
use clap::Args;

use super::durations::duration;

impl VerifyArguments {
    /// Compares everything, with the defaults of the options.
    pub(crate) fn whole() -> Self {
        Self {
            schema: Vec::new(),
            table: Vec::new(),
            chunk_rows: VerifyOptions::CHUNK_ROWS,
            max_rate: None,
            max_lag: None,
            common_columns: false,
            max_differences: VerifyOptions::MAX_DIFFERENCES,
            catch_up_timeout: VerifyOptions::CATCH_UP_TIMEOUT,
            source_user: None,
            source_password_file: None,
            repair: None,
            from_start: false,
            json: false,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArguments {
    /// Only this schema of the source; can be given several times.
    #[arg(long, value_name = "SCHEMA")]
    pub(crate) schema: Vec<String>,
    /// Only this table of the source; can be given several times.
    #[arg(long, value_name = "SCHEMA.TABLE")]
    pub(crate) table: Vec<TableName>,
    /// Most rows in one statement; it is made smaller where statements are slow.
    #[arg(long, value_name = "ROWS", default_value_t = VerifyOptions::CHUNK_ROWS,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) chunk_rows: u64,
    /// Most rows per second.
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_rate: Option<u64>,
    /// Pause while the target lags by more than this, like 500ms, 10s or 2m.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) max_lag: Option<Duration>,
    /// Compare rows of tables whose definitions differ by the columns that both sides have alike.
    #[arg(long)]
    pub(crate) common_columns: bool,
    /// Differing rows named for each table; after that the rest of the table is left out.
    #[arg(long, value_name = "ROWS", default_value_t = VerifyOptions::MAX_DIFFERENCES,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    pub(crate) max_differences: usize,
    /// Give up when the target makes no progress for this long.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "60s")]
    pub(crate) catch_up_timeout: Duration,
    /// Read the source as another user than the replicating one; SELECT is enough.
    #[arg(long, value_name = "USER", requires = "source_password_file")]
    pub(crate) source_user: Option<String>,
    /// File with that user's password.
    #[arg(long, value_name = "FILE", requires = "source_user")]
    pub(crate) source_password_file: Option<PathBuf>,
    /// Write statements to this file (- for standard output) that change differing rows to the source's content;
    /// nothing is executed. docs/verify.md says how to apply them.
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) repair: Option<PathBuf>,
    /// Compare everything, even if an earlier run was interrupted.
    #[arg(long)]
    pub(crate) from_start: bool,
    /// Print the results as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
