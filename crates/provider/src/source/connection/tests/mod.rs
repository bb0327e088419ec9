//! The link against a scripted source.

mod certificates;
mod dump;
mod limits;
mod liveness;
mod login;
mod packets;
mod results;
mod rsa;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustls::ClientConfig;
use tokio::io::DuplexStream;
use tokio::task::JoinHandle;

use super::fake_source::{FakeSource, options, tls};
use super::*;
use crate::binlog::event::{EventType, RawEvent};
use crate::binlog::gtid::GtidSet;
use crate::test_util::event_bytes;

/// Bytes that fit between client and script before either waits.
const BUFFER_BYTES: usize = 64 << 10;
/// No script takes that long; a client that waits for more than it gets fails here.
const PATIENCE: Duration = Duration::from_secs(60);

/// Logs in to a script.
async fn login<S>(
    options: SourceOptions,
    tls: Option<Arc<ClientConfig>>,
    script: impl FnOnce(FakeSource) -> S,
) -> Result<SourceConnection, LinkError>
where
    S: Future<Output = ()> + Send + 'static,
{
    let (client, source) = tokio::io::duplex(BUFFER_BYTES);
    let script = tokio::spawn(script(FakeSource::new(source)));
    let outcome = login_over(client, &options, tls).await;
    script.await.expect("the script ends");
    outcome
}

async fn login_over(
    client: DuplexStream,
    options: &SourceOptions,
    tls: Option<Arc<ClientConfig>>,
) -> Result<SourceConnection, LinkError> {
    let link = options.link("source", 0);
    let attempt = Link::login(Box::new(client), &link, tls);
    let link = tokio::time::timeout(PATIENCE, attempt).await.expect("the login ends")?;
    Ok(SourceConnection::over(link, options))
}

/// Returns a dump with events from a script, which the requests precede.
async fn dump<S>(
    checksum: &'static str,
    received: &GtidSet,
    script: impl FnOnce(FakeSource, Vec<Vec<u8>>) -> S + Send + 'static,
) -> (SourceConnection, JoinHandle<()>)
where
    S: Future<Output = ()> + Send,
{
    let (client, source) = tokio::io::duplex(BUFFER_BYTES);
    let script = tokio::spawn(async move {
        let mut source = FakeSource::new(source);
        source.accept_login().await;
        let commands = source.accept_dump(checksum).await;
        script(source, commands).await;
    });
    let mut connection = login_over(client, &options(), None).await.expect("logs in");
    connection.start_dump(&options(), received).await.expect("a dump");
    (connection, script)
}

/// Returns an event of this length.
fn event_of(len: usize) -> Bytes {
    let checksum = ChecksumAlgorithm::Crc32;
    let body = vec![0x5a; len - crate::binlog::EventHeader::LEN - checksum.len()];
    event_bytes(EventType::WRITE_ROWS, &body, checksum)
}

fn heartbeat() -> Bytes {
    event_bytes(EventType::HEARTBEAT, b"binlog.000001", ChecksumAlgorithm::Crc32)
}

async fn next(connection: &mut SourceConnection) -> Result<RawEvent, ConnectionError> {
    let next = tokio::time::timeout(PATIENCE, connection.next_event()).await;
    next.expect("an event or an error").map(|(event, _)| event)
}
