//! Requests with JSON to the servers of an engine. Each has a connection of its own: there are a few in a
//! minute, and a server that went away is noticed by the next one. Only many requests at once share a
//! [`Link`], for as long as they take.

use std::fmt;
use std::io;
use std::sync::Arc;

use csa_provider::server::link::connect_to_host;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Uri};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

use crate::host::blocking;

/// Bytes of an answer, or of a line of one, that no engine exceeds.
const ANSWER_MAX: usize = 256 << 20;

trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// The way to a server in this process.
#[cfg(test)]
pub(super) type Dial = Arc<dyn Fn() -> io::Result<tokio::io::DuplexStream> + Send + Sync>;

/// Returns the settings of TLS for the next connection. They are asked for each time, because certificates are renewed while
/// the daemon runs. May block on a disk.
pub type TlsSettings = Arc<dyn Fn() -> Arc<ClientConfig> + Send + Sync>;

/// A server's address, and how to speak with it.
#[derive(Clone)]
pub struct Endpoint {
    host: String,
    port: u16,
    tls: Option<TlsSettings>,
    #[cfg(test)]
    dial: Option<Dial>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        write!(f, "{scheme}://{}:{}", self.host, self.port)
    }
}

impl Endpoint {
    /// # Errors
    /// The text is not `http://HOST:PORT` or `https://HOST:PORT`, or it is the latter and `tls` is missing.
    pub fn parse(text: &str, tls: Option<&TlsSettings>) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not http://HOST:PORT or https://HOST:PORT");
        let uri: Uri = text.trim_end_matches('/').parse().map_err(|_| wrong())?;
        let is_bare = uri.path_and_query().is_none_or(|path| path.as_str() == "/");
        let (Some(host), Some(port), true) = (uri.host(), uri.port_u16(), is_bare) else {
            return Err(wrong());
        };
        let tls = match (uri.scheme_str(), tls) {
            (Some("http"), _) => None,
            (Some("https"), Some(tls)) => Some(Arc::clone(tls)),
            (Some("https"), None) => {
                return Err(format!("{text:?} needs the authority of its certificate"));
            }
            _ => return Err(wrong()),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self {
            host,
            port,
            tls,
            #[cfg(test)]
            dial: None,
        })
    }

    /// A server in this process, for tests.
    #[cfg(test)]
    pub(super) fn within(dial: Dial) -> Self {
        Self { host: "server".to_owned(), port: 1, tls: None, dial: Some(dial) }
    }

    /// Sends a request over a connection of its own, and waits for the head of the answer.
    ///
    /// # Errors
    /// The server can't be reached, or does not speak HTTP.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> io::Result<Reply> {
        let mut link = self.link().await?;
        let mut reply = link.send(method, path, headers, body).await?;
        reply.connection = Some(link.connection);
        Ok(reply)
    }

    /// A connection for one request after another.
    ///
    /// # Errors
    /// The server can't be reached.
    pub async fn link(&self) -> io::Result<Link> {
        let stream = TokioIo::new(self.connect().await?);
        let (sender, connection) = http1::handshake(stream).await.map_err(io::Error::other)?;
        let connection = AbortOnDropHandle::new(tokio::spawn(async move {
            // Its failure is that of the request or of the body.
            let _ = connection.await;
        }));
        let host = match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        };
        Ok(Link { host, sender, connection })
    }

    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        #[cfg(test)]
        if let Some(dial) = &self.dial {
            return Ok(Box::new(dial()?));
        }
        let stream = connect_to_host(&self.host, self.port).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = self.tls.clone() else { return Ok(Box::new(stream)) };
        // It may read files.
        let tls = blocking(move || tls()).await.map_err(io::Error::other)?;
        let name = ServerName::try_from(self.host.clone()).map_err(io::Error::other)?;
        let stream = TlsConnector::from(tls).connect(name, stream).await?;
        Ok(Box::new(stream))
    }
}

/// A connection to a server; it ends when dropped.
pub struct Link {
    host: String,
    sender: http1::SendRequest<Full<Bytes>>,
    connection: AbortOnDropHandle<()>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("host", &self.host).finish_non_exhaustive()
    }
}

impl Link {
    /// Sends a request, and waits for the head of the answer; the one before must have been read to its end.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> io::Result<Reply> {
        let mut request = Request::builder().method(method).uri(path).header("host", &self.host);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let body = body.map_or_else(String::new, Value::to_string);
        let request = request.body(Full::new(Bytes::from(body))).map_err(io::Error::other)?;
        self.sender.ready().await.map_err(io::Error::other)?;
        let answer = self.sender.send_request(request).await.map_err(io::Error::other)?;
        let status = answer.status().as_u16();
        Ok(Reply { status, body: answer.into_body(), unread: Vec::new(), connection: None })
    }
}

/// An answer whose body is still to be read.
pub struct Reply {
    pub status: u16,
    body: Incoming,
    unread: Vec<u8>,
    /// The connection of a request that had one of its own.
    connection: Option<AbortOnDropHandle<()>>,
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("status", &self.status).finish_non_exhaustive()
    }
}

impl Reply {
    /// Returns the whole body.
    ///
    /// # Errors
    /// The link is lost, or the body is not text or too long.
    pub async fn text(mut self) -> io::Result<String> {
        while self.read().await? {}
        String::from_utf8(self.unread).map_err(io::Error::other)
    }

    /// The next line of a body that has no end, such as a watch; empty lines are left out. `None` at the end.
    ///
    /// # Errors
    /// Returns the next line, within the limit of [`Self::text`].
    pub async fn line(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let rest = self.unread.split_off(end + 1);
                let line = std::mem::replace(&mut self.unread, rest);
                let line = String::from_utf8(line).map_err(io::Error::other)?;
                if !line.trim().is_empty() {
                    return Ok(Some(line));
                }
            } else if !self.read().await? {
                return Ok(None);
            }
        }
    }

    /// Reads some more; false at the end.
    async fn read(&mut self) -> io::Result<bool> {
        let Some(frame) = self.body.frame().await else { return Ok(false) };
        if let Ok(data) = frame.map_err(io::Error::other)?.into_data() {
            self.unread.extend_from_slice(&data);
        }
        match self.unread.len() > ANSWER_MAX {
            true => Err(io::Error::other("the answer is too long")),
            false => Ok(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_has_a_scheme_a_host_and_a_port() {
        for text in ["http://127.0.0.1:2379", "http://etcd.example.com:2379/", "http://[::1]:2379"]
        {
            let endpoint = Endpoint::parse(text, None).expect(text);
            assert_eq!(endpoint.port, 2379);
        }
        for text in
            ["etcd:2379", "http://etcd", "ftp://etcd:1", "http://etcd:1/v3", "https://etcd:1", ""]
        {
            assert!(Endpoint::parse(text, None).is_err(), "{text}");
        }
    }
}
