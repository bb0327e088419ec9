//! Notes what a copy of the source reports.

use std::time::Duration;

use tokio::sync::watch;

use super::Watch;
use crate::channel::describe::state::Phase;
use crate::copy::{CopyProgress, CopyStep};
use crate::observe::view::CopyCheckView;
use crate::verify::Scope;

impl Watch {
    /// The source is being copied.
    pub(in crate::channel) fn copying(&self, progress: &CopyProgress) {
        let mut inner = self.shared.inner.lock();
        inner.stage.enter(Phase::Copying, &format!("copying the source: {progress}"));
        inner.copy.copying(progress);
    }

    /// A copy is compared with the source from now on; returns the number of the comparison.
    pub(in crate::channel) fn copy_check_begins(&self) -> u64 {
        self.shared.inner.lock().copy.check_begins()
    }

    /// The comparison of a copy has a result.
    pub(in crate::channel) fn copy_check_ends(&self, number: u64, check: CopyCheckView) {
        self.shared.inner.lock().copy.check_ends(number, check);
    }

    /// Returns the `source_delay` in use, for whoever compares.
    pub(in crate::channel) fn subscribe_delay(&self) -> watch::Receiver<Duration> {
        self.shared.controls.subscribe_delay()
    }

    /// Returns the tables that are known to differ since they were copied.
    pub(in crate::channel) fn copy_differing(&self) -> Vec<String> {
        let inner = self.shared.inner.lock();
        inner.copy.check().map(|check| check.differing.clone()).unwrap_or_default()
    }

    /// See [`super::super::copy_watch::CopyWatch::copied_unchecked`].
    pub(in crate::channel) fn copied_unchecked(&self, scope: &Scope) {
        self.shared.inner.lock().copy.copied_unchecked(scope);
    }

    /// See [`super::super::copy_watch::CopyWatch::check_given_up`].
    pub(in crate::channel) fn copy_check_given_up(&self, number: u64, text: &str) -> bool {
        self.shared.inner.lock().copy.check_given_up(number, text)
    }

    /// The channel does what follows the rows of a copy.
    pub(in crate::channel) fn copy_step(&self, step: CopyStep) {
        let progress = self.shared.inner.lock().copy.at_step(step);
        self.copying(&progress);
    }
}
