use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::Failure;
use crate::config::{DaemonConfig, LogFormat};

/// Logs to standard error, where systemd takes them.
pub(crate) fn init(config: &DaemonConfig) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(&config.log_filter).map_err(|error| {
        Failure::Input(format!("daemon.log_filter: {:?}: {error}", config.log_filter))
    })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false);
    let started = match config.log_format {
        LogFormat::Text => builder.with_ansi(false).finish().try_init(),
        LogFormat::Json => builder.json().finish().try_init(),
    };
    started.map_err(|error| Failure::Runtime(format!("starting the log: {error}")))
}
