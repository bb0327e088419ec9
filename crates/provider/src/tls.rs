//! TLS to the source, in the modes of MySQL's `--ssl-mode`.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error as TlsError, RootCertStore,
    SignatureScheme,
};

use crate::connection::ConnectionError;
use crate::options::{SourceOptions, TlsMode};

/// Builds the client side; `None` when TLS is off.
pub(crate) fn client_config(
    options: &SourceOptions,
) -> Result<Option<Arc<ClientConfig>>, ConnectionError> {
    if options.tls == TlsMode::Disabled {
        return Ok(None);
    }
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| ConnectionError::Tls(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(verifier(options, &provider)?);
    let config = match (&options.tls_cert, &options.tls_key) {
        (Some(cert), Some(key)) => {
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| file_error(key, &error))?;
            builder
                .with_client_auth_cert(certificates(cert)?, key)
                .map_err(|error| ConnectionError::Tls(error.to_string()))?
        }
        _ => builder.with_no_client_auth(),
    };
    Ok(Some(Arc::new(config)))
}

fn verifier(
    options: &SourceOptions,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, ConnectionError> {
    let check = match options.tls {
        TlsMode::VerifyCa | TlsMode::VerifyIdentity => {
            let Some(ca) = &options.tls_ca else {
                return Err(ConnectionError::Tls("tls_ca is needed to verify the source".into()));
            };
            let mut roots = RootCertStore::empty();
            for certificate in certificates(ca)? {
                roots
                    .add(certificate)
                    .map_err(|error| ConnectionError::Tls(format!("{}: {error}", ca.display())))?;
            }
            let inner =
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
                    .build()
                    .map_err(|error| ConnectionError::Tls(error.to_string()))?;
            Some(inner)
        }
        _ => None,
    };
    let any_name = options.tls != TlsMode::VerifyIdentity;
    Ok(Arc::new(Verifier { check, any_name, provider: Arc::clone(provider) }))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ConnectionError> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| file_error(path, &error))
}

fn file_error(path: &Path, error: &dyn std::fmt::Display) -> ConnectionError {
    ConnectionError::Tls(format!("{}: {error}", path.display()))
}

/// What a failed handshake means to who set it up.
pub(crate) fn explain(error: &TlsError) -> String {
    match error {
        TlsError::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => format!("the source's certificate is from no authority in tls_ca ({error})"),
        other => other.to_string(),
    }
}

/// Checks as much of a server's certificate as the mode asks for; signatures always.
#[derive(Debug)]
struct Verifier {
    check: Option<Arc<WebPkiServerVerifier>>,
    any_name: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        let Some(check) = &self.check else { return Ok(ServerCertVerified::assertion()) };
        match check.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // The name is looked at last, so the chain is good when only the name is wrong.
            Err(TlsError::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.any_name => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
