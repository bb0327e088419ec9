//! The admin port: health, metrics and status over HTTP.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use axum::{Json, Router};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::Failure;
use crate::channel::Channel;
use crate::config::DurationValue;
use crate::metrics;
use crate::view::{ChannelView, DaemonView, StatusView};

#[derive(Debug)]
struct Admin {
    channels: Vec<Arc<Channel>>,
    started: Instant,
}

/// Listens on `address` and serves until stopped.
///
/// # Errors
/// The address is wrong or taken.
pub(crate) async fn start(
    address: &str,
    channels: Vec<Arc<Channel>>,
    stop: CancellationToken,
) -> Result<(), Failure> {
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| Failure::Input(format!("daemon.admin_listen: {address}: {error}")))?;
    info!(%address, "admin port open");
    let app = router(Arc::new(Admin { channels, started: Instant::now() }));
    tokio::spawn(async move {
        let served =
            axum::serve(listener, app).with_graceful_shutdown(stop.cancelled_owned()).await;
        if let Err(error) = served {
            warn!(%error, "admin port closed");
        }
    });
    Ok(())
}

fn router(admin: Arc<Admin>) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(prometheus))
        .route("/status", get(status))
        .route("/channels/{name}/status", get(channel_status))
        .route("/channels/{name}/worker_count", put(set_worker_count))
        .route("/channels/{name}/source_delay", put(set_source_delay))
        .with_state(admin)
}

impl Admin {
    fn views(&self) -> Vec<ChannelView> {
        self.channels.iter().map(|channel| channel.view()).collect()
    }
}

async fn ready(State(admin): State<Arc<Admin>>) -> Response {
    let not_ready: Vec<String> = admin
        .views()
        .into_iter()
        .filter(|view| !view.state.is_well())
        .map(|view| {
            format!(
                "channel {} is {}: {}\n",
                view.channel_name,
                view.state.name(),
                view.state_detail
            )
        })
        .collect();
    if not_ready.is_empty() {
        return "ready\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, not_ready.concat()).into_response()
}

async fn prometheus(State(admin): State<Arc<Admin>>) -> Response {
    match metrics::render(&admin.views()) {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn status(State(admin): State<Arc<Admin>>) -> Json<StatusView> {
    Json(StatusView {
        daemon: DaemonView {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_seconds: admin.started.elapsed().as_secs(),
        },
        channels: admin.views(),
    })
}

async fn channel_status(State(admin): State<Arc<Admin>>, Path(name): Path<String>) -> Response {
    match admin.views().into_iter().find(|view| view.channel_name == name) {
        Some(view) => Json(view).into_response(),
        None => (StatusCode::NOT_FOUND, format!("no channel {name:?}\n")).into_response(),
    }
}

/// Takes the number as text: `curl -X PUT -d 16 …/channels/orders/worker_count`.
async fn set_worker_count(
    State(admin): State<Arc<Admin>>,
    Path(name): Path<String>,
    body: String,
) -> Response {
    let Some(channel) = admin.channels.iter().find(|channel| channel.name() == name) else {
        return (StatusCode::NOT_FOUND, format!("no channel {name:?}\n")).into_response();
    };
    let count =
        body.trim().parse().map_err(|_| format!("worker_count: {body:?} is not in 1..1024"));
    match count.and_then(|count| channel.set_worker_count(count)) {
        Ok(()) => "changed\n".into_response(),
        Err(why) => (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response(),
    }
}

/// Takes the duration as text: `curl -X PUT -d 10m …/channels/orders/source_delay`.
async fn set_source_delay(
    State(admin): State<Arc<Admin>>,
    Path(name): Path<String>,
    body: String,
) -> Response {
    let Some(channel) = admin.channels.iter().find(|channel| channel.name() == name) else {
        return (StatusCode::NOT_FOUND, format!("no channel {name:?}\n")).into_response();
    };
    match DurationValue::parse(body.trim()) {
        Some(delay) => {
            channel.set_source_delay(delay.0);
            "changed\n".into_response()
        }
        None => {
            let why = format!("source_delay: {body:?} is not a duration like \"5s\"\n");
            (StatusCode::BAD_REQUEST, why).into_response()
        }
    }
}
