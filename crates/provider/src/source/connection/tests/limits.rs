//! A peer that never ends its answer: the limits of the memory it can make us hold.

use super::*;
use crate::source::connection::fake_source::PACKET_BYTES_FULL;

const SHA2: &str = "caching_sha2_password";

/// Claims a length, and sends as much of it as is accepted.
async fn flood(mut source: FakeSource) {
    let mut frame = source.frame(&[]);
    frame[..3].copy_from_slice(&[0xff, 0xff, 0xff]);
    source.send_bytes(&frame).await;
    source.flood(PACKET_BYTES_FULL).await;
}

#[tokio::test]
async fn ahead_of_the_login_a_packet_has_at_most_16_kib() {
    let refused = login(options(), None, flood).await;
    let text = refused.expect_err("too long").to_string();
    assert!(text.contains("16384 bytes before the login was complete"), "{text}");
    let refused = login(options(), None, async |mut source: FakeSource| {
        source.greet(SHA2, 0).await;
        source.login_packet().await;
        flood(source).await;
    });
    let text = refused.await.expect_err("too long").to_string();
    assert!(text.contains("16384 bytes before the login was complete"), "{text}");
}

/// Returns the error of a query to a source that answers with `answer`.
async fn asked<S>(
    limits: Limits,
    answer: impl FnOnce(FakeSource) -> S + Send + 'static,
) -> ConnectionError
where
    S: Future<Output = ()> + Send,
{
    let (client, source) = tokio::io::duplex(BUFFER_BYTES);
    let script = tokio::spawn(async move {
        let mut source = FakeSource::new(source);
        source.accept_login().await;
        source.command().await;
        answer(source).await;
    });
    let mut connection = login_over(client, &options(), None).await.expect("logs in");
    let asked = connection.query("SELECT @@server_uuid", limits);
    let answer = tokio::time::timeout(PATIENCE, asked).await.expect("an end");
    // The rest of the answer is still on the link, and must not be taken for the next one.
    let next = connection.query("SELECT 1", limits).await;
    assert!(matches!(next, Err(ConnectionError::Link(LinkError::OutOfStep))), "{next:?}");
    drop(connection);
    script.await.expect("the script");
    answer.expect_err("too long")
}

#[tokio::test]
async fn rows_without_end_are_ended() {
    for limits in [Limits::SETTING, Limits { rows: 1000, ..Limits::LIST }] {
        let error = asked(limits, async |mut source| {
            source.columns(1).await;
            source.rows_without_end(b"\x01x").await;
        });
        let text = error.await.to_string();
        let limit = format!("more than {} rows in answer to SELECT @@server_uuid", limits.rows);
        assert!(text.contains(&limit), "{text}");
    }
}

#[tokio::test]
async fn long_values_are_ended() {
    let error = asked(Limits::SETTING, async |mut source| {
        source.columns(1).await;
        flood(source).await;
    });
    let text = error.await.to_string();
    assert!(text.contains("more than 65536 bytes in answer to SELECT @@server_uuid"), "{text}");
}

#[tokio::test]
async fn columns_without_number_are_refused() {
    let error = asked(Limits::SETTING, async |mut source| {
        source.send(b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f").await;
    });
    assert!(error.await.to_string().contains("columns"));
}

#[tokio::test]
async fn a_request_of_a_file_gets_none() {
    let error = asked(Limits::SETTING, async |mut source| {
        source.send(b"\xfb/etc/passwd").await;
        source.assert_nothing_more().await;
    });
    assert!(error.await.to_string().contains("local file"));
}
