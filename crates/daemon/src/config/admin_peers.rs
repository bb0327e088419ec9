//! The other daemons whose channels the page shows.

use std::path::PathBuf;

use secrecy::{ExposeSecret as _, SecretString};
use ureq::http::Uri;

use super::addresses::is_private;
use super::admin_tls::authorities;
use super::declared_keys::DaemonConfig;
use super::error::ConfigError;
use super::secrets;

/// Addresses, and the proof of who asks and who answers.
#[derive(Debug, Clone, Default)]
pub(crate) struct AdminPeers {
    /// The addresses, without a slash at the end.
    pub(crate) addresses: Vec<String>,
    pub(crate) token: Option<SecretString>,
    /// Their certificates.
    pub(crate) authorities: Option<PathBuf>,
}

impl PartialEq for AdminPeers {
    fn eq(&self, other: &Self) -> bool {
        let token = |peers: &Self| peers.token.as_ref().map(|t| t.expose_secret().to_owned());
        self.addresses == other.addresses
            && token(self) == token(other)
            && self.authorities == other.authorities
    }
}

/// Checks addresses, and reads the files.
pub(super) fn resolve(
    daemon: &DaemonConfig,
    warnings: &mut Vec<String>,
) -> Result<AdminPeers, ConfigError> {
    let mut addresses: Vec<String> = Vec::new();
    for written in &daemon.admin_peers {
        let address = written.trim_end_matches('/');
        let wrong = |why: &str| Err(ConfigError(format!("daemon.admin_peers: {written:?}: {why}")));
        if !is_address(address) {
            return wrong("write http://HOST:PORT or https://HOST:PORT");
        }
        if addresses.iter().any(|known| known == address) {
            return wrong("it is there twice");
        }
        if address.starts_with("https://") && daemon.admin_peers_ca.is_none() {
            return wrong("name the authority of its certificate: admin_peers_ca");
        }
        addresses.push(address.to_owned());
    }
    let token = daemon
        .admin_peers_token_file
        .as_deref()
        .map(|path| secrets::token("daemon.admin_peers_token_file", path, warnings))
        .transpose()?;
    if token.is_some() {
        let open = addresses.iter().filter(|address| !is_private(address));
        warnings.extend(open.map(|address| {
            format!("daemon.admin_peers: {address}: the token can be read on the way; use https")
        }));
    }
    let file = daemon.admin_peers_ca.clone();
    // Read again for each question; a mistake is named at once.
    file.as_deref().map(|path| authorities("daemon.admin_peers_ca", path)).transpose()?;
    Ok(AdminPeers { addresses, token, authorities: file })
}

/// Scheme, host and port, and nothing else: it becomes a link on the page.
fn is_address(address: &str) -> bool {
    let rest = address.strip_prefix("http://").or_else(|| address.strip_prefix("https://"));
    let Some((rest, uri)) = rest.zip(address.parse::<Uri>().ok()) else { return false };
    let plain = |b: u8| b.is_ascii_alphanumeric() || b".-_:[]".contains(&b);
    let names_port = rest.rsplit(']').next().unwrap_or_default().contains(':');
    rest.bytes().all(plain)
        && uri.host().is_some_and(|host| !host.is_empty())
        && (!names_port || uri.port_u16().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_a_port() {
        for address in
            ["http://db8:9104", "https://[::1]:9104", "http://192.0.2.7", "https://a.b-c_d:1"]
        {
            assert!(is_address(address), "{address}");
        }
        for address in [
            "db8:9104",
            "javascript:alert(1)",
            "http://",
            "http://db8:9104/status",
            "http://user@db8:9104",
            "https://db8:9104?x",
            "https://db8:9104#x",
            "http://db 8",
            "http://db8:port",
        ] {
            assert!(!is_address(address), "{address}");
        }
        assert!(is_private("https://db8:9104") && is_private("http://127.0.0.1:9104"));
        assert!(is_private("http://127.0.0.1") && !is_private("http://192.0.2.7:9104"));
    }

    #[test]
    fn peers_need_what_their_address_says() {
        let error = |peers: &[&str]| {
            let admin_peers = peers.iter().map(|&peer| peer.to_owned()).collect();
            let daemon = DaemonConfig { admin_peers, ..DaemonConfig::default() };
            resolve(&daemon, &mut Vec::new()).expect_err("refused").0
        };
        assert!(error(&["https://db8:9104"]).contains("admin_peers_ca"));
        assert!(error(&["http://a:1", "http://a:1/"]).contains("twice"));
        assert!(error(&["ftp://a:1"]).contains("http://HOST:PORT"));
    }
}
