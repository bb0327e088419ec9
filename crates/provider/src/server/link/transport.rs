//! Bytes both ways: TCP, a Unix socket, or a script in a test.

use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::addresses::connect_to_host;

/// Linux reads the milliseconds as a signed number, and refuses more.
const USER_TIMEOUT_MAX: Duration = Duration::from_millis(i32::MAX as u64);

/// Bytes to and from a server.
pub trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

/// A connection to come.
pub type Connecting<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn Transport>>> + Send + 'a>>;

/// Opens the connections to servers: the system's network, or a simulated one.
pub trait Network: Debug + Send + Sync {
    /// Connects; `net_timeout` is the longest time that sent bytes may stay unacknowledged.
    fn connect<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        net_timeout: Option<Duration>,
    ) -> Connecting<'a>;
}

/// The system's network.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemNetwork;

#[expect(clippy::disallowed_methods, reason = "the one place that gives it to channels")]
impl Network for SystemNetwork {
    fn connect<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        net_timeout: Option<Duration>,
    ) -> Connecting<'a> {
        Box::pin(async move {
            let transport: Box<dyn Transport> = match endpoint {
                Endpoint::Tcp { host, port } => {
                    let stream = connect_to_host(host, *port).await?;
                    tune(&stream, net_timeout)?;
                    Box::new(stream)
                }
                Endpoint::Unix(path) => Box::new(UnixStream::connect(path).await?),
            };
            Ok(transport)
        })
    }
}

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

impl Endpoint {
    /// Returns the host that a certificate has to name.
    pub(super) fn host(&self) -> &str {
        match self {
            Self::Tcp { host, .. } => host,
            Self::Unix(_) => "localhost",
        }
    }

    /// Returns true if only this machine's kernel is in between.
    pub(super) fn is_local(&self) -> bool {
        matches!(self, Self::Unix(_))
    }
}

/// Sets the options of a TCP link. A peer that vanished silently is noticed by keepalive while
/// nothing is sent, and after `net_timeout` if sent bytes are not acknowledged.
fn tune(stream: &TcpStream, net_timeout: Option<Duration>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    // With Linux's nine probes, a peer that vanished is noticed after two minutes.
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(30))
        .with_interval(Duration::from_secs(10));
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&keepalive)?;
    if let Some(net_timeout) = net_timeout {
        socket.set_tcp_user_timeout(Some(net_timeout.min(USER_TIMEOUT_MAX)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_link_takes_any_timeout() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        let day = Duration::from_secs(24 * 3600);
        for (given, set) in [
            (day, day),
            (24 * day, 24 * day),
            (30 * day, USER_TIMEOUT_MAX),
            (365 * day, USER_TIMEOUT_MAX),
        ] {
            tune(&stream, Some(given)).unwrap();
            assert_eq!(SockRef::from(&stream).tcp_user_timeout().unwrap(), Some(set));
        }
        tune(&stream, None).unwrap();
    }
}
