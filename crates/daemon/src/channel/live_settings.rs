//! A channel's settings that change while it runs: workers, throttle, delay, memory limit, end.
//! Its start and stop are in supervisor.rs.

use std::num::NonZeroU32;
use std::time::Duration;

use csa_applier::Tuning;
use csa_scheduler::{EventMemory, Until, UntilGate, UntilPast};
use tokio::sync::watch;

use crate::config::ChannelSettings;

/// The command that paused a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Paused {
    /// The sender, as he says and as the kernel does.
    pub(crate) by: String,
    /// Microseconds since the epoch.
    pub(crate) since: u64,
}

/// Settings that can change while a channel runs. A value lasts until the next change or the
/// daemon's exit, over restarts of the channel.
#[derive(Debug, Clone)]
pub(crate) struct Controls {
    tuning: watch::Sender<Tuning>,
    paused: watch::Sender<Option<Paused>>,
    source_delay: watch::Sender<Duration>,
    memory: EventMemory,
    until: UntilGate,
}

impl Controls {
    pub(super) fn new(settings: &ChannelSettings) -> Self {
        let tuning = Tuning {
            worker_count: settings.worker_count,
            paused: false,
            throttle: settings.throttle,
        };
        Self {
            tuning: watch::Sender::new(tuning),
            paused: watch::Sender::new(None),
            source_delay: watch::Sender::new(settings.source_delay),
            memory: EventMemory::new(settings.event_memory_limit),
            until: UntilGate::new(settings.until.clone()),
        }
    }

    pub(crate) fn tuning(&self) -> Tuning {
        *self.tuning.borrow()
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Tuning> {
        self.tuning.subscribe()
    }

    pub(crate) fn source_delay(&self) -> Duration {
        *self.source_delay.borrow()
    }

    pub(super) fn subscribe_delay(&self) -> watch::Receiver<Duration> {
        self.source_delay.subscribe()
    }

    /// Applies at once to a transaction that is held back.
    pub(crate) fn set_source_delay(&self, delay: Duration) {
        self.source_delay.send_replace(delay);
    }

    pub(crate) fn memory(&self) -> &EventMemory {
        &self.memory
    }

    pub(crate) fn until(&self) -> &UntilGate {
        &self.until
    }

    /// Like [`UntilGate::set`]; applies at once to a transaction that is held back, which the
    /// change of the delay wakes.
    pub(super) fn set_until(&self, until: Option<Until>) -> Result<bool, UntilPast> {
        let had_stopped = self.until.set(until)?;
        // After the change: the intake, once awake, looks at the end again.
        self.source_delay.send_modify(|_| ());
        Ok(had_stopped)
    }

    pub(crate) fn set_worker_count(&self, count: u16) {
        self.tuning.send_modify(|tuning| tuning.worker_count = count);
    }

    pub(crate) fn set_throttle(&self, rate: Option<NonZeroU32>) {
        self.tuning.send_modify(|tuning| tuning.throttle = rate);
    }

    /// Pauses, or resumes with `None`. The first of several pauses is the one that is shown.
    pub(super) fn set_paused(&self, paused: Option<Paused>) {
        let is_paused = paused.is_some();
        self.paused.send_modify(|shown| {
            *shown = paused.map(|paused| shown.take().unwrap_or(paused));
        });
        self.tuning.send_modify(|tuning| tuning.paused = is_paused);
    }

    pub(super) fn paused(&self) -> Option<Paused> {
        self.paused.borrow().clone()
    }
}
