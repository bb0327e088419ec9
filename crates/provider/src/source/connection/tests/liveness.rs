//! The silence that ends a link. The clock is tokio's, and stands still while any task is ready.

use tokio::time::{Instant, sleep};

use super::*;
use crate::source::connection::fake_source::options;

#[tokio::test(start_paused = true)]
async fn heartbeats_keep_an_idle_link() {
    const BEATS: u32 = 20;
    let started = Instant::now();
    let (mut connection, script) = dump("CRC32", &GtidSet::new(), async move |mut source, _| {
        for _ in 0..BEATS {
            sleep(options().heartbeat_interval).await;
            source.event(&heartbeat()).await;
        }
    })
    .await;
    for _ in 0..BEATS {
        let event = next(&mut connection).await.expect("alive");
        assert_eq!(event.event_type(), EventType::HEARTBEAT);
    }
    assert!(started.elapsed() > options().dead_after(), "longer than a silent link would live");
    script.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_link_that_is_silent_for_three_heartbeats_is_dead() {
    let (mut connection, script) = dump("CRC32", &GtidSet::new(), async move |mut source, _| {
        source.event(&heartbeat()).await;
        // Open, but silent.
        sleep(PATIENCE).await;
    })
    .await;
    next(&mut connection).await.expect("alive");
    let silent = Instant::now();
    let error = next(&mut connection).await.expect_err("dead");
    assert!(matches!(error, ConnectionError::Link(LinkError::Silent(_))), "{error}");
    let waited = silent.elapsed();
    let limit = options().heartbeat_interval * 3;
    assert!(waited >= limit && waited < limit + Duration::from_millis(10), "{waited:?}");
    script.abort();
}

/// A source with thousands of binary logs searches them before it sends anything.
#[tokio::test(start_paused = true)]
async fn the_first_event_may_take_longer_than_any_other() {
    let search = Duration::from_secs(50);
    assert!(search > options().dead_after());
    let (mut connection, script) = dump("CRC32", &GtidSet::new(), async move |mut source, _| {
        sleep(search).await;
        source.event(&heartbeat()).await;
        // Open, but silent.
        sleep(PATIENCE).await;
    })
    .await;
    next(&mut connection).await.expect("alive");
    let silent = Instant::now();
    let error = next(&mut connection).await.expect_err("dead");
    assert!(matches!(error, ConnectionError::Link(LinkError::Silent(_))), "{error}");
    assert!(silent.elapsed() < options().dead_after() * 2, "the patience is for the first alone");
    script.abort();
}

#[tokio::test(start_paused = true)]
async fn a_dump_that_never_begins_is_dead() {
    let (mut connection, script) = dump("CRC32", &GtidSet::new(), async move |_source, _| {
        sleep(3 * PATIENCE).await;
    })
    .await;
    let silent = Instant::now();
    let error = connection.next_event().await.expect_err("dead");
    assert!(matches!(error, ConnectionError::Link(LinkError::Silent(_))), "{error}");
    let waited = silent.elapsed();
    let limit = Duration::from_secs(60);
    assert!(waited >= limit && waited < limit + Duration::from_millis(10), "{waited:?}");
    script.abort();
}

/// A source is silent if it sends nothing, not if it sends slowly.
#[tokio::test(start_paused = true)]
async fn a_packet_that_comes_slowly_is_life() {
    let event = event_of(10_000);
    let sent = event.clone();
    let started = Instant::now();
    let (mut connection, script) = dump("CRC32", &GtidSet::new(), async move |mut source, _| {
        let mut packet = vec![0];
        packet.extend_from_slice(&sent);
        for part in source.frame(&packet).chunks(1_000) {
            sleep(options().heartbeat_interval).await;
            source.send_bytes(part).await;
        }
    })
    .await;
    assert_eq!(next(&mut connection).await.expect("whole").bytes(), &event);
    assert!(started.elapsed() > options().dead_after() * 2);
    script.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_source_that_answers_no_command_is_dead() {
    let (client, source) = tokio::io::duplex(BUFFER_BYTES);
    let script = tokio::spawn(async move {
        let mut source = FakeSource::new(source);
        source.accept_login().await;
        source.command().await;
        sleep(PATIENCE).await;
    });
    let options = SourceOptions { connect_timeout: Duration::from_secs(8), ..options() };
    let mut connection = login_over(client, &options, None).await.expect("logs in");
    let asked = Instant::now();
    let error = connection.start_dump(&options, &GtidSet::new()).await.expect_err("dead");
    assert!(matches!(error, ConnectionError::Link(LinkError::Silent(_))), "{error}");
    assert!(asked.elapsed() < options.dead_after() * 2);
    script.abort();
}

/// It sends no heartbeats before a dump.
#[tokio::test(start_paused = true)]
async fn an_answer_may_take_as_long_as_an_attempt_to_connect() {
    let heartbeat_interval = Duration::from_millis(100);
    let options = SourceOptions { heartbeat_interval, ..options() };
    let pause = options.connect_timeout - Duration::from_secs(1);
    let (client, source) = tokio::io::duplex(BUFFER_BYTES);
    let script = tokio::spawn(async move {
        let mut source = FakeSource::new(source);
        source.accept_login().await;
        source.command().await;
        sleep(pause).await;
        source.value("late").await;
    });
    let mut connection = login_over(client, &options, None).await.expect("logs in");
    assert_eq!(connection.setting("SELECT @@version").await.expect("an answer"), "late");
    script.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_link_cut_inside_a_packet_is_closed() {
    let (mut connection, script) = dump("CRC32", &GtidSet::new(), async move |mut source, _| {
        let frame = source.frame(&[0; 100]);
        source.send_bytes(&frame[..50]).await;
    })
    .await;
    assert!(matches!(next(&mut connection).await, Err(ConnectionError::Link(LinkError::Closed))));
    script.await.unwrap();
}
