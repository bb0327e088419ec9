//! The log: its filter, which can change, and its form.

mod format;

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use csa_provider::server::visible::one_line;
use parking_lot::Mutex;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::failure::Failure;
pub(crate) use format::{LogFormat, channel_span};
use format::{SPANS, SpanFields};

/// Lines that the log did not take.
static LOST_LINES: AtomicU64 = AtomicU64::new(0);

type ReloadFilter = Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>;

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

    /// Returns the filter of a log that a test does not write.
    #[cfg(test)]
    pub(crate) fn of_test() -> Self {
        Self { current: Mutex::new("off".to_owned()), reload: Box::new(|_| Ok(())) }
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

/// Parses a filter. Whatever it leaves out, the spans of channels remain: lines get their channel from
/// them, and a span that was left out when it was made stays so after the filter has changed.
pub(crate) fn parse(text: &str) -> Result<EnvFilter, String> {
    let filter =
        EnvFilter::try_new(text).map_err(|error| format!("log_filter: {text:?}: {error}"))?;
    let spans = format!("{SPANS}=error").parse().map_err(|error| format!("log_filter: {error}"))?;
    Ok(filter.add_directive(spans))
}

/// Logs to standard error, from where systemd takes the lines.
pub(crate) fn init(filter: &str, format: LogFormat) -> Result<LogFilter, Failure> {
    let current = Mutex::new(filter.to_owned());
    let filter = parse(filter).map_err(|why| Failure::Input(format!("daemon.{why}")))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Escaping(std::io::stderr()))
        .with_ansi(false)
        // It would print its own trouble with eprintln, which panics where the log takes nothing.
        .log_internal_errors(false)
        .fmt_fields(SpanFields)
        .event_format(format)
        .with_filter_reloading();
    let handle = builder.reload_handle();
    let reload = move |filter| handle.reload(filter).map_err(|error| error.to_string());
    let started = builder.finish().try_init();
    started.map_err(|error| Failure::Runtime(format!("starting the log: {error}")))?;
    Ok(LogFilter { current, reload: Box::new(reload) })
}

/// Returns the number of lines that the log did not take, since the process began.
pub(crate) fn lost_lines() -> u64 {
    LOST_LINES.load(Ordering::Relaxed)
}

/// Keeps one event on one line: the subscriber writes an event at once, and servers' texts in it
/// may hold anything. A full disk or a collector that has ended costs lines, never what logs them.
struct Escaping<W>(W);

impl<W: Write> Write for Escaping<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let (text, end) = match text.strip_suffix('\n') {
            Some(text) => (text, "\n"),
            None => (&*text, ""),
        };
        if self.0.write_all(format!("{}{end}", one_line(text)).as_bytes()).is_err() {
            LOST_LINES.fetch_add(1, Ordering::Relaxed);
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = self.0.flush();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Clone, Default)]
    struct WrittenLines(Arc<Mutex<Vec<u8>>>);

    impl Write for WrittenLines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns what `log` writes in one form under a filter.
    fn logged(format: LogFormat, filter: &str, log: impl FnOnce()) -> String {
        let written = WrittenLines::default();
        let out = written.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(parse(filter).expect("a filter"))
            .with_writer(move || Escaping(out.clone()))
            .with_ansi(false)
            .fmt_fields(SpanFields)
            .event_format(format)
            .finish();
        tracing::subscriber::with_default(subscriber, log);
        let written = written.0.lock().clone();
        String::from_utf8(written).expect("UTF-8")
    }

    #[test]
    fn an_event_is_one_line_in_both_formats() {
        let forged = "x\n2026-01-01T00:00:00Z ERROR forged\u{1b}[31m\u{85}\u{202e}";
        for format in [LogFormat::Text, LogFormat::Json] {
            let text = logged(format, "info", || {
                tracing::warn!(error = %forged, name = forged, "said {forged}");
            });
            assert_eq!(text.lines().count(), 1, "{text}");
            assert!(!text.trim_end().contains(char::is_control), "{text:?}");
            assert!(!text.contains('\u{202e}') && text.contains("\\u202e"), "{text:?}");
            if format == LogFormat::Json {
                let event: serde_json::Value = serde_json::from_str(&text).expect("JSON");
                assert_eq!(event["fields"]["error"], forged);
            }
        }
    }

    #[test]
    fn a_log_that_takes_nothing_costs_its_lines_only() {
        struct Full;

        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }

            fn flush(&mut self) -> io::Result<()> {
                Err(io::ErrorKind::StorageFull.into())
            }
        }

        let before = lost_lines();
        Escaping(Full).write_all(b"a line\n").expect("what logs continues");
        Escaping(Full).flush().expect("what logs continues");
        assert_eq!(lost_lines(), before + 1);
    }

    #[test]
    fn a_line_names_its_channel_once_whatever_the_filter() {
        let log = || {
            let span = channel_span("shop");
            span.in_scope(|| tracing::warn!(error = %"refused", tries = 2, "target unavailable"));
            span.in_scope(|| tracing::warn!(channel = "other", "told by the event"));
            tracing::warn!(channel = "shop", "told outside");
        };
        for filter in ["info", "warn", "csa_daemon=warn", "off,csa_daemon=info"] {
            let text = logged(LogFormat::Text, filter, log);
            let lines: Vec<&str> = text.lines().collect();
            let [inside, event, outside] = lines[..] else { panic!("{filter}: {text}") };
            let end = " WARN target unavailable channel=\"shop\" error=refused tries=2";
            assert!(inside.ends_with(end), "{filter}: {inside}");
            assert!(event.ends_with(" WARN told by the event channel=\"other\""), "{event}");
            assert!(outside.ends_with(" WARN told outside channel=\"shop\""), "{outside}");
        }
        assert_eq!(logged(LogFormat::Text, "off", log), "");
        let text = logged(LogFormat::Json, "info", log);
        let names = text.lines().map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
            assert_eq!(line["channel"], line["fields"]["channel"], "{line}");
            assert_eq!(line["level"], "WARN");
            line["channel"].as_str().expect("a name").to_owned()
        });
        assert_eq!(names.collect::<Vec<_>>(), ["shop", "other", "shop"]);
        let first: serde_json::Value =
            serde_json::from_str(text.lines().next().unwrap_or_default()).expect("JSON");
        assert_eq!(first["fields"]["message"], "target unavailable");
        assert_eq!(first["fields"]["tries"], 2);
    }
}
