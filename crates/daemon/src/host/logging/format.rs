//! The two forms of a line of the log. Both name the channel, where the event or the span around it does.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::span::Span;
use tracing::{Event, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

/// The only field of a channel's span, and the name under which every line has it.
const CHANNEL: &str = "channel";
/// The target of the spans, so that no filter leaves them out; see [`super::parse`].
pub(super) const SPANS: &str = "csa_channel";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// Lines for a log collector.
    Json,
}

/// Returns the span around all that a channel does: each line that is written within names the channel.
pub(crate) fn channel_span(name: &str) -> Span {
    tracing::error_span!(target: SPANS, "channel", channel = name)
}

/// Keeps the channel's name as it is, for the lines within its span.
#[derive(Debug)]
pub(super) struct SpanFields;

impl<'writer> FormatFields<'writer> for SpanFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut name = Name(writer, Ok(()));
        fields.record(&mut name);
        name.1
    }
}

struct Name<'writer>(Writer<'writer>, fmt::Result);

impl Visit for Name<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == CHANNEL {
            self.1 = self.0.write_str(value);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}

impl<S, N> FormatEvent<S, N> for LogFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        if !fields.has_channel()
            && let Some(name) = channel_of(context)
        {
            fields.rest.insert(0, (CHANNEL, Value::String(name)));
        }
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let level = event.metadata().level().as_str();
        match self {
            Self::Text => fields.text(&time, level, &mut writer),
            Self::Json => writeln!(writer, "{}", fields.json(&time, level)),
        }
    }
}

/// Returns the channel whose span is the innermost around the event.
fn channel_of<S, N>(context: &FmtContext<'_, S, N>) -> Option<String>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    let span = context.event_scope()?.find(|span| span.metadata().target() == SPANS)?;
    let extensions = span.extensions();
    extensions.get::<FormattedFields<N>>().map(|fields| fields.fields.clone())
}

/// The fields of an event.
#[derive(Default)]
struct Fields {
    message: Option<String>,
    rest: Vec<(&'static str, Value)>,
    /// Fields whose text is written as it is, and not in quotes.
    bare: Vec<&'static str>,
}

impl Fields {
    fn has_channel(&self) -> bool {
        self.rest.iter().any(|(name, _)| *name == CHANNEL)
    }

    fn text(&self, time: &str, level: &str, writer: &mut Writer<'_>) -> fmt::Result {
        write!(writer, "{time} {level:>5}")?;
        if let Some(message) = &self.message {
            write!(writer, " {message}")?;
        }
        for (name, value) in &self.rest {
            match value {
                Value::String(text) if self.bare.contains(name) => write!(writer, " {name}={text}"),
                Value::String(text) => write!(writer, " {name}={text:?}"),
                value => write!(writer, " {name}={value}"),
            }?;
        }
        writeln!(writer)
    }

    /// The channel stands beside the level, where a collector finds it, and with the fields.
    fn json(self, time: &str, level: &str) -> Value {
        let channel = self.rest.iter().find(|(name, _)| *name == CHANNEL);
        let channel = channel.map(|(_, value)| value.clone());
        let mut fields: Map<String, Value> =
            self.rest.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        fields.extend(self.message.map(|text| ("message".to_owned(), Value::String(text))));
        let mut line = json!({ "timestamp": time, "level": level, "fields": fields });
        if let (Some(channel), Some(line)) = (channel, line.as_object_mut()) {
            line.insert(CHANNEL.to_owned(), channel);
        }
        line
    }

    fn add(&mut self, field: &Field, value: Value) {
        self.rest.push((field.name(), value));
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, json!(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, json!(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, json!(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, json!(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.message = Some(value.to_owned()),
            _ => self.add(field, json!(value)),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" {
            self.message = Some(text);
            return;
        }
        self.bare.push(field.name());
        self.add(field, Value::String(text));
    }
}
