//! Notes what the intake reports.

use std::sync::atomic::Ordering;
use std::time::Duration;

use csa_applier::{HeldUntil, IntakeObserver, Wait};
use csa_provider::recorder::{Details, Span, Track};
use csa_relaystore::read::RelayedTransaction;
use csa_scheduler::error::Error as Refusal;
use csa_scheduler::intake::IntakeEnd;
use tokio::time::Instant;

use super::Watch;
use crate::channel::start_steps::StartStep;

impl IntakeObserver for Watch {
    fn read(&mut self, relayed: &RelayedTransaction) {
        let mut inner = self.shared.inner.lock();
        inner.progress.read(relayed);
        if !self.shared.has_begun.load(Ordering::Relaxed)
            && let Some(start) = &mut inner.start
        {
            start.done(StartStep::FirstTransaction, Instant::now());
        }
    }

    fn read_to_end(&mut self, transactions: u64, bytes: u64) {
        self.shared.inner.lock().progress.read_to_end(transactions, bytes);
    }

    fn waited(&mut self, wait: Wait, begun: Instant, ended: Instant) {
        let name = match wait {
            Wait::Memory => "waiting for event memory",
            Wait::Applier => "waiting for the applier",
        };
        let (track, details) = (Track::Intake, Details::default());
        self.shared.source.recorder().record(|| Span { track, name, begun, ended, details });
    }

    fn handed_over(&mut self, waited: Duration) {
        self.shared.durations.admission_wait.note(waited);
        if !self.shared.has_begun.load(Ordering::Relaxed) {
            self.done(StartStep::Definitions);
        }
    }

    fn held_back(&mut self, held: Option<HeldUntil>) {
        self.shared.inner.lock().progress.held_back(held);
    }

    fn clock_ahead(&self) -> i64 {
        self.shared.source.clock_ahead()
    }

    fn ended(&mut self, end: &IntakeEnd) {
        self.shared.inner.lock().stage.stream_failure = failure(end);
    }
}

impl Watch {
    /// Returns number and text of the error with which the stream of this run has ended.
    pub(in crate::channel) fn stream_failed(&self) -> Option<(u16, String)> {
        self.shared.inner.lock().stage.stream_failure.clone()
    }
}

/// Returns `None` for an end that is no failure of the channel; a damaged store is cut, and the rest fetched again.
fn failure(end: &IntakeEnd) -> Option<(u16, String)> {
    let (code, text) = match end {
        IntakeEnd::Stopped | IntakeEnd::Until(_) | IntakeEnd::Damaged { .. } => return None,
        IntakeEnd::Unreadable(error) => (None, error.to_string()),
        IntakeEnd::Reception(end) => (end.error.code(), end.to_string()),
        IntakeEnd::Refused(error) => {
            let of_target = match error {
                Refusal::Keys { source, .. } => source.downcast_ref::<csa_applier::Error>(),
                _ => None,
            };
            (of_target.and_then(csa_applier::Error::code), error.to_string())
        }
    };
    Some((code.unwrap_or_default(), text))
}
