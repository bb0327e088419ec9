//! Heartbeats, and the clock of a source that has sent everything.

use super::*;

#[tokio::test]
async fn heartbeats_are_counted_and_not_stored() {
    let bench = Bench::start(options()).await;
    let (mut source, _) = bench.dump().await;
    for _ in 0..3 {
        let bytes = event_bytes(EventType::HEARTBEAT, &[b'b'; 13], ChecksumAlgorithm::Crc32);
        source.event(&bytes).await;
    }
    bench.eventually("three heartbeats", |view| view.heartbeats_total == 3).await;
    assert!(bench.status.view().last_heartbeat.is_some());
    bench.stop().await;
}

/// Heartbeats also come while a source skips transactions that were received.
#[tokio::test]
async fn a_source_is_idle_when_it_has_sent_what_it_had_and_says_so() {
    const HOUR: i64 = 3_600_000_000;
    for clock_ahead in [0, HOUR, -HOUR] {
        let bench = Bench::start(options()).await;
        let mut source = bench.connection().await;
        source.clock_ahead = clock_ahead;
        source.executed = format!("{}-2", gtid(1));
        source.accept_login().await;
        source.accept_dump("CRC32").await;
        let heartbeat = event_bytes(EventType::HEARTBEAT, &[b'b'; 13], ChecksumAlgorithm::Crc32);
        source.event(&heartbeat).await;
        bench.eventually("a heartbeat", |view| view.heartbeats_total == 1).await;
        let view = bench.status.view();
        assert!(!view.idle, "there is more to come");
        assert!((view.clock.estimate() - clock_ahead).abs() < 1_000_000, "{:?}", view.clock);
        for gno in 1..=2 {
            send_transaction(&mut source, gno).await;
            bench.eventually("a transaction", |view| view.transactions_total == gno).await;
            assert!(!bench.status.view().idle, "nothing was said of that");
        }
        source.event(&heartbeat).await;
        bench.eventually("it has nothing more", |view| view.idle).await;
        send_begin(&mut source, 3).await;
        bench.eventually("a transaction arrives", |view| view.queueing.is_some()).await;
        let view = bench.status.view();
        assert!(!view.idle && view.queueing_since.is_some());
        bench.stop().await;
    }
    // A source that has nothing else is idle from the start.
    let bench = Bench::start(options()).await;
    let _source = bench.dump().await;
    bench.eventually("a link", |view| view.connected && view.idle).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_clock_whose_answers_came_late_is_asked_again_beside_the_dump() {
    const HOUR: i64 = 3_600_000_000;
    let bench = Bench::start(options()).await;
    let mut source = bench.connection().await;
    source.clock_ahead = HOUR;
    source.clock_after = Duration::from_millis(400);
    source.accept_login().await;
    source.accept_dump("CRC32").await;
    bench.eventually("a link", |view| view.connected).await;
    let wide = bench.status.view().clock;
    assert!(wide.uncertainty() >= 400_000 && wide.most() >= HOUR, "{wide:?}");
    // It asks while events arrive, and again after a connection that fails.
    drop(bench.connection().await);
    let mut second = bench.connection().await;
    second.clock_ahead = HOUR;
    second.accept_login().await;
    send_transaction(&mut source, 1).await;
    bench.eventually("a transaction", |view| view.transactions_total == 1).await;
    assert_eq!(bench.status.view().clock, wide);
    second.accept_clock_questions(3).await;
    bench.eventually("it is known", |view| view.clock != wide).await;
    let known = bench.status.view().clock;
    assert!(known.uncertainty() < wide.uncertainty() && known.most() >= HOUR, "{known:?}");
    bench.stop().await;
}
