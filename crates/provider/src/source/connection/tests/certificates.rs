//! Certificates that rustls can't use.

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};

use super::*;
use crate::server::link::{TlsMode, TlsOptions, client_config};
use crate::source::connection::fake_source::CAPABILITY_TLS;

/// A certificate of X.509 version 1 until 2126.
const VERSION_1: &str = "-----BEGIN CERTIFICATE-----
MIIBHzCBxQIUWpYHpMzHUurnHAQuxtM/2eH6VuAwCgYIKoZIzj0EAwIwETEPMA0G
A1UEAwwGc291cmNlMCAXDTI2MTEyOTE3MjY0NloYDzIxMjYxMTA1MTcyNjQ2WjAR
MQ8wDQYDVQQDDAZzb3VyY2UwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAQbGnmF
PMzIxGBa7JKMJXNzDs2nDpb7j/eryXF1af95z3r8Ldqh841lPL6uE+myRs9AtHCx
7ueiLaVH28yefNTcMAoGCCqGSM49BAMCA0kAMEYCIQDhANbIyc0plW9GdCdQrwph
bsyWmTca9fGcKuXmbJb6EwIhAPnKrkl2FArcYAUeuwsQK9duWU8I5RaFrGgJ5QwF
QCBy
-----END CERTIFICATE-----
";
/// One of an authority until 2126, with the same key.
const AUTHORITY: &str = "-----BEGIN CERTIFICATE-----
MIIBeTCCAR+gAwIBAgIUQfLBDo8tf9onQ5UUKv99gs7Fvf0wCgYIKoZIzj0EAwIw
ETEPMA0GA1UEAwwGc291cmNlMCAXDTI2MTEyOTE3MjY0NloYDzIxMjYxMTA1MTcy
NjQ2WjARMQ8wDQYDVQQDDAZzb3VyY2UwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
AAQbGnmFPMzIxGBa7JKMJXNzDs2nDpb7j/eryXF1af95z3r8Ldqh841lPL6uE+my
Rs9AtHCx7ueiLaVH28yefNTco1MwUTAdBgNVHQ4EFgQUZBkPTCwamrvkyThX3Co9
bjPnCG8wHwYDVR0jBBgwFoAUZBkPTCwamrvkyThX3Co9bjPnCG8wDwYDVR0TAQH/
BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiBiDPB653ymVBkXOXuLcGahZaDSgJf5
LfN9WojU79PnaQIhAKaDQ082pDLKHNmE8qeRE6pjQO2+1nOgmETjV1tgdrB5
-----END CERTIFICATE-----
";
/// The key of both.
const KEY: &str = "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgRf8SG4uPigbcKpQ2
tily1DfBAyUI456jdI11XusNOcGhRANCAAQbGnmFPMzIxGBa7JKMJXNzDs2nDpb7
j/eryXF1af95z3r8Ldqh841lPL6uE+myRs9AtHCx7ueiLaVH28yefNTc
-----END PRIVATE KEY-----
";

/// Returns the settings of a server that shows a certificate, whatever it is, and checks those of its clients.
fn server(
    certificate: &str,
    version: &'static SupportedProtocolVersion,
    clients: Arc<dyn ClientCertVerifier>,
) -> ServerConfig {
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).expect("one");
    let key = PrivateKeyDer::from_pem_slice(KEY.as_bytes()).expect("a key");
    let provider = ring::default_provider();
    let key = provider.key_provider.load_private_key(key).expect("a key of a known kind");
    let shown = SingleCertAndKey::from(CertifiedKey::new(vec![certificate], key));
    ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[version])
        .expect("a version")
        .with_client_cert_verifier(clients)
        .with_cert_resolver(Arc::new(shown))
}

/// Logs in to a source that shows this certificate, which is that of the authority, too.
async fn login_to(
    certificate: &'static str,
    mode: TlsMode,
    version: &'static SupportedProtocolVersion,
) -> Result<SourceConnection, LinkError> {
    let server = server(certificate, version, WebPkiClientVerifier::no_client_auth());
    login_at(server, certificate, mode).await
}

async fn login_at(
    server: ServerConfig,
    certificate: &str,
    mode: TlsMode,
) -> Result<SourceConnection, LinkError> {
    let ca = file(certificate);
    let tls = TlsOptions { ca: Some(ca.path().to_owned()), ..tls(mode) };
    let options = SourceOptions { tls, ..options() };
    let tls = client_config(&options.link("source", 0)).expect("a configuration");
    login(options, tls, async move |mut source| {
        source.greet("caching_sha2_password", CAPABILITY_TLS).await;
        let Some(mut source) = source.encrypt(server).await else { return };
        source.login_packet().await;
        source.ok().await;
    })
    .await
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), text).expect("writable");
    file
}

#[tokio::test]
async fn a_mode_that_checks_nothing_takes_any_certificate() {
    for version in [&TLS12, &TLS13] {
        for mode in [TlsMode::Preferred, TlsMode::Required] {
            login_to(VERSION_1, mode, version).await.expect("logs in");
        }
        let refused = login_to(VERSION_1, TlsMode::VerifyCa, version).await;
        let text = refused.expect_err("it can't be verified").to_string();
        assert!(text.contains("source's certificate is of X.509 version 1"), "{text}");
    }
}

#[tokio::test]
async fn a_source_that_shows_the_certificate_of_its_authority_is_told_so() {
    for version in [&TLS12, &TLS13] {
        let refused = login_to(AUTHORITY, TlsMode::VerifyCa, version).await;
        let text = refused.expect_err("it is to sign others").to_string();
        assert!(text.contains("source's certificate is that of an authority itself"), "{text}");
    }
}

#[tokio::test]
async fn a_source_that_wants_another_certificate_of_ours_is_understood() {
    for version in [&TLS12, &TLS13] {
        let mut authorities = RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(AUTHORITY.as_bytes()).expect("one");
        authorities.add(authority).expect("an authority");
        let provider = Arc::new(ring::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider);
        let server = server(AUTHORITY, version, clients.build().expect("a verifier"));
        let refused = login_at(server, AUTHORITY, TlsMode::Required).await.expect_err("no login");
        let text = refused.to_string();
        assert!(refused.is_protection(), "{text}");
        assert!(text.contains("source does not accept our certificate"), "{text}");
    }
}

#[test]
fn a_certificate_of_ours_that_can_t_be_shown_is_named() {
    let (cert, key) = (file(VERSION_1), file(KEY));
    let (cert, key) = (cert.path().to_owned(), key.path().to_owned());
    let tls = TlsOptions { cert: Some(cert.clone()), key: Some(key), ..tls(TlsMode::Required) };
    let options = SourceOptions { tls, ..options() };
    let error = client_config(&options.link("source", 0)).expect_err("version 1");
    assert!(matches!(error, LinkError::Tls(_)), "{error:?}");
    let text = error.to_string();
    let named = format!("[channel.source] tls_cert {} is of X.509 version 1", cert.display());
    assert!(text.contains(&named), "{text}");
}
