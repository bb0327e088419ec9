//! A channel's timeline in the Chrome trace format (JSON), which Perfetto and chrome://tracing open
//! (<https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>). Pure: text only.

use std::collections::BTreeSet;

use csa_provider::binlog::Gtid;
use csa_provider::recorder::{Details, Span, Track};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

/// The one process of a timeline.
const PROCESS: u32 = 1;
/// Lines of workers come after the others.
const FIRST_WORKER: u32 = 10;

/// A moment's figures, drawn as areas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) backlog_transactions: Option<u64>,
    pub(crate) event_memory_bytes: u64,
    pub(crate) groups_in_flight: usize,
}

/// The text of one timeline, an event a line.
#[derive(Debug)]
pub(crate) struct Timeline {
    began: Instant,
    named: BTreeSet<Track>,
}

impl Timeline {
    /// Returns its first lines, with an empty line of the drawing for each worker.
    pub(crate) fn begin(channel: &str, workers: u16, began: Instant) -> (Self, String) {
        let name = json!({ "name": format!("channel {channel}") });
        let process = json!({ "ph": "M", "pid": PROCESS, "name": "process_name", "args": name });
        // The only event without a comma before it.
        let mut text = format!("{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{process}");
        let mut timeline = Self { began, named: BTreeSet::new() };
        let tracks = [Track::Reception, Track::RelaySync, Track::Intake, Track::Statements];
        for track in tracks.into_iter().chain((0..workers).map(Track::Worker)) {
            timeline.name(track, &mut text);
        }
        (timeline, text)
    }

    fn name(&mut self, track: Track, text: &mut String) {
        if !self.named.insert(track) {
            return;
        }
        let name = match track {
            Track::Reception => "reception".to_owned(),
            Track::RelaySync => "relay sync".to_owned(),
            Track::Intake => "admission".to_owned(),
            Track::Statements => "statements".to_owned(),
            Track::Worker(worker) => format!("worker {worker}"),
        };
        for (about, value) in [
            ("thread_name", json!({ "name": name })),
            ("thread_sort_index", json!({ "sort_index": line(track) })),
        ] {
            let event = json!({ "ph": "M", "pid": PROCESS, "tid": line(track), "name": about, "args": value });
            push(text, &event);
        }
    }

    /// Adds a span; what was before the beginning is cut off.
    pub(crate) fn span(&mut self, span: &Span, text: &mut String) {
        self.name(span.track, text);
        let (begun, ended) = (self.nanos(span.begun), self.nanos(span.ended));
        let event = json!({
            "ph": "X", "pid": PROCESS, "tid": line(span.track), "name": name(span),
            "ts": micros(begun), "dur": micros(ended - begun), "args": arguments(&span.details),
        });
        push(text, &event);
    }

    pub(crate) fn figures(&self, at: Instant, figures: Figures, text: &mut String) {
        let Figures { backlog_transactions, event_memory_bytes, groups_in_flight } = figures;
        let counters = [
            ("backlog", "transactions", backlog_transactions),
            ("event memory", "bytes", Some(event_memory_bytes)),
            ("groups in flight", "groups", Some(groups_in_flight as u64)),
        ];
        let ts = micros(self.nanos(at));
        for (name, unit, value) in counters {
            if let Some(value) = value {
                push(
                    text,
                    &json!({ "ph": "C", "pid": PROCESS, "name": name, "ts": ts, "args": { unit: value } }),
                );
            }
        }
    }

    /// Returns the last line. `dropped`: spans that are missing.
    pub(crate) fn end(&self, channel: &str, began: &str, dropped: u64) -> String {
        let about = json!({ "channel": channel, "began": began, "dropped_spans": dropped });
        format!("\n],\"otherData\":{about}}}\n")
    }

    fn nanos(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.began).as_nanos();
        u64::try_from(since).unwrap_or(u64::MAX)
    }
}

fn push(text: &mut String, event: &Value) {
    text.push_str(",\n");
    text.push_str(&event.to_string());
}

/// Returns exact microseconds: a span that begins where another ends must not overlap it.
fn micros(nanos: u64) -> Value {
    match nanos % 1000 {
        0 => json!(nanos / 1000),
        _ => json!(nanos as f64 / 1e3),
    }
}

fn line(track: Track) -> u32 {
    match track {
        Track::Reception => 1,
        Track::RelaySync => 2,
        Track::Intake => 3,
        Track::Statements => 4,
        Track::Worker(worker) => FIRST_WORKER + u32::from(worker),
    }
}

fn name(span: &Span) -> String {
    match span.details.group {
        Some(group) if span.name == "group" => format!("group {group}"),
        _ => span.name.replace('_', " "),
    }
}

fn arguments(details: &Details) -> Value {
    let Details { group, waited_for, first, last, transactions, rows, bytes } = details;
    let number = |value: &Option<u64>| value.map(Value::from);
    let gtid = |value: &Option<Gtid>| value.as_ref().map(|gtid| Value::from(gtid.to_string()));
    let known = [
        ("group", number(group)),
        ("waited_for_group", number(waited_for)),
        ("first_gtid", gtid(first)),
        ("last_gtid", gtid(last)),
        ("transactions", number(transactions)),
        ("rows", number(rows)),
        ("bytes", number(bytes)),
    ];
    let known = known.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(known.collect::<Map<String, Value>>())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_timeline_is_json_with_a_line_for_each_worker() {
        let began = Instant::now();
        let (mut timeline, mut text) = Timeline::begin("a\"b", 2, began);
        let nanos = Duration::from_nanos;
        let at = |offset| began + nanos(offset);
        let details = Details { group: Some(7), waited_for: Some(6), ..Details::default() };
        let span = |track, name, begun, ended| Span {
            track,
            name,
            begun,
            ended,
            details: details.clone(),
        };
        timeline.span(&span(Track::Worker(0), "applying", at(1000), at(2001)), &mut text);
        timeline.span(&span(Track::Worker(5), "group", began - nanos(5), at(3000)), &mut text);
        let figures =
            Figures { backlog_transactions: None, event_memory_bytes: 3, groups_in_flight: 1 };
        timeline.figures(at(4000), figures, &mut text);
        text += &timeline.end("a\"b", "2026-01-01T00:00:00Z", 9);
        let value: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(value["otherData"]["dropped_spans"], 9);
        let events = value["traceEvents"].as_array().expect("events");
        let names: Vec<&str> = events
            .iter()
            .filter(|event| event["name"] == "thread_name")
            .filter_map(|event| event["args"]["name"].as_str())
            .collect();
        let fixed = ["reception", "relay sync", "admission", "statements"];
        assert_eq!(names, [&fixed[..], &["worker 0", "worker 1", "worker 5"]].concat());
        let spans: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
        assert_eq!((&spans[0]["ts"], &spans[0]["dur"]), (&json!(1), &json!(1.001)));
        assert_eq!(spans[0]["args"], json!({ "group": 7, "waited_for_group": 6 }));
        assert_eq!((&spans[1]["ts"], &spans[1]["name"]), (&json!(0), &json!("group 7")));
        assert_eq!(events.iter().filter(|event| event["ph"] == "C").count(), 2);
        // Lines are whole events, so a client can show them as they come.
        for line in text.lines().skip(1).filter(|line| line.starts_with("{\"")) {
            let line = line.trim_end_matches(',');
            assert!(serde_json::from_str::<Value>(line).is_ok(), "{line}");
        }
    }
}
