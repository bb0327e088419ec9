//! TLS to the service that keeps the claims. Its certificates are renewed while the daemon runs, so their files are read for
//! each connection.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex as SyncMutex;
use rustls::ClientConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use tracing::{info, warn};

use super::admin_tls::{certificates, client, wrong};
use super::error::{Result, refuse};
use crate::claims::http::TlsSettings;

/// Its authorities, and this daemon's own certificate and key.
///
/// # Errors
/// The files can't be used as they are now.
pub(super) fn tls(ca: &Path, own: (Option<&Path>, Option<&Path>)) -> Result<TlsSettings> {
    let files = TlsFiles::new(ca, own)?;
    Ok(Arc::new(move || files.settings()))
}

/// The files, and what they last were.
struct TlsFiles {
    ca: PathBuf,
    /// Certificate and key.
    own: Option<(PathBuf, PathBuf)>,
    last: SyncMutex<LastRead>,
}

struct LastRead {
    settings: Arc<ClientConfig>,
    /// The files can't be used any more, and a line in the log has said so.
    is_outdated: bool,
}

impl TlsFiles {
    fn new(ca: &Path, own: (Option<&Path>, Option<&Path>)) -> Result<Self> {
        let own = match own {
            (None, None) => None,
            (Some(cert), Some(key)) => Some((cert.to_owned(), key.to_owned())),
            _ => return refuse("claims.tls_cert: tls_cert and tls_key go together"),
        };
        let last = LastRead { settings: read(ca, own.as_ref())?, is_outdated: false };
        Ok(Self { ca: ca.to_owned(), own, last: SyncMutex::new(last) })
    }

    /// Returns the settings that the files have now. Half of a renewal, or a volume that is gone, is no reason to lose the
    /// service: then those that were read last. Blocks.
    fn settings(&self) -> Arc<ClientConfig> {
        let found = read(&self.ca, self.own.as_ref());
        let mut last = self.last.lock();
        match found {
            Ok(settings) => {
                if std::mem::take(&mut last.is_outdated) {
                    info!("the certificates for the service of the claims can be read again");
                }
                last.settings = settings;
            }
            Err(error) => {
                if !std::mem::replace(&mut last.is_outdated, true) {
                    warn!(
                        %error,
                        "the certificates for the service of the claims can't be read; the last ones stay in use"
                    );
                }
            }
        }
        Arc::clone(&last.settings)
    }
}

fn read(ca: &Path, own: Option<&(PathBuf, PathBuf)>) -> Result<Arc<ClientConfig>> {
    let builder = client("claims.tls_ca", ca)?;
    let Some((cert, key)) = own else { return Ok(Arc::new(builder.with_no_client_auth())) };
    let chain = certificates("claims.tls_cert", cert)?;
    let private =
        PrivateKeyDer::from_pem_file(key).map_err(|error| wrong("claims.tls_key", key, &error))?;
    let settings = builder
        .with_client_auth_cert(chain, private)
        .map_err(|error| wrong("claims.tls_cert", cert, &error))?;
    Ok(Arc::new(settings))
}

#[cfg(test)]
mod tests;
