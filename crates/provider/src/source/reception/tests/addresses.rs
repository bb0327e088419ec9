//! A source with two addresses, one of which ends the stream for good.

use super::overlap::send_own;
use super::*;

const PURGED: &str = "the source purged required binary logs";

/// A provider that knows the address of the second listener as well.
async fn bench() -> (Bench, TcpListener) {
    let other = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let failover = vec![("127.0.0.1".to_owned(), other.local_addr().unwrap().port())];
    (Bench::start(SourceOptions { failover, ..options() }).await, other)
}

/// The provider's next dump at the second address, and the GTID set it sent.
async fn dump_at(other: &TcpListener, bench: &Bench) -> (FakeSource, GtidSet) {
    let accepted = tokio::time::timeout(PATIENCE, other.accept()).await;
    let mut source = FakeSource::new(accepted.expect("a connection in time").unwrap().0);
    source.executed = bench.sink.received().to_string();
    source.accept_login().await;
    let request = source.accept_dump("CRC32").await.pop().expect("a request");
    source.event(format_description().raw()).await;
    (source, GtidSet::decode(&request[1 + 2 + 4 + 4 + 8 + 4..]).expect("a set"))
}

#[tokio::test]
async fn an_address_that_purged_what_is_needed_gives_its_turn_to_the_next() {
    let (bench, other) = bench().await;
    let (mut source, _) = bench.dump().await;
    source.error(1236, PURGED).await;
    let (mut source, _) = dump_at(&other, &bench).await;
    send_transaction(&mut source, 1).await;
    bench.eventually("a transaction", |view| view.transactions_total == 1).await;
    let view = bench.status.view();
    assert_eq!(view.address, other.local_addr().unwrap().to_string());
    assert_eq!((view.connected, view.last_error), (true, None));
    bench.stop().await;
}

#[tokio::test]
async fn an_address_that_purged_others_than_the_last_one_gives_its_turn_to_the_next() {
    let (bench, other) = bench().await;
    let (mut source, _) = bench.dump().await;
    send_own(&mut source, 1, 1).await;
    bench.eventually("a transaction", |view| view.transactions_total == 1).await;
    drop(source);
    // From the last one on, and then after it.
    for is_asked_again in [true, false] {
        let (mut source, asked) = bench.dump().await;
        assert_eq!(asked.is_empty(), is_asked_again, "{asked}");
        source.error(1236, PURGED).await;
    }
    let (mut source, _) = dump_at(&other, &bench).await;
    for gno in [1, 2] {
        send_own(&mut source, gno, gno).await;
    }
    bench.eventually("the next one", |view| view.transactions_total == 2).await;
    bench.stop().await;
}

#[tokio::test]
async fn the_next_address_sends_a_transaction_whole_that_was_cut_off() {
    let (bench, other) = bench().await;
    let (mut source, _) = bench.dump().await;
    send_transaction(&mut source, 1).await;
    send_begin(&mut source, 2).await;
    bench.eventually("five events", |view| view.events_total == 1 + 3 + 2).await;
    source.error(1236, "bogus data in log event").await;
    let (mut source, asked) = dump_at(&other, &bench).await;
    assert_eq!(asked, GtidSet::from_iter([gtid(1)]));
    assert_eq!(bench.sink.0.lock().abandoned, [gtid(2)]);
    send_transaction(&mut source, 2).await;
    bench.eventually("the whole transaction", |view| view.transactions_total == 2).await;
    bench.stop().await;
}

/// The first time the event may be about to be written, whatever the text of MySQL 5.7 to 9.7 advises.
#[tokio::test]
async fn a_binary_log_that_is_cut_off_twice_at_one_address_is_read_at_the_next() {
    for who in ["master", "source"] {
        let text = format!(
            "binlog truncated in the middle of event; consider out of disk space on {who}; the first event"
        );
        let (bench, other) = bench().await;
        for _ in 0..2 {
            let (mut source, _) = bench.dump().await;
            send_begin(&mut source, 1).await;
            source.error(1236, &text).await;
        }
        let (mut source, _) = dump_at(&other, &bench).await;
        send_transaction(&mut source, 1).await;
        bench.eventually("the whole transaction", |view| view.transactions_total == 1).await;
        bench.stop().await;
    }
}

#[tokio::test]
async fn damage_at_one_address_is_no_damage_at_the_next() {
    let (bench, other) = bench().await;
    for _ in 0..2 {
        let (mut source, _) = bench.dump().await;
        send_begin(&mut source, 1).await;
        source.event(&damaged_xid()).await;
    }
    let (mut source, _) = dump_at(&other, &bench).await;
    send_transaction(&mut source, 1).await;
    bench.eventually("the whole transaction", |view| view.transactions_total == 1).await;
    bench.stop().await;
}

#[tokio::test]
async fn damage_at_both_addresses_ends_reception_in_that_transaction() {
    let (bench, other) = bench().await;
    // The first time it may be the network's, also at the second address.
    for is_second_met in [false, true, true] {
        let (mut source, _) = bench.dump().await;
        send_begin(&mut source, 1).await;
        source.event(&damaged_xid()).await;
        if is_second_met {
            let (mut source, _) = dump_at(&other, &bench).await;
            send_begin(&mut source, 1).await;
            source.event(&damaged_xid()).await;
        }
    }
    let ended = tokio::time::timeout(PATIENCE, bench.running).await.expect("an end in time");
    let end = ended.unwrap().unwrap_err();
    assert_eq!(end.gtid, Some(gtid(1)));
    assert_eq!(end.error.to_string().matches("twice").count(), 2, "{end}");
}

#[tokio::test]
async fn reception_ends_when_no_address_can_continue() {
    let (bench, other) = bench().await;
    let addresses = [&bench.listener, &other].map(|of| of.local_addr().unwrap().to_string());
    let (mut source, _) = bench.dump().await;
    source.error(1236, PURGED).await;
    let (mut source, _) = dump_at(&other, &bench).await;
    source.error(1236, PURGED).await;
    let status = Arc::clone(&bench.status);
    let text = bench.failure().await.to_string();
    for words in [&addresses[0], &addresses[1], PURGED, "provision the target again"] {
        assert!(text.contains(words), "{words:?} is missing in {text}");
    }
    assert_eq!(status.view().last_cause, Some(SourceCause::Purged));
}

#[tokio::test]
async fn an_address_that_is_away_is_waited_for_while_the_other_can_not_continue() {
    let (bench, other) = bench().await;
    for _ in 0..2 {
        let (mut source, _) = bench.dump().await;
        source.error(1236, PURGED).await;
        drop(other.accept().await.unwrap());
        let is_shown = |view: &SourceView| {
            let error = view.last_error.as_deref().unwrap_or_default();
            error.contains(PURGED) && error.contains("waiting for the other addresses")
        };
        bench.eventually("both are named", is_shown).await;
        assert_eq!(bench.status.view().last_cause, Some(SourceCause::Purged));
    }
    let (mut source, _) = bench.dump().await;
    source.error(1236, PURGED).await;
    let (mut source, _) = dump_at(&other, &bench).await;
    send_transaction(&mut source, 1).await;
    bench.eventually("a transaction", |view| view.transactions_total == 1).await;
    bench.stop().await;
}

/// Nothing would show that transactions of its own source are missing.
#[tokio::test]
async fn a_replica_that_does_not_log_what_it_applies_gives_its_turn_to_the_next() {
    let (bench, other) = bench().await;
    let mut unfit = bench.connection().await;
    unfit.leaves_out_applied = true;
    // Until it is left, which is no goodbye.
    let asked = tokio::spawn(async move { unfit.accept_look().await });
    let (mut source, _) = dump_at(&other, &bench).await;
    send_transaction(&mut source, 1).await;
    bench.eventually("a transaction", |view| view.transactions_total == 1).await;
    asked.abort();
    bench.stop().await;
}
