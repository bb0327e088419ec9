//! One connection to a server as its client: TCP or Unix socket, TLS, login, packets, text queries.
//! Source and target share it, so that one policy limits what a peer can obtain from us: no
//! password that others could read, and no more memory than an answer of its kind takes.

mod addresses;
mod error;
mod greeting;
mod limits;
mod login;
mod packets;
mod password;
mod query;
pub(crate) mod rsa;
pub(crate) mod server_errors;
mod tls;
mod transport;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use secrecy::SecretString;

pub use addresses::connect_to_host;
pub use error::{LinkError, NO_TABLE, refused_pause};
pub use limits::{Budget, Limits};
pub use mysql_common::row::Row;
pub use mysql_common::row::convert::FromRow;
pub use mysql_common::value::Value;
pub use mysql_common::value::convert::FromValue;
pub use password::{Password, secret_text};
pub use query::{NextRows, Outcome, RowPart, rows_as};
pub use server_errors::{About, Consequence, Opening, RULES, Rule, rule_of};
pub use transport::{Connecting, Endpoint, Network, SystemNetwork, Transport};

pub(crate) use packets::Packets;
#[cfg(test)]
pub(crate) use tls::client_config;

use query::State;

/// One of a channel's two servers; errors and configuration keys use its name.
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

/// The protection of a link, with the names of MySQL's `--ssl-mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsMode {
    Disabled,
    /// Encrypted if the server supports it.
    #[default]
    Preferred,
    /// Encrypted, without checking the server's identity.
    Required,
    /// The server's certificate comes from a known authority.
    VerifyCa,
    /// It also names the host that we connect to.
    VerifyIdentity,
}

impl TlsMode {
    /// Returns true if the server has to prove its identity.
    #[must_use]
    pub const fn verifies(self) -> bool {
        matches!(self, Self::VerifyCa | Self::VerifyIdentity)
    }
}

/// The protection of link and password, and the files for it.
#[derive(Debug, Clone, Default)]
pub struct TlsOptions {
    pub mode: TlsMode,
    pub ca: Option<PathBuf>,
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
    pub public_key: PublicKey,
}

/// The RSA key with which the password may be sent over a link that is not encrypted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum PublicKey {
    /// No key: such a login is refused.
    #[default]
    None,
    /// The key that the server sends on request, without checking the server's identity.
    Asked,
    /// The key in this file.
    Pinned(PathBuf),
}

/// The purpose of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The stream of a source.
    Replication,
    /// Statements, several in a packet. An UPDATE counts the rows that it matched: a row that it
    /// did not change is thus not mistaken for a missing one.
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
    /// The longest silence while waiting for an answer; `None`: unlimited, as statements may take
    /// any time.
    pub silence: Option<Duration>,
    /// The longest time that sent bytes may stay unacknowledged; `None`: the system's default.
    pub net_timeout: Option<Duration>,
    pub network: Arc<dyn Network>,
}

/// One connection to a server, logged in.
pub struct Link {
    packets: Packets,
    state: State,
    silence: Option<Duration>,
    /// Rows end with an OK packet, and no packet separates columns and rows.
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
    /// Any error of the network, of TLS or of the server's login.
    pub async fn connect(options: &LinkOptions) -> Result<Self, LinkError> {
        let tls = tls::client_config(options)?;
        let attempt = async {
            let transport = options.network.connect(&options.endpoint, options.net_timeout).await?;
            Self::login(transport, options, tls).await
        };
        tokio::time::timeout(options.connect_timeout, attempt)
            .await
            .map_err(|_| LinkError::Timeout(options.connect_timeout))?
    }

    /// Logs in over a connected transport.
    pub(crate) async fn login(
        transport: Box<dyn Transport>,
        options: &LinkOptions,
        tls: Option<Arc<ClientConfig>>,
    ) -> Result<Self, LinkError> {
        login::login(transport, options, tls).await.map_err(|error| match error {
            LinkError::Io(error) => login::tls_error(error, options.side),
            LinkError::TooLong(text) => {
                LinkError::Protocol(format!("{text} before the login was complete"))
            }
            other => other,
        })
    }

    /// Returns the server's id of this connection.
    #[must_use]
    pub const fn connection_id(&self) -> u32 {
        self.connection_id
    }

    /// Returns the server's version text.
    #[must_use]
    pub fn server_version(&self) -> &str {
        &self.server_version
    }
}
