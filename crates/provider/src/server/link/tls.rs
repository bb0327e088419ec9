//! TLS to a server, in the modes of MySQL's `--ssl-mode`.

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

use super::{LinkError, LinkOptions, Side, TlsMode};

/// Builds the client's configuration; `None` if TLS is off.
pub(crate) fn client_config(options: &LinkOptions) -> Result<Option<Arc<ClientConfig>>, LinkError> {
    if options.tls.mode == TlsMode::Disabled {
        return Ok(None);
    }
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| LinkError::Tls(error.to_string()))?
        // rustls checks chain and name or nothing; `Verifier` checks as much as the mode requires.
        .dangerous()
        .with_custom_certificate_verifier(verifier(options, &provider)?);
    let config = match (&options.tls.cert, &options.tls.key) {
        (Some(cert), Some(key)) => {
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| file_error(key, &error))?;
            builder
                .with_client_auth_cert(certificates(cert)?, key)
                .map_err(|error| own_certificate(&error, cert, options.side))?
        }
        _ => builder.with_no_client_auth(),
    };
    Ok(Some(Arc::new(config)))
}

fn verifier(
    options: &LinkOptions,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, LinkError> {
    let check = match options.tls.mode {
        TlsMode::VerifyCa | TlsMode::VerifyIdentity => {
            let Some(ca) = &options.tls.ca else {
                return Err(LinkError::Tls(format!(
                    "[channel.{}] tls_ca is needed to verify the server",
                    options.side
                )));
            };
            let mut roots = RootCertStore::empty();
            for certificate in certificates(ca)? {
                roots
                    .add(certificate)
                    .map_err(|error| LinkError::Tls(format!("{}: {error}", ca.display())))?;
            }
            let inner =
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
                    .build()
                    .map_err(|error| LinkError::Tls(error.to_string()))?;
            Some(inner)
        }
        _ => None,
    };
    let any_name = options.tls.mode != TlsMode::VerifyIdentity;
    Ok(Arc::new(Verifier { check, any_name, provider: Arc::clone(provider) }))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, LinkError> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| file_error(path, &error))
}

fn file_error(path: &Path, error: &dyn std::fmt::Display) -> LinkError {
    LinkError::Tls(format!("{}: {error}", path.display()))
}

fn own_certificate(error: &TlsError, path: &Path, side: Side) -> LinkError {
    let why = unusable(error).map_or_else(|| format!("with tls_key: {error}"), str::to_owned);
    LinkError::Tls(format!("[channel.{side}] tls_cert {} {why}", path.display()))
}

/// Says what a certificate is that rustls can't use. Its parser gives no more than the name of an error.
fn unusable(error: &TlsError) -> Option<&'static str> {
    let TlsError::InvalidCertificate(CertificateError::Other(name)) = error else { return None };
    match name.to_string().as_str() {
        "UnsupportedCertVersion" => Some(
            "is of X.509 version 1, which this daemon can't verify or show; make it again with \
             extensions (openssl x509 -req … -extfile)",
        ),
        "CaUsedAsEndEntity" => Some(
            "is that of an authority itself; have the authority sign another one for the server \
             (basicConstraints CA:FALSE)",
        ),
        _ => None,
    }
}

/// Explains a failed handshake in terms of the configuration.
pub(crate) fn explain(error: &TlsError, side: Side) -> String {
    use rustls::AlertDescription as Alert;
    match error {
        TlsError::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => format!(
            "the {side}'s certificate is from no authority in [channel.{side}] tls_ca ({error})"
        ),
        TlsError::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => format!(
            "{error}; connect by a name that the {side}'s certificate has, or set [channel.{side}] \
             tls to \"verify-ca\""
        ),
        TlsError::InvalidCertificate(_) => match unusable(error) {
            Some(why) => format!("the {side}'s certificate {why}"),
            None => format!("the {side}'s certificate: {error}"),
        },
        TlsError::PeerIncompatible(_)
        | TlsError::AlertReceived(
            Alert::HandshakeFailure | Alert::ProtocolVersion | Alert::InsufficientSecurity,
        ) => format!(
            "the {side} shares no TLS version or cipher suite with this daemon, which has TLS 1.2 and \
             1.3 with ECDHE and AES-GCM or ChaCha20 ({error}); check tls_version and ssl_cipher \
             there. If it supports no other, set [channel.{side}] tls to \"disabled\" and \
             public_key_file, on a network that nobody else can read"
        ),
        TlsError::AlertReceived(
            Alert::CertificateRequired
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA,
        ) => format!(
            "the {side} does not accept our certificate ({error}); see [channel.{side}] tls_cert \
             and tls_key"
        ),
        other => other.to_string(),
    }
}

/// Checks as much of a server's certificate as the mode requires. Where that is nothing, a signature by its key proves
/// nothing either, as anybody in between can show a certificate of their own. Then the certificate is not even read,
/// as rustls can't read all of them, such as one of X.509 version 1.
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
            // rustls checks the name last, so the chain is valid if only the name is wrong.
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
        if self.check.is_none() {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        if self.check.is_none() {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
