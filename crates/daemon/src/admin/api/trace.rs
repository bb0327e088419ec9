//! A channel's timeline, sent while it is recorded.

use std::io;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::io::{AsyncWrite, AsyncWriteExt as _, duplex};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::io::ReaderStream;

use super::error::ApiError;
use super::request::{Parameters, Shared, channel};
use crate::channel::Traced;
use crate::observe::timeline::Timeline;

/// Text on its way to a client.
const BUFFER: usize = 256 << 10;
/// The interval between two looks at the figures.
const LOOK: Duration = Duration::from_millis(100);
const SECONDS: u64 = 10;
/// Longer timelines are too large for the programs that show them.
const SECONDS_MAX: u64 = 600;

pub(super) async fn trace(
    State(daemon): State<Shared>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let channel = channel(&daemon, &name)?;
    let parameters = Parameters::read(query.as_deref(), &["seconds"])?;
    let parse =
        |text: &str| text.parse::<u64>().ok().filter(|number| (1..=SECONDS_MAX).contains(number));
    let fix = format!("give a number of seconds from 1 to {SECONDS_MAX}");
    let seconds = parameters.parsed("seconds", parse, fix)?.unwrap_or(SECONDS);
    let traced = channel.trace().ok_or_else(|| {
        let error = format!("another client records a timeline of channel {name}");
        ApiError::new(StatusCode::CONFLICT, error, "wait until it is done, or end that client")
    })?;
    let (reader, writer) = duplex(BUFFER);
    // Ends, and recording with it, when its client goes away: then nothing can be written.
    tokio::spawn(async move { send(&name, &traced, Duration::from_secs(seconds), writer).await });
    let body = Body::from_stream(ReaderStream::new(reader));
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

async fn send(
    name: &str,
    traced: &Traced,
    time: Duration,
    mut writer: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let began = Instant::now();
    let began_at = traced.now();
    let (mut timeline, text) = Timeline::begin(name, traced.workers(), began);
    writer.write_all(text.as_bytes()).await?;
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let is_last = began.elapsed() >= time;
        let mut text = String::new();
        if is_last {
            traced.recording.stop();
        }
        for span in traced.recording.take() {
            timeline.span(&span, &mut text);
        }
        timeline.figures(Instant::now(), traced.figures(), &mut text);
        if is_last {
            for span in traced.unfinished() {
                timeline.span(&span, &mut text);
            }
            text += &timeline.end(name, &began_at, traced.recording.dropped());
        }
        writer.write_all(text.as_bytes()).await?;
        if is_last {
            return writer.shutdown().await;
        }
    }
}
