//! `status`: asks the running daemon and prints a table.

use std::path::Path;
use std::time::Duration;

use crate::Failure;
use crate::config::Config;
use crate::view::{ChannelView, StatusView};

/// Prints what the daemon of this configuration does; fails unless every channel runs.
pub(crate) fn status(path: &Path, json: bool, watch: Option<u64>) -> Result<(), Failure> {
    let config = Config::load(path)?;
    let url = format!("http://{}/status", config.daemon.admin_listen);
    loop {
        let text = fetch(&url)?;
        let view: StatusView = serde_json::from_str(&text)
            .map_err(|error| Failure::Runtime(format!("{url}: unexpected answer: {error}")))?;
        if json {
            println!("{text}");
        } else {
            print!("{}", table(&view.channels));
        }
        match watch {
            Some(seconds) => std::thread::sleep(Duration::from_secs(seconds.max(1))),
            None => return verdict(&view),
        }
    }
}

fn fetch(url: &str) -> Result<String, Failure> {
    let not_running = |error: ureq::Error| {
        Failure::Runtime(format!("{url}: {error}; is csa-daemon running with this configuration?"))
    };
    ureq::get(url)
        .call()
        .and_then(|mut answer| answer.body_mut().read_to_string())
        .map_err(not_running)
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

fn table(channels: &[ChannelView]) -> String {
    let head = ["CHANNEL", "STATE", "LAG", "BACKLOG", "BYTES", "APPLIED", "LAST APPLIED", "DETAIL"];
    let mut rows = vec![head.map(str::to_owned)];
    for view in channels {
        let optional = |value: Option<u64>| value.map_or("-".to_owned(), |v| v.to_string());
        rows.push([
            view.channel_name.clone(),
            view.state.name().to_owned(),
            view.lag_seconds.map_or("-".to_owned(), |lag| format!("{lag:.3} s")),
            optional(view.backlog_transactions),
            optional(view.backlog_bytes),
            view.applied_transactions_total.to_string(),
            view.applier.last_applied_transaction.clone().unwrap_or_else(|| "-".to_owned()),
            view.state_detail.clone(),
        ]);
    }
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}
