//! A channel's settings that change while it runs: workers, throttles, delay, memory limit, receiver of events, comparisons, end.
//! Its start and stop are in supervisor.rs. [`CHANNEL_SETTINGS`] lists those that have a key; the reload, the admin
//! port and the command line take them from there. The end (`until`) has a route of its own.

mod receiver;
mod setting;
mod verify_every;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use csa_applier::Tuning;
use csa_scheduler::memory::EventMemory;
use csa_scheduler::until::{Until, UntilGate, UntilPast};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::config::{
    ChannelSettings, DurationValue, Notify, Size, ThrottleBy, VerifyEvery, check_key,
    event_memory_limit,
};
use crate::host::rfc3339;
use crate::observe::view::{SettingsView, ThrottleByView};
use receiver::ReceiverKey;
pub(crate) use setting::{Commanded, LiveSetting, SetCommand, Setting};
use verify_every::VerifyKey;

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
    throttle_by: watch::Sender<Arc<ThrottleBy>>,
    notify: watch::Sender<Arc<Notify>>,
    verify: watch::Sender<Arc<VerifyEvery>>,
    paused: watch::Sender<Option<Paused>>,
    source_delay: watch::Sender<Duration>,
    memory: EventMemory,
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
    pub(super) fn new(settings: &ChannelSettings) -> Self {
        let throttle = NonZeroU32::new(Throttle::configured(settings));
        let worker_count = WorkerCount::configured(settings);
        Self {
            tuning: watch::Sender::new(Tuning { worker_count, paused: false, throttle }),
            rates: Arc::new(Mutex::new(Rates { throttle, ..Rates::default() })),
            throttle_by: watch::Sender::new(Arc::clone(&settings.throttle_by)),
            notify: watch::Sender::new(Arc::clone(&settings.notify)),
            verify: watch::Sender::new(Arc::clone(&settings.verify)),
            paused: watch::Sender::new(None),
            source_delay: watch::Sender::new(SourceDelay::configured(settings)),
            memory: EventMemory::new(EventMemoryLimit::configured(settings)),
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

    pub(super) fn subscribe_throttle_by(&self) -> watch::Receiver<Arc<ThrottleBy>> {
        self.throttle_by.subscribe()
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

    /// Returns the values in use.
    pub(super) fn view(&self) -> SettingsView {
        let (tuning, paused, until) = (self.tuning(), self.paused(), self.until.get());
        SettingsView {
            paused: tuning.paused,
            paused_by: paused.as_ref().map(|paused| paused.by.clone()),
            paused_since: paused.as_ref().map(|paused| rfc3339(paused.since)),
            worker_count: tuning.worker_count,
            event_memory_limit: EventMemoryLimit::get(self),
            throttle: Throttle::get(self),
            until: until.as_ref().map(ToString::to_string),
        }
    }

    pub(super) fn paused(&self) -> Option<Paused> {
        self.paused.borrow().clone()
    }
}

/// All settings of a channel that change at once, in the order of reports: each key that is declared to apply at once
/// (`x-applies`). Reload, the admin port and `set` follow from the entry; what else a key needs is in CONTRIBUTING.md.
pub(crate) static CHANNEL_SETTINGS: [LiveSetting<Controls, ChannelSettings>; 21] = [
    LiveSetting::commanded::<WorkerCount>(),
    LiveSetting::commanded::<EventMemoryLimit>(),
    LiveSetting::commanded::<SourceDelay>(),
    LiveSetting::commanded::<Throttle>(),
    LiveSetting::reloaded::<HealthLimitSetting<0>>(),
    LiveSetting::reloaded::<HealthLimitSetting<1>>(),
    LiveSetting::reloaded::<HealthLimitSetting<2>>(),
    LiveSetting::reloaded::<HealthLimitSetting<3>>(),
    LiveSetting::reloaded::<HealthLimitSetting<4>>(),
    LiveSetting::reloaded::<HealthLimitSetting<5>>(),
    LiveSetting::reloaded::<ReceiverKey<0>>(),
    LiveSetting::reloaded::<ReceiverKey<1>>(),
    LiveSetting::reloaded::<ReceiverKey<2>>(),
    LiveSetting::reloaded::<ReceiverKey<3>>(),
    LiveSetting::reloaded::<ReceiverKey<4>>(),
    LiveSetting::reloaded::<ReceiverKey<5>>(),
    LiveSetting::reloaded::<ReceiverKey<6>>(),
    LiveSetting::reloaded::<ReceiverKey<7>>(),
    LiveSetting::reloaded::<VerifyKey<0>>(),
    LiveSetting::reloaded::<VerifyKey<1>>(),
    LiveSetting::reloaded::<VerifyKey<2>>(),
];

enum WorkerCount {}

impl Setting for WorkerCount {
    type Holder = Controls;
    type Configured = ChannelSettings;
    type Value = u16;
    const KEY: &'static str = "applier.worker_count";

    fn configured(settings: &ChannelSettings) -> u16 {
        settings.declared.worker_count
    }

    fn get(controls: &Controls) -> u16 {
        controls.tuning().worker_count
    }

    fn set(controls: &Controls, count: u16) {
        controls.tuning.send_modify(|tuning| tuning.worker_count = count);
    }

    fn show(count: &u16) -> String {
        count.to_string()
    }
}

impl Commanded for WorkerCount {
    const NAME: &'static str = "worker_count";
    const FORM: &'static str = "give a number from 1 to 1024";

    fn parse(text: &str) -> Result<u16, String> {
        let wrong = || format!("worker_count: {text:?}");
        let count: i64 = text.trim().parse().map_err(|_| wrong())?;
        check_key(Self::KEY, &count.into()).map_err(|error| error.0)?;
        u16::try_from(count).map_err(|_| wrong())
    }
}

/// Bytes.
enum EventMemoryLimit {}

impl Setting for EventMemoryLimit {
    type Holder = Controls;
    type Configured = ChannelSettings;
    type Value = u64;
    const KEY: &'static str = "applier.event_memory_limit";

    fn configured(settings: &ChannelSettings) -> u64 {
        event_memory_limit(settings.declared.event_memory_limit).0
    }

    fn get(controls: &Controls) -> u64 {
        controls.memory.limit()
    }

    fn set(controls: &Controls, limit: u64) {
        controls.memory.set_limit(limit);
    }

    fn show(limit: &u64) -> String {
        limit.to_string()
    }
}

impl Commanded for EventMemoryLimit {
    const NAME: &'static str = "event_memory_limit";
    const FORM: &'static str = "give a size like 256MiB";

    fn parse(text: &str) -> Result<u64, String> {
        let size = Size::parse(text).ok_or_else(|| format!("event_memory_limit: {text:?}"))?;
        // As in the file: a value below the packet limit is raised to it.
        Ok(event_memory_limit(size).0)
    }
}

/// Transactions per second, whatever health permits.
enum Throttle {}

impl Setting for Throttle {
    type Holder = Controls;
    type Configured = ChannelSettings;
    type Value = u32;
    const KEY: &'static str = "applier.throttle";

    fn configured(settings: &ChannelSettings) -> u32 {
        settings.declared.throttle
    }

    fn get(controls: &Controls) -> u32 {
        controls.rates.lock().throttle.map_or(0, NonZeroU32::get)
    }

    fn set(controls: &Controls, rate: u32) {
        controls.change_rates(|rates| rates.throttle = NonZeroU32::new(rate));
    }

    fn show(rate: &u32) -> String {
        rate.to_string()
    }
}

impl Commanded for Throttle {
    const NAME: &'static str = "throttle";
    const FORM: &'static str = "give a number of transactions per second, 0 for no limit";
    const MEANING: &'static str = "transactions per second, 0 for no limit";

    fn parse(text: &str) -> Result<u32, String> {
        text.trim().parse().map_err(|_| format!("throttle: {text:?}"))
    }
}

enum SourceDelay {}

impl Setting for SourceDelay {
    type Holder = Controls;
    type Configured = ChannelSettings;
    type Value = Duration;
    const KEY: &'static str = "applier.source_delay";

    fn configured(settings: &ChannelSettings) -> Duration {
        settings.declared.source_delay.0
    }

    fn get(controls: &Controls) -> Duration {
        controls.source_delay()
    }

    /// Applies at once to a transaction that is held back.
    fn set(controls: &Controls, delay: Duration) {
        controls.source_delay.send_replace(delay);
    }

    fn show(delay: &Duration) -> String {
        format!("{delay:?}")
    }
}

impl Commanded for SourceDelay {
    const NAME: &'static str = "source_delay";
    const FORM: &'static str = "give a duration like 500ms, 5s or 2m";

    fn parse(text: &str) -> Result<Duration, String> {
        let delay = DurationValue::parse(text.trim());
        delay.map(|delay| delay.0).ok_or_else(|| format!("source_delay: {text:?}"))
    }
}

/// A key of `[channel.throttle_by]`, by its place in [`ThrottleBy::KEYS`]. All of them are one value in use.
enum HealthLimitSetting<const KEY: usize> {}

impl<const KEY: usize> Setting for HealthLimitSetting<KEY> {
    type Holder = Controls;
    type Configured = ChannelSettings;
    type Value = Arc<ThrottleBy>;
    const KEY: &'static str = ThrottleBy::KEYS[KEY];

    fn configured(settings: &ChannelSettings) -> Arc<ThrottleBy> {
        Arc::clone(&settings.throttle_by)
    }

    fn get(controls: &Controls) -> Arc<ThrottleBy> {
        controls.throttle_by()
    }

    fn set(controls: &Controls, limits: Arc<ThrottleBy>) {
        controls.throttle_by.send_if_modified(|known| {
            let is_new = *known != limits;
            *known = limits;
            is_new
        });
    }

    fn show(limits: &Arc<ThrottleBy>) -> String {
        limits.shown().into_iter().nth(KEY).unwrap_or_default()
    }
}
