//! Connections that the HTTP client has no transport for: to a Unix socket, and with our own TLS.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use ureq::Error;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};

/// Both ends are on one network, usually on one host.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// The destination of a connection.
#[derive(Clone)]
pub(crate) enum Route {
    Socket(PathBuf),
    Tls {
        name: ServerName<'static>,
        config: Arc<ClientConfig>,
        /// The longest wait for a byte; none for a daemon, which works on a command for as long as it takes.
        silent: Option<Duration>,
    },
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => write!(f, "Socket({})", path.display()),
            Self::Tls { name, .. } => write!(f, "Tls({name:?})"),
        }
    }
}

impl Connector for Route {
    type Out = Stream;

    fn connect(&self, to: &ConnectionDetails<'_>, _: Option<()>) -> Result<Option<Stream>, Error> {
        let pipe: Box<dyn Pipe> = match self {
            Self::Socket(path) => Box::new(UnixStream::connect(path)?),
            Self::Tls { name, config, silent } => {
                let session = ClientConnection::new(Arc::clone(config), name.clone());
                let session = session.map_err(io::Error::other)?;
                Box::new(StreamOwned::new(session, reach(to, *silent)?))
            }
        };
        let buffers =
            LazyBuffers::new(to.config.input_buffer_size(), to.config.output_buffer_size());
        Ok(Some(Stream { pipe, buffers, is_tls: matches!(self, Self::Tls { .. }) }))
    }
}

/// Returns the first address that answers.
fn reach(to: &ConnectionDetails<'_>, silent: Option<Duration>) -> io::Result<TcpStream> {
    let mut refused = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in &*to.addrs {
        match TcpStream::connect_timeout(address, CONNECT_TIME) {
            Ok(stream) => {
                stream.set_read_timeout(silent)?;
                stream.set_write_timeout(silent)?;
                return Ok(stream);
            }
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

trait Pipe: Read + Write + Send + Sync {}

impl<T: Read + Write + Send + Sync> Pipe for T {}

/// A connection; it lasts as long as the command.
pub(crate) struct Stream {
    pipe: Box<dyn Pipe>,
    buffers: LazyBuffers,
    is_tls: bool,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stream")
    }
}

/// No time limits of its own: a command may wait for as long as the daemon works on it.
impl Transport for Stream {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, _: NextTimeout) -> Result<(), Error> {
        let output = self.buffers.output().get(..amount).unwrap_or_default();
        self.pipe.write_all(output)?;
        Ok(self.pipe.flush()?)
    }

    fn await_input(&mut self, _: NextTimeout) -> Result<bool, Error> {
        let amount = self.pipe.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        // Each request gets a connection of its own: there are few.
        false
    }

    fn is_tls(&self) -> bool {
        self.is_tls
    }
}
