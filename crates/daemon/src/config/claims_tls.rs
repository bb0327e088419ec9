//! TLS to the service that keeps the claims.

use std::path::Path;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;

use super::admin_tls::{certificates, client, wrong};
use super::error::{Result, refuse};

/// Its authorities, and this daemon's own certificate and key.
pub(super) fn tls(ca: &Path, own: (Option<&Path>, Option<&Path>)) -> Result<Arc<ClientConfig>> {
    let builder = client("claims.tls_ca", ca)?;
    let config = match own {
        (None, None) => builder.with_no_client_auth(),
        (Some(cert), Some(key)) => {
            let chain = certificates("claims.tls_cert", cert)?;
            let private = PrivateKeyDer::from_pem_file(key)
                .map_err(|error| wrong("claims.tls_key", key, &error))?;
            builder
                .with_client_auth_cert(chain, private)
                .map_err(|error| wrong("claims.tls_cert", cert, &error))?
        }
        _ => return refuse("claims.tls_cert: tls_cert and tls_key go together"),
    };
    Ok(Arc::new(config))
}
