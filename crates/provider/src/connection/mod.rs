//! A connection to the source: packets, login, queries, and the dump of its binary log.

mod dump;
#[cfg(test)]
pub(crate) mod fake_source;
mod login;
mod packets;
mod query;
mod rsa;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::event::{ChecksumAlgorithm, EventError};
use crate::options::SourceOptions;
use crate::tls;
use packets::Packets;

/// Why a connection failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    #[error("nothing received for {0:?}, heartbeats included: the link is dead")]
    Silent(Duration),
    #[error("error {code}: {message}")]
    Server { code: u16, message: String },
    #[error("TLS: {0}")]
    Tls(String),
    #[error("login: {0}")]
    Login(String),
    #[error("protocol: {0}")]
    Protocol(String),
    #[error("the source closed the connection")]
    Closed,
    #[error(transparent)]
    Event(#[from] EventError),
}

impl ConnectionError {
    /// The server's error number, where one was given.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Server { code, .. } => Some(*code),
            _ => None,
        }
    }
}

/// Bytes both ways, encrypted or not, or a script in a test.
pub(crate) trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

/// One connection to the source.
pub struct SourceConnection {
    packets: Packets,
    connection_id: u32,
    server_version: String,
    /// How the events of the dump are protected.
    checksum: ChecksumAlgorithm,
    /// A source that is silent for longer is gone.
    dead_after: Duration,
}

impl std::fmt::Debug for SourceConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SourceConnection")
            .field("connection_id", &self.connection_id)
            .field("server_version", &self.server_version)
            .finish_non_exhaustive()
    }
}

impl SourceConnection {
    /// Connects and logs in.
    ///
    /// # Errors
    /// Whatever the network, TLS, or the server's login has to say.
    pub async fn connect(
        options: &SourceOptions,
        host: &str,
        port: u16,
    ) -> Result<Self, ConnectionError> {
        let tls = tls::client_config(options)?;
        let attempt = async {
            let stream = TcpStream::connect((host, port)).await?;
            tune(&stream)?;
            Self::login(Box::new(stream), options, host, tls).await
        };
        tokio::time::timeout(options.connect_timeout, attempt)
            .await
            .map_err(|_| ConnectionError::Timeout(options.connect_timeout))?
    }

    /// Logs in over a transport that is connected already.
    pub(crate) async fn login(
        transport: Box<dyn Transport>,
        options: &SourceOptions,
        host: &str,
        tls: Option<Arc<ClientConfig>>,
    ) -> Result<Self, ConnectionError> {
        let (packets, greeting) = login::login(transport, options, host, tls).await?;
        Ok(Self {
            packets,
            connection_id: greeting.connection_id,
            server_version: greeting.server_version,
            checksum: ChecksumAlgorithm::Off,
            dead_after: options.dead_after(),
        })
    }

    /// The source's number of this connection.
    #[must_use]
    pub const fn connection_id(&self) -> u32 {
        self.connection_id
    }

    /// The source's version text.
    #[must_use]
    pub fn server_version(&self) -> &str {
        &self.server_version
    }
}

/// A peer that vanished without a word is noticed by keepalive even between heartbeats.
fn tune(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(30))
        .with_interval(Duration::from_secs(10));
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}
