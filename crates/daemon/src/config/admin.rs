//! Who may use the admin port.

use std::net::ToSocketAddrs as _;
use std::path::Path;

use secrecy::{ExposeSecret as _, SecretString};

use super::settings::{is_world_readable, secret};
use super::{ConfigError, DaemonConfig};

/// A shorter token could be guessed.
const TOKEN_LEN_MIN: usize = 16;

/// What the admin port asks of those who use it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Access {
    /// Commands are taken.
    pub(crate) control: bool,
    /// Permits everything; without one nobody is asked.
    pub(crate) token: Option<SecretString>,
    /// Permits to look.
    pub(crate) read_token: Option<SecretString>,
}

/// Reads the tokens. An address that others can reach needs one.
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
            "daemon.admin_read_token_file: needs admin_token_file too, or everybody may do all"
                .to_owned(),
        ));
    }
    let address = &daemon.admin_listen;
    if token.is_none() && !is_loopback(address)? {
        return Err(ConfigError(format!(
            "daemon.admin_listen: {address} can be reached from other machines; set \
             daemon.admin_token_file, or listen on 127.0.0.1"
        )));
    }
    Ok(Access { control: daemon.admin_control, token, read_token })
}

fn is_loopback(address: &str) -> Result<bool, ConfigError> {
    let mut addresses = address
        .to_socket_addrs()
        .map_err(|error| ConfigError(format!("daemon.admin_listen: {address:?}: {error}")))?;
    Ok(addresses.all(|address| address.ip().is_loopback()))
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
