//! A channel's settings that change while it runs: workers, throttles, delay, memory limit, receiver of events, comparisons, end.
//! Its start and stop are in supervisor.rs. [`CHANNEL_SETTINGS`] lists those that have a key; the reload, the admin
//! port and the command line take them from there. The end (`until`) has a route of its own.

mod controls;
mod receiver;
mod setting;
mod verify_every;

use std::sync::Arc;
use std::time::Duration;

use crate::config::{
    ChannelSettings, DurationValue, Size, ThrottleBy, check_key, event_memory_limit,
};
pub(crate) use controls::{Controls, Paused};
use receiver::ReceiverKey;
pub(crate) use setting::{Commanded, LiveSetting, SetCommand, Setting};
use verify_every::VerifyKey;

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
        controls.throttle()
    }

    fn set(controls: &Controls, rate: u32) {
        controls.set_throttle(rate);
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
