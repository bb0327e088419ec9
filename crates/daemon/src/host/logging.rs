//! The log: its filter, which can change, and its form.

use std::io::{self, Write};

use csa_provider::server::visible::one_line;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::failure::Failure;

type ReloadFilter = Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// Lines for a log collector.
    Json,
}

/// The log's filter, which can change while the daemon runs.
pub(crate) struct LogFilter {
    current: Mutex<String>,
    reload: ReloadFilter,
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

    /// Changes the filter; returns the one before it.
    ///
    /// # Errors
    /// `text` is not a filter.
    pub(crate) fn set(&self, text: &str) -> Result<String, String> {
        let filter = parse(text)?;
        let mut current = self.current.lock();
        (self.reload)(filter)?;
        Ok(std::mem::replace(&mut *current, text.to_owned()))
    }
}

/// Parses a filter.
pub(crate) fn parse(text: &str) -> Result<EnvFilter, String> {
    EnvFilter::try_new(text).map_err(|error| format!("log_filter: {text:?}: {error}"))
}

/// Logs to standard error, from where systemd takes the lines.
pub(crate) fn init(filter: &str, format: LogFormat) -> Result<LogFilter, Failure> {
    let current = Mutex::new(filter.to_owned());
    let filter = parse(filter).map_err(|why| Failure::Input(format!("daemon.{why}")))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Escaping(std::io::stderr()))
        .with_target(false);
    let (reload, started): (ReloadFilter, _) = match format {
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
    Ok(LogFilter { current, reload })
}

/// Keeps one event on one line: the subscriber writes an event at once, and servers' texts in it
/// may hold anything.
struct Escaping<W>(W);

impl<W: Write> Write for Escaping<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let (text, end) = match text.strip_suffix('\n') {
            Some(text) => (text, "\n"),
            None => (&*text, ""),
        };
        self.0.write_all(format!("{}{end}", one_line(text)).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_event_is_one_line_in_both_formats() {
        let forged = "x\n2026-01-01T00:00:00Z ERROR forged\u{1b}[31m\u{85}\u{202e}";
        for json in [false, true] {
            let written = Written::default();
            let (out, builder) = (written.clone(), tracing_subscriber::fmt().with_ansi(false));
            let builder = builder.with_writer(move || Escaping(out.clone()));
            let log = || tracing::warn!(error = %forged, name = forged, "said {forged}");
            match json {
                true => tracing::subscriber::with_default(builder.json().finish(), log),
                false => tracing::subscriber::with_default(builder.finish(), log),
            }
            let text = String::from_utf8(written.0.lock().clone()).expect("UTF-8");
            assert_eq!(text.lines().count(), 1, "{text}");
            assert!(!text.trim_end().contains(char::is_control), "{text:?}");
            assert!(!text.contains('\u{202e}') && text.contains("\\u202e"), "{text:?}");
            if json {
                let event: serde_json::Value = serde_json::from_str(&text).expect("JSON");
                assert_eq!(event["fields"]["error"], forged);
            }
        }
    }
}
