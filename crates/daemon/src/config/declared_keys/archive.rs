//! The keys of `[channel.archive]`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::defaults::{days, mebibytes, seconds};
use crate::archive::index::Compression;
use crate::config::units::{Duration, Size};

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct ArchiveConfig {
    /// Place of the archive: `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX` or
    /// `file:///DIRECTORY`. Without this key the channel has no archive.
    #[schemars(example = &"s3://backups/mysql")]
    pub(in crate::config) url: Option<String>,
    /// Options of the client, such as `aws_region`, `aws_endpoint` and `allow_http`. Those that are not set here come
    /// from the environment, for example `AWS_ACCESS_KEY_ID`.
    #[serde(default)]
    #[schemars(
        example = serde_json::json!({ "aws_region": "eu-central-1" }),
        extend("x-takes" = "table of texts")
    )]
    pub(in crate::config) options: BTreeMap<String, String>,
    /// Longest time for which a file of the archive collects transactions.
    #[serde(default = "seconds::<60>")]
    #[schemars(extend("x-at-least" = "1s"))]
    pub(in crate::config) interval: Duration,
    /// Size at which a file of the archive ends, at the next transaction.
    #[serde(default = "mebibytes::<64>")]
    #[schemars(extend("x-at-least" = "1MiB"))]
    pub(in crate::config) file_size: Size,
    /// Age at which files are deleted, unless a pinned backup needs them; 0 keeps them for ever.
    #[serde(default = "days::<14>")]
    pub(in crate::config) keep: Duration,
    /// Keep transactions in the relay store until they are archived, even if reception has to wait for space.
    /// Without it, transactions leave the relay store at its limit, and the archive has a gap. A channel without a
    /// target always keeps them.
    #[serde(default)]
    pub(in crate::config) required: bool,
    /// Form of the files.
    #[serde(default)]
    pub(in crate::config) compression: Compression,
}

impl Default for ArchiveConfig {
    fn default() -> Self {
        Self {
            url: None,
            options: BTreeMap::new(),
            interval: seconds::<60>(),
            file_size: mebibytes::<64>(),
            keep: days::<14>(),
            required: false,
            compression: Compression::None,
        }
    }
}
