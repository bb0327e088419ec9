//! An event as its receiver gets it. Pure.

use serde::Serialize;

use crate::config::EventKind;
use crate::host::rfc3339;
use crate::observe::view::{ChannelView, ErrorView};

/// An event, as it is sent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Event {
    /// It stays the same over all attempts.
    pub(crate) id: String,
    /// The name of an [`EventKind`], or `test`.
    pub(crate) event: String,
    pub(crate) channel: String,
    /// RFC 3339.
    pub(crate) time: String,
    /// The event in a sentence.
    pub(crate) text: String,
    /// The name that `/status` has.
    pub(crate) state: String,
    pub(crate) detail: String,
    /// Changes of the state since the last event, this one included; more than 1 where a state did not last.
    pub(crate) changes: u64,
    pub(crate) lag_seconds: Option<f64>,
    pub(crate) backlog_transactions: Option<u64>,
    pub(crate) source: String,
    pub(crate) target: String,
    /// The host on which the daemon runs.
    pub(crate) host: String,
    pub(crate) version: &'static str,
    /// The error at which the channel failed, without values of rows.
    pub(crate) error: Option<EventError>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct EventError {
    /// The server's; 0 for none.
    pub(crate) number: u16,
    pub(crate) message: String,
    pub(crate) transaction: Option<String>,
    pub(crate) table: Option<String>,
    /// Next steps, each sufficient on its own.
    pub(crate) advice: Vec<String>,
}

/// The part of an event that the daemon knows, and not the channel.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    pub(crate) id: String,
    /// Microseconds since the epoch.
    pub(crate) at: u64,
    pub(crate) host: String,
}

impl Event {
    /// Returns the event of a channel; `detail` replaces that of its state.
    pub(crate) fn new(
        kind: EventKind,
        view: &ChannelView,
        detail: Option<&str>,
        changes: u64,
        origin: Origin,
    ) -> Self {
        let error = view.last_error.as_ref().filter(|_| kind == EventKind::Failed);
        let detail = detail.unwrap_or(&view.state_detail);
        let cause = error.map_or(detail, |error| &error.message);
        let text = format!("channel {}: {}: {cause}", view.channel_name, words(kind.name()));
        Self {
            event: kind.name().to_owned(),
            detail: detail.to_owned(),
            text,
            changes,
            error: error.map(EventError::of),
            ..Self::of(view, origin)
        }
    }

    /// Returns an event that only shows whether events arrive.
    pub(crate) fn test(channel: &str, origin: Origin) -> Self {
        let text =
            format!("channel {channel}: test: csa-daemon check --notify; nothing has happened");
        let view = ChannelView { channel_name: channel.to_owned(), ..ChannelView::default() };
        Self { event: "test".to_owned(), state: String::new(), text, ..Self::of(&view, origin) }
    }

    fn of(view: &ChannelView, Origin { id, at, host }: Origin) -> Self {
        Self {
            id,
            event: String::new(),
            channel: view.channel_name.clone(),
            time: rfc3339(at),
            text: String::new(),
            state: view.state.name().to_owned(),
            detail: String::new(),
            changes: 1,
            lag_seconds: view.lag_seconds,
            backlog_transactions: view.backlog_transactions,
            source: view.connection.source.clone(),
            target: view.applier.target.clone(),
            host,
            version: env!("CARGO_PKG_VERSION"),
            error: None,
        }
    }

    /// Returns the JSON that a receiver gets.
    pub(crate) fn json(&self) -> serde_json::Value {
        // A struct of texts and numbers always has a JSON form.
        serde_json::to_value(self).unwrap_or_default()
    }
}

impl EventError {
    fn of(error: &ErrorView) -> Self {
        Self {
            number: error.number,
            message: error.message.clone(),
            transaction: error.transaction.clone(),
            table: error.row.as_ref().map(|row| row.table.clone()),
            advice: error.ways_on.clone(),
        }
    }
}

fn words(name: &str) -> String {
    name.replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::view::{ChannelState, ErrorValues, FailingRowView};

    fn origin() -> Origin {
        Origin { id: "1".to_owned(), at: 1_772_388_000_000_000, host: "db7".to_owned() }
    }

    #[test]
    fn a_failure_has_its_cause_and_no_values() {
        let row = FailingRowView { table: "shop.item".to_owned(), ..FailingRowView::default() };
        let values = ErrorValues { message: "secret".to_owned(), ..ErrorValues::default() };
        let view = ChannelView {
            channel_name: "orders".to_owned(),
            state: ChannelState::Failed,
            last_error: Some(ErrorView {
                number: 1062,
                message: "duplicate".to_owned(),
                transaction: Some("u:5".to_owned()),
                ways_on: vec!["remove the row".to_owned()],
                row: Some(row),
                values: Some(Box::new(values)),
                ..ErrorView::default()
            }),
            ..ChannelView::default()
        };
        let sent = Event::new(EventKind::Failed, &view, None, 1, origin()).json();
        assert_eq!(sent["text"], "channel orders: failed: duplicate");
        assert_eq!(sent["time"], "2026-03-01T18:00:00.000000Z");
        assert_eq!(sent["error"]["number"], 1062);
        assert_eq!(sent["error"]["transaction"], "u:5");
        assert_eq!(sent["error"]["table"], "shop.item");
        assert_eq!(sent["error"]["advice"][0], "remove the row");
        assert!(!sent.to_string().contains("secret"), "{sent}");
        // An old error is not that of another event.
        let sent = Event::new(EventKind::Paused, &view, Some("by ann"), 3, origin()).json();
        assert_eq!((&sent["error"], &sent["changes"]), (&serde_json::Value::Null, &3.into()));
        assert_eq!(sent["text"], "channel orders: paused: by ann");
    }

    #[test]
    fn names_are_those_of_the_file() {
        for kind in EventKind::ALL {
            assert_eq!(serde_json::to_value(kind).expect("a word"), kind.name());
        }
    }
}
