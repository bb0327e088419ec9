//! The fleet that this daemon belongs to.

use crate::claims::fleet_view::FleetView;
use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use tracing::info;

use super::error::ApiError;
use super::request::{Shared, read};
use crate::host::Sender;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct DrainRequest {
    /// Take channels again.
    undo: bool,
}

pub(super) async fn fleet(State(daemon): State<Shared>) -> Json<FleetView> {
    Json(daemon.fleet_view())
}

/// Begins; `/fleet` shows how far it is.
pub(super) async fn drain(
    State(daemon): State<Shared>,
    sender: Sender,
    body: Bytes,
) -> Result<Json<FleetView>, ApiError> {
    let DrainRequest { undo } =
        if body.is_empty() { DrainRequest::default() } else { read(&body)? };
    let Some(fleet) = daemon.fleet() else {
        let error = "this daemon is in no fleet: claims.engine is \"none\"";
        let fix = "to end its channels, use stop --all; to share them with others, set [claims]";
        return Err(ApiError::new(StatusCode::CONFLICT, error, fix));
    };
    let Sender { peer, claimed } = &sender;
    info!(by = claimed, peer, undo, "command drain");
    fleet.drain(!undo);
    Ok(Json(fleet.view()))
}
