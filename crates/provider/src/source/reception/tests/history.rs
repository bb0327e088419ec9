//! A source is followed only if it has what was received.

use super::*;
use crate::source::history::Foreign;

#[tokio::test]
async fn an_alternative_is_followed_only_if_it_has_what_we_have() {
    let alternative = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let failover = vec![("127.0.0.1".to_owned(), alternative.local_addr().unwrap().port())];
    let bench = Bench::start(SourceOptions { failover, ..options() }).await;
    let (mut source, _) = bench.dump().await;
    send_transaction(&mut source, 1).await;
    bench.eventually("a transaction", |view| view.transactions_total == 1).await;
    drop(source);

    drop(bench.connection().await);
    let mut lacking = FakeSource::new(alternative.accept().await.unwrap().0);
    lacking.accept_login().await;
    lacking.accept_questions().await;
    lacking.assert_nothing_more().await;

    drop(bench.connection().await);
    let error = bench.status.view().last_error.expect("a reason");
    assert!(error.contains(&format!("lacks transactions we already have: {}", gtid(1))), "{error}");
    let mut source = FakeSource::new(alternative.accept().await.unwrap().0);
    source.executed = gtid(1).to_string();
    source.accept_login().await;
    source.accept_dump("CRC32").await;
    send_transaction(&mut source, 2).await;
    bench.eventually("the stream continues", |view| view.transactions_total == 2).await;
    assert_eq!(bench.status.view().address, alternative.local_addr().unwrap().to_string());
    bench.stop().await;
}

/// The source's lack of the first transaction is shown.
async fn assert_refused_for_the_first(bench: &Bench) {
    bench
        .eventually("the reason is shown", |view| {
            let error = view.last_error.as_deref().unwrap_or_default();
            error.contains(&format!("lacks transactions we already have: {}", gtid(1)))
        })
        .await;
}

#[tokio::test]
async fn a_source_that_lacks_what_was_received_is_waited_for() {
    let bench = Bench::start(options()).await;
    let (mut source, _) = bench.dump().await;
    send_transaction(&mut source, 1).await;
    bench.eventually("a transaction", |view| view.transactions_total == 1).await;
    drop(source);
    // The address leads to another server, or to a replica that lags.
    for executed in ["", "07070707-0707-0707-0707-070707070707:1-5"] {
        let mut source = bench.connection().await;
        source.executed = executed.to_owned();
        source.accept_login().await;
        source.accept_questions().await;
        source.assert_nothing_more().await;
    }
    assert_refused_for_the_first(&bench).await;
    let (mut source, asked) = bench.dump().await;
    assert_eq!(asked, GtidSet::from_iter([gtid(1)]));
    send_transaction(&mut source, 2).await;
    bench.eventually("the stream resumes", |view| view.transactions_total == 2).await;
    bench.stop().await;
}

/// Sends a transaction that the source assigned itself.
async fn send_own_transaction(source: &mut FakeSource, gno: u64) {
    let own: Gtid = format!("{SERVER_UUID}:{gno}").parse().unwrap();
    source.event(gtid_event(&own, 1).bytes()).await;
    source.event(query_event("db", "BEGIN").bytes()).await;
    source.event(event(EventType::XID, &[0; 8]).bytes()).await;
}

/// A source in `AFTER_SYNC` sends a transaction and counts it as executed only after our acknowledgement.
#[tokio::test]
async fn a_commit_that_waits_for_our_answer_is_not_lacking() {
    let failover = vec![("127.0.0.1".to_owned(), 1)];
    let bench = Bench::start(SourceOptions { failover, ..options() }).await;
    let (mut source, _) = bench.dump().await;
    send_own_transaction(&mut source, 7).await;
    bench.eventually("a transaction", |view| view.transactions_total == 1).await;
    drop(source);
    let mut source = bench.connection().await;
    source.owned = format!("{SERVER_UUID}:7#31");
    source.accept_login().await;
    let commands = source.accept_dump("CRC32").await;
    let question = |command: &Vec<u8>| {
        let text = String::from_utf8_lossy(command).into_owned();
        ["gtid_owned", "gtid_executed"].into_iter().find(|name| text.contains(name))
    };
    let questions: Vec<&str> = commands.iter().filter_map(question).collect();
    assert_eq!(questions, ["gtid_executed", "gtid_owned", "gtid_executed"]);
    send_own_transaction(&mut source, 8).await;
    bench.eventually("the stream continues", |view| view.transactions_total == 2).await;
    // Another one is still missing.
    drop(source);
    let mut source = bench.connection().await;
    source.owned = format!("{SERVER_UUID}:7#31");
    source.accept_login().await;
    source.accept_questions().await;
    source.assert_nothing_more().await;
    bench.eventually("a reason", |view| view.last_cause == Some(SourceCause::OtherHistory)).await;
    bench.stop().await;
}

/// The server ends such a dump for good, and knows of commits that are under way.
#[tokio::test]
async fn of_its_own_transactions_the_server_judges_itself() {
    let bench = Bench::start(options()).await;
    let (mut source, _) = bench.dump().await;
    send_own_transaction(&mut source, 7).await;
    bench.eventually("a transaction", |view| view.transactions_total == 1).await;
    drop(source);
    let mut source = bench.connection().await;
    source.accept_login().await;
    source.accept_dump("CRC32").await;
    source.error(1236, "Replica has more GTIDs than the source has").await;
    assert!(bench.failure().await.to_string().contains("provision the target again"));
}

#[tokio::test]
async fn what_the_target_made_no_source_must_have() {
    let foreign = Foreign { own: [gtid(1).uuid].into(), ..Foreign::default() };
    let foreign = SharedForeign::new(foreign);
    let bench = Bench::start_with(options(), |provider| provider.with_foreign(foreign)).await;
    let (mut source, _) = bench.dump().await;
    send_transaction(&mut source, 1).await;
    bench.eventually("a transaction", |view| view.transactions_total == 1).await;
    drop(source);
    let mut source = bench.connection().await;
    source.accept_login().await;
    source.accept_dump("CRC32").await;
    bench.stop().await;
}

/// A replica of the source takes over. The target came from a copy of it, and has a transaction that the first source
/// lacked.
#[tokio::test]
async fn a_server_that_has_sent_something_is_foreign_no_longer() {
    let sink = RecordingInlet::default();
    sink.0.lock().received.add(&gtid(1));
    let foreign = Foreign { servers: [gtid(1).uuid].into(), ..Foreign::default() };
    let foreign = SharedForeign::new(foreign);
    let shared = foreign.clone();
    let bench = Bench::start_into(sink, options(), |provider| provider.with_foreign(shared)).await;
    // The first source, then the replica before it has written anything.
    for executed in ["", &gtid(1).to_string()] {
        let mut source = bench.connection().await;
        source.executed = executed.to_owned();
        source.accept_login().await;
        source.accept_dump("CRC32").await;
    }
    assert!(foreign.get().followed.is_empty());
    let (mut promoted, _) = bench.dump().await;
    send_transaction(&mut promoted, 2).await;
    bench.eventually("a transaction", |view| view.transactions_total == 1).await;
    drop(promoted);
    let mut lacking = bench.connection().await;
    lacking.executed = gtid(1).to_string();
    lacking.accept_login().await;
    lacking.accept_questions().await;
    lacking.assert_nothing_more().await;
    let lacks = format!("lacks transactions we already have: {}", gtid(2));
    bench
        .eventually("the reason is shown", |view| {
            view.last_error.as_deref().unwrap_or_default().contains(&lacks)
        })
        .await;
    let _ = bench.dump().await;
    assert_eq!(foreign.get().followed, [gtid(1).uuid].into());
    bench.stop().await;
}

/// Or an empty server in the place of the source would have anything accepted.
#[tokio::test]
async fn a_source_that_shares_no_server_does_not_tell_what_came_from_elsewhere() {
    let undecided = Foreign { is_undecided: true, ..Foreign::default() };
    let undecided = SharedForeign::new(undecided);
    let shared = undecided.clone();
    let bench = Bench::start_with(options(), |provider| provider.with_foreign(shared)).await;
    let (mut source, _) = bench.dump().await;
    send_transaction(&mut source, 1).await;
    bench.eventually("a transaction", |view| view.transactions_total == 1).await;
    drop(source);
    let mut empty = bench.connection().await;
    empty.executed = String::new();
    empty.accept_login().await;
    empty.accept_questions().await;
    empty.assert_nothing_more().await;
    assert_refused_for_the_first(&bench).await;
    let _ = bench.dump().await;
    let decided = Foreign { followed: [gtid(1).uuid].into(), ..Foreign::default() };
    assert_eq!(undecided.get(), decided);
    bench.stop().await;
}
