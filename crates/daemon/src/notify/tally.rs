//! Figures of a channel's events, for `/status` and the metrics.

use parking_lot::Mutex;

use crate::observe::view::NotifyView;

/// Shared by the task that delivers and those who look.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    view: Mutex<NotifyView>,
}

impl Tally {
    pub(crate) fn view(&self) -> NotifyView {
        self.view.lock().clone()
    }

    pub(super) fn delivered(&self) {
        let mut view = self.view.lock();
        view.delivered_total += 1;
        view.error = None;
    }

    pub(super) fn failed(&self, why: &str) {
        let mut view = self.view.lock();
        view.failed_attempts_total += 1;
        view.error = Some(why.to_owned());
    }

    pub(super) fn dropped(&self, events: u64) {
        self.view.lock().dropped_total += events;
    }

    pub(super) fn waiting(&self, events: usize) {
        self.view.lock().waiting = events as u64;
    }
}
