//! One connection to a server as its client: TCP or Unix socket, TLS, login, packets, text queries.
//! For source and target alike, so that one policy says what a peer may get out of us: no password
//! that it could read, and no more memory than an answer of its kind takes.

mod error;
mod greeting;
mod limits;
mod login;
mod packets;
mod query;
pub(crate) mod rsa;
mod tls;
mod transport;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use secrecy::SecretString;

pub use error::LinkError;
pub use limits::{Budget, Limits};
pub use mysql_common::row::Row;
pub use mysql_common::row::convert::FromRow;
pub use mysql_common::value::Value;
pub use mysql_common::value::convert::FromValue;
pub use query::Outcome;
pub use transport::Endpoint;

pub(crate) use packets::Packets;
#[cfg(test)]
pub(crate) use tls::client_config;
pub(crate) use transport::Transport;

use query::State;

/// One of a channel's two servers; errors and keys are named after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Source,
    Target,
}

impl fmt::Display for Side {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Source => "source",
            Self::Target => "target",
        })
    }
}

/// How a link is protected, in the words of MySQL's `--ssl-mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsMode {
    Disabled,
    /// Encrypted where the server can.
    #[default]
    Preferred,
    /// Encrypted, whoever the server is.
    Required,
    /// The server's certificate comes from a known authority.
    VerifyCa,
    /// And names the host we asked for.
    VerifyIdentity,
}

impl TlsMode {
    /// True where the server has to prove its identity.
    #[must_use]
    pub const fn verifies(self) -> bool {
        matches!(self, Self::VerifyCa | Self::VerifyIdentity)
    }
}

/// How link and password are protected, and the files that it takes.
#[derive(Debug, Clone, Default)]
pub struct TlsOptions {
    pub mode: TlsMode,
    pub ca: Option<PathBuf>,
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
    pub public_key: PublicKey,
}

/// Under which RSA key the password may go over a link that is not encrypted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum PublicKey {
    /// Under none: such a login is refused.
    #[default]
    None,
    /// Under the one that the server sends when asked for it, whoever the server is.
    Asked,
    /// Under the one in this file.
    Pinned(PathBuf),
}

/// The purpose of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The stream of a source.
    Replication,
    /// Statements, several in a packet; an UPDATE counts the rows that it matched, so that one that
    /// changed nothing is not taken for one that is missing.
    Statements,
}

/// Address, account and protection of a link.
#[derive(Debug, Clone)]
pub struct LinkOptions {
    pub side: Side,
    pub purpose: Purpose,
    pub endpoint: Endpoint,
    pub user: String,
    pub password: SecretString,
    pub tls: TlsOptions,
    pub connect_timeout: Duration,
    /// An answer may be silent for so long; `None`: a statement takes what it takes.
    pub silence: Option<Duration>,
    /// Sent bytes may stay unacknowledged for so long; `None`: as the system has it.
    pub net_timeout: Option<Duration>,
}

/// One connection to a server, logged in.
pub struct Link {
    packets: Packets,
    state: State,
    silence: Option<Duration>,
    /// Rows end with an OK packet, and nothing stands between columns and rows.
    deprecate_eof: bool,
    connection_id: u32,
    server_version: String,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("connection_id", &self.connection_id)
            .field("server_version", &self.server_version)
            .finish_non_exhaustive()
    }
}

impl Link {
    /// Connects and logs in.
    ///
    /// # Errors
    /// Whatever the network, TLS, or the server's login has to say.
    pub async fn connect(options: &LinkOptions) -> Result<Self, LinkError> {
        let tls = tls::client_config(options)?;
        let attempt = async {
            let transport = options.endpoint.connect(options.net_timeout).await?;
            Self::login(transport, options, tls).await
        };
        tokio::time::timeout(options.connect_timeout, attempt)
            .await
            .map_err(|_| LinkError::Timeout(options.connect_timeout))?
    }

    /// Logs in over a transport that is connected already.
    pub(crate) async fn login(
        transport: Box<dyn Transport>,
        options: &LinkOptions,
        tls: Option<Arc<ClientConfig>>,
    ) -> Result<Self, LinkError> {
        login::login(transport, options, tls).await.map_err(|error| match error {
            LinkError::TooLong(text) => {
                LinkError::Protocol(format!("{text} before the login was complete"))
            }
            other => other,
        })
    }

    /// The server's number of this connection.
    #[must_use]
    pub const fn connection_id(&self) -> u32 {
        self.connection_id
    }

    /// The server's version text.
    #[must_use]
    pub fn server_version(&self) -> &str {
        &self.server_version
    }
}
