//! A channel's settings that change while it runs: workers, throttles, delay, memory limit, end.
//! Its start and stop are in supervisor.rs.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use csa_applier::Tuning;
use csa_scheduler::{EventMemory, Until, UntilGate, UntilPast};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::config::{ChannelSettings, ThrottleBy};
use crate::view::ThrottleByView;

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
    rates: Arc<Mutex<Rates>>,
    throttle_by: watch::Sender<Arc<ThrottleBy>>,
    paused: watch::Sender<Option<Paused>>,
    source_delay: watch::Sender<Duration>,
    memory: EventMemory,
    until: UntilGate,
}

/// The lower of the two limits the transactions per second.
#[derive(Debug, Default)]
struct Rates {
    /// As configured or set.
    throttle: Option<NonZeroU32>,
    /// By `throttle_by`, and how it came about.
    health: Option<NonZeroU32>,
    shown: Option<ThrottleByView>,
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
            rates: Arc::new(Mutex::new(Rates { throttle: settings.throttle, ..Rates::default() })),
            throttle_by: watch::Sender::new(Arc::clone(&settings.throttle_by)),
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

    /// The rate that was configured or set, whatever health permits.
    pub(crate) fn throttle(&self) -> Option<NonZeroU32> {
        self.rates.lock().throttle
    }

    pub(crate) fn set_throttle(&self, rate: Option<NonZeroU32>) {
        self.change_rates(|rates| rates.throttle = rate);
    }

    pub(crate) fn throttle_by(&self) -> Arc<ThrottleBy> {
        Arc::clone(&self.throttle_by.borrow())
    }

    pub(super) fn subscribe_throttle_by(&self) -> watch::Receiver<Arc<ThrottleBy>> {
        self.throttle_by.subscribe()
    }

    pub(crate) fn set_throttle_by(&self, limits: Arc<ThrottleBy>) {
        self.throttle_by.send_if_modified(|known| {
            let is_new = *known != limits;
            *known = limits;
            is_new
        });
    }

    /// How the health of the target limits the channel.
    pub(super) fn health(&self) -> Option<ThrottleByView> {
        self.rates.lock().shown.clone()
    }

    pub(super) fn set_health(&self, rate: Option<NonZeroU32>, shown: Option<ThrottleByView>) {
        self.change_rates(|rates| {
            rates.health = rate;
            rates.shown = shown;
        });
    }

    fn change_rates(&self, change: impl FnOnce(&mut Rates)) {
        // Held until the applier has been told: the last change wins in both.
        let mut rates = self.rates.lock();
        change(&mut rates);
        let rate = rates.throttle.into_iter().chain(rates.health).min();
        self.tuning.send_if_modified(|tuning| {
            let is_new = tuning.throttle != rate;
            tuning.throttle = rate;
            is_new
        });
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
