//! The requests to the source, and the reading of its events.

use super::*;
use crate::binlog::event::EventError;
use crate::source::connection::fake_source::COM_QUERY;
use crate::test_util::format_description;

/// Returns the commands of a dump that begins after `received`.
async fn commands(received: &GtidSet) -> Vec<Vec<u8>> {
    let (sender, commands) = tokio::sync::oneshot::channel();
    let (_connection, script) = dump("CRC32", received, async move |_, commands| {
        sender.send(commands).expect("the test waits");
    })
    .await;
    script.await.expect("the script");
    commands.await.expect("commands")
}

#[tokio::test]
async fn the_source_is_told_who_asks_and_how_often_to_speak() {
    let commands = commands(&GtidSet::new()).await;
    assert_eq!(commands[0][0], COM_QUERY);
    let set = String::from_utf8(commands[0][1..].to_vec()).unwrap();
    let (verb, list) = set.split_once(' ').unwrap();
    assert_eq!(verb, "SET");
    let assignments: Vec<&str> = list.split(',').map(str::trim).collect();
    for wanted in [
        // Nanoseconds.
        "@master_heartbeat_period=2000000000",
        "@source_heartbeat_period=2000000000",
        "@slave_uuid='03030303-0303-0303-0303-030303030303'",
        "@replica_uuid='03030303-0303-0303-0303-030303030303'",
        "@master_binlog_checksum=@@GLOBAL.binlog_checksum",
        "@source_binlog_checksum=@@GLOBAL.binlog_checksum",
    ] {
        assert!(assignments.contains(&wanted), "{wanted} is missing in {set}");
    }
    let mut registration = vec![0x15, 4, 3, 2, 1, 10];
    registration.extend_from_slice(b"csa-daemon");
    // No user and password, no port, rank and source.
    registration.extend_from_slice(&[0; 2 + 2 + 4 + 4]);
    assert_eq!(commands[commands.len() - 2], registration);
}

/// Command, flags, server id, no file name, position 4; then the length of the set, and the set.
fn request(set: &[u8]) -> Vec<u8> {
    let mut request = vec![0x1e, 0, 0, 4, 3, 2, 1, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0];
    request.extend_from_slice(&u32::try_from(set.len()).unwrap().to_le_bytes());
    request.extend_from_slice(set);
    request
}

#[tokio::test]
async fn the_request_holds_everything_received() {
    let nothing = commands(&GtidSet::new()).await;
    assert_eq!(nothing.last().unwrap(), &request(&[0; 8]));

    let received = "01010101-0101-0101-0101-010101010101:1-3:9".parse().unwrap();
    let mut set = vec![1, 0, 0, 0, 0, 0, 0, 0];
    set.extend([1; 16]);
    set.extend([2, 0, 0, 0, 0, 0, 0, 0]);
    set.extend([1, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]);
    set.extend([9, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(commands(&received).await.last().unwrap(), &request(&set));
}

#[tokio::test]
async fn the_request_holds_tags() {
    let received = "01010101-0101-0101-0101-010101010101:1:blue:5-6".parse().unwrap();
    // The tagged format, with a count of two.
    let mut set = vec![1, 2, 0, 0, 0, 0, 0, 1];
    set.extend([1; 16]);
    set.extend([0, 1, 0, 0, 0, 0, 0, 0, 0]);
    set.extend([1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    set.extend([1; 16]);
    set.extend([4 << 1, b'b', b'l', b'u', b'e', 1, 0, 0, 0, 0, 0, 0, 0]);
    set.extend([5, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(commands(&received).await.last().unwrap(), &request(&set));
}

/// An earlier source takes the tagged format for a set of very many servers.
#[tokio::test]
async fn a_source_before_8_3_gets_no_tags() {
    let received: GtidSet = "01010101-0101-0101-0101-010101010101:1:blue:5-6".parse().unwrap();
    let untagged = "01010101-0101-0101-0101-010101010101:1".parse().unwrap();
    for (of_proxy, version, expected) in [
        (None, "5.7.22-log", &untagged),
        (None, "8.2.0", &untagged),
        (None, "8.3.0", &received),
        (None, "8.4.0", &received),
        (Some("8.0.20-router"), "8.4.0", &received),
        (Some("9.1.0-router"), "8.0.20", &untagged),
    ] {
        let (client, source) = tokio::io::duplex(BUFFER_BYTES);
        let script = tokio::spawn(async move {
            let mut source = FakeSource::new(source);
            (source.of_proxy, source.version) = (of_proxy, version);
            source.accept_login().await;
            source.accept_dump("CRC32").await.pop().expect("a request")
        });
        let mut connection = login_over(client, &options(), None).await.expect("logs in");
        connection.start_dump(&options(), &received).await.expect("a dump");
        let requested = script.await.expect("the script");
        assert_eq!(requested, request(&expected.encode()), "{of_proxy:?} {version}");
    }
}

#[tokio::test]
async fn events_come_as_they_are() {
    let sent = event_of(100);
    let script_sent = sent.clone();
    let (mut connection, script) = dump("CRC32", &GtidSet::new(), async move |mut source, _| {
        source.event(&script_sent).await;
        source.event(format_description().raw()).await;
    })
    .await;
    assert_eq!(next(&mut connection).await.unwrap().bytes(), &sent);
    let description = next(&mut connection).await.unwrap();
    assert_eq!(description.bytes(), format_description().raw());
    script.await.unwrap();
}

/// A source that writes no checksums now may still have files with them.
#[tokio::test]
async fn checksums_are_what_the_format_description_says() {
    let (mut connection, script) = dump("NONE", &GtidSet::new(), async move |mut source, _| {
        let bare = event_bytes(EventType::ROTATE, &[4; 20], ChecksumAlgorithm::Off);
        source.event(&bare).await;
        source.event(format_description().raw()).await;
        source.event(&heartbeat()).await;
        source.event(&bare).await;
    })
    .await;
    assert_eq!(next(&mut connection).await.unwrap().body(), [4; 20]);
    next(&mut connection).await.unwrap();
    assert_eq!(next(&mut connection).await.unwrap().body(), b"binlog.000001");
    assert!(next(&mut connection).await.is_err(), "no checksum where one is due");
    script.await.unwrap();
}

#[tokio::test]
async fn a_flipped_byte_is_a_wrong_checksum() {
    for at in [0, 4, 9, 25, 99] {
        let mut damaged = event_of(100).to_vec();
        damaged[at] ^= 0x10;
        let (mut connection, script) =
            dump("CRC32", &GtidSet::new(), async move |mut source, _| {
                source.event(&damaged).await;
            })
            .await;
        let error = next(&mut connection).await.expect_err("damage");
        assert!(
            matches!(
                error,
                ConnectionError::Event(EventError::Checksum { .. } | EventError::Length { .. })
            ),
            "byte {at}: {error}"
        );
        script.await.unwrap();
    }
}

#[tokio::test]
async fn an_error_in_the_middle_is_shown() {
    let (mut connection, script) = dump("CRC32", &GtidSet::new(), async move |mut source, _| {
        source.event(&event_of(100)).await;
        source.error(1236, "Cannot replicate because it was purged").await;
    })
    .await;
    next(&mut connection).await.unwrap();
    let error = next(&mut connection).await.expect_err("the source's error");
    assert_eq!(error.to_string(), "error 1236: Cannot replicate because it was purged");
    script.await.unwrap();
}

#[tokio::test]
async fn the_end_of_the_stream_closes_the_link() {
    let (mut connection, script) = dump("CRC32", &GtidSet::new(), async move |mut source, _| {
        source.event(&event_of(100)).await;
        source.eof().await;
    })
    .await;
    next(&mut connection).await.unwrap();
    assert!(matches!(next(&mut connection).await, Err(ConnectionError::Link(LinkError::Closed))));
    script.await.unwrap();
}

#[tokio::test]
async fn anything_but_an_event_is_an_error() {
    let (mut connection, script) = dump("CRC32", &GtidSet::new(), async move |mut source, _| {
        let mut packet = vec![0x07];
        packet.extend_from_slice(&event_of(100));
        source.send(&packet).await;
        source.send(&[]).await;
    })
    .await;
    for _ in 0..2 {
        let error = next(&mut connection).await.expect_err("no event");
        assert!(error.to_string().starts_with("protocol: "), "{error}");
    }
    script.await.unwrap();
}

#[tokio::test]
async fn checksums_unknown_to_us_are_refused() {
    let (client, source) = tokio::io::duplex(BUFFER_BYTES);
    let script = tokio::spawn(async move {
        let mut source = FakeSource::new(source);
        source.accept_login().await;
        source.command().await;
        source.ok().await;
        source.command().await;
        source.value("CRC64").await;
    });
    let mut connection = login_over(client, &options(), None).await.expect("logs in");
    let error = connection.start_dump(&options(), &GtidSet::new()).await.expect_err("unknown");
    assert!(error.to_string().contains("binlog_checksum=CRC64"), "{error}");
    script.await.unwrap();
}
