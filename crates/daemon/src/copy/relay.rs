//! The relay store of a channel whose target is made again.

use csa_relaystore::disk::{Error, RelayStoreOptions};

use super::error::{CopyError, Result};
use crate::host;

/// The program that copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Copier {
    /// The daemon that receives, so that an open store is its own, of this copy.
    Daemon,
    Command,
}

/// Empties the store. What it holds was received before the copy began, and where the source has another history since,
/// a part of it would seem to follow from the copy.
///
/// # Errors
/// Something receives into it, or it can't be emptied.
pub(crate) async fn empty_relay_store(options: &RelayStoreOptions, copier: Copier) -> Result<()> {
    if !options.directory.exists() {
        return Ok(());
    }
    match host::empty_relay_store(options).await {
        Ok(()) => Ok(()),
        Err(Error::Locked { .. }) if copier == Copier::Daemon => Ok(()),
        Err(error @ Error::Locked { .. }) => Err(CopyError::Refused(format!(
            "{error}: the channel receives what the copy has already; run csa-daemon stop --receiving first"
        ))),
        Err(error) => Err(CopyError::Refused(format!(
            "the channel's relay store can't be emptied: {error}; copy as the user of the daemon"
        ))),
    }
}
