//! `status`: a table, a list, or JSON.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use csa_provider::visible::one_line;
use serde_json::Value;

use super::Failure;
use super::client::{Client, read};
use super::failure::explanation;
use super::pattern::{chosen, matches};
use crate::table;
use crate::view::{ChannelView, StatusView};

/// The form of the output.
pub(super) struct Form {
    pub(super) json: bool,
    pub(super) vertical: bool,
    pub(super) watch: Option<u64>,
}

/// Clears the screen and moves the cursor to its start.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Prints the state of the daemon; fails unless every channel shown is running.
pub(super) fn show(client: &Client, form: &Form) -> Result<(), Failure> {
    loop {
        let text = client.get_text("/status")?;
        let mut view: StatusView = read(&text)
            .map_err(|error| Failure::Runtime(format!("/status: unexpected answer: {error}")))?;
        if let Some(name) = client.named_channel() {
            let names = view.channels.iter().map(|channel| channel.channel_name.clone()).collect();
            chosen(name, names).map_err(Failure::Input)?;
            view.channels.retain(|channel| matches(name, &channel.channel_name));
        }
        let shown = match form {
            Form { json: true, .. } => format!("{}\n", one_line(&text)),
            Form { vertical: true, .. } => vertical(&view.channels),
            Form { .. } => overview(&view.channels),
        };
        let mut out = std::io::stdout();
        let screen = form.watch.is_some() && !form.json && out.is_terminal();
        let written = write!(out, "{}{shown}", if screen { CLEAR } else { "" });
        written
            .and_then(|()| out.flush())
            .map_err(|error| Failure::Runtime(format!("printing: {error}")))?;
        match form.watch {
            Some(seconds) => std::thread::sleep(Duration::from_secs(seconds.max(1))),
            None => return verdict(&view),
        }
    }
}

fn verdict(view: &StatusView) -> Result<(), Failure> {
    let idle: Vec<&str> = view
        .channels
        .iter()
        .filter(|channel| !channel.state.is_well())
        .map(|channel| channel.channel_name.as_str())
        .collect();
    if idle.is_empty() {
        return Ok(());
    }
    Err(Failure::Runtime(format!("not running: {}", idle.join(", "))))
}

fn overview(channels: &[ChannelView]) -> String {
    let head = [
        "CHANNEL",
        "STATE",
        "LAG",
        "BACKLOG",
        "BYTES",
        "TRX/S",
        "DRAINED IN",
        "HELD UP BY",
        "DETAIL",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    for view in channels {
        rows.push([
            view.channel_name.clone(),
            view.state.name().to_owned(),
            or_dash(view.lag_seconds.map(|lag| format!("{lag:.3} s"))),
            or_dash(view.backlog_transactions.map(|value| value.to_string())),
            or_dash(view.backlog_bytes.map(bytes)),
            or_dash(view.applied_transactions_per_second.map(|rate| format!("{rate:.0}"))),
            or_dash(view.seconds_to_drain.map(|seconds| format!("{seconds:.0} s"))),
            view.bottleneck.cause.clone(),
            view.state_detail.clone(),
        ]);
    }
    let mut text = table::columns(&rows);
    channels.iter().for_each(|view| text.push_str(&explanation(view)));
    text
}

/// In units that are easy to read.
fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = "B";
    for larger in UNITS {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, larger);
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") }
}

/// Every value of a channel, under the names of `/status`.
fn vertical(channels: &[ChannelView]) -> String {
    let mut text = String::new();
    for (index, view) in channels.iter().enumerate() {
        let mut values = Vec::new();
        if let Ok(Value::Object(fields)) = serde_json::to_value(view) {
            fields.iter().for_each(|(name, value)| flatten(name, value, &mut values));
        }
        text.push_str(&table::vertical(&format!("{}. channel", index + 1), &values));
    }
    text
}

fn flatten(name: &str, value: &Value, values: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                flatten(&format!("{name}.{field}"), value, values);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (index, item) in items.iter().enumerate() {
                flatten(&format!("{name}[{index}]"), item, values);
            }
        }
        Value::Null => values.push((name.to_owned(), "NULL".to_owned())),
        Value::String(text) => values.push((name.to_owned(), text.clone())),
        other => values.push((name.to_owned(), other.to_string())),
    }
}
