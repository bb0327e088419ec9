//! The keys of `[channel.move]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::defaults::seconds;
use crate::config::units::Duration;

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct MoveConfig {
    /// Channel from this channel's target to its source. With this key `csa-daemon move` moves the applications from
    /// the source to the target, and back.
    #[schemars(example = &"down", extend("x-applies" = "command"))]
    pub(in crate::config) back: Option<String>,
    /// Means by which a server takes no more writes of applications.
    #[serde(default)]
    #[schemars(extend("x-applies" = "command"))]
    pub(in crate::config) fence: FenceBy,
    /// Accounts of the applications, on both servers, for `fence = "lock_accounts"`.
    #[serde(default)]
    #[schemars(
        example = ["shop@%"],
        extend("x-takes" = "list of user@host", "x-applies" = "command")
    )]
    pub(in crate::config) accounts: Vec<String>,
    /// Program and its arguments for `fence = "command"`; no shell. `CSA_MOVE_ACTION` is `close` or `open`, or `state`,
    /// to which it prints `closed` or `open`. `CSA_MOVE_HOST` and `CSA_MOVE_PORT` name the server.
    #[serde(default)]
    #[schemars(
        example = ["/usr/local/bin/fence"],
        extend("x-takes" = "list of a program and its arguments", "x-applies" = "command")
    )]
    pub(in crate::config) fence_command: Vec<String>,
    /// Program and its arguments that point the applications at the server in `CSA_MOVE_HOST` and `CSA_MOVE_PORT`; no
    /// shell. It may be started more than once.
    #[serde(default)]
    #[schemars(
        example = ["/usr/local/bin/hand-over"],
        extend("x-takes" = "list of a program and its arguments", "x-applies" = "command")
    )]
    pub(in crate::config) hand_over: Vec<String>,
    /// Time limit of `hand_over`, and of each call of `fence_command`.
    #[serde(default = "seconds::<30>")]
    #[schemars(extend("x-at-least" = "1s", "x-applies" = "command"))]
    pub(in crate::config) command_timeout: Duration,
    /// Time in which the new server has to have everything and be opened. After it, the old one is opened again.
    #[serde(default = "seconds::<5>")]
    #[schemars(extend("x-at-least" = "1s", "x-applies" = "command"))]
    pub(in crate::config) time_limit: Duration,
    /// Lag above which no server is fenced.
    #[serde(default = "seconds::<2>")]
    #[schemars(extend("x-applies" = "command"))]
    pub(in crate::config) max_lag: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum FenceBy {
    /// `super_read_only`.
    #[default]
    ReadOnly,
    /// The accounts in `accounts` are locked, and their sessions ended, where an account may not set `super_read_only`.
    LockAccounts,
    /// The program in `fence_command`.
    Command,
}
