//! Commands.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, Path, State};
use axum::http::{HeaderMap, StatusCode};
use csa_provider::Gtid;
use csa_scheduler::Until;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tracing::info;

use super::Shared;
use super::auth::sender;
use super::error::ApiError;
use super::reports::channel;
use crate::channel::{Refusal, Supervisor};
use crate::config::{DurationValue, Size, event_memory_limit, parse_until, throttle, worker_count};
use crate::view::{ChangedView, CommandView, ReloadView};

type Answer<T> = Result<Json<T>, ApiError>;
type Peer = ConnectInfo<SocketAddr>;

/// How a stop is to go.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct StopRequest {
    /// Give up what runs.
    now: bool,
    /// How long what runs may take to finish; `stop_timeout` if not said.
    timeout_seconds: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SkipRequest {
    gtid: String,
}

pub(super) async fn pause(
    State(daemon): State<Shared>,
    Path(name): Path<String>,
    headers: HeaderMap,
    peer: Peer,
) -> Answer<CommandView> {
    let channel = channel(&daemon, &name)?;
    told(channel, "pause", &sender(&headers, peer));
    channel.set_paused(true).await?;
    let drained = channel.wait_at_rest(daemon.stop_timeout()).await;
    Ok(Json(view(channel, drained)))
}

pub(super) async fn resume(
    State(daemon): State<Shared>,
    Path(name): Path<String>,
    headers: HeaderMap,
    peer: Peer,
) -> Answer<CommandView> {
    let channel = channel(&daemon, &name)?;
    told(channel, "resume", &sender(&headers, peer));
    channel.set_paused(false).await?;
    Ok(Json(view(channel, true)))
}

pub(super) async fn stop(
    State(daemon): State<Shared>,
    Path(name): Path<String>,
    headers: HeaderMap,
    peer: Peer,
    body: Bytes,
) -> Answer<CommandView> {
    let channel = Arc::clone(channel(&daemon, &name)?);
    let patience = patience(&daemon, &body)?;
    told(&channel, "stop", &sender(&headers, peer));
    to_its_end(async move {
        let drained = channel.stop(patience).await?;
        Ok(view(&channel, drained))
    })
    .await
}

pub(super) async fn restart(
    State(daemon): State<Shared>,
    Path(name): Path<String>,
    headers: HeaderMap,
    peer: Peer,
    body: Bytes,
) -> Answer<CommandView> {
    let channel = Arc::clone(channel(&daemon, &name)?);
    let patience = patience(&daemon, &body)?;
    told(&channel, "restart", &sender(&headers, peer));
    to_its_end(async move {
        let drained = channel.restart(patience).await?;
        Ok(view(&channel, drained))
    })
    .await
}

pub(super) async fn skip(
    State(daemon): State<Shared>,
    Path(name): Path<String>,
    headers: HeaderMap,
    peer: Peer,
    body: Bytes,
) -> Answer<CommandView> {
    let channel = Arc::clone(channel(&daemon, &name)?);
    let SkipRequest { gtid } = read(&body)?;
    let gtid: Gtid = gtid.parse().map_err(|error: csa_provider::ParseGtidError| {
        ApiError::bad(error.to_string(), "say the GTID of the transaction that stopped the channel")
    })?;
    let by = sender(&headers, peer);
    told(&channel, "skip", &by);
    to_its_end(async move {
        channel.skip(&gtid, &by).await?;
        Ok(view(&channel, true))
    })
    .await
}

pub(super) async fn set_worker_count(
    State(daemon): State<Shared>,
    Path(name): Path<String>,
    headers: HeaderMap,
    peer: Peer,
    body: String,
) -> Answer<ChangedView> {
    let channel = channel(&daemon, &name)?;
    let wrong = |error| ApiError::bad(error, "say a number from 1 to 1024");
    let count = body.trim().parse().map_err(|_| wrong(format!("worker_count: {body:?}")))?;
    let count = worker_count(count).map_err(|error| wrong(error.0))?;
    let before = channel.controls().tuning().worker_count;
    channel.controls().set_worker_count(count);
    Ok(changed(Some(channel), "worker_count", before, count, &sender(&headers, peer)))
}

pub(super) async fn set_event_memory(
    State(daemon): State<Shared>,
    Path(name): Path<String>,
    headers: HeaderMap,
    peer: Peer,
    body: String,
) -> Answer<ChangedView> {
    let channel = channel(&daemon, &name)?;
    let wrong = || ApiError::bad(format!("event_memory_limit: {body:?}"), "say a size like 256MiB");
    // As in the file: what is under the packet limit is raised to it.
    let (limit, _) = event_memory_limit(Size::parse(&body).ok_or_else(wrong)?);
    let memory = channel.controls().memory();
    let before = memory.limit();
    memory.set_limit(limit);
    Ok(changed(Some(channel), "event_memory_limit", before, limit, &sender(&headers, peer)))
}

pub(super) async fn set_throttle(
    State(daemon): State<Shared>,
    Path(name): Path<String>,
    headers: HeaderMap,
    peer: Peer,
    body: String,
) -> Answer<ChangedView> {
    let channel = channel(&daemon, &name)?;
    let wrong = |_| {
        let fix = "say a number of transactions per second, 0 for no limit";
        ApiError::bad(format!("throttle: {body:?}"), fix)
    };
    let rate: u32 = body.trim().parse().map_err(wrong)?;
    let before = channel.controls().tuning().throttle.map_or(0, |rate| rate.get());
    channel.controls().set_throttle(throttle(rate));
    Ok(changed(Some(channel), "throttle", before, rate, &sender(&headers, peer)))
}

pub(super) async fn set_source_delay(
    State(daemon): State<Shared>,
    Path(name): Path<String>,
    headers: HeaderMap,
    peer: Peer,
    body: String,
) -> Answer<ChangedView> {
    let channel = channel(&daemon, &name)?;
    let wrong =
        || ApiError::bad(format!("source_delay: {body:?}"), "say a duration like 500ms, 5s or 2m");
    let delay = DurationValue::parse(body.trim()).ok_or_else(wrong)?.0;
    let before = channel.controls().source_delay();
    channel.controls().set_source_delay(delay);
    let (before, delay) = (format!("{before:?}"), format!("{delay:?}"));
    Ok(changed(Some(channel), "source_delay", before, delay, &sender(&headers, peer)))
}

pub(super) async fn set_until(
    State(daemon): State<Shared>,
    Path(name): Path<String>,
    headers: HeaderMap,
    peer: Peer,
    body: Bytes,
) -> Answer<ChangedView> {
    let channel = Arc::clone(channel(&daemon, &name)?);
    let said: BTreeMap<String, String> = read(&body)?;
    let until = parse_until(&said).map_err(|error| {
        ApiError::bad(format!("until{error}"), "say one end, or none for no end")
    })?;
    let by = sender(&headers, peer);
    // It may have to start the channel.
    to_its_end(async move {
        let shown =
            |until: Option<Until>| until.map_or("none".to_owned(), |until| until.to_string());
        let before = channel.set_until(until.clone()).await?;
        Ok(changed(Some(&channel), "until", shown(before), shown(until), &by).0)
    })
    .await
}

pub(super) async fn set_log_filter(
    State(daemon): State<Shared>,
    headers: HeaderMap,
    peer: Peer,
    body: String,
) -> Answer<ChangedView> {
    let text = body.trim();
    let before = daemon.log.set(text).map_err(|error| {
        ApiError::bad(error, "say a filter like info or csa_applier=debug,info")
    })?;
    Ok(changed(None, "log_filter", before, text, &sender(&headers, peer)))
}

pub(super) async fn reload(State(daemon): State<Shared>) -> Answer<ReloadView> {
    let reloaded = tokio::task::spawn_blocking(move || daemon.reload()).await;
    let reloaded = reloaded.map_err(ApiError::internal)?;
    let wrong = |error: crate::config::ConfigError| {
        let fix = "correct the file; nothing was changed";
        ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, error.0, fix)
    };
    reloaded.map(Json).map_err(wrong)
}

/// A client that goes away must not leave a command half done.
async fn to_its_end<T: Send + 'static>(
    command: impl Future<Output = Result<T, Refusal>> + Send + 'static,
) -> Answer<T> {
    let done = tokio::spawn(command).await.map_err(ApiError::internal)?;
    Ok(Json(done?))
}

fn patience(daemon: &Shared, body: &[u8]) -> Result<Duration, ApiError> {
    let request: StopRequest = if body.is_empty() { StopRequest::default() } else { read(body)? };
    Ok(match request {
        StopRequest { now: true, .. } => Duration::ZERO,
        StopRequest { timeout_seconds: Some(seconds), .. } => Duration::from_secs(seconds.into()),
        StopRequest { timeout_seconds: None, .. } => daemon.stop_timeout(),
    })
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body)
        .map_err(|error| ApiError::bad(format!("body: {error}"), "see /openapi.json for its form"))
}

fn view(channel: &Supervisor, drained: bool) -> CommandView {
    let view = channel.view();
    CommandView {
        channel_name: view.channel_name,
        state: view.state,
        state_detail: view.state_detail,
        drained,
        applied_transaction_set: view.applied_transaction_set,
    }
}

fn told(channel: &Supervisor, command: &str, by: &str) {
    info!(channel = channel.name(), by, command, "command");
}

fn changed(
    channel: Option<&Arc<Supervisor>>,
    setting: &str,
    from: impl ToString,
    to: impl ToString,
    by: &str,
) -> Json<ChangedView> {
    let channel_name = channel.map(|channel| channel.name().to_owned());
    let (from, to) = (from.to_string(), to.to_string());
    info!(channel = channel_name.as_deref(), by, setting, from, to, "setting changed");
    Json(ChangedView { channel_name, setting: setting.to_owned(), from, to })
}
