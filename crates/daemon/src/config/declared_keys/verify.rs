//! The keys of `[channel.verify]`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::defaults::{number, seconds};
use crate::config::units::Duration;

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct VerifyConfig {
    /// Time from the start of a comparison of all tables to the start of the next; with 0 none is made. docs/verify.md
    /// describes them.
    #[serde(default = "seconds::<0>")]
    #[schemars(extend("x-applies" = "at-once"))]
    pub(in crate::config) every: Duration,
    /// Most rows that are compared in a second; 0 for any number.
    #[serde(default = "number::<u32, 2000>")]
    #[schemars(extend("x-applies" = "at-once"))]
    pub(in crate::config) rows_per_second: u32,
    /// Time of day in which rows are compared, in UTC; the comparison continues on the next day. Without it, at any
    /// time.
    #[schemars(
        example = &"22:00-06:00",
        extend("x-takes" = "HH:MM-HH:MM", "x-applies" = "at-once")
    )]
    pub(in crate::config) window: Option<String>,
}
