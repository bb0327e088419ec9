use parking_lot::Mutex;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::Failure;
use crate::config::{DaemonConfig, LogFormat};

type Reload = Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>;

/// What goes to the log; can be changed while it is written.
pub(crate) struct LogFilter {
    current: Mutex<String>,
    reload: Reload,
}

impl std::fmt::Debug for LogFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("LogFilter").field(&self.current).finish()
    }
}

impl LogFilter {
    pub(crate) fn current(&self) -> String {
        self.current.lock().clone()
    }

    /// Changes the filter; the one before it.
    ///
    /// # Errors
    /// It is not a filter.
    pub(crate) fn set(&self, text: &str) -> Result<String, String> {
        let filter = parse(text)?;
        let mut current = self.current.lock();
        (self.reload)(filter)?;
        Ok(std::mem::replace(&mut *current, text.to_owned()))
    }
}

/// Whether a text is a filter.
pub(crate) fn parse(text: &str) -> Result<EnvFilter, String> {
    EnvFilter::try_new(text).map_err(|error| format!("log_filter: {text:?}: {error}"))
}

/// Logs to standard error, where systemd takes them.
pub(crate) fn init(config: &DaemonConfig) -> Result<LogFilter, Failure> {
    let filter =
        parse(&config.log_filter).map_err(|why| Failure::Input(format!("daemon.{why}")))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false);
    let (reload, started): (Reload, _) = match config.log_format {
        LogFormat::Text => {
            let builder = builder.with_ansi(false).with_filter_reloading();
            let handle = builder.reload_handle();
            let reload = move |filter| handle.reload(filter).map_err(|error| error.to_string());
            (Box::new(reload), builder.finish().try_init())
        }
        LogFormat::Json => {
            let builder = builder.json().with_filter_reloading();
            let handle = builder.reload_handle();
            let reload = move |filter| handle.reload(filter).map_err(|error| error.to_string());
            (Box::new(reload), builder.finish().try_init())
        }
    };
    started.map_err(|error| Failure::Runtime(format!("starting the log: {error}")))?;
    Ok(LogFilter { current: Mutex::new(config.log_filter.clone()), reload })
}
