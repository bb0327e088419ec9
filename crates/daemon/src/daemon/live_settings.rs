//! Settings of the daemon that change while it runs.

use std::time::Duration;

use tracing::warn;

use super::process::Daemon;
use crate::channel::{Commanded, LiveSetting, Setting};
use crate::config::DaemonConfig;
use crate::host::logging;

/// All of them, in the order of reports.
pub(crate) static DAEMON_SETTINGS: [LiveSetting<Daemon, DaemonConfig>; 2] =
    [LiveSetting::commanded::<LogFilterSetting>(), LiveSetting::reloaded::<StopTimeout>()];

enum LogFilterSetting {}

impl Setting for LogFilterSetting {
    type Holder = Daemon;
    type Configured = DaemonConfig;
    type Value = String;
    const KEY: &'static str = "log_filter";

    fn configured(config: &DaemonConfig) -> String {
        config.log_filter.clone()
    }

    fn get(daemon: &Daemon) -> String {
        daemon.log.current()
    }

    fn set(daemon: &Daemon, filter: String) {
        if let Err(error) = daemon.log.set(&filter) {
            warn!(%error, "log_filter not changed");
        }
    }

    fn show(filter: &String) -> String {
        filter.clone()
    }
}

impl Commanded for LogFilterSetting {
    const NAME: &'static str = "log_filter";
    const FORM: &'static str = "give a filter like info or csa_applier=debug,info";

    fn parse(text: &str) -> Result<String, String> {
        let text = text.trim();
        logging::parse(text).map(|_| text.to_owned())
    }
}

enum StopTimeout {}

impl Setting for StopTimeout {
    type Holder = Daemon;
    type Configured = DaemonConfig;
    type Value = Duration;
    const KEY: &'static str = "stop_timeout";

    fn configured(config: &DaemonConfig) -> Duration {
        config.stop_timeout.0
    }

    fn get(daemon: &Daemon) -> Duration {
        daemon.stop_timeout()
    }

    fn set(daemon: &Daemon, timeout: Duration) {
        daemon.set_stop_timeout(timeout);
    }

    fn show(timeout: &Duration) -> String {
        format!("{timeout:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::CHANNEL_SETTINGS;
    use crate::config::keys_at_once;

    #[test]
    fn every_key_that_is_declared_to_apply_at_once_is_adopted() {
        let of_channels = CHANNEL_SETTINGS.iter().map(|setting| setting.key);
        let of_daemon = DAEMON_SETTINGS.iter().map(|setting| setting.key);
        let mut adopted: Vec<_> = of_channels.chain(of_daemon).collect();
        let mut declared = keys_at_once();
        adopted.sort_unstable();
        declared.sort_unstable();
        assert_eq!(adopted, declared);
    }
}
