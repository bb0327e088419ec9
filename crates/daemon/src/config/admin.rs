//! Access to the admin port.

use std::io;
use std::net::ToSocketAddrs as _;
use std::path::Path;

use secrecy::{ExposeSecret as _, SecretString};

use super::settings::{is_world_readable, secret};
use super::{AdminFiles, AdminPeers, AdminTls, ConfigError, DaemonConfig, admin_peers, admin_tls};

/// A shorter token could be guessed.
const TOKEN_LEN_MIN: usize = 16;

/// The access rules of the admin port.
#[derive(Debug, Clone, Default)]
pub(crate) struct Access {
    /// The port accepts commands.
    pub(crate) control: bool,
    /// Permits everything; without one, everybody who reaches the port may read.
    pub(crate) token: Option<SecretString>,
    /// Permits reading.
    pub(crate) read_token: Option<SecretString>,
    /// Host names that a request may carry, other than addresses; in lower case.
    pub(crate) hosts: Vec<String>,
    pub(crate) tls: Option<AdminTls>,
    /// Named in refusals.
    pub(crate) files: AdminFiles,
    /// Not access to this port, but to those of others.
    pub(crate) peers: AdminPeers,
}

impl PartialEq for Access {
    fn eq(&self, other: &Self) -> bool {
        let text = |token: &Option<SecretString>| {
            token.as_ref().map(|token| token.expose_secret().to_owned())
        };
        self.control == other.control
            && text(&self.token) == text(&other.token)
            && text(&self.read_token) == text(&other.read_token)
            && self.hosts == other.hosts
            && self.tls == other.tls
            && self.peers == other.peers
    }
}

/// Reads the tokens. An address that other machines can reach needs one.
pub(super) fn resolve(
    daemon: &DaemonConfig,
    warnings: &mut Vec<String>,
) -> Result<Access, ConfigError> {
    let mut read = |key: &str, path: Option<&Path>| {
        path.map(|path| token(&format!("daemon.{key}"), path, warnings)).transpose()
    };
    let token = read("admin_token_file", daemon.admin_token_file.as_deref())?;
    let read_token = read("admin_read_token_file", daemon.admin_read_token_file.as_deref())?;
    if read_token.is_some() && token.is_none() {
        return Err(ConfigError(
            "daemon.admin_read_token_file: needs admin_token_file too, or everybody may look"
                .to_owned(),
        ));
    }
    let address = &daemon.admin_listen;
    let unknown = |error| ConfigError(format!("daemon.admin_listen: {address:?}: {error}"));
    if token.is_none() && !is_loopback(address).map_err(unknown)? {
        return Err(ConfigError(format!(
            "daemon.admin_listen: {address} can be reached from other machines; set \
             daemon.admin_token_file, or listen on 127.0.0.1"
        )));
    }
    Ok(Access {
        control: daemon.admin_control,
        token,
        read_token,
        hosts: hosts(daemon)?,
        tls: admin_tls::resolve(daemon, warnings)?,
        files: AdminFiles::of(daemon),
        peers: admin_peers::resolve(daemon, warnings)?,
    })
}

/// True if HOST:PORT is on this host, whichever of its addresses is taken.
pub(super) fn is_loopback(address: &str) -> io::Result<bool> {
    Ok(address.to_socket_addrs()?.all(|address| address.ip().is_loopback()))
}

fn hosts(daemon: &DaemonConfig) -> Result<Vec<String>, ConfigError> {
    let is_name = |name: &str| {
        let known = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        !name.is_empty() && name.bytes().all(known)
    };
    if let Some(wrong) = daemon.admin_hosts.iter().find(|name| !is_name(name)) {
        return Err(ConfigError(format!(
            "daemon.admin_hosts: {wrong:?} is not the name of a host; write it without scheme and port"
        )));
    }
    let own = daemon.admin_listen.rsplit_once(':').map_or("", |(host, _)| host);
    let named = [own].into_iter().filter(|name| is_name(name)).map(str::to_owned);
    Ok(named.chain(daemon.admin_hosts.iter().cloned()).map(|n| n.to_ascii_lowercase()).collect())
}

/// Reads a token from a file.
pub(crate) fn token(
    key: &str,
    path: &Path,
    warnings: &mut Vec<String>,
) -> Result<SecretString, ConfigError> {
    let token = secret(key, path)?;
    let text = token.expose_secret().trim();
    let usable = text.bytes().all(|byte| byte.is_ascii_graphic());
    if text.len() < TOKEN_LEN_MIN || !usable {
        return Err(ConfigError(format!(
            "{key}: {}: a token is one line of at least {TOKEN_LEN_MIN} visible ASCII characters",
            path.display()
        )));
    }
    if is_world_readable(path) {
        warnings.push(format!("{key}: everybody can read {}; chmod 600", path.display()));
    }
    Ok(text.into())
}
