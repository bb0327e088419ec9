//! Makes room in the relay store while the archive can't be written.

use std::sync::Arc;
use std::time::Duration;

use csa_relaystore::opening::RelayStore;
use tracing::warn;

use super::options::ArchiveOptions;
use super::status::ArchiveStatus;
use crate::host::blocking;

/// Pause between two looks at a relay store that has nothing new.
pub(super) const LOOK: Duration = Duration::from_millis(250);
/// The shortest time without a new file after which the relay store stops waiting for the archive.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the time that a file may take.
pub(super) fn patience(options: &ArchiveOptions) -> Duration {
    PATIENCE.max(options.interval * 2)
}

/// Lets the relay store go of what can't be archived, when reception waits for its space.
pub(super) struct Relief {
    store: Arc<RelayStore>,
    status: Arc<ArchiveStatus>,
    is_required: bool,
    patience: Duration,
}

impl Relief {
    pub(super) fn new(
        options: &ArchiveOptions,
        store: Arc<RelayStore>,
        status: Arc<ArchiveStatus>,
    ) -> Self {
        Self { store, status, is_required: options.is_required, patience: patience(options) }
    }

    /// Returns once the relay store has given up transactions that are not archived.
    pub(super) async fn given(&self) {
        loop {
            tokio::time::sleep(LOOK).await;
            if self.is_required
                || self.store.usage().waiting.is_none()
                || self.status.since_published() < self.patience
                // A session that is ended here begins again: an archive that has come back would never get a file.
                || self.status.is_hopeful()
            {
                continue;
            }
            let store = Arc::clone(&self.store);
            if blocking(move || store.give_up_unarchived()).await.unwrap_or(false) {
                warn!(
                    "reception would wait for the archive: transactions leave the relay store that are not \
                     archived; archive.required = true would keep them"
                );
                return;
            }
        }
    }
}
