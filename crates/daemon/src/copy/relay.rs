//! The relay store of a channel whose target is made again.

use csa_relaystore::disk::{Error, RelayStoreOptions};

use super::error::{CopyError, Result};
use crate::host;

/// Empties the store. What it holds was received before the copy began, and where the source has another history since,
/// a part of it would seem to follow from the copy.
///
/// # Errors
/// Something receives into it, or it can't be emptied.
pub(super) async fn empty_relay_store(options: &RelayStoreOptions) -> Result<()> {
    if !options.directory.exists() {
        return Ok(());
    }
    host::empty_closed_relay_store(options).await.map_err(|error| {
        CopyError::Refused(match error {
            Error::Locked { .. } => format!(
                "{error}: the channel receives what the copy has already; run csa-daemon stop --receiving first"
            ),
            error => format!(
                "the channel's relay store can't be emptied: {error}; copy as the user of the daemon"
            ),
        })
    })
}

#[cfg(test)]
mod tests {
    use csa_provider::binlog::GtidSet;
    use csa_relaystore::opening::RelayStore;

    use super::*;
    use crate::config::Config;
    use crate::config::tests::MINIMAL;

    /// The daemon ends its own reception first.
    #[tokio::test(start_paused = true)]
    async fn a_store_that_stays_open_is_not_taken_for_an_empty_one() {
        let directory = tempfile::tempdir().unwrap();
        let settings = Config::parse(MINIMAL).unwrap().channels.remove(0);
        let options =
            RelayStoreOptions { directory: directory.path().join("relay"), ..settings.relay };
        let (store, _) = RelayStore::open(options.clone(), &GtidSet::new()).unwrap();
        let error = empty_relay_store(&options).await.unwrap_err().to_string();
        assert!(error.contains("csa-daemon stop --receiving"), "{error}");
        drop(store);
        empty_relay_store(&options).await.unwrap();
    }
}
