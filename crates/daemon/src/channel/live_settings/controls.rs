//! The values in use of a channel's settings, which those who obey them subscribe to.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use csa_applier::Tuning;
use csa_scheduler::memory::EventMemory;
use csa_scheduler::until::{Until, UntilGate, UntilPast};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::config::{ChannelSettings, Notify, ThrottleBy, VerifyEvery, event_memory_limit};
use crate::host::rfc3339;
use crate::observe::view::{SettingsView, ThrottleByView};

/// The command that paused a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Paused {
    /// The sender: the claimed name and the identity that the kernel reports.
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
    pub(super) throttle_by: watch::Sender<Arc<ThrottleBy>>,
    pub(super) notify: watch::Sender<Arc<Notify>>,
    pub(super) verify: watch::Sender<Arc<VerifyEvery>>,
    paused: watch::Sender<Option<Paused>>,
    pub(super) source_delay: watch::Sender<Duration>,
    pub(super) memory: EventMemory,
    until: UntilGate,
}

/// The lower of the two limits the transactions per second.
#[derive(Debug, Default)]
struct Rates {
    /// The limit that was configured or set.
    throttle: Option<NonZeroU32>,
    /// By `throttle_by`, and how it came about.
    health: Option<NonZeroU32>,
    shown: Option<ThrottleByView>,
}

impl Controls {
    pub(in crate::channel) fn new(settings: &ChannelSettings) -> Self {
        let declared = &settings.declared;
        let throttle = NonZeroU32::new(declared.throttle);
        let worker_count = declared.worker_count;
        Self {
            tuning: watch::Sender::new(Tuning { worker_count, paused: false, throttle }),
            rates: Arc::new(Mutex::new(Rates { throttle, ..Rates::default() })),
            throttle_by: watch::Sender::new(Arc::clone(&settings.throttle_by)),
            notify: watch::Sender::new(Arc::clone(&settings.notify)),
            verify: watch::Sender::new(Arc::clone(&settings.verify)),
            paused: watch::Sender::new(None),
            source_delay: watch::Sender::new(declared.source_delay.0),
            memory: EventMemory::new(event_memory_limit(declared.event_memory_limit).0),
            until: UntilGate::new(settings.until.clone()),
        }
    }

    pub(crate) fn tuning(&self) -> Tuning {
        *self.tuning.borrow()
    }

    pub(super) fn set_worker_count(&self, count: u16) {
        self.tuning.send_modify(|tuning| tuning.worker_count = count);
    }

    pub(in crate::channel) fn subscribe(&self) -> watch::Receiver<Tuning> {
        self.tuning.subscribe()
    }

    pub(crate) fn source_delay(&self) -> Duration {
        *self.source_delay.borrow()
    }

    pub(in crate::channel) fn subscribe_delay(&self) -> watch::Receiver<Duration> {
        self.source_delay.subscribe()
    }

    pub(crate) fn memory(&self) -> &EventMemory {
        &self.memory
    }

    pub(crate) fn until(&self) -> &UntilGate {
        &self.until
    }

    /// Like [`UntilGate::set`]; applies at once to a transaction that is held back, which the
    /// change of the delay wakes.
    pub(in crate::channel) fn set_until(&self, until: Option<Until>) -> Result<bool, UntilPast> {
        let had_stopped = self.until.set(until)?;
        // After the change: the intake, once awake, looks at the end again.
        self.source_delay.send_modify(|_| ());
        Ok(had_stopped)
    }

    pub(crate) fn throttle_by(&self) -> Arc<ThrottleBy> {
        Arc::clone(&self.throttle_by.borrow())
    }

    /// Returns the receiver of the channel's events.
    pub(crate) fn notify(&self) -> Arc<Notify> {
        Arc::clone(&self.notify.borrow())
    }

    /// Returns how often the channel compares its servers.
    pub(crate) fn verify_every(&self) -> Arc<VerifyEvery> {
        Arc::clone(&self.verify.borrow())
    }

    pub(in crate::channel) fn subscribe_throttle_by(&self) -> watch::Receiver<Arc<ThrottleBy>> {
        self.throttle_by.subscribe()
    }

    /// How the health of the target limits the channel.
    pub(in crate::channel) fn health(&self) -> Option<ThrottleByView> {
        self.rates.lock().shown.clone()
    }

    pub(in crate::channel) fn set_health(
        &self,
        rate: Option<NonZeroU32>,
        shown: Option<ThrottleByView>,
    ) {
        self.change_rates(|rates| {
            rates.health = rate;
            rates.shown = shown;
        });
    }

    /// Returns the transactions per second that were configured or set, whatever health permits; 0 for no limit.
    pub(super) fn throttle(&self) -> u32 {
        self.rates.lock().throttle.map_or(0, NonZeroU32::get)
    }

    pub(super) fn set_throttle(&self, rate: u32) {
        self.change_rates(|rates| rates.throttle = NonZeroU32::new(rate));
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
    pub(in crate::channel) fn set_paused(&self, paused: Option<Paused>) {
        let is_paused = paused.is_some();
        self.paused.send_modify(|shown| {
            *shown = paused.map(|paused| shown.take().unwrap_or(paused));
        });
        self.tuning.send_modify(|tuning| tuning.paused = is_paused);
    }

    /// Ends a pause, and returns it.
    pub(in crate::channel) fn end_pause(&self) -> Option<Paused> {
        let ended = self.paused();
        if ended.is_some() {
            self.set_paused(None);
        }
        ended
    }

    /// Returns the values in use.
    pub(in crate::channel) fn view(&self) -> SettingsView {
        let (tuning, paused, until) = (self.tuning(), self.paused(), self.until.get());
        SettingsView {
            paused: tuning.paused,
            paused_by: paused.as_ref().map(|paused| paused.by.clone()),
            paused_since: paused.as_ref().map(|paused| rfc3339(paused.since)),
            worker_count: tuning.worker_count,
            event_memory_limit: self.memory.limit(),
            throttle: self.throttle(),
            until: until.as_ref().map(ToString::to_string),
        }
    }

    pub(in crate::channel) fn paused(&self) -> Option<Paused> {
        self.paused.borrow().clone()
    }
}
