//! The closed relay store of a channel whose target is made again.

use std::io;

use csa_relaystore::disk::{Error, RelayStoreOptions, Result};
use csa_relaystore::opening::RelayStore;

use super::blocking;

/// Empties it.
///
/// # Errors
/// Something has it open, or the disk fails.
pub(crate) async fn empty_relay_store(options: &RelayStoreOptions) -> Result<()> {
    let emptied = options.clone();
    let emptied = blocking(move || RelayStore::empty(&emptied)).await;
    // A panic must not count as done.
    emptied.unwrap_or_else(|panic| {
        let (path, source) = (options.directory.clone(), io::Error::other(panic));
        Err(Error::Io { what: "emptying", path, source })
    })
}
