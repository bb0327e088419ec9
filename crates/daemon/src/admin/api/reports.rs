//! Status, history and waits: requests that only read.

use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::auth::Permitted;
use super::error::ApiError;
use super::request::{Parameters, Shared, channel};
use super::serve::Place;
use crate::observe::history::{HistoryView, IncidentsView, RecentView};
use crate::observe::metrics;
use crate::observe::view::{ChannelView, DaemonView, PeersView, StatusView, WaitView};

type ApiAnswer<T> = Result<T, ApiError>;

/// The API's description, as the port serves it.
pub(super) const OPENAPI: &str = include_str!("../../../../../docs/openapi.json");
/// The longest wait of one request; clients repeat it.
const WAIT_MAX: Duration = Duration::from_secs(3600);

pub(super) async fn healthy() -> &'static str {
    "ok\n"
}

pub(super) async fn ready(State(daemon): State<Shared>) -> ApiAnswer<&'static str> {
    let not_ready: Vec<String> = daemon
        .views()
        .into_iter()
        .filter(|view| !view.state.is_well())
        .map(|view| {
            let ChannelView { channel_name, state, state_detail, .. } = view;
            format!("channel {channel_name} is {}: {state_detail}", state.name())
        })
        .collect();
    if not_ready.is_empty() {
        return Ok("ready\n");
    }
    let fix = "see /status";
    Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, not_ready.join("; "), fix))
}

pub(super) async fn prometheus(State(daemon): State<Shared>) -> ApiAnswer<Response> {
    let text = metrics::render(&daemon.views(), daemon.last_reload(), &daemon.fleet_view());
    let text = text.map_err(ApiError::internal)?;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response())
}

pub(super) async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}

pub(super) async fn status(
    State(daemon): State<Shared>,
    Extension(permitted): Extension<Permitted>,
) -> Json<StatusView> {
    let mut channels = daemon.views();
    if permitted == Permitted::All {
        channels.iter_mut().for_each(ChannelView::reveal);
    }
    Json(StatusView {
        daemon: DaemonView {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_seconds: daemon.process.started.elapsed().as_secs(),
            log_filter: daemon.log.current(),
            shows_values: permitted == Permitted::All,
            id: daemon.process.id.clone(),
            peers: daemon.access().peers.addresses.len(),
        },
        channels,
    })
}

/// Returns the channels of other daemons; those that are away are named.
pub(super) async fn peers(State(daemon): State<Shared>) -> Json<PeersView> {
    Json(daemon.peers.view(&daemon.access().peers, &daemon.process.id).await)
}

/// Returns the channels over time, for the status page.
pub(super) async fn history(
    State(daemon): State<Shared>,
    RawQuery(query): RawQuery,
) -> ApiAnswer<Json<HistoryView>> {
    let parameters = Parameters::read(query.as_deref(), &["seconds", "channel"])?;
    let name = parameters.get("channel");
    if let Some(name) = name {
        channel(&daemon, name)?;
    }
    let history = daemon.history.answer(parameters.get("seconds"), name);
    history.map(Json).map_err(|why| ApiError::bad(why, "omit it for the last hour"))
}

/// Returns the last minutes of every channel, for a table of them.
pub(super) async fn recent(State(daemon): State<Shared>) -> Json<RecentView> {
    Json(daemon.history.recent())
}

/// Returns the times in which a channel did not do what it should.
pub(super) async fn incidents(
    State(daemon): State<Shared>,
    Path(name): Path<String>,
) -> ApiAnswer<Json<IncidentsView>> {
    channel(&daemon, &name)?;
    Ok(Json(daemon.history.incidents(&name)))
}

pub(super) async fn channel_status(
    State(daemon): State<Shared>,
    Path(name): Path<String>,
    Extension(permitted): Extension<Permitted>,
) -> ApiAnswer<Json<ChannelView>> {
    let mut view = channel(&daemon, &name)?.view();
    if permitted == Permitted::All {
        view.reveal();
    }
    Ok(Json(view))
}

/// Answers once a GTID set is applied, or when time is up.
pub(super) async fn wait(
    State(daemon): State<Shared>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
    Extension(place): Extension<Place>,
) -> ApiAnswer<Json<WaitView>> {
    let channel = channel(&daemon, &name)?;
    let parameters = Parameters::read(query.as_deref(), &["gtid_set", "timeout_seconds"])?;
    let set = parameters
        .gtid_set()?
        .ok_or_else(|| ApiError::bad("gtid_set is missing", "name the transactions to wait for"))?;
    let parse = |text: &str| Duration::try_from_secs_f64(text.parse().ok()?).ok();
    let timeout = parameters.parsed("timeout_seconds", parse, "give a number of seconds")?;
    let _waiting = place.wait().ok_or_else(|| {
        let fix = "repeat it once some of them are done";
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "too many clients wait already", fix)
    })?;
    let timeout = timeout.unwrap_or(WAIT_MAX).min(WAIT_MAX);
    let missing = channel.wait_for(&set, timeout).await?;
    let view = channel.view();
    Ok(Json(WaitView {
        channel_name: name,
        applied: missing.is_empty(),
        missing: missing.to_string(),
        state: view.state,
        state_detail: view.state_detail,
    }))
}
