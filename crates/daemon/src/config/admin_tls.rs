//! Certificates of the admin port.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, ServerConfig};

use super::declared_keys::DaemonConfig;
use super::error::ConfigError;
use super::secrets::is_world_readable;

/// The port's side of TLS.
#[derive(Debug, Clone)]
pub(crate) struct AdminTls {
    pub(crate) server: Arc<ServerConfig>,
    /// Tells one certificate from the next.
    chain: Vec<CertificateDer<'static>>,
}

impl PartialEq for AdminTls {
    fn eq(&self, other: &Self) -> bool {
        self.chain == other.chain
    }
}

/// Returns `None` where the port speaks plain HTTP.
pub(super) fn resolve(
    daemon: &DaemonConfig,
    warnings: &mut Vec<String>,
) -> Result<Option<AdminTls>, ConfigError> {
    let (cert, key) = match (&daemon.admin_tls_cert, &daemon.admin_tls_key) {
        (None, None) => return Ok(None),
        (Some(cert), Some(key)) => (cert, key),
        (Some(_), None) => return Err(missing("admin_tls_key")),
        (None, Some(_)) => return Err(missing("admin_tls_cert")),
    };
    let chain = certificates("daemon.admin_tls_cert", cert)?;
    let private = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| wrong("daemon.admin_tls_key", key, &error))?;
    if is_world_readable(key) {
        let path = key.display();
        warnings.push(format!("daemon.admin_tls_key: everyone can read {path}; chmod 600"));
    }
    let server = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong("daemon.admin_tls_cert", cert, &error))?
        .with_no_client_auth()
        .with_single_cert(chain.clone(), private)
        .map_err(|error| wrong("daemon.admin_tls_cert", cert, &error))?;
    Ok(Some(AdminTls { server: Arc::new(server), chain }))
}

/// Returns the authorities that a client of the port trusts.
pub(crate) fn authorities(key: &str, path: &Path) -> Result<RootCertStore, ConfigError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(key, path)? {
        roots.add(certificate).map_err(|error| wrong(key, path, &error))?;
    }
    Ok(roots)
}

/// The beginning of a client's settings: it trusts the authorities in the file that `key` names.
pub(crate) fn client(
    key: &str,
    path: &Path,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, ConfigError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(key, path, &error))?;
    Ok(builder.with_root_certificates(authorities(key, path)?))
}

pub(super) fn certificates(
    key: &str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let found: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| wrong(key, path, &error))?;
    if found.is_empty() {
        return Err(wrong(key, path, &"no certificate in it"));
    }
    Ok(found)
}

fn missing(key: &str) -> ConfigError {
    ConfigError(format!("daemon.{key}: admin_tls_cert and admin_tls_key go together"))
}

pub(super) fn wrong(key: &str, path: &Path, error: &dyn std::fmt::Display) -> ConfigError {
    ConfigError(format!("{key}: {}: {error}", path.display()))
}
