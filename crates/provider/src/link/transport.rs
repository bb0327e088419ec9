//! Bytes both ways: TCP, a Unix socket, or a script in a test.

use std::path::PathBuf;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::LinkError;

pub(crate) trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

impl Endpoint {
    pub(super) async fn connect(
        &self,
        net_timeout: Option<Duration>,
    ) -> Result<Box<dyn Transport>, LinkError> {
        match self {
            Self::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                tune(&stream, net_timeout)?;
                Ok(Box::new(stream))
            }
            Self::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
        }
    }

    /// The host that a certificate has to name.
    pub(super) fn host(&self) -> &str {
        match self {
            Self::Tcp { host, .. } => host,
            Self::Unix(_) => "localhost",
        }
    }

    /// True if only this machine's kernel is in between.
    pub(super) fn is_local(&self) -> bool {
        matches!(self, Self::Unix(_))
    }
}

/// Sets the options of a TCP link. A peer that vanished silently is noticed by keepalive while
/// nothing is sent, and after `net_timeout` if sent bytes are not acknowledged.
fn tune(stream: &TcpStream, net_timeout: Option<Duration>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(30))
        .with_interval(Duration::from_secs(10));
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&keepalive)?;
    if net_timeout.is_some() {
        socket.set_tcp_user_timeout(net_timeout)?;
    }
    Ok(())
}
