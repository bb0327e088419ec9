//! Notes what a copy of the source reports.

use std::time::Duration;

use tokio::sync::watch;

use super::Watch;
use crate::channel::copy_watch::CopyWatch;
use crate::channel::describe::state::Phase;
use crate::copy::{CopyProgress, CopyStep};

impl Watch {
    /// The source is being copied.
    pub(in crate::channel) fn copying(&self, progress: &CopyProgress) {
        let mut inner = self.shared.inner.lock();
        inner.stage.enter(Phase::Copying, &format!("copying the source: {progress}"));
        inner.copy.copying(progress);
    }

    /// Returns the `source_delay` in use, for whoever compares.
    pub(in crate::channel) fn subscribe_delay(&self) -> watch::Receiver<Duration> {
        self.shared.controls.subscribe_delay()
    }

    /// Reads or changes what is known of the channel's copy.
    pub(in crate::channel) fn with_copy<T>(&self, with: impl FnOnce(&mut CopyWatch) -> T) -> T {
        with(&mut self.shared.inner.lock().copy)
    }

    /// The channel does what follows the rows of a copy.
    pub(in crate::channel) fn copy_step(&self, step: CopyStep) {
        let progress = self.shared.inner.lock().copy.at_step(step);
        self.copying(&progress);
    }
}
