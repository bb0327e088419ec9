use std::fs;

use tempfile::TempDir;

use super::*;

/// An authority until 2126.
const AUTHORITY: &str = "-----BEGIN CERTIFICATE-----
MIIBczCCARmgAwIBAgIUeM4qnvHbvI0cgq90tLUyuVyOc2IwCgYIKoZIzj0EAwIw
DjEMMAoGA1UEAwwDb25lMCAXDTI2MTEyODEzMzAyNFoYDzIxMjYxMTA0MTMzMDI0
WjAOMQwwCgYDVQQDDANvbmUwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAQXE+CO
pMGsippkrOFQMiUL0iv+yAgsPLstm7mVMzBIMz+DPTg5uKXDfb/0QFH4qWQYxtdJ
J0BIxxNtr1V2OzmZo1MwUTAdBgNVHQ4EFgQUbcSdazl5PUDyp2s82rE6B9cupPow
HwYDVR0jBBgwFoAUbcSdazl5PUDyp2s82rE6B9cupPowDwYDVR0TAQH/BAUwAwEB
/zAKBggqhkjOPQQDAgNIADBFAiEAohnXB2VSXLvTO+N1ICXksxEEwTRV12eu2o9I
qp1gJ04CIC3wTjRE5+bd5WGlZ9Sb7LZZxgQAd5U0Fsjl9UpeFrq/
-----END CERTIFICATE-----
";

#[test]
fn renewed_files_are_used_and_broken_ones_are_not() {
    let place = TempDir::new().expect("a directory");
    let ca = place.path().join("ca.pem");
    assert!(TlsFiles::new(&ca, (None, None)).is_err(), "a start needs it");
    fs::write(&ca, AUTHORITY).expect("written");
    let files = TlsFiles::new(&ca, (None, None)).expect("readable");
    let first = files.settings();
    // Each connection has settings of its own: the file may have changed.
    let second = files.settings();
    assert!(!Arc::ptr_eq(&first, &second));
    let is_outdated = || files.last.lock().is_outdated;
    for broken in ["", "half of a renewal", &AUTHORITY[..300]] {
        fs::write(&ca, broken).expect("written");
        assert!(Arc::ptr_eq(&files.settings(), &second), "{broken}");
        assert!(is_outdated());
    }
    fs::remove_file(&ca).expect("removed");
    assert!(Arc::ptr_eq(&files.settings(), &second), "it is missing");
    fs::write(&ca, AUTHORITY).expect("written");
    let renewed = files.settings();
    assert!(!Arc::ptr_eq(&renewed, &second));
    assert!(!is_outdated());
}

#[test]
fn a_certificate_needs_its_key() {
    let place = TempDir::new().expect("a directory");
    let ca = place.path().join("ca.pem");
    fs::write(&ca, AUTHORITY).expect("written");
    let only_cert = TlsFiles::new(&ca, (Some(&ca), None)).err().expect("refused").to_string();
    assert!(only_cert.contains("go together"), "{only_cert}");
    let no_key = TlsFiles::new(&ca, (Some(&ca), Some(&ca))).err().expect("refused").to_string();
    assert!(no_key.contains("claims.tls_key"), "{no_key}");
}
