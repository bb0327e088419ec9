//! The comparisons of a channel, as the status shows them.

use parking_lot::Mutex;

use super::result::LastRound;
use crate::config::VerifyEvery;
use crate::host::rfc3339;
use crate::observe::view::{VerifyProgressView, VerifyView};
use crate::verify::{Activity, VerifyProgress};

/// Written by the task that compares, read by those who look.
#[derive(Debug, Default)]
pub(crate) struct RoundsStatus {
    shown: Mutex<Option<ShownRound>>,
}

#[derive(Debug, Default)]
struct ShownRound {
    channel: String,
    view: VerifyView,
    last: Option<LastRound>,
    failures: u64,
}

impl RoundsStatus {
    /// Returns `None` without comparisons.
    pub(crate) fn view(&self) -> Option<VerifyView> {
        let shown = self.shown.lock();
        let ShownRound { channel, view, last, .. } = shown.as_ref()?;
        Some(VerifyView { last: last.as_ref().map(|last| last.view(channel)), ..view.clone() })
    }

    pub(super) fn off(&self) {
        *self.shown.lock() = None;
    }

    fn change(&self, change: impl FnOnce(&mut ShownRound)) {
        change(self.shown.lock().get_or_insert_default());
    }

    pub(super) fn on(&self, rule: &VerifyEvery) {
        self.change(|shown| shown.view.every_seconds = rule.every.as_secs_f64());
    }

    pub(super) fn set_last(&self, channel: &str, last: Option<&LastRound>) {
        self.change(|shown| {
            channel.clone_into(&mut shown.channel);
            shown.last = last.cloned();
            shown.view.progress = None;
        });
    }

    pub(super) fn waiting(&self, next: u64) {
        self.say("waiting", &format!("the next comparison begins at {}", rfc3339(next)));
    }

    pub(super) fn held(&self, why: &str) {
        self.say("held", why);
    }

    fn say(&self, state: &str, detail: &str) {
        self.change(|shown| {
            state.clone_into(&mut shown.view.state);
            detail.clone_into(&mut shown.view.detail);
        });
    }

    pub(super) fn comparing(&self, begun: u64) {
        self.say("comparing", "connecting");
        self.change(|shown| {
            let progress = shown.view.progress.get_or_insert_default();
            progress.begun = rfc3339(begun);
        });
    }

    pub(super) fn progress(&self, progress: &VerifyProgress) {
        let detail = match progress.activity {
            Activity::Comparing => format!("comparing {}", progress.table),
            Activity::Rechecking { rows } => {
                format!("reading {rows} rows of {} again", progress.table)
            }
            Activity::WaitingForLag => "waiting for the target to catch up".to_owned(),
        };
        self.say("comparing", &detail);
        self.change(|shown| {
            let view = shown.view.progress.get_or_insert_default();
            *view = VerifyProgressView {
                begun: std::mem::take(&mut view.begun),
                tables: progress.tables as u64,
                tables_done: progress.tables_done as u64,
                table: progress.table.clone(),
                rows: progress.rows,
                rows_estimated: progress.rows_estimated,
            };
        });
    }

    /// Returns the last result in words.
    pub(super) fn text(&self) -> String {
        self.view().and_then(|view| view.last).map(|last| last.text).unwrap_or_default()
    }

    pub(super) fn failures(&self) -> u64 {
        self.shown.lock().as_ref().map_or(0, |shown| shown.failures)
    }

    pub(super) fn succeeded(&self) {
        self.change(|shown| shown.failures = 0);
    }

    /// Returns how often it has failed in a row.
    pub(super) fn failed(&self, why: &str) -> u64 {
        self.say("held", &format!("{why}; trying again"));
        self.change(|shown| shown.failures += 1);
        self.failures()
    }
}
