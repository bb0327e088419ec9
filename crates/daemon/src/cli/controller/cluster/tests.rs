use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::*;

/// Certificates for 127.0.0.1 until 2126, and their keys.
const ONE: [&str; 2] = [
    "-----BEGIN CERTIFICATE-----
MIIBgjCCASegAwIBAgIUcdWQz89UOpI6QwWUfDc4Sg9Yc0UwCgYIKoZIzj0EAwIw
DjEMMAoGA1UEAwwDb25lMCAXDTI2MTEyOTE0MjIzNVoYDzIxMjYxMTA1MTQyMjM1
WjAOMQwwCgYDVQQDDANvbmUwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAQo4Zal
JAUlCdQFnuIqmRVW7Uap1MHYT0kDy6iH6pZe5ccKPBe9oqN42Zlk6FYP5+y4ACrj
WauFchraGFrEpyYSo2EwXzAdBgNVHQ4EFgQU6/rEyK2BKe9shma6dVU7cL3wYYww
HwYDVR0jBBgwFoAU6/rEyK2BKe9shma6dVU7cL3wYYwwDwYDVR0RBAgwBocEfwAA
ATAMBgNVHRMBAf8EAjAAMAoGCCqGSM49BAMCA0kAMEYCIQCgnnRGsYo3yDpqmAAM
ZxCxjYTOB785Yp8kkHVabggZDQIhAKKxx1AM8btbwX/auypucmnkJvF9xYcf9kVu
aWb+A5bJ
-----END CERTIFICATE-----
",
    "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgCVvryKZbDEun8Y7P
ucY8WPZc8CuMd+7kTUyk5HdX+zWhRANCAAQo4ZalJAUlCdQFnuIqmRVW7Uap1MHY
T0kDy6iH6pZe5ccKPBe9oqN42Zlk6FYP5+y4ACrjWauFchraGFrEpyYS
-----END PRIVATE KEY-----
",
];
const OTHER: [&str; 2] = [
    "-----BEGIN CERTIFICATE-----
MIIBhTCCASugAwIBAgIUcOdrQGKepBHyxPeEKcfeJuFVQLkwCgYIKoZIzj0EAwIw
EDEOMAwGA1UEAwwFb3RoZXIwIBcNMjYxMTI5MTQyMjM1WhgPMjEyNjExMDUxNDIy
MzVaMBAxDjAMBgNVBAMMBW90aGVyMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE
f2p9CCey2kOSOFf5sYfY725z7whlJBAxYmL+GlIi0neOHsIfCRfhO5eUpb9dNB6+
GRlttW3EeF3bLiBRHIiV36NhMF8wHQYDVR0OBBYEFKsD66tjodjAAhSibBy2RKQW
P2Y6MB8GA1UdIwQYMBaAFKsD66tjodjAAhSibBy2RKQWP2Y6MA8GA1UdEQQIMAaH
BH8AAAEwDAYDVR0TAQH/BAIwADAKBggqhkjOPQQDAgNIADBFAiEAnCmEGVD3tN1b
zr1wrvObo44F+0do5zGQafJDxaoL3l8CICVX40e6u8JDUsj0APU2VQhUJCElsVbV
C6K/+SbYnK+3
-----END CERTIFICATE-----
",
    "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgNJhYgrHsPcPT0vmN
aKtFquAqjGr8k454zay05Vg3Y1qhRANCAAR/an0IJ7LaQ5I4V/mxh9jvbnPvCGUk
EDFiYv4aUiLSd44ewh8JF+E7l5Slv100Hr4ZGW21bcR4XdsuIFEciJXf
-----END PRIVATE KEY-----
",
];

fn settings([certificate, key]: [&str; 2]) -> Arc<ServerConfig> {
    let certificate =
        CertificateDer::from_pem_slice(certificate.as_bytes()).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
    let settings = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key);
    Arc::new(settings.expect("a pair"))
}

/// Answers each request with `{}`, as the server that the settings make it; returns its address.
fn serve(settings: Arc<Mutex<Arc<ServerConfig>>>) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = format!("https://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let current = settings.lock().clone();
            let session = ServerConnection::new(current).expect("a session");
            let mut stream = StreamOwned::new(session, stream.expect("a client"));
            // A client that trusts another authority hangs up.
            if stream.read(&mut [0; 4096]).is_ok() {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}");
                stream.conn.send_close_notify();
                let _ = stream.flush();
            }
        }
    });
    address
}

#[test]
fn a_renewed_authority_is_trusted_without_a_restart() {
    let account = tempfile::tempdir().expect("a temporary directory");
    let put = |name: &str, text: &str| fs::write(account.path().join(name), text).expect("written");
    put("namespace", "default");
    put("token", "token");
    put("ca.crt", ONE[0]);
    let current = Arc::new(Mutex::new(settings(ONE)));
    let address = serve(Arc::clone(&current));
    let cluster = Cluster::new(Some(&address), account.path()).expect("readable");
    let get = || cluster.get::<Value>("/");
    get().expect("trusted");
    put("ca.crt", "half of a renewal");
    get().expect("the last authorities stay in use");
    *current.lock() = settings(OTHER);
    get().expect_err("not trusted");
    put("ca.crt", OTHER[0]);
    get().expect("trusted");
}
