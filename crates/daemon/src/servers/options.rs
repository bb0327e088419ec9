//! The inputs of a check.

use std::path::PathBuf;

use csa_applier::{StartFrom, TargetOptions};

use super::managed::Profiles;

/// The channel that is to be started.
#[derive(Debug, Clone)]
pub(crate) struct CheckOptions {
    pub(crate) channel: String,
    /// The source and its alternatives; see [`crate::verify::source_servers`].
    pub(crate) source: Vec<TargetOptions>,
    /// Reads the source's definitions where the channel's account lacks the privilege.
    pub(crate) source_reader: Option<Vec<TargetOptions>>,
    /// The channel's own.
    pub(crate) server_id: u32,
    /// Members of the source's group may take over.
    pub(crate) discovers: bool,
    /// Transactions are acknowledged to the source.
    pub(crate) semi_sync: bool,
    /// `None` for a channel that only archives.
    pub(crate) target: Option<TargetOptions>,
    pub(crate) start_from: StartFrom,
    pub(crate) copies_first: bool,
    pub(crate) worker_count: u16,
    /// Account management of the source is applied.
    pub(crate) replicate_accounts: bool,
    /// The services that run the servers, where the operator named them.
    pub(crate) profiles: Profiles,
    pub(crate) relay_directory: PathBuf,
    /// Bytes.
    pub(crate) relay_space_limit: u64,
    /// Bytes.
    pub(crate) relay_min_free_disk: u64,
}
