//! A channel's settings that change while it runs: workers, throttles, delay, memory limit, receiver of events, comparisons, end.
//! Its start and stop are in supervisor.rs. [`CHANNEL_SETTINGS`] lists those that have a key; the reload, the admin
//! port and the command line take them from there. The end (`until`) has a route of its own.

mod controls;
mod setting;

use std::sync::Arc;

use crate::config::{
    ChannelSettings, DurationValue, Notify, Size, ThrottleBy, VerifyEvery, check_key,
    event_memory_limit,
};
pub(crate) use controls::{Controls, Paused};
pub(crate) use setting::{LiveSetting, SetCommand};

const WORKER_COUNT: &str = "applier.worker_count";

/// All settings of a channel that change at once, in the order of reports: each key that is declared to apply at once
/// (`x-applies`). Reload, the admin port and `set` follow from the entry; what else a key needs is in CONTRIBUTING.md.
pub(crate) static CHANNEL_SETTINGS: [LiveSetting<Controls, ChannelSettings>; 7] = [
    LiveSetting {
        keys: &[WORKER_COUNT],
        in_use: |controls| vec![controls.tuning().worker_count.to_string()],
        configured: |settings| vec![settings.declared.worker_count.to_string()],
        adopt: |controls, settings| controls.set_worker_count(settings.declared.worker_count),
        command: Some(SetCommand {
            name: "worker_count",
            form: "give a number from 1 to 1024",
            meaning: "",
            change: |controls, text| {
                let wrong = || format!("worker_count: {text:?}");
                let count: i64 = text.trim().parse().map_err(|_| wrong())?;
                check_key(WORKER_COUNT, &count.into()).map_err(|error| error.0)?;
                let count = u16::try_from(count).map_err(|_| wrong())?;
                let before = controls.tuning().worker_count;
                controls.set_worker_count(count);
                Ok([before, count].map(|count| count.to_string()))
            },
        }),
    },
    // In bytes. As in the file, a value below the packet limit is raised to it.
    LiveSetting {
        keys: &["applier.event_memory_limit"],
        in_use: |controls| vec![controls.memory.limit().to_string()],
        configured: |settings| {
            vec![event_memory_limit(settings.declared.event_memory_limit).0.to_string()]
        },
        adopt: |controls, settings| {
            controls.memory.set_limit(event_memory_limit(settings.declared.event_memory_limit).0);
        },
        command: Some(SetCommand {
            name: "event_memory_limit",
            form: "give a size like 256MiB",
            meaning: "",
            change: |controls, text| {
                let size = Size::parse(text);
                let size = size.ok_or_else(|| format!("event_memory_limit: {text:?}"))?;
                let (before, limit) = (controls.memory.limit(), event_memory_limit(size).0);
                controls.memory.set_limit(limit);
                Ok([before, limit].map(|limit| limit.to_string()))
            },
        }),
    },
    // Applies at once to a transaction that is held back.
    LiveSetting {
        keys: &["applier.source_delay"],
        in_use: |controls| vec![format!("{:?}", controls.source_delay())],
        configured: |settings| vec![format!("{:?}", settings.declared.source_delay.0)],
        adopt: |controls, settings| {
            controls.source_delay.send_replace(settings.declared.source_delay.0);
        },
        command: Some(SetCommand {
            name: "source_delay",
            form: "give a duration like 500ms, 5s or 2m",
            meaning: "",
            change: |controls, text| {
                let delay = DurationValue::parse(text.trim());
                let delay = delay.ok_or_else(|| format!("source_delay: {text:?}"))?.0;
                let before = controls.source_delay.send_replace(delay);
                Ok([before, delay].map(|delay| format!("{delay:?}")))
            },
        }),
    },
    // Whatever health permits.
    LiveSetting {
        keys: &["applier.throttle"],
        in_use: |controls| vec![controls.throttle().to_string()],
        configured: |settings| vec![settings.declared.throttle.to_string()],
        adopt: |controls, settings| controls.set_throttle(settings.declared.throttle),
        command: Some(SetCommand {
            name: "throttle",
            form: "give a number of transactions per second, 0 for no limit",
            meaning: "transactions per second, 0 for no limit",
            change: |controls, text| {
                let rate: u32 = text.trim().parse().map_err(|_| format!("throttle: {text:?}"))?;
                let before = controls.throttle();
                controls.set_throttle(rate);
                Ok([before, rate].map(|rate| rate.to_string()))
            },
        }),
    },
    LiveSetting {
        keys: &ThrottleBy::KEYS,
        in_use: |controls| controls.throttle_by().shown().into(),
        configured: |settings| settings.throttle_by.shown().into(),
        adopt: |controls, settings| {
            // Whoever asks servers by these limits begins again after a change.
            controls.throttle_by.send_if_modified(|known| {
                let is_new = *known != settings.throttle_by;
                *known = Arc::clone(&settings.throttle_by);
                is_new
            });
        },
        command: None,
    },
    LiveSetting {
        keys: &Notify::KEYS,
        in_use: |controls| controls.notify().shown().into(),
        configured: |settings| settings.notify.shown().into(),
        adopt: |controls, settings| {
            controls.notify.send_replace(Arc::clone(&settings.notify));
        },
        command: None,
    },
    LiveSetting {
        keys: &VerifyEvery::KEYS,
        in_use: |controls| controls.verify_every().shown().into(),
        configured: |settings| settings.verify.shown().into(),
        adopt: |controls, settings| {
            controls.verify.send_replace(Arc::clone(&settings.verify));
        },
        command: None,
    },
];
