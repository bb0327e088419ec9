//! Commands to the running daemon: one line each, and an exit code.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use super::client::Client;
use super::{Admin, Control, Failure, Reload, Stop, Until, relay, status};
use crate::view::{ChangedView, CommandView, PendingView, ReloadView, RestartedView, WaitView};

/// The longest wait within one request; the daemon's own limit is an hour.
const WAIT: Duration = Duration::from_secs(600);

/// Carries out a command.
pub(crate) fn execute(config: &Path, admin: &Admin, command: Control) -> Result<(), Failure> {
    let client = Client::new(config, admin)?;
    match command {
        Control::Status { json, vertical, watch } => {
            status::show(&client, &status::Form { json, vertical, watch })
        }
        Control::Pause => {
            let done = channel(&client, "pause", &json!({}))?;
            finished(&done, "groups are still running; they will finish")
        }
        Control::Resume => channel(&client, "resume", &json!({})).map(drop),
        Control::Stop(how) => {
            let done = channel(&client, "stop", &request(how))?;
            given_up(&done, how)
        }
        Control::Restart(how) => {
            let done = channel(&client, "restart", &request(how))?;
            given_up(&done, how)
        }
        Control::Set { setting, value } => set(&client, &setting, &value),
        Control::Until(until) => {
            let path = format!("/channels/{}/until", client.channel()?);
            change(&client, &path, &end(until).to_string())
        }
        Control::Skip { gtid } => {
            channel(&client, "skip", &json!({ "gtid": gtid }))?;
            println!("skipped {gtid}; it is recorded in csa.audit on the target");
            Ok(())
        }
        Control::Wait { gtid_set, timeout } => wait(&client, &gtid_set, timeout),
        Control::Relay { command } => relay::look(&client, &command),
        Control::Reload(how) => reload(&client, how),
    }
}

fn request(Stop { all, now, timeout }: Stop) -> serde_json::Value {
    json!({ "all": all, "now": now, "timeout_seconds": timeout })
}

fn end(until: Until) -> serde_json::Value {
    match until {
        Until { before_gtids: Some(set), .. } => json!({ "sql_before_gtids": set }),
        Until { after_gtids: Some(set), .. } => json!({ "sql_after_gtids": set }),
        Until { before_time: Some(time), .. } => json!({ "sql_before_time": time }),
        // `--clear`: clap makes sure that one of the options is given.
        Until { .. } => json!({}),
    }
}

/// Sends a command to a channel and prints its state afterwards.
fn channel(
    client: &Client,
    command: &str,
    body: &serde_json::Value,
) -> Result<CommandView, Failure> {
    let path = format!("/channels/{}/{command}", client.channel()?);
    let done: CommandView = client.post(&path, body)?;
    println!("channel {} is {}: {}", done.channel_name, done.state.name(), done.state_detail);
    Ok(done)
}

fn finished(done: &CommandView, otherwise: &str) -> Result<(), Failure> {
    match done.drained {
        true => Ok(()),
        false => Err(Failure::Runtime(format!("channel {}: {otherwise}", done.channel_name))),
    }
}

fn given_up(done: &CommandView, how: Stop) -> Result<(), Failure> {
    if how.now {
        return Ok(());
    }
    finished(done, "running groups did not finish and were given up; the next start applies them")
}

fn set(client: &Client, setting: &str, value: &str) -> Result<(), Failure> {
    let path = match setting {
        "log_filter" => "/log_filter".to_owned(),
        "worker_count" | "event_memory_limit" | "source_delay" | "throttle" => {
            format!("/channels/{}/{setting}", client.channel()?)
        }
        other => {
            return Err(Failure::Input(format!(
                "{other} can't be changed while the daemon runs; worker_count, \
                 event_memory_limit, source_delay, throttle and log_filter can"
            )));
        }
    };
    change(client, &path, value)
}

fn change(client: &Client, path: &str, value: &str) -> Result<(), Failure> {
    let ChangedView { setting, from, to, .. } = client.put(path, value)?;
    println!("{setting}: {from} -> {to}");
    Ok(())
}

/// Like `WAIT_FOR_EXECUTED_GTID_SET` (<https://dev.mysql.com/doc/refman/en/gtid-functions.html>).
fn wait(client: &Client, gtid_set: &str, timeout: Option<f64>) -> Result<(), Failure> {
    let timeout = timeout.map(Duration::try_from_secs_f64).transpose();
    let timeout = timeout.map_err(|error| Failure::Input(format!("--timeout: {error}")))?;
    let until = timeout.map(|timeout| Instant::now() + timeout);
    let channel = client.channel()?;
    let set: String = form_urlencoded::byte_serialize(gtid_set.as_bytes()).collect();
    loop {
        let left = until.map_or(WAIT, |until| until.saturating_duration_since(Instant::now()));
        let seconds = left.min(WAIT).as_secs_f64();
        let path = format!("/channels/{channel}/wait?gtid_set={set}&timeout_seconds={seconds}");
        let WaitView { applied, missing, state, state_detail, .. } = client.get(&path)?;
        if applied {
            println!("applied");
            return Ok(());
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            return Err(Failure::Runtime(format!(
                "not applied in time: {missing}; channel {channel} is {}: {state_detail}",
                state.name()
            )));
        }
    }
}

fn reload(client: &Client, Reload { dry_run, restart }: Reload) -> Result<(), Failure> {
    let request = json!({ "dry_run": dry_run, "restart": restart });
    let outcome: ReloadView = client.post("/reload", &request)?;
    if outcome.is_empty() {
        println!("nothing has changed");
    }
    let ReloadView { dry_run, added, removed, restarted, changed, pending } = outcome;
    let would = if dry_run { "would be " } else { "" };
    for name in &added {
        println!("channel {name:?}: {would}added");
    }
    for name in &removed {
        println!(
            "channel {name:?}: {would}removed; its relay store and the checkpoint on its target remain"
        );
    }
    for RestartedView { channel_name, settings } in &restarted {
        println!("channel {channel_name:?}: {would}restarted for {}", settings.join(", "));
    }
    let of = |channel: Option<&str>| {
        channel.map_or_else(|| "daemon.".to_owned(), |name| format!("channel {name:?}: "))
    };
    for ChangedView { channel_name, setting, from, to } in &changed {
        println!("{}{setting}: {from} -> {to}", of(channel_name.as_deref()));
    }
    for PendingView { channel_name, setting, needs } in &pending {
        println!("{}{setting} has changed and needs a {needs}", of(channel_name.as_deref()));
    }
    Ok(())
}
