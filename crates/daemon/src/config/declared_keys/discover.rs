//! The keys by which members of a group are found.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(in crate::config) enum Discover {
    /// No other server than those named.
    #[default]
    None,
    /// The server is a member of a group (Group Replication, InnoDB Cluster), whose other members are found. As a
    /// source any member that follows its group is taken, as a target the primary (docs/group-replication.md).
    Group,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(in crate::config) enum Prefer {
    /// The first that serves.
    #[default]
    Any,
    /// A secondary, and the primary only if no secondary serves. Needs `discover = "group"`.
    Secondary,
}
