//! The last transaction is requested once more, and compared: a source that was set back has another one of its GTID.

use super::*;

const PURGED: &str = "Cannot replicate because the source purged required binary logs.";

fn own(gno: u64) -> Gtid {
    format!("{SERVER_UUID}:{gno}").parse().unwrap()
}

/// Sends a transaction of the source's own, committed at this time.
pub(super) async fn send_own(source: &mut FakeSource, gno: u64, committed: u64) {
    source.event(gtid_event(&own(gno), committed).bytes()).await;
    source.event(query_event("db", "BEGIN").bytes()).await;
    source.event(event(EventType::XID, &[0; 8]).bytes()).await;
}

/// Returns a provider whose link broke after the source's transactions 1 and 2.
async fn broken_after_two() -> Bench {
    let bench = Bench::start(options()).await;
    let (mut source, _) = bench.dump().await;
    for gno in [1, 2] {
        send_own(&mut source, gno, gno).await;
    }
    bench.eventually("two transactions", |view| view.transactions_total == 2).await;
    bench
}

#[tokio::test]
async fn the_last_transaction_comes_twice_and_is_taken_once() {
    let bench = broken_after_two().await;
    for gno in [3, 4] {
        let (mut source, asked) = bench.dump().await;
        assert_eq!(asked, (1..gno - 1).map(own).collect(), "all but the last");
        // Its place among those that follow is not the last one's on every member of a group.
        send_own(&mut source, gno - 1, gno - 1).await;
        send_own(&mut source, gno, gno).await;
        bench.eventually("the next", |view| view.transactions_total == gno).await;
        assert_eq!(bench.sink.0.lock().received, (1..=gno).map(own).collect());
    }
    assert!(bench.sink.0.lock().abandoned.is_empty());
    bench.stop().await;
}

#[tokio::test]
async fn a_link_that_breaks_within_it_begins_there_again() {
    let bench = broken_after_two().await;
    let (mut source, _) = bench.dump().await;
    source.event(gtid_event(&own(2), 2).bytes()).await;
    source.event(query_event("db", "BEGIN").bytes()).await;
    drop(source);
    let (mut source, asked) = bench.dump().await;
    assert_eq!(asked, [own(1)].into_iter().collect());
    send_own(&mut source, 2, 2).await;
    send_own(&mut source, 3, 3).await;
    bench.eventually("the next", |view| view.transactions_total == 3).await;
    bench.stop().await;
}

#[tokio::test]
async fn another_transaction_of_its_gtid_ends_reception() {
    let bench = broken_after_two().await;
    let (mut source, _) = bench.dump().await;
    send_own(&mut source, 2, 7).await;
    let sink = bench.sink.clone();
    let error = bench.failure().await;
    assert!(matches!(&*error, Error::SetBack { gtid, .. } if *gtid == own(2)), "{error}");
    assert_eq!(error.cause(), SourceCause::OtherHistory);
    assert!(error.to_string().contains("was set back"), "{error}");
    assert_eq!(sink.0.lock().received, [own(1), own(2)].into_iter().collect());
}

#[tokio::test]
async fn a_third_time_is_one_too_many() {
    let bench = broken_after_two().await;
    let (mut source, _) = bench.dump().await;
    send_own(&mut source, 2, 2).await;
    send_own(&mut source, 2, 2).await;
    let error = bench.failure().await;
    assert!(matches!(&*error, Error::Repeated { gtid, .. } if *gtid == own(2)), "{error}");
}

/// Answers the questions before the next dump with these sets, and returns the one that is asked for.
async fn asked(bench: &Bench, executed: &str, purged: &str) -> GtidSet {
    answered(bench, executed, purged).await.1
}

async fn answered(bench: &Bench, executed: &str, purged: &str) -> (FakeSource, GtidSet) {
    let mut source = bench.connection().await;
    (source.executed, source.purged) = (executed.to_owned(), purged.to_owned());
    source.accept_login().await;
    let request = source.accept_dump("CRC32").await.pop().expect("a request");
    (source, GtidSet::decode(&request[1 + 2 + 4 + 4 + 8 + 4..]).expect("a set"))
}

#[tokio::test]
async fn a_source_is_asked_only_for_what_it_has() {
    let bench = broken_after_two().await;
    let both: GtidSet = [own(1), own(2)].into_iter().collect();
    let (all, first) = (both.to_string(), own(1).to_string());
    // It lacks its last one, and says so itself.
    assert_eq!(asked(&bench, &first, "").await, both);
    assert_eq!(asked(&bench, &all, &all).await, both);
    assert_eq!(asked(&bench, &all, &first).await, [own(1)].into_iter().collect());
    bench.stop().await;
}

/// It was there when the source was asked, and is gone before the dump.
#[tokio::test]
async fn what_is_purged_just_then_ends_no_reception() {
    let bench = broken_after_two().await;
    let (mut source, _) = bench.dump().await;
    source.error(SOURCE_FATAL, PURGED).await;
    drop(source);
    let both: GtidSet = [own(1), own(2)].into_iter().collect();
    let all = both.to_string();
    let mut source = bench.connection().await;
    (source.executed, source.purged) = (all.clone(), all);
    source.accept_login().await;
    source.accept_dump("CRC32").await;
    source.error(SOURCE_FATAL, PURGED).await;
    let error = bench.failure().await;
    assert!(error.to_string().contains("purged"), "{error}");
}

/// The source still has the last one, and another server's transactions are purged there that were never received.
#[tokio::test]
async fn others_that_are_purged_end_reception() {
    let bench = broken_after_two().await;
    let both: GtidSet = [own(1), own(2)].into_iter().collect();
    let purged = gtid(5).to_string();
    for expected in [[own(1)].into_iter().collect(), both.clone()] {
        let (mut source, asked) = answered(&bench, &format!("{both},{purged}"), &purged).await;
        assert_eq!(asked, expected);
        source.error(SOURCE_FATAL, PURGED).await;
    }
    assert_eq!(bench.failure().await.cause(), SourceCause::Purged);
}

/// Purged transactions are no reason to compare nothing for ever.
#[tokio::test]
async fn once_events_arrive_the_last_one_is_requested_again() {
    let bench = broken_after_two().await;
    let (mut source, _) = bench.dump().await;
    source.error(SOURCE_FATAL, PURGED).await;
    drop(source);
    for expected in [[own(1), own(2)].as_slice(), &[own(1)]] {
        let (_, asked) = bench.dump().await;
        assert_eq!(asked, expected.iter().cloned().collect());
    }
    bench.stop().await;
}

#[tokio::test]
async fn others_transactions_and_those_without_a_time_or_too_large_tell_nothing() {
    let bench = Bench::start(options()).await;
    let (mut source, _) = bench.dump().await;
    for (last, committed, bytes) in [(gtid(1), 1, 0), (own(1), 0, 0), (own(2), 2, 1 << 30)] {
        {
            let mut record = bench.sink.0.lock();
            record.received.add(&last);
            record.last = Some(LastReceived { gtid: last.clone(), committed, bytes });
        }
        drop(source);
        let asked;
        (source, asked) = bench.dump().await;
        assert!(asked.contains(&last), "{last}");
    }
    bench.stop().await;
}
