//! The admin port: health, metrics, status, and control over HTTP. docs/openapi.json describes it.

mod auth;
mod control;
mod error;
mod relay;
mod reports;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, get, post, put};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::daemon::Daemon;
use crate::{Failure, page};
use auth::{Needs, guard};
use error::ApiError;

type Shared = Arc<Daemon>;

/// What the port answers, and what it is served with.
const OPENAPI: &str = include_str!("../../../../docs/openapi.json");

/// Listens and serves until stopped.
///
/// # Errors
/// The address is wrong or taken.
pub(crate) async fn start(daemon: Shared, stop: CancellationToken) -> Result<(), Failure> {
    let address = daemon.admin_listen.clone();
    let listener = TcpListener::bind(&address)
        .await
        .map_err(|error| Failure::Input(format!("daemon.admin_listen: {address}: {error}")))?;
    info!(%address, "admin port open");
    let app = router(daemon).into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move {
        let served =
            axum::serve(listener, app).with_graceful_shutdown(stop.cancelled_owned()).await;
        if let Err(error) = served {
            warn!(%error, "admin port closed");
        }
    });
    Ok(())
}

/// Every method and path, who may use it, and what answers.
fn routes() -> Vec<(&'static str, &'static str, Needs, MethodRouter<Shared>)> {
    use Needs::{Control, Nothing, Read};
    vec![
        // Without figures: it asks for those as everybody does.
        ("get", "/", Nothing, get(async || page::page())),
        ("get", "/history", Read, get(reports::history)),
        ("get", "/healthz", Nothing, get(reports::healthy)),
        ("get", "/readyz", Read, get(reports::ready)),
        ("get", "/metrics", Read, get(reports::prometheus)),
        ("get", "/status", Read, get(reports::status)),
        ("get", "/openapi.json", Read, get(reports::openapi)),
        ("get", "/channels/{name}/status", Read, get(reports::channel_status)),
        ("get", "/channels/{name}/wait", Read, get(reports::wait)),
        ("get", "/channels/{name}/relay", Read, get(relay::segments)),
        ("get", "/channels/{name}/relay/transactions", Read, get(relay::transactions)),
        ("post", "/channels/{name}/pause", Control, post(control::pause)),
        ("post", "/channels/{name}/resume", Control, post(control::resume)),
        ("post", "/channels/{name}/stop", Control, post(control::stop)),
        ("post", "/channels/{name}/restart", Control, post(control::restart)),
        ("post", "/channels/{name}/skip", Control, post(control::skip)),
        ("put", "/channels/{name}/worker_count", Control, put(control::set_worker_count)),
        ("put", "/channels/{name}/event_memory_limit", Control, put(control::set_event_memory)),
        ("put", "/channels/{name}/source_delay", Control, put(control::set_source_delay)),
        ("put", "/channels/{name}/throttle", Control, put(control::set_throttle)),
        ("put", "/channels/{name}/until", Control, put(control::set_until)),
        ("put", "/log_filter", Control, put(control::set_log_filter)),
        ("post", "/reload", Control, post(control::reload)),
    ]
}

fn router(daemon: Shared) -> Router {
    let mut router = Router::new();
    for (_, path, needs, methods) in routes() {
        let state = (Arc::clone(&daemon), needs);
        router = router.route(path, methods.route_layer(from_fn_with_state(state, guard)));
    }
    router
        .fallback(async || {
            let fix = "see /openapi.json for what there is";
            ApiError::new(StatusCode::NOT_FOUND, "no such path", fix)
        })
        .method_not_allowed_fallback(async || {
            let fix = "see /openapi.json for the methods of this path";
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method not allowed here", fix)
        })
        .with_state(daemon)
}
