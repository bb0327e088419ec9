use csa_provider::source::{Placement, TransactionSink as _};

use super::*;
use crate::disk::{MemoryFs, RelayStoreOptions, SyncPolicy};
use crate::opening::RelayStore;
use crate::tests::{filled, format_event, reopen, transaction};

#[tokio::test(start_paused = true)]
async fn a_segment_that_is_purged_between_two_looks_is_passed() {
    let options = RelayStoreOptions {
        sync: SyncPolicy::Interval(Duration::from_secs(1)),
        tail_bytes: 1 << 20,
        files: Arc::new(MemoryFs::new(1)),
        ..crate::tests::options(std::path::Path::new("/"))
    };
    let (store, _) = RelayStore::open(options, &GtidSet::new()).expect("opens");
    let (mut inlet, writer) = store.inlet_and_writer();
    let writing = tokio::spawn(writer.run());
    inlet.append(format_event(), Placement::Outside).await.expect("room");
    tokio::time::sleep(Duration::from_millis(20)).await;
    let mut reader = store.reader(GtidSet::new());
    assert!(reader.has_more().expect("readable"), "a format description");
    // The first segment has no transaction, and lasts for a part of the interval.
    tokio::time::sleep(Duration::from_millis(300)).await;
    for (event, placement) in transaction(1, &[100]) {
        inlet.append(event, placement).await.expect("room");
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(reader.next_frame().is_err() && reader.is_purged());
    let relayed = reader.next_now().expect("readable").expect("a transaction");
    assert_eq!(relayed.header.gtid.gno, 1);
    drop(inlet);
    writing.await.expect("no panic");
}

/// The event is damaged on the disk, which whoever reads it sees.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_does_not_fit_is_not_read() {
    let directory = tempfile::tempdir().expect("temp dir");
    filled(directory.path(), &[(1, vec![3 << 20])]).await;
    let (store, _) = reopen(directory.path(), &GtidSet::new());
    let path = directory.path().join("segment-0000000000000001.relay");
    let mut bytes = std::fs::read(&path).expect("readable");
    bytes[2 << 20] ^= 1;
    std::fs::write(&path, bytes).expect("writable");
    let mut reader = store.reader(GtidSet::new());
    reader.set_inline_limit(1000);
    let relayed = reader.next_now().expect("it is not read").expect("a transaction");
    assert!(matches!(relayed.body, TransactionBody::Streamed(_)));
    assert!(relayed.events().any(|event| event.is_err()));
}
