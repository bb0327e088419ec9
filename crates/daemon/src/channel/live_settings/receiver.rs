//! `[channel.notify]` while the channel runs.

use std::sync::Arc;

use super::controls::Controls;
use super::setting::Setting;
use crate::config::{ChannelSettings, Notify};

/// A key of `[channel.notify]`, by its place in [`Notify::KEYS`]. All of them are one value in use.
pub(super) enum ReceiverKey<const KEY: usize> {}

impl<const KEY: usize> Setting for ReceiverKey<KEY> {
    type Holder = Controls;
    type Configured = ChannelSettings;
    type Value = Arc<Notify>;
    const KEY: &'static str = Notify::KEYS[KEY];

    fn configured(settings: &ChannelSettings) -> Arc<Notify> {
        Arc::clone(&settings.notify)
    }

    fn get(controls: &Controls) -> Arc<Notify> {
        controls.notify()
    }

    fn set(controls: &Controls, notify: Arc<Notify>) {
        controls.notify.send_replace(notify);
    }

    fn show(notify: &Arc<Notify>) -> String {
        notify.shown().into_iter().nth(KEY).unwrap_or_default()
    }
}
