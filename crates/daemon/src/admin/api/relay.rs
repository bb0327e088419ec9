//! Relay stores, for inspection.

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, Path, RawQuery, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use csa_relaystore::read::RelayInspector;
use tokio::io::duplex;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tokio_util::io::{ReaderStream, SyncIoBridge};

use super::auth::{Needs, Permitted, check};
use super::error::ApiError;
use super::request::{Parameters, Shared, channel};
use crate::observe::relay_dump::{Dump, WantedTransactions};
use crate::observe::view::{SegmentView, SegmentsView};

/// Lines on their way to a client.
const BUFFER: usize = 64 << 10;
/// The default number of transactions in a dump.
const LIMIT: u64 = 100;

pub(super) async fn segments(
    State(daemon): State<Shared>,
    Path(name): Path<String>,
) -> Result<Json<SegmentsView>, ApiError> {
    let channel = channel(&daemon, &name)?;
    channel.write_relay_files().await;
    let options = channel.settings().relay.clone();
    let listed = spawn_blocking(move || RelayInspector::open(&options)?.segments()).await;
    let listed = listed.map_err(ApiError::internal)?.map_err(ApiError::internal)?;
    let segments = listed.into_iter().map(|facts| SegmentView {
        segment: facts.number,
        path: facts.path.display().to_string(),
        bytes: facts.bytes,
        transactions: facts.transactions,
        event_bytes: facts.event_bytes,
        gtid_set: facts.gtid_set.to_string(),
    });
    Ok(Json(SegmentsView { channel_name: name, segments: segments.collect() }))
}

/// One JSON object a line, sent while it is read: a transaction may be larger than memory.
pub(super) async fn transactions(
    State(daemon): State<Shared>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
    Extension(permitted): Extension<Permitted>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let channel = channel(&daemon, &name)?;
    let parameters = Parameters::read(query.as_deref(), &["gtid_set", "limit", "rows"])?;
    let is_true = |text: &str| text.parse::<bool>().ok();
    let rows = parameters.parsed("rows", is_true, "use true or false")?.unwrap_or(false);
    if rows {
        // Row values need more rights than the state of a channel.
        check(&daemon.access(), permitted, Needs::Rows, &headers)?;
    }
    let gtid_set = parameters.gtid_set()?;
    let number = |text: &str| text.parse::<u64>().ok();
    let limit = parameters.parsed("limit", number, "give a number of transactions")?;
    let wanted = WantedTransactions { gtid_set, limit: limit.unwrap_or(LIMIT), rows };
    channel.write_relay_files().await;
    let settings = channel.settings();
    let (reader, writer) = duplex(BUFFER);
    let runtime = Handle::current();
    spawn_blocking(move || {
        let out = SyncIoBridge::new_with_handle(writer, runtime.clone());
        // The dump ends when its client goes away.
        let _ = Dump::new(&settings, wanted, runtime, out).run();
    });
    let body = Body::from_stream(ReaderStream::new(reader));
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}
