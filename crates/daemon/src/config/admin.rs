//! Access to the admin port.

use std::path::Path;

use secrecy::{ExposeSecret as _, SecretString};

use super::addresses::is_loopback;
use super::admin_files::AdminFiles;
use super::admin_peers::AdminPeers;
use super::admin_tls::AdminTls;
use super::declared_keys::DaemonConfig;
use super::error::ConfigError;
use super::secrets::token;
use super::{admin_peers, admin_tls};

/// The access rules of the admin port.
#[derive(Debug, Clone, Default)]
pub(crate) struct Access {
    /// The port accepts commands.
    pub(crate) control: bool,
    /// Permits everything; without one, everyone who reaches the port may read.
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
            "daemon.admin_read_token_file: requires admin_token_file; without it anyone can read"
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
