//! Addresses on this host, and those that others can listen in on.

use std::io;
use std::net::ToSocketAddrs as _;

/// True if HOST:PORT is on this host, whichever of its addresses is taken.
pub(super) fn is_loopback(address: &str) -> io::Result<bool> {
    Ok(address.to_socket_addrs()?.all(|address| address.ip().is_loopback()))
}

/// Nobody else can read what is sent there.
pub(super) fn is_private(endpoint: &str) -> bool {
    let Some(address) = endpoint.strip_prefix("http://") else { return true };
    let address = address.trim_end_matches('/');
    let port = if address.contains(':') { "" } else { ":80" };
    is_loopback(&format!("{address}{port}")).unwrap_or(false)
}
