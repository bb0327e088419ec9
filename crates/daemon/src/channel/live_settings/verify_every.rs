//! `[channel.verify]` while the channel runs.

use std::sync::Arc;

use super::controls::Controls;
use super::setting::Setting;
use crate::config::{ChannelSettings, VerifyEvery};

/// A key of `[channel.verify]`, by its place in [`VerifyEvery::KEYS`]. All of them are one value in use.
pub(super) enum VerifyKey<const KEY: usize> {}

impl<const KEY: usize> Setting for VerifyKey<KEY> {
    type Holder = Controls;
    type Configured = ChannelSettings;
    type Value = Arc<VerifyEvery>;
    const KEY: &'static str = VerifyEvery::KEYS[KEY];

    fn configured(settings: &ChannelSettings) -> Arc<VerifyEvery> {
        Arc::clone(&settings.verify)
    }

    fn get(controls: &Controls) -> Arc<VerifyEvery> {
        controls.verify_every()
    }

    fn set(controls: &Controls, verify: Arc<VerifyEvery>) {
        controls.verify.send_replace(verify);
    }

    fn show(verify: &Arc<VerifyEvery>) -> String {
        verify.shown().into_iter().nth(KEY).unwrap_or_default()
    }
}
