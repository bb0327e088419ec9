//! Commands.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{MethodRouter, put};
use csa_provider::binlog::Gtid;
use csa_scheduler::until::Until;
use serde::Deserialize;
use tracing::info;

use super::error::ApiError;
use super::request::{Shared, channel, read};
use crate::channel::{CHANNEL_SETTINGS, Paused, SetCommand, Stopped, Supervisor};
use crate::config::parse_until;
use crate::daemon::{DAEMON_SETTINGS, Reload};
use crate::host::{Sender, now_micros};
use crate::observe::view::{ChangedView, CommandView, ReloadView};

type JsonAnswer<T> = Result<Json<T>, ApiError>;

/// Options of a stop, or of a restart.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct StopRequest {
    /// End reception too.
    all: bool,
    /// Give up running groups.
    now: bool,
    /// Time limit for running groups; `stop_timeout` by default.
    timeout_seconds: Option<u32>,
    /// A stop of a channel that is stopped already is no error, and has no number of its own.
    may_be_stopped: bool,
    /// Restart only if this was the last stop.
    if_stopped_by: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SkipRequest {
    gtid: String,
}

pub(super) async fn pause(
    State(daemon): State<Shared>,
    Path(name): Path<String>,
    sender: Sender,
) -> JsonAnswer<CommandView> {
    let channel = channel(&daemon, &name)?;
    log_command(&channel, "pause", &sender);
    // No await lies between the change and the task that writes its audit row (`write_later`): a
    // client that goes away takes no record with it. `resume` and `settings` below do it in the same
    // way.
    channel.set_paused(Some(paused(&sender))).await?;
    daemon.record(&channel, &sender, "pause", String::new()).await;
    let drained = channel.wait_at_rest(daemon.stop_timeout()).await;
    Ok(Json(view(&channel, drained)))
}

pub(super) async fn resume(
    State(daemon): State<Shared>,
    Path(name): Path<String>,
    sender: Sender,
) -> JsonAnswer<CommandView> {
    let channel = channel(&daemon, &name)?;
    log_command(&channel, "resume", &sender);
    channel.set_paused(None).await?;
    daemon.record(&channel, &sender, "resume", String::new()).await;
    Ok(Json(view(&channel, true)))
}

pub(super) async fn stop(
    State(daemon): State<Shared>,
    Path(name): Path<String>,
    sender: Sender,
    body: Bytes,
) -> JsonAnswer<CommandView> {
    end_run(daemon, &name, sender, &body, "stop").await
}

pub(super) async fn restart(
    State(daemon): State<Shared>,
    Path(name): Path<String>,
    sender: Sender,
    body: Bytes,
) -> JsonAnswer<CommandView> {
    end_run(daemon, &name, sender, &body, RESTART).await
}

const RESTART: &str = "restart";

/// Ends a channel's run, and begins another for [`RESTART`].
async fn end_run(
    daemon: Shared,
    name: &str,
    sender: Sender,
    body: &Bytes,
    command: &'static str,
) -> JsonAnswer<CommandView> {
    let channel = channel(&daemon, name)?;
    let request: StopRequest = if body.is_empty() { StopRequest::default() } else { read(body)? };
    let patience = patience(&daemon, &request);
    log_command(&channel, command, &sender);
    to_its_end(async move {
        let StopRequest { all, may_be_stopped, if_stopped_by, .. } = request;
        let (drained, stop_number) = match command {
            RESTART => (channel.restart(patience, all, if_stopped_by).await?, None),
            _ => {
                let Stopped { drained, number } =
                    channel.stop(patience, all, may_be_stopped).await?;
                (drained, Some(number))
            }
        };
        daemon.record(&channel, &sender, command, words(drained, all)).await;
        Ok(CommandView { stop_number, ..view(&channel, drained) })
    })
    .await
}

pub(super) async fn skip(
    State(daemon): State<Shared>,
    Path(name): Path<String>,
    sender: Sender,
    body: Bytes,
) -> JsonAnswer<CommandView> {
    let channel = channel(&daemon, &name)?;
    let SkipRequest { gtid } = read(&body)?;
    let gtid: Gtid = gtid.parse().map_err(|error: csa_provider::binlog::ParseGtidError| {
        ApiError::bad(
            error.to_string(),
            "give the GTID of the transaction that stopped the channel",
        )
    })?;
    log_command(&channel, "skip", &sender);
    to_its_end(async move {
        channel.skip(&gtid, &sender).await?;
        Ok(view(&channel, true))
    })
    .await
}

/// Returns the route of each setting that a command changes.
pub(super) fn settings() -> Vec<(String, MethodRouter<Shared>)> {
    let of_channels = CHANNEL_SETTINGS.iter().filter_map(|setting| {
        let command = setting.command.as_ref()?;
        let set = async move |State(daemon): State<Shared>,
                              Path(name): Path<String>,
                              sender: Sender,
                              body: String| {
            let channel = channel(&daemon, &name)?;
            channel.check_present()?;
            channel.check_target(command.name)?;
            let [from, to] = set(command, channel.controls(), &body)?;
            Ok::<_, ApiError>(
                changed(&daemon, Some(&channel), command.name, from, to, &sender).await,
            )
        };
        Some((format!("/channels/{{name}}/{}", command.name), put(set)))
    });
    let of_daemon = DAEMON_SETTINGS.iter().filter_map(|setting| {
        let command = setting.command.as_ref()?;
        let set = async move |State(daemon): State<Shared>, sender: Sender, body: String| {
            let [from, to] = set(command, &daemon, &body)?;
            Ok::<_, ApiError>(changed(&daemon, None, command.name, from, to, &sender).await)
        };
        Some((format!("/{}", command.name), put(set)))
    });
    of_channels.chain(of_daemon).collect()
}

fn set<H>(command: &SetCommand<H>, holder: &H, text: &str) -> Result<[String; 2], ApiError> {
    (command.change)(holder, text).map_err(|error| ApiError::bad(error, command.form))
}

pub(super) async fn set_until(
    State(daemon): State<Shared>,
    Path(name): Path<String>,
    sender: Sender,
    body: Bytes,
) -> JsonAnswer<ChangedView> {
    let channel = channel(&daemon, &name)?;
    let said: BTreeMap<String, String> = read(&body)?;
    let until = parse_until(&said).map_err(|error| {
        ApiError::bad(format!("until{error}"), "give one end, or none for no end")
    })?;
    // The command may have to start the channel.
    to_its_end(async move {
        let shown =
            |until: Option<Until>| until.map_or("none".to_owned(), |until| until.to_string());
        let before = channel.set_until(until.clone()).await?;
        Ok(changed(&daemon, Some(&channel), "until", shown(before), shown(until), &sender).await.0)
    })
    .await
}

pub(super) async fn reload(
    State(daemon): State<Shared>,
    sender: Sender,
    body: Bytes,
) -> JsonAnswer<ReloadView> {
    let how = if body.is_empty() { Reload::default() } else { read(&body)? };
    to_its_end(async move {
        daemon.reload(how, &sender).await.map_err(|error| {
            let fix = "correct the file; nothing was changed";
            ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, error.0, fix)
        })
    })
    .await
}

/// In a task of its own: a client that goes away drops the request's future, and a command must not
/// remain half done.
async fn to_its_end<T: Send + 'static>(
    command: impl Future<Output = Result<T, ApiError>> + Send + 'static,
) -> JsonAnswer<T> {
    let done = tokio::spawn(command).await.map_err(ApiError::internal)?;
    Ok(Json(done?))
}

/// Returns the time that running groups have.
fn patience(daemon: &Shared, request: &StopRequest) -> Duration {
    match *request {
        StopRequest { now: true, .. } => Duration::ZERO,
        StopRequest { timeout_seconds: Some(seconds), .. } => Duration::from_secs(seconds.into()),
        StopRequest { timeout_seconds: None, .. } => daemon.stop_timeout(),
    }
}

fn view(channel: &Supervisor, drained: bool) -> CommandView {
    let view = channel.view();
    CommandView {
        channel_name: view.channel_name,
        state: view.state,
        state_detail: view.state_detail,
        drained,
        applied_transaction_set: view.applied_transaction_set,
        stop_number: None,
    }
}

fn log_command(channel: &Supervisor, command: &str, sender: &Sender) {
    let Sender { peer, claimed } = sender;
    info!(channel = channel.name(), by = claimed, peer, command, "command");
}

fn paused(sender: &Sender) -> Paused {
    let Sender { peer, claimed } = sender;
    let by = claimed.as_ref().map_or_else(|| peer.clone(), |name| format!("{name} ({peer})"));
    Paused { by, since: now_micros() }
}

/// Returns the detail of a stop.
fn words(drained: bool, all: bool) -> String {
    let reception = all.then_some("reception too");
    let given_up = (!drained).then_some("what ran was given up");
    reception.into_iter().chain(given_up).collect::<Vec<_>>().join(", ")
}

async fn changed(
    daemon: &Shared,
    channel: Option<&Arc<Supervisor>>,
    setting: &str,
    from: impl ToString,
    to: impl ToString,
    sender: &Sender,
) -> Json<ChangedView> {
    let channel_name = channel.map(|channel| channel.name().to_owned());
    let (from, to) = (from.to_string(), to.to_string());
    let action = if setting == "until" { "until" } else { "set" };
    let detail = format!("{setting}: {from} -> {to}");
    match channel {
        Some(channel) => daemon.record(channel, sender, action, detail).await,
        None => daemon.record_for_all(sender, action, &detail).await,
    }
    Json(ChangedView { channel_name, setting: setting.to_owned(), from, to })
}
