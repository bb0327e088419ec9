//! `status`: a table, a page for one channel, a list, or JSON.

use std::io::{IsTerminal as _, stdout};
use std::time::Duration;

use csa_provider::server::visible::one_line;
use rustix::termios::tcgetwinsize;
use serde_json::Value;

use super::channel_table::channel_table;
use super::client::{Client, read};
use super::explanation::explanation;
use super::max_lag::late;
use super::one_channel::one_channel;
use super::output::{print, say};
use super::pattern::{chosen, is_pattern, matches};
use super::table;
use super::watch;
use crate::host::{Failure, now_micros, rfc3339};
use crate::observe::view::{ChannelView, PeerChannelView, PeerView, PeersView, StatusView};

/// The form of the output.
pub(super) struct StatusForm {
    pub(super) json: bool,
    pub(super) vertical: bool,
    pub(super) watch: Option<u64>,
    /// Shows the channels of other daemons too.
    pub(super) peers: bool,
}

/// Moves the cursor to the start of the screen, and clears what is after it: nothing scrolls, and nothing
/// flickers.
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";
/// The size of a terminal that does not say: lines and columns.
const USUAL: (usize, usize) = (24, 80);

/// Prints a line for each channel that does not run, or lags by more; fails if there is one.
pub(super) fn check_lag(client: &Client, most: Duration) -> Result<(), Failure> {
    let (_, view) = ask(client)?;
    let late = late(&view.channels, most);
    late.iter().for_each(|(_, line)| say!("{}", one_line(line)));
    let names: Vec<&str> = late.iter().map(|(name, _)| *name).collect();
    match names.is_empty() {
        true => Ok(()),
        false => Err(Failure::Runtime(format!(
            "not running with a lag of {most:?} at most: {}",
            names.join(", ")
        ))),
    }
}

/// Prints the state of the daemon; fails unless every channel shown does what it should.
pub(super) fn show(client: &Client, form: &StatusForm) -> Result<(), Failure> {
    let is_one = client.named_channel().is_some_and(|name| !is_pattern(name));
    let Some(seconds) = form.watch else {
        let (text, view) = ask(client)?;
        let peers = if form.peers { client.get("/peers")? } else { PeersView::default() };
        print(&(formed(&text, &view, form, is_one) + &of_peers(&peers)))?;
        return verdict(&view, &peers);
    };
    let is_screen = !form.json && stdout().is_terminal();
    let mut seen: Option<StatusView> = None;
    // Until a signal, or until nobody reads any more.
    loop {
        let shown = match ask(client) {
            Ok((text, view)) if !is_screen => formed(&text, &view, form, is_one),
            Ok((_, view)) if form.vertical => on_screen(vertical(&view.channels).lines()),
            Ok((_, view)) => {
                let text = that_fits(&view, is_one, None);
                seen = Some(view);
                text
            }
            // The daemon may be restarting; what was seen last remains, with the reason.
            Err(failure) => match &seen {
                Some(view) => that_fits(view, is_one, Some(&failure)),
                None => return Err(failure),
            },
        };
        if !print(&shown)? {
            return Ok(());
        }
        std::thread::sleep(Duration::from_secs(seconds.max(1)));
    }
}

fn ask(client: &Client) -> Result<(String, StatusView), Failure> {
    let text = client.get_text("/status")?;
    let unexpected = |error| Failure::Runtime(format!("/status: unexpected answer: {error}"));
    let mut view: StatusView = read(&text).map_err(unexpected)?;
    if let Some(name) = client.named_channel() {
        let names = view.channels.iter().map(|channel| channel.channel_name.clone()).collect();
        chosen(name, names).map_err(Failure::Input)?;
        view.channels.retain(|channel| matches(name, &channel.channel_name));
        let text = only(&text, &|channel| matches(name, channel));
        return text.map(|text| (text, view)).map_err(unexpected);
    }
    Ok((text, view))
}

/// Returns the JSON of `/status` with only the chosen channels, and with fields that only a newer daemon knows.
fn only(text: &str, is_chosen: &dyn Fn(&str) -> bool) -> serde_json::Result<String> {
    let mut status: Value = read(text)?;
    if let Some(channels) = status.get_mut("channels").and_then(Value::as_array_mut) {
        channels.retain(|channel| channel["channel_name"].as_str().is_some_and(is_chosen));
    }
    serde_json::to_string(&status)
}

/// Returns a heading and a table for each peer.
fn of_peers(peers: &PeersView) -> String {
    let mut text = String::new();
    for peer in &peers.peers {
        let version = peer.version.as_deref().map(|v| format!(", {v}")).unwrap_or_default();
        match &peer.error {
            Some(why) => text.push_str(&format!("\n{}: NO ANSWER: {why}\n", peer.address)),
            None => {
                let channels: Vec<ChannelView> =
                    peer.channels.iter().map(PeerChannelView::shown).collect();
                text.push_str(&format!("\n{}{version}\n", peer.address));
                text.push_str(&channel_table(&channels, 3, |view| &view.state_detail));
            }
        }
    }
    text
}

fn formed(text: &str, view: &StatusView, form: &StatusForm, is_one: bool) -> String {
    match form {
        StatusForm { json: true, .. } => format!("{}\n", one_line(text)),
        StatusForm { vertical: true, .. } => vertical(&view.channels),
        StatusForm { .. } if is_one => page_of(view),
        StatusForm { .. } => overview(&view.channels),
    }
}

/// The size is asked for each time: windows change theirs.
fn that_fits(view: &StatusView, is_one: bool, problem: Option<&Failure>) -> String {
    let (height, width) = match tcgetwinsize(stdout()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (size.ws_row.into(), size.ws_col.into()),
        Ok(_) | Err(_) => USUAL,
    };
    let mut now = rfc3339(now_micros());
    now.truncate("2026-03-01T18:00:00".len());
    if let Some(failure) = problem {
        now = format!("NO ANSWER: {failure}");
    }
    // The cursor stands on the last line, below the table: there the prompt appears at the end.
    let height = height.saturating_sub(1);
    let lines = match is_one {
        true => {
            let page = format!("{now}\n{}", page_of(view));
            let cut = |line: &str| line.chars().take(width).collect();
            page.lines().take(height).map(cut).collect()
        }
        false => watch::screen(view, &now, height, width),
    };
    on_screen(lines.iter().map(String::as_str))
}

/// Returns the page of the one channel that was named.
fn page_of(view: &StatusView) -> String {
    view.channels.iter().map(one_channel).collect()
}

fn on_screen<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let mut text = HOME.to_owned();
    for line in lines {
        text.push_str(line);
        text.push_str(CLEAR_LINE);
        text.push('\n');
    }
    text + CLEAR_BELOW
}

fn verdict(view: &StatusView, peers: &PeersView) -> Result<(), Failure> {
    let idle = |channel: &ChannelView| !channel.state.is_well();
    let own = view.channels.iter().filter(|channel| idle(channel));
    let named = |channel: &ChannelView, place: &str| {
        format!("{}{place} ({})", channel.channel_name, channel.state.name())
    };
    let mut idle_ones: Vec<String> = own.map(|channel| named(channel, "")).collect();
    for PeerView { address, error, channels, .. } in &peers.peers {
        idle_ones.extend(error.as_ref().map(|_| address.clone()));
        let theirs = channels.iter().map(PeerChannelView::shown).filter(|channel| idle(channel));
        let place = format!(" of {address}");
        idle_ones.extend(theirs.map(|channel| named(&channel, &place)));
    }
    let idle = idle_ones;
    if idle.is_empty() {
        return Ok(());
    }
    Err(Failure::Runtime(format!("not well: {}", idle.join(", "))))
}

fn overview(channels: &[ChannelView]) -> String {
    let mut text = channel_table(channels, 3, |view| &view.state_detail);
    channels.iter().for_each(|view| text.push_str(&explanation(view)));
    text
}

/// Returns every value of a channel, under the names of `/status`.
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
