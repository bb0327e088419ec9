//! Commands to the running daemon: one line each, and an exit code.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::claims::fleet_view::FleetView;
use serde_json::json;

use super::arguments::{
    Admin, All, Control, End, ReloadArguments, Stop, Until, end_after, listed, set_commands,
};
use super::client::{Chosen, Client};
use super::output::{print, say};
use super::{fleet, relay, several, status, trace};
use crate::channel::CHANNEL_SETTINGS;
use crate::daemon::DAEMON_SETTINGS;
use crate::host::Failure;
use crate::observe::view::{
    ChangedView, CommandView, PendingView, ReloadView, RestartedView, WaitView,
};

/// The longest wait within one request; the daemon's own limit is an hour.
const WAIT: Duration = Duration::from_secs(600);

/// Carries out a command.
pub(crate) fn execute(config: &Path, admin: &Admin, command: Control) -> Result<(), Failure> {
    let named = match &command {
        Control::Status { name: Some(name), .. } => Some(name.clone()),
        _ => admin.channel.clone(),
    };
    let client = Client::new(config, &Admin { channel: named, ..admin.clone() })?;
    match command {
        Control::Status { max_lag: Some(most), .. } => status::check_lag(&client, most),
        Control::Status { name: _, all: _, json, vertical, watch, peers, max_lag: None } => {
            status::show(&client, &status::StatusForm { json, vertical, watch, peers })
        }
        Control::Pause(all) => to_state(&client, all, |channel| {
            let done = post(&client, channel, "pause", &json!({}))?;
            finished(done, "groups are still running; they will finish")
        }),
        Control::Resume(all) => {
            to_state(&client, all, |channel| post(&client, channel, "resume", &json!({})))
        }
        Control::Stop(how) => to_state(&client, how.all, |channel| {
            given_up(post(&client, channel, "stop", &request(how))?, how)
        }),
        Control::Restart(how) => to_state(&client, how.all, |channel| {
            given_up(post(&client, channel, "restart", &request(how))?, how)
        }),
        Control::Set { setting, value, all } => set(&client, &setting, &value, all),
        Control::Until(Until { all, end }) => {
            let end = end_of(end).to_string();
            send(&client, all, "", |channel| {
                change(&client, &format!("/channels/{channel}/until"), &end)
            })
        }
        Control::Skip { gtid } => {
            let CommandView { channel_name, state, state_detail, .. } =
                post(&client, &client.channel()?, "skip", &json!({ "gtid": gtid }))?;
            say!("channel {channel_name} is {}: {state_detail}", state.name());
            say!("skipped {gtid}; it is recorded in csa.audit on the target");
            Ok(())
        }
        Control::Wait { gtid_set, timeout } => wait(&client, &gtid_set, timeout),
        Control::Trace(trace) => trace::save(&client, &trace),
        Control::Relay { command } => relay::look(&client, &command),
        Control::Reload(how) => reload(&client, how),
        Control::Fleet { json } => fleet::show(&client, json),
        Control::Drain(how) => fleet::drain(&client, how),
    }
}

fn request(Stop { receiving, now, timeout, .. }: Stop) -> serde_json::Value {
    json!({ "all": receiving, "now": now, "timeout_seconds": timeout })
}

fn end_of(end: End) -> serde_json::Value {
    match end {
        End { before_gtids: Some(set), .. } => json!({ "sql_before_gtids": set }),
        End { after_gtids: Some(set), .. } => json!({ "sql_after_gtids": set }),
        End { before_time: Some(time), .. } => json!({ "sql_before_time": time }),
        // `--clear`: clap makes sure that one of the options is given.
        End { .. } => json!({}),
    }
}

/// The outcome of a command for a channel, in words.
type Sent = Result<String, Failure>;

/// Sends a command to the channel, or to each of several; prints the state after it.
fn to_state(
    client: &Client,
    all: All,
    command: impl Fn(&str) -> Result<CommandView, Failure> + Sync,
) -> Result<(), Failure> {
    let shown = |done: CommandView| format!("{}: {}", done.state.name(), done.state_detail);
    send(client, all, "is ", |channel| command(channel).map(shown))
}

/// `verb` joins a single channel's name and the outcome.
fn send(
    client: &Client,
    all: All,
    verb: &str,
    command: impl Fn(&str) -> Sent + Sync,
) -> Result<(), Failure> {
    match client.channels(all)? {
        Chosen::One(channel) => {
            let outcome = command(&channel)?;
            match verb {
                "" => say!("{outcome}"),
                verb => say!("channel {channel} {verb}{outcome}"),
            }
            Ok(())
        }
        Chosen::Several(channels) => {
            let mut outcomes = several::for_each(&channels, command);
            if several::failed(&outcomes) > 0 {
                // Who does not know it has no fleet.
                let fleet: FleetView = client.get("/fleet").unwrap_or_default();
                several::set_apart(&channels, &mut outcomes, &fleet);
            }
            print(&several::report(&channels, &outcomes))?;
            several::verdict(&channels, &outcomes)
        }
    }
}

/// Gives a command to one channel, after running groups have finished.
pub(super) fn command(
    client: &Client,
    channel: &str,
    command: &str,
) -> Result<CommandView, Failure> {
    post(client, channel, command, &json!({ "all": false, "now": false }))
}

pub(super) fn post(
    client: &Client,
    channel: &str,
    command: &str,
    body: &serde_json::Value,
) -> Result<CommandView, Failure> {
    client.post(&format!("/channels/{channel}/{command}"), body)
}

fn finished(done: CommandView, otherwise: &str) -> Result<CommandView, Failure> {
    match done.drained {
        true => Ok(done),
        false => Err(Failure::Runtime(format!("channel {}: {otherwise}", done.channel_name))),
    }
}

fn given_up(done: CommandView, how: Stop) -> Result<CommandView, Failure> {
    if how.now {
        return Ok(done);
    }
    finished(done, "running groups did not finish and were given up; the next start applies them")
}

fn set(client: &Client, setting: &str, value: &str, all: All) -> Result<(), Failure> {
    let of_channels: Vec<_> = set_commands(&CHANNEL_SETTINGS).map(|(name, _)| name).collect();
    let of_daemon: Vec<_> = set_commands(&DAEMON_SETTINGS).map(|(name, _)| name).collect();
    if of_channels.contains(&setting) {
        return send(client, all, "", |channel| {
            change(client, &format!("/channels/{channel}/{setting}"), value)
        });
    }
    if !of_daemon.contains(&setting) {
        return Err(Failure::Input(format!(
            "{setting} can't be changed while the daemon runs; {} can",
            listed([of_channels, of_daemon].concat(), "and")
        )));
    }
    if all.all || client.named_channel().is_some() {
        return Err(Failure::Input(format!(
            "{setting} is a setting of the daemon: leave --all and --channel out"
        )));
    }
    say!("{}", change(client, &format!("/{setting}"), value)?);
    Ok(())
}

fn change(client: &Client, path: &str, value: &str) -> Sent {
    let ChangedView { setting, from, to, .. } = client.put(path, value)?;
    Ok(format!("{setting}: {from} -> {to}"))
}

/// Like `WAIT_FOR_EXECUTED_GTID_SET` (<https://dev.mysql.com/doc/refman/en/gtid-functions.html>).
fn wait(client: &Client, gtid_set: &str, timeout: Option<Duration>) -> Result<(), Failure> {
    let until = timeout.and_then(end_after);
    let channel = client.channel()?;
    let set: String = form_urlencoded::byte_serialize(gtid_set.as_bytes()).collect();
    loop {
        let left = until.map_or(WAIT, |until| until.saturating_duration_since(Instant::now()));
        let seconds = left.min(WAIT).as_secs_f64();
        let path = format!("/channels/{channel}/wait?gtid_set={set}&timeout_seconds={seconds}");
        let WaitView { applied, missing, state, state_detail, .. } = client.get(&path)?;
        if applied {
            say!("applied");
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

fn reload(
    client: &Client,
    ReloadArguments { dry_run, restart }: ReloadArguments,
) -> Result<(), Failure> {
    let request = json!({ "dry_run": dry_run, "restart": restart });
    let outcome: ReloadView = client.post("/reload", &request)?;
    if outcome.is_empty() {
        say!("nothing has changed");
    }
    let ReloadView { dry_run, added, removed, restarted, changed, pending } = outcome;
    let would = if dry_run { "would be " } else { "" };
    for name in &added {
        say!("channel {name:?}: {would}added");
    }
    for name in &removed {
        say!(
            "channel {name:?}: {would}removed; its relay store and the checkpoint on its target remain"
        );
    }
    for RestartedView { channel_name, settings } in &restarted {
        say!("channel {channel_name:?}: {would}restarted for {}", settings.join(", "));
    }
    let of = |channel: Option<&str>| {
        channel.map_or_else(|| "daemon.".to_owned(), |name| format!("channel {name:?}: "))
    };
    for ChangedView { channel_name, setting, from, to } in &changed {
        say!("{}{setting}: {from} -> {to}", of(channel_name.as_deref()));
    }
    for PendingView { channel_name, setting, needs } in &pending {
        // Keys of other sections have their name with them.
        let of = |channel: Option<&str>| match (channel, setting.contains('.')) {
            (None, true) => String::new(),
            _ => of(channel),
        };
        say!("{}{setting} has changed and needs a {needs}", of(channel_name.as_deref()));
    }
    Ok(())
}
