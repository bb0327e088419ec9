//! Settings of the daemon that change while it runs.

use tracing::warn;

use super::process::Daemon;
use crate::channel::{LiveSetting, SetCommand};
use crate::config::DaemonConfig;
use crate::host::logging;

/// All of them, in the order of reports.
pub(crate) static DAEMON_SETTINGS: [LiveSetting<Daemon, DaemonConfig>; 2] = [
    LiveSetting {
        keys: &["log_filter"],
        in_use: |daemon| vec![daemon.log.current()],
        configured: |config| vec![config.log_filter.clone()],
        adopt: |daemon, config| set_log_filter(daemon, &config.log_filter),
        command: Some(SetCommand {
            name: "log_filter",
            form: "give a filter like info or csa_applier=debug,info",
            meaning: "",
            change: |daemon, text| {
                let text = text.trim();
                logging::parse(text)?;
                let values = [daemon.log.current(), text.to_owned()];
                set_log_filter(daemon, text);
                Ok(values)
            },
        }),
    },
    LiveSetting {
        keys: &["stop_timeout"],
        in_use: |daemon| vec![format!("{:?}", daemon.stop_timeout())],
        configured: |config| vec![format!("{:?}", config.stop_timeout.0)],
        adopt: |daemon, config| daemon.set_stop_timeout(config.stop_timeout.0),
        command: None,
    },
];

fn set_log_filter(daemon: &Daemon, filter: &str) {
    if let Err(error) = daemon.log.set(filter) {
        warn!(%error, "log_filter not changed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::CHANNEL_SETTINGS;
    use crate::config::keys_at_once;

    #[test]
    fn every_key_that_is_declared_to_apply_at_once_is_adopted() {
        let of_channels = CHANNEL_SETTINGS.iter().flat_map(|setting| setting.keys);
        let of_daemon = DAEMON_SETTINGS.iter().flat_map(|setting| setting.keys);
        let mut adopted: Vec<_> = of_channels.chain(of_daemon).copied().collect();
        let mut declared = keys_at_once();
        adopted.sort_unstable();
        declared.sort_unstable();
        assert_eq!(adopted, declared);
    }
}
