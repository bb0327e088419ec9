//! Authentication by each plugin, and the text of refusals. The expected proofs were computed by
//! another implementation, for user `repl` with password `repl_pw`.

use super::*;
use crate::server::link::{TlsMode, client_config};
use crate::source::connection::fake_source::{CAPABILITY_TLS, CONNECTION_ID, LoginPacket, VERSION};

const SHA2: &str = "caching_sha2_password";
const NATIVE: &str = "mysql_native_password";
/// Bytes 21 to 40.
const OTHER_NONCE: [u8; 20] =
    [21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40];

const SHA2_PROOF: &str = "c0895690203d970d6954c7f7c133b8b7b53be1d89fb1307f65a3b1ddf99924d9";
const SHA2_PROOF_OTHER: &str = "cada2542db702942ed643538b775fd2806fe49cba07d0935c86693ce2ec212b7";
const NATIVE_PROOF: &str = "6f958d76b41e3b8a5da719848710bb704ff90886";
const NATIVE_PROOF_OTHER: &str = "c7e2255a7af50f7dffedc66020bfe159097e25cd";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn assert_login(packet: &LoginPacket, plugin: &str, proof: &str) {
    assert_eq!(packet.user, "repl");
    assert_eq!(packet.plugin, plugin);
    assert_eq!(hex(&packet.proof), proof);
}

fn text(outcome: Result<SourceConnection, LinkError>) -> String {
    outcome.expect_err("a refusal").to_string()
}

#[tokio::test]
async fn a_user_that_the_source_remembers() {
    let connection = login(options(), None, async |mut source| {
        source.greet(SHA2, 0).await;
        assert_login(&source.login_packet().await, SHA2, SHA2_PROOF);
        source.send(&[0x01, 0x03]).await;
        source.ok().await;
    })
    .await
    .expect("logs in");
    assert_eq!(connection.connection_id(), CONNECTION_ID);
    assert_eq!(connection.server_version(), VERSION);
}

#[tokio::test]
async fn a_native_password() {
    let outcome = login(options(), None, async |mut source| {
        source.greet(NATIVE, 0).await;
        assert_login(&source.login_packet().await, NATIVE, NATIVE_PROOF);
        source.ok().await;
    });
    outcome.await.expect("logs in");
}

#[tokio::test]
async fn a_user_without_password_proves_nothing() {
    let options = SourceOptions { password: "".into(), ..options() };
    let outcome = login(options.clone(), None, async |mut source| {
        source.greet(SHA2, 0).await;
        assert_login(&source.login_packet().await, SHA2, "");
        assert!(source.switch(NATIVE, &OTHER_NONCE).await.is_empty());
        source.ok().await;
    });
    outcome.await.expect("logs in");
}

#[tokio::test]
async fn another_plugin_is_answered_for_its_own_nonce() {
    for (first, second, proof) in
        [(SHA2, NATIVE, NATIVE_PROOF_OTHER), (NATIVE, SHA2, SHA2_PROOF_OTHER)]
    {
        let outcome = login(options(), None, async move |mut source| {
            source.greet(first, 0).await;
            source.login_packet().await;
            assert_eq!(hex(&source.switch(second, &OTHER_NONCE).await), proof);
            source.ok().await;
        });
        outcome.await.expect("logs in");
    }
}

/// A source that asks for the password in the clear could be anyone.
#[tokio::test]
async fn a_plugin_that_gives_the_password_away_gets_nothing() {
    let outcome = login(options(), None, async |mut source| {
        source.greet(SHA2, 0).await;
        source.login_packet().await;
        source.send(b"\xfemysql_clear_password\0").await;
        source.assert_nothing_more().await;
    });
    let text = text(outcome.await);
    assert!(text.contains("mysql_clear_password is not supported"), "{text}");
}

/// Neither the password nor a panic, whatever plugin the source begins with.
#[tokio::test]
async fn a_plugin_unknown_to_us_is_answered_with_our_own() {
    for plugin in [
        "mysql_clear_password",
        "client_ed25519",
        "parsec",
        "mysql_old_password",
        "sha256_password",
    ] {
        let outcome = login(options(), None, async |mut source| {
            source.greet(plugin, 0).await;
            assert_login(&source.login_packet().await, SHA2, SHA2_PROOF);
            source.ok().await;
        });
        outcome.await.expect(plugin);
    }
}

#[tokio::test]
async fn a_refusal_is_shown_with_its_number() {
    let refused = login(options(), None, async |mut source| {
        source.greet(SHA2, 0).await;
        source.login_packet().await;
        source.error(1045, "Access denied for user 'repl'@'%'").await;
    });
    let error = refused.await.expect_err("a refusal");
    assert_eq!(error.code(), Some(1045));
    assert_eq!(error.to_string(), "error 1045: Access denied for user 'repl'@'%'");
}

/// Before the greeting an error has no state.
#[tokio::test]
async fn a_source_that_is_full_says_so_instead_of_a_greeting() {
    let refused = login(options(), None, async |mut source| {
        source.send(b"\xff\x10\x04Too many connections").await;
    });
    assert_eq!(text(refused.await), "error 1040: Too many connections");
}

#[tokio::test]
async fn a_greeting_cut_short_is_an_error() {
    let (client, source) = tokio::io::duplex(BUFFER_BYTES);
    let mut source = FakeSource::new(source);
    let mut client = client;
    source.greet(SHA2, 0).await;
    let mut greeting = vec![0; 4096];
    let len = tokio::io::AsyncReadExt::read(&mut client, &mut greeting).await.unwrap();
    // Only the plugin's name follows the nonce.
    let needed = len - SHA2.len() - 1;
    for cut in 1..needed - 4 {
        let part = greeting[4..4 + cut].to_vec();
        let outcome = login(options(), None, async move |mut source| source.send(&part).await);
        outcome.await.expect_err("a greeting cut short");
    }
}

#[tokio::test]
async fn a_source_without_tls_gets_no_login_where_tls_is_required() {
    for mode in [TlsMode::Required, TlsMode::VerifyCa, TlsMode::VerifyIdentity] {
        let options = SourceOptions { tls: tls(mode), ..options() };
        let refused = login(options.clone(), None, async |mut source| {
            source.greet(SHA2, 0).await;
            source.assert_nothing_more().await;
        });
        let text = text(refused.await);
        assert!(text.starts_with("TLS: the source offers no TLS"), "{text}");
        assert!(text.contains("[channel.source] tls"), "{text}");
    }
}

/// The source may just be shutting down: this proves nothing about its certificate.
#[tokio::test]
async fn a_source_that_goes_in_the_middle_of_tls_is_just_gone() {
    let options = SourceOptions { tls: tls(TlsMode::Required), ..options() };
    let tls = client_config(&options.link("source", 0)).expect("a configuration");
    let cut = login(options.clone(), tls.clone(), async |mut source| {
        source.greet(SHA2, CAPABILITY_TLS).await;
        source.receive().await;
    });
    let error = cut.await.expect_err("no connection");
    assert!(matches!(error, LinkError::Io(_)), "{error:?}");
    let nonsense = login(options.clone(), tls, async |mut source| {
        source.greet(SHA2, CAPABILITY_TLS).await;
        source.receive().await;
        source.send_bytes(&[b'?'; 100]).await;
    });
    let error = nonsense.await.expect_err("no TLS");
    assert!(matches!(error, LinkError::Tls(_)), "{error:?}");
}

#[tokio::test]
async fn a_login_without_end_is_ended() {
    let refused = login(options(), None, async |mut source| {
        source.greet(SHA2, 0).await;
        source.login_packet().await;
        for _ in 0..8 {
            source.send(&[0x01, 0x03]).await;
        }
    });
    assert_eq!(text(refused.await), "login: the server does not complete it");
}

#[tokio::test]
async fn a_source_that_does_not_answer_is_given_up() {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect_timeout = Duration::from_millis(50);
    let options = SourceOptions { connect_timeout, ..options() };
    let error = SourceConnection::connect(&options, "127.0.0.1", port).await.expect_err("silence");
    assert!(
        matches!(error, ConnectionError::Link(LinkError::Timeout(after)) if after == connect_timeout)
    );
}
