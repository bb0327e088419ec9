//! The keys of `[channel.applier]`.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use toml::Table;

use super::defaults::{mebibytes, number, yes};
use crate::config::units::{Duration, Size};

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApplierConfig {
    /// Start of a channel that has no checkpoint: with a copy of the source, after the target's
    /// `gtid_executed`, at the next transaction of the source, or after a GTID set. Without this key the channel
    /// starts as with `target`, but only on a target that has some of the source's transactions. A channel without a
    /// target begins with everything that the source still has; of these words it takes `source` alone.
    #[schemars(extend("x-takes" = "`copy`, `target`, `source` or a GTID set"))]
    #[schemars(example = &"copy")]
    pub(in crate::config) start_from: Option<String>,
    /// Sessions on the target, and thus groups applied in parallel. With `commit = "one-to-one"` and without
    /// commit order 32 are faster.
    #[serde(default = "number::<u16, 8>")]
    #[schemars(range(min = 1, max = 1024), extend("x-applies" = "at-once"))]
    pub(crate) worker_count: u16,
    /// Memory for events in flight, decompressed, and for the rows made of them. Larger transactions are
    /// streamed from the relay store. Values below 64MiB count as 64MiB.
    #[serde(default = "mebibytes::<256>")]
    #[schemars(extend("x-applies" = "at-once"))]
    pub(crate) event_memory_limit: Size,
    /// Size from which a transaction begins on the target while the rest of it is still being received; with
    /// 0 a transaction begins once it is whole. It commits when its end is there, and is rolled back if that
    /// does not come.
    #[serde(default = "mebibytes::<16>")]
    pub(in crate::config) begin_early: Size,
    /// Source transactions that share a commit.
    #[serde(default)]
    pub(in crate::config) commit: Commit,
    /// GTIDs of the commits on the target.
    #[serde(default)]
    pub(in crate::config) target_gtids: Gtids,
    /// Commit in the order of the source: the target never shows a state that the source did not have.
    #[serde(default = "yes")]
    pub(in crate::config) preserve_commit_order: bool,
    /// Form in which rows are sent to the target.
    #[serde(default)]
    pub(in crate::config) executor: Rows,
    /// Columns of the row images that are sent to the target. They do not decide about its own binary log.
    #[serde(default)]
    pub(in crate::config) row_image: RowImage,
    /// Reaction to a row that is missing or exists already, as the server's `replica_exec_mode`.
    #[serde(default)]
    pub(in crate::config) exec_mode: Mode,
    /// Further attempts of a transaction after deadlocks. Locks that other sessions hold are waited for as long as it
    /// takes, which is not counted.
    #[serde(default = "number::<u32, 10>")]
    pub(in crate::config) transaction_retries: u32,
    /// Most transactions that may join new groups in a second; 0 for no limit.
    #[serde(default)]
    #[schemars(extend("x-takes" = "transactions per second", "x-applies" = "at-once"))]
    pub(crate) throttle: u32,
    /// Shortest time from a transaction's commit on the source to its execution on the target.
    #[serde(default)]
    #[schemars(extend("x-applies" = "at-once"))]
    pub(crate) source_delay: Duration,
    /// End of the channel, which drains and stops there: one of `sql_before_gtids`, `sql_after_gtids` and
    /// `sql_before_time` (2026-03-01T18:00:00Z).
    #[serde(default)]
    #[schemars(
        schema_with = "until",
        example = serde_json::json!({ "sql_after_gtids": "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5" }),
        extend("x-takes" = "table with a GTID set or a time")
    )]
    pub(in crate::config) until: Option<Table>,
    /// Only these schemas: of the table for rows, the default database for statements. docs/filters.md
    /// describes all filters, which have MySQL's meaning.
    #[serde(default)]
    #[schemars(example = ["shop"], extend("x-takes" = "list of schemas"))]
    pub(in crate::config) replicate_do_db: Vec<String>,
    /// Not these schemas.
    #[serde(default)]
    #[schemars(example = ["scratch"], extend("x-takes" = "list of schemas"))]
    pub(in crate::config) replicate_ignore_db: Vec<String>,
    /// Only these tables.
    #[serde(default)]
    #[schemars(example = ["shop.orders"], extend("x-takes" = "list of schema.table"))]
    pub(in crate::config) replicate_do_table: Vec<String>,
    /// Not these tables.
    #[serde(default)]
    #[schemars(example = ["shop.log"], extend("x-takes" = "list of schema.table"))]
    pub(in crate::config) replicate_ignore_table: Vec<String>,
    /// Only tables that match, with % and _; in single quotes, TOML leaves a \ as it is.
    #[serde(default)]
    #[schemars(example = ["shop\\_%.%"], extend("x-takes" = "list of patterns"))]
    pub(in crate::config) replicate_wild_do_table: Vec<String>,
    /// Not tables that match.
    #[serde(default)]
    #[schemars(example = ["%.tmp\\_%"], extend("x-takes" = "list of patterns"))]
    pub(in crate::config) replicate_wild_ignore_table: Vec<String>,
    /// Schemas that have another name on the target. The other rules see the new name.
    #[serde(default)]
    #[schemars(
        with = "std::collections::BTreeMap<String, String>",
        example = serde_json::json!({ "shop": "shop_copy" }),
        extend("x-takes" = "table of source = target")
    )]
    pub(in crate::config) replicate_rewrite_db: Table,
    /// Collations in definitions of the source, and those that take their place on a target that lacks
    /// them, of the same character set.
    #[serde(default)]
    #[schemars(
        with = "std::collections::BTreeMap<String, String>",
        example = serde_json::json!({ "utf8mb4_0900_ai_ci": "utf8mb4_unicode_520_ci" }),
        extend("x-takes" = "table of source = target")
    )]
    pub(in crate::config) collation_map: Table,
    /// Apply account statements (CREATE USER, GRANT and the like) and changes to the grant tables. If
    /// false, they are left out and counted.
    #[serde(default)]
    pub(in crate::config) replicate_accounts: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(in crate::config) enum Commit {
    /// Many.
    #[default]
    Grouped,
    /// None, each has its own.
    OneToOne,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(in crate::config) enum Gtids {
    /// The target numbers its commits.
    #[default]
    Own,
    /// Rows stay out of the target's binary log, and its `gtid_executed` follows the source's.
    Mirror,
    /// Each commit has the source's GTID (needs one-to-one).
    Source,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(in crate::config) enum RowImage {
    /// The primary key before, and the changed columns after, where the target needs no more. What somebody
    /// changed on the target in other columns stays there, where a replica would set it back to the source's
    /// value.
    #[default]
    Minimal,
    /// All that the source logged: a change of a row sets all its columns to the source's values.
    Full,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(in crate::config) enum Rows {
    /// Row events, as the source logged them.
    RowImage,
    /// INSERT, UPDATE and DELETE.
    Sql,
    /// Acts like `row-image` if the target permits it, otherwise (MariaDB) like `sql`.
    #[default]
    Auto,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(in crate::config) enum Mode {
    /// The channel stops.
    #[default]
    Strict,
    /// A missing row is passed over, an existing one replaced.
    Idempotent,
}

/// Its values have no type here: the parser has better words for wrong ones.
fn until(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": false,
        "minProperties": 1,
        "maxProperties": 1,
        "properties": {
            "sql_before_gtids": { "description": "Stops before the first transaction of this GTID set." },
            "sql_after_gtids": { "description": "Stops after the last transaction of this GTID set." },
            "sql_before_time": { "description": "Stops before the first transaction committed then or later." },
        },
    })
}
