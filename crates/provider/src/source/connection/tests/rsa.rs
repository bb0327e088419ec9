//! The password over a link that is not encrypted: by default nobody gets it, otherwise the holder
//! of the private RSA key, which is in this file.

use mysql_common::crypto::rsa;
use num_bigint::BigUint;
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject as _;
use sha1::{Digest as _, Sha1};

use super::*;
use crate::server::link::rsa::{encrypt, parse};
use crate::server::link::{PublicKey, TlsMode, TlsOptions};
use crate::source::connection::fake_source::NONCE;

const PUBLIC_KEY: &str = "-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAuDRhHR3ICaN5brS6wq4n
qkw6xWOWvcMm3qANdi4SaRnV0IszBTcV8c1bagqDjXeCP2lMYouUgwEHBd1GKpwY
e2ZFx6526/vBteAdhdlchN4e1qmO+lylZPp08a0uYlcA6gLo1SlXnrA/ePwJYJrA
XGUsG8PdMxqfgeZjWnn/UFhcRMbsataBdwT/eBRuUrxeq0TIfwXJ5nTCTf6Hop9Q
eiWy0Mns20XeM1R8peD8X4RYti1YiXOHHkiDuztahzmUt0xnkkaieefIwJSaWnnm
n9y2f+R/bYIGQDdoWUM81bUSiO1RwJDl1XcyXcMRs70Jj/5GZ2xOJ0W4kvH5/q/v
iQIDAQAB
-----END PUBLIC KEY-----
";
const PRIVATE_EXPONENT: &[u8] = b"9ac2bc7f79f0ac286c73013a3d2b94a7bf8ea11dcac823edc447df0780d876f4\
      fdc44dd9cfc7e2e804b633a1770ff96db4ae58941d86938a341c4e8c0fc095d1\
      175c092820974e2d5c61046cdaf1f5afa8b93191594752ae4414274dc3c0062e\
      53c2f35b7975e41d5a8be08a55b50413474287bbf20712ec7076e02d0e7d3342\
      45cc7baf0dd10872842a01b0f4b6e9e83ab4c497ac00c98270c6ab0fd3e6fb42\
      1f464b12f07209cf7de675b9d1655637942d2ad0a459842fb0095f0e867c5b25\
      a622441529b1317191359737bdbdde89e164c5c34f6210105cd5cd7ba1537c1d\
      8cee594e3aa1e9b9f503f8f3809911419bc90ec2e7016b01cf08b459bc4e6d";
const KEY_BYTES: usize = 256;
const HASH_BYTES: usize = 20;
/// Longer than the nonce, so that the mask has to repeat.
const PASSWORD: &str = "a password of over twenty bytes";

fn public_key_der() -> SubjectPublicKeyInfoDer<'static> {
    SubjectPublicKeyInfoDer::from_pem_slice(PUBLIC_KEY.as_bytes()).expect("a key")
}

fn public_key() -> rsa::PublicKey {
    parse(&public_key_der()).expect("an RSA key")
}

/// Returns the mask generation function of PKCS #1.
fn mask(seed: &[u8], len: usize) -> Vec<u8> {
    let blocks = (0..u32::try_from(len.div_ceil(HASH_BYTES)).unwrap())
        .flat_map(|n| Sha1::digest([seed, &n.to_be_bytes()].concat()).to_vec());
    blocks.take(len).collect()
}

fn xor(left: &[u8], right: &[u8]) -> Vec<u8> {
    left.iter().zip(right.iter().cycle()).map(|(a, b)| a ^ b).collect()
}

/// Decrypts with the private key and OAEP, as the server does.
fn decrypt(encrypted: &[u8]) -> Vec<u8> {
    assert_eq!(encrypted.len(), KEY_BYTES);
    let exponent = BigUint::parse_bytes(PRIVATE_EXPONENT, 16).expect("a number");
    let padded = BigUint::from_bytes_be(encrypted).modpow(&exponent, public_key().modulus());
    let mut block = padded.to_bytes_be();
    while block.len() < KEY_BYTES - 1 {
        block.insert(0, 0);
    }
    let (seed, data) = block.split_at(HASH_BYTES);
    let seed = xor(seed, &mask(data, HASH_BYTES));
    let data = xor(data, &mask(&seed, data.len()));
    let (hash, rest) = data.split_at(HASH_BYTES);
    assert_eq!(hash, Sha1::digest([]).as_slice());
    let zeros = rest.iter().take_while(|&&byte| byte == 0).count();
    assert_eq!(rest[zeros], 1);
    rest[zeros + 1..].to_vec()
}

/// A source that has not cached the user asks for the password; its key is `key`.
async fn ask_for_password(source: &mut FakeSource, key: &[u8]) {
    source.send(&[0x01, 0x04]).await;
    assert_eq!(source.receive().await, [0x02], "the request of the key");
    let mut packet = vec![0x01];
    packet.extend_from_slice(key);
    source.send(&packet).await;
}

/// Trusts any key that the source sends.
fn asking() -> SourceOptions {
    let public_key = PublicKey::Asked;
    SourceOptions { tls: TlsOptions { public_key, ..tls(TlsMode::Preferred) }, ..options() }
}

async fn receive_password(source: &mut FakeSource, nonce: &[u8]) -> String {
    ask_for_password(source, PUBLIC_KEY.as_bytes()).await;
    let masked = decrypt(&source.receive().await);
    source.ok().await;
    String::from_utf8(xor(&masked, nonce)).expect("text under the mask")
}

#[tokio::test]
async fn a_user_that_the_source_does_not_remember() {
    let options = SourceOptions { password: PASSWORD.into(), ..asking() };
    let outcome = login(options.clone(), None, async |mut source| {
        source.greet("caching_sha2_password", 0).await;
        source.login_packet().await;
        let password = receive_password(&mut source, &NONCE).await;
        assert_eq!(password, format!("{PASSWORD}\0"));
    });
    outcome.await.expect("logs in");
}

#[tokio::test]
async fn after_a_switch_the_mask_is_the_switchs_nonce() {
    let nonce = [0x33; 20];
    let outcome = login(asking(), None, async move |mut source| {
        source.greet("mysql_native_password", 0).await;
        source.login_packet().await;
        source.switch("caching_sha2_password", &nonce).await;
        assert_eq!(receive_password(&mut source, &nonce).await, "repl_pw\0");
    });
    outcome.await.expect("logs in");
}

#[tokio::test]
async fn a_wrong_password_is_refused_after_it_was_sent() {
    let refused = login(asking(), None, async |mut source| {
        source.greet("caching_sha2_password", 0).await;
        source.login_packet().await;
        ask_for_password(&mut source, PUBLIC_KEY.as_bytes()).await;
        source.receive().await;
        source.error(1045, "Access denied").await;
    });
    assert_eq!(refused.await.expect_err("a refusal").code(), Some(1045));
}

/// Neither the password nor the request for a key is sent.
#[tokio::test]
async fn without_an_approved_key_the_password_stays_here() {
    for mode in [TlsMode::Disabled, TlsMode::Preferred] {
        let options = SourceOptions { tls: tls(mode), ..options() };
        for switched in [false, true] {
            let refused = login(options.clone(), None, async move |mut source| {
                source.greet("caching_sha2_password", 0).await;
                source.login_packet().await;
                if switched {
                    source.switch("caching_sha2_password", &[0x33; 20]).await;
                }
                source.send(&[0x01, 0x04]).await;
                source.assert_nothing_more().await;
            });
            let text = refused.await.expect_err("a refusal").to_string();
            for key in ["[channel.source] tls", "public_key_file", "get_public_key"] {
                assert!(text.contains(key), "{key} is missing in {text}");
            }
        }
    }
}

fn pinned(file: &std::path::Path) -> SourceOptions {
    let public_key = PublicKey::Pinned(file.to_owned());
    SourceOptions { tls: TlsOptions { public_key, ..tls(TlsMode::Preferred) }, ..options() }
}

fn key_file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), text).expect("writable");
    file
}

#[tokio::test]
async fn a_pinned_key_is_used_and_no_other_asked_for() {
    let file = key_file(PUBLIC_KEY);
    let outcome = login(pinned(file.path()), None, async |mut source| {
        source.greet("caching_sha2_password", 0).await;
        source.login_packet().await;
        source.send(&[0x01, 0x04]).await;
        let masked = decrypt(&source.receive().await);
        assert_eq!(xor(&masked, &NONCE), b"repl_pw\0");
        source.ok().await;
    });
    outcome.await.expect("logs in");
}

#[tokio::test]
async fn a_pinned_key_that_can_t_be_read_is_named() {
    let no_key = key_file("nonsense");
    for file in [no_key.path(), std::path::Path::new("/nonexistent/key.pem")] {
        let refused = login(pinned(file), None, async |mut source| {
            source.greet("caching_sha2_password", 0).await;
            source.login_packet().await;
            source.send(&[0x01, 0x04]).await;
            source.assert_nothing_more().await;
        });
        let text = refused.await.expect_err("a refusal").to_string();
        assert!(text.contains("public") && text.contains("key"), "{text}");
    }
}

#[tokio::test]
async fn a_switch_with_a_short_nonce_is_refused() {
    let refused = login(options(), None, async |mut source| {
        source.greet("caching_sha2_password", 0).await;
        source.login_packet().await;
        source.send(b"\xfemysql_native_password\0short\0").await;
        source.assert_nothing_more().await;
    });
    assert!(matches!(refused.await, Err(LinkError::Login(_))));
}

#[tokio::test]
async fn what_is_no_key_gets_no_password() {
    let not_base64 = PUBLIC_KEY.replace("MIIB", "M!IB");
    let cut = PUBLIC_KEY.replace("iQIDAQAB\n", "");
    let certificate = PUBLIC_KEY.replace("PUBLIC KEY", "CERTIFICATE");
    for key in ["", "?", &PUBLIC_KEY[..60], &not_base64, &cut, &certificate] {
        let key = key.to_owned();
        let refused = login(asking(), None, async move |mut source| {
            source.greet("caching_sha2_password", 0).await;
            source.login_packet().await;
            ask_for_password(&mut source, key.as_bytes()).await;
            source.assert_nothing_more().await;
        });
        let error = refused.await.expect_err("a refusal");
        assert!(matches!(error, LinkError::Login(_)), "{error:?}");
        assert!(error.to_string().contains("key"), "{error}");
    }
}

#[test]
fn a_damaged_key_never_panics() {
    let der = public_key_der();
    for cut in 0..der.len() {
        assert!(parse(&der[..cut]).is_err(), "cut at {cut}");
    }
    for at in 0..der.len() {
        for bit in 0..8 {
            let mut damaged = der.to_vec();
            damaged[at] ^= 1 << bit;
            let _ = parse(&damaged);
        }
    }
}

#[test]
fn a_password_that_does_not_fit_the_key_is_refused() {
    let longest = KEY_BYTES - 42;
    let pem = PUBLIC_KEY.as_bytes();
    assert_eq!(decrypt(&encrypt(&vec![b'p'; longest], pem).expect("fits")).len(), longest);
    let error = encrypt(&vec![b'p'; longest + 1], pem).expect_err("does not fit");
    assert!(error.contains("too long"), "{error}");
}
