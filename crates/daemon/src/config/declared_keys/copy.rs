//! The keys of `[channel.copy]`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::defaults::{mebibytes, milliseconds, number, yes};
use crate::config::units::{Duration, Size};

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CopyConfig {
    /// Sessions on each server that copy rows at the same time.
    #[serde(default = "number::<u32, 4>")]
    #[schemars(range(min = 1, max = 64))]
    pub(crate) lanes: u32,
    /// Size of all tables together up to which rows are read in one snapshot of the source. Larger ones are read in
    /// chunks, so that no snapshot is open for long, and an interrupted copy continues.
    #[serde(default = "mebibytes::<32>")]
    pub(crate) snapshot_limit: Size,
    /// Most rows that are copied in a second; 0 for any number. `[channel.throttle_by]` limits a copy, too.
    #[serde(default = "number::<u32, 0>")]
    pub(crate) rows_per_second: u32,
    /// Time by which `SELECT 1` may take longer on the source than before the copy. Beyond it fewer rows are copied,
    /// down to 5000 in a second; with 0 the source's answers limit nothing.
    #[serde(default = "milliseconds::<10>")]
    pub(crate) source_slowdown: Duration,
    /// Compare all rows of both servers once the copy is whole and the channel runs. The result is in the log and in
    /// the status.
    #[serde(default = "yes")]
    pub(crate) verify: bool,
}
