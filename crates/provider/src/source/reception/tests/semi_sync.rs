//! Acknowledgements to a scripted semi-synchronous source.

use super::*;

/// A wait that shows that something does not happen.
const SHORT: Duration = Duration::from_millis(100);

fn semi_sync() -> SourceOptions {
    SourceOptions { semi_sync: true, ..options() }
}

async fn bench() -> Bench {
    let sink = RecordingInlet::default();
    sink.0.lock().safe = Some(watch::Sender::new(7));
    Bench::start_into(sink, semi_sync(), |provider| provider).await
}

impl Bench {
    /// So many transactions of those handed over are on disk.
    fn is_safe(&self, transactions: u64) {
        self.sink.0.lock().safe.as_ref().expect("a count").send_replace(7 + transactions);
    }

    async fn semi_sync_dump(&self) -> (FakeSource, GtidSet) {
        let mut source = self.connection().await;
        source.executed = self.sink.received().to_string();
        source.accept_login().await;
        let commands = source.accept_dump("CRC32").await;
        let announced = String::from_utf8_lossy(&commands[commands.len() - 4]).into_owned();
        assert!(announced.contains("@rpl_semi_sync_replica=1"), "{announced}");
        assert!(announced.contains("@rpl_semi_sync_slave=1"), "{announced}");
        let request = commands.last().expect("a request");
        rotate(&mut source, "binlog.000007").await;
        source.semi_sync_event(format_description().raw(), false).await;
        (source, GtidSet::decode(&request[1 + 2 + 4 + 4 + 8 + 4..]).expect("a set"))
    }
}

async fn rotate(source: &mut FakeSource, file: &str) {
    let body = [&4_u64.to_le_bytes()[..], file.as_bytes()].concat();
    source.semi_sync_event(event(EventType::ROTATE, &body).bytes(), false).await;
}

/// The event, ending at this place in the source's binary log.
fn ending_at(event: &RawEvent, position: u32) -> Vec<u8> {
    let mut bytes = event.bytes().to_vec();
    bytes[13..17].copy_from_slice(&position.to_le_bytes());
    let len = bytes.len() - ChecksumAlgorithm::Crc32.len();
    let crc = crc32fast::hash(&bytes[..len]);
    bytes[len..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// A transaction whose client waits.
async fn waiting_transaction(source: &mut FakeSource, gno: u64, position: u32) {
    source.semi_sync_event(gtid_event(&gtid(gno), 1).bytes(), false).await;
    source.semi_sync_event(query_event("db", "BEGIN").bytes(), false).await;
    let end = ending_at(&event(EventType::XID, &[0; 8]), position);
    source.semi_sync_event(&end, true).await;
}

async fn is_silent(source: &mut FakeSource) {
    let heard = tokio::time::timeout(SHORT, source.acknowledgement()).await;
    assert!(heard.is_err(), "acknowledged: {heard:?}");
}

#[tokio::test]
async fn nothing_is_acknowledged_before_it_is_on_disk() {
    let bench = bench().await;
    let (mut source, _) = bench.semi_sync_dump().await;
    waiting_transaction(&mut source, 1, 500).await;
    waiting_transaction(&mut source, 2, 900).await;
    bench.eventually("both", |view| view.transactions_total == 2).await;
    is_silent(&mut source).await;
    bench.is_safe(1);
    assert_eq!(source.acknowledgement().await, (500, "binlog.000007".to_owned()));
    is_silent(&mut source).await;
    // The second was in a file that the source has ended since; one answer covers both.
    rotate(&mut source, "binlog.000008").await;
    waiting_transaction(&mut source, 3, 300).await;
    bench.eventually("all", |view| view.transactions_total == 3).await;
    bench.is_safe(2);
    assert_eq!(source.acknowledgement().await, (900, "binlog.000007".to_owned()));
    waiting_transaction(&mut source, 4, 600).await;
    bench.eventually("the fourth", |view| view.transactions_total == 4).await;
    bench.is_safe(4);
    assert_eq!(source.acknowledgement().await, (600, "binlog.000008".to_owned()));
    bench.eventually("counted", |view| view.acknowledgements_total == 3).await;
    assert_eq!(bench.status.view().semi_sync, Some(true));
    bench.stop().await;
}

#[tokio::test]
async fn a_dump_begins_only_after_everything_received_is_on_disk() {
    let bench = bench().await;
    let (mut source, _) = bench.semi_sync_dump().await;
    waiting_transaction(&mut source, 1, 500).await;
    bench.eventually("received", |view| view.transactions_total == 1).await;
    drop(source);
    // A source takes the set that the dump begins after for acknowledged.
    let asked = tokio::time::timeout(SHORT, bench.listener.accept()).await;
    assert!(asked.is_err(), "it asks");
    bench.is_safe(1);
    let (mut source, asked) = bench.semi_sync_dump().await;
    assert_eq!(asked, GtidSet::from_iter([gtid(1)]));
    waiting_transaction(&mut source, 2, 800).await;
    bench.eventually("the second", |view| view.transactions_total == 2).await;
    is_silent(&mut source).await;
    bench.is_safe(2);
    assert_eq!(source.acknowledgement().await, (800, "binlog.000007".to_owned()));
    bench.stop().await;
}

/// The source sends nothing, because its clients wait; or there is no link.
#[tokio::test]
async fn a_spool_that_fails_while_it_is_waited_for_ends_reception() {
    for is_linked in [true, false] {
        let bench = bench().await;
        let (mut source, _) = bench.semi_sync_dump().await;
        waiting_transaction(&mut source, 1, 500).await;
        bench.eventually("received", |view| view.transactions_total == 1).await;
        let source = Some(source).filter(|_| is_linked);
        if !is_linked {
            bench.eventually("the link is lost", |view| !view.connected).await;
        }
        bench.sink.0.lock().failed = true;
        let ended = tokio::time::timeout(PATIENCE, bench.running).await.expect("it ends");
        let error = ended.unwrap().unwrap_err().to_string();
        assert!(error.contains("the disk is gone"), "{error}");
        let shown = bench.status.view().last_error;
        assert!(shown.is_some_and(|shown| shown.contains("the disk is gone")), "{is_linked}");
        drop(source);
    }
}

#[tokio::test]
async fn acknowledgements_that_were_lost_with_a_link_are_sent_over_the_next() {
    let bench = bench().await;
    let (mut source, _) = bench.semi_sync_dump().await;
    waiting_transaction(&mut source, 1, 500).await;
    bench.eventually("received", |view| view.transactions_total == 1).await;
    drop(source);
    bench.is_safe(1);
    let (mut source, _) = bench.semi_sync_dump().await;
    // It passes over the transaction and requests nothing.
    let heartbeat = ending_at(&event(EventType::HEARTBEAT, b"binlog.000007"), 500);
    source.semi_sync_event(&heartbeat, false).await;
    assert_eq!(source.acknowledgement().await, (500, "binlog.000007".to_owned()));
    source.semi_sync_event(&heartbeat, false).await;
    is_silent(&mut source).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_full_spool_does_not_hold_back_acknowledgements() {
    let bench = bench().await;
    let (mut source, _) = bench.semi_sync_dump().await;
    waiting_transaction(&mut source, 1, 500).await;
    bench.eventually("received", |view| view.transactions_total == 1).await;
    bench.sink.0.lock().full = true;
    waiting_transaction(&mut source, 2, 900).await;
    is_silent(&mut source).await;
    bench.is_safe(1);
    assert_eq!(source.acknowledgement().await, (500, "binlog.000007".to_owned()));
    bench.sink.0.lock().full = false;
    bench.eventually("the second", |view| view.transactions_total == 2).await;
    is_silent(&mut source).await;
    bench.is_safe(2);
    assert_eq!(source.acknowledgement().await, (900, "binlog.000007".to_owned()));
    bench.stop().await;
}

#[tokio::test]
async fn a_source_without_the_plugin_is_followed_without_acknowledgements() {
    let bench = bench().await;
    let (mut source, _) = bench.dump().await;
    send_transaction(&mut source, 1).await;
    bench.eventually("received", |view| view.transactions_total == 1).await;
    assert_eq!(bench.status.view().semi_sync, Some(false));
    bench.is_safe(1);
    is_silent(&mut source).await;
    // A heartbeat past the last place that was acknowledged.
    let file = b"binlog.000007";
    let start = [&4_u64.to_le_bytes()[..], file].concat();
    source.event(event(EventType::ROTATE, &start).bytes()).await;
    source.event(&ending_at(&event(EventType::HEARTBEAT, file), 500)).await;
    is_silent(&mut source).await;
    bench.stop().await;
}

#[tokio::test]
async fn events_that_lack_the_two_bytes_end_the_link() {
    let bench = bench().await;
    let (mut source, _) = bench.semi_sync_dump().await;
    send_begin(&mut source, 1).await;
    bench.eventually("the error", |view| view.last_error.is_some()).await;
    let error = bench.status.view().last_error.expect("an error");
    assert!(error.contains("semi-synchronous"), "{error}");
    let (mut source, _) = bench.semi_sync_dump().await;
    waiting_transaction(&mut source, 1, 500).await;
    bench.eventually("received", |view| view.transactions_total == 1).await;
    bench.stop().await;
}
