//! A relay store that is closed, or closes: others may have it open for a moment longer.

use std::io;
use std::thread::sleep;
use std::time::Duration;

use csa_relaystore::disk::{Error, RelayStoreOptions, Result};
use csa_relaystore::opening::RelayStore;

use super::blocking;

/// Empties it, for a channel whose target is made again.
///
/// # Errors
/// Something has it open, or the disk fails.
pub(crate) async fn empty_relay_store(options: &RelayStoreOptions) -> Result<()> {
    emptied(options, RelayStore::empty).await
}

/// Empties one that was just closed, after a wait of about two seconds at most.
pub(crate) async fn empty_closed_relay_store(options: &RelayStoreOptions) -> Result<()> {
    emptied(options, |options| unlocked(|| RelayStore::empty(options))).await
}

async fn emptied(
    options: &RelayStoreOptions,
    empty: impl FnOnce(&RelayStoreOptions) -> Result<()> + Send + 'static,
) -> Result<()> {
    let own = options.clone();
    let emptied = blocking(move || empty(&own)).await;
    // A panic must not count as done.
    emptied.unwrap_or_else(|panic| {
        let (path, source) = (options.directory.clone(), io::Error::other(panic));
        Err(Error::Io { what: "emptying", path, source })
    })
}

/// Retries for about two seconds: readers may hold a store that was just closed a moment longer.
pub(crate) fn unlocked<T>(mut open: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 0..100 {
        match open() {
            Err(Error::Locked { .. }) => sleep(Duration::from_millis(20)),
            other => return other,
        }
    }
    open()
}
