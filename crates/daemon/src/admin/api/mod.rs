//! The admin port: health, metrics, status, and control over HTTP. docs/openapi.json describes it.

mod auth;
mod control;
mod error;
mod fleet;
mod host;
mod local;
mod peer;
mod relay;
mod reports;
mod request;
mod serve;
mod slots;
mod socket;
mod stalls;
#[cfg(test)]
mod tests;
mod trace;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, get, post, put};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::admin::page;
use crate::host::Failure;
use crate::observe::view::API;
use auth::{Needs, guard};
use error::ApiError;
use peer::Peer;
use request::Shared;

/// Listens on the port and the socket, and serves until stopped.
///
/// # Errors
/// The address or the socket is wrong or taken, or `state_dir` can't be written. A full disk is no obstacle: the
/// channels make room there.
pub(crate) async fn start(daemon: Shared, stop: CancellationToken) -> Result<(), Failure> {
    let address = daemon.admin.listen.clone();
    let listener = TcpListener::bind(&address)
        .await
        .map_err(|error| Failure::Input(format!("daemon.admin_listen: {address}: {error}")))?;
    let app = router(Arc::clone(&daemon));
    let local = local::open(&daemon, &app, &stop)?;
    let socket = daemon.access().files.socket.clone();
    info!(%address, socket = %socket.display(), "admin port open");
    tokio::spawn(local.complete(Arc::clone(&daemon), app.clone(), stop.clone()));
    tokio::spawn(serve::network(daemon, listener, app, stop));
    Ok(())
}

/// Method, path, who may use it, and what answers.
type ApiRoute = (&'static str, String, Needs, MethodRouter<Shared>);

/// Returns pages, probes and metrics, at the paths where browsers, supervisors and Prometheus look for them.
fn routes_without_version() -> Vec<ApiRoute> {
    use Needs::{Nothing, Read};
    let fixed = [
        // The page has no figures in it: it requests them like any other client.
        ("get", "/", Nothing, get(async || page::page())),
        ("get", "/runbook", Nothing, get(async || page::runbook())),
        ("get", "/healthz", Nothing, get(reports::healthy)),
        ("get", "/readyz", Read, get(reports::ready)),
        ("get", "/metrics", Read, get(reports::prometheus)),
    ];
    fixed.map(|(method, path, needs, answer)| (method, path.to_owned(), needs, answer)).into()
}

/// Returns the paths of the API, without its version.
fn routes() -> Vec<ApiRoute> {
    use Needs::{Control, Read};
    let fixed = [
        ("get", "/history", Read, get(reports::history)),
        ("get", "/history/recent", Read, get(reports::recent)),
        ("get", "/status", Read, get(reports::status)),
        ("get", "/peers", Read, get(reports::peers)),
        ("get", "/openapi.json", Read, get(reports::openapi)),
        ("get", "/channels/{name}/status", Read, get(reports::channel_status)),
        ("get", "/channels/{name}/incidents", Read, get(reports::incidents)),
        ("get", "/channels/{name}/wait", Read, get(reports::wait)),
        ("get", "/channels/{name}/trace", Read, get(trace::trace)),
        ("get", "/channels/{name}/relay", Read, get(relay::segments)),
        ("get", "/channels/{name}/relay/transactions", Read, get(relay::transactions)),
        ("post", "/channels/{name}/pause", Control, post(control::pause)),
        ("post", "/channels/{name}/resume", Control, post(control::resume)),
        ("post", "/channels/{name}/stop", Control, post(control::stop)),
        ("post", "/channels/{name}/restart", Control, post(control::restart)),
        ("post", "/channels/{name}/skip", Control, post(control::skip)),
        ("put", "/channels/{name}/until", Control, put(control::set_until)),
        ("post", "/reload", Control, post(control::reload)),
        ("get", "/fleet", Read, get(fleet::fleet)),
        ("post", "/fleet/drain", Control, post(fleet::drain)),
    ];
    let fixed = fixed.map(|(method, path, needs, answer)| (method, path.to_owned(), needs, answer));
    let settings = control::settings().into_iter();
    let settings = settings.map(|(path, answer)| ("put", path, Control, answer));
    fixed.into_iter().chain(settings).collect()
}

fn router(daemon: Shared) -> Router {
    let mut router = Router::new();
    // Every path of the API also answers without its version: scripts may have the short one.
    let versioned = routes()
        .into_iter()
        .map(|(method, path, needs, methods)| (method, format!("{API}{path}"), needs, methods));
    for (_, path, needs, methods) in
        routes_without_version().into_iter().chain(routes()).chain(versioned)
    {
        let state = (Arc::clone(&daemon), needs);
        router = router.route(&path, methods.route_layer(from_fn_with_state(state, guard)));
    }
    router
        .fallback(async || {
            let fix = "see /openapi.json for all paths";
            ApiError::new(StatusCode::NOT_FOUND, "no such path", fix)
        })
        .method_not_allowed_fallback(async || {
            let fix = "see /openapi.json for the methods of this path";
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method not allowed here", fix)
        })
        .layer(from_fn_with_state(Arc::clone(&daemon), named_host))
        .with_state(daemon)
}

/// Refuses requests for another host. The socket is exempt: no browser can reach it.
async fn named_host(State(daemon): State<Shared>, request: Request, next: Next) -> Response {
    let is_local = request.extensions().get::<Peer>().is_some_and(Peer::is_local);
    if !is_local
        && let Err(error) = host::check(&daemon.access().hosts, request.uri(), request.headers())
    {
        return error.into_response();
    }
    next.run(request).await
}
