use std::path::Path;
use std::sync::Arc;

use csa_provider::binlog::GtidSet;
use csa_provider::source::TransactionSink as _;

use crate::disk::{MemoryFs, RelayStoreOptions};
use crate::opening::RelayStore;
use crate::tests::{SOON, gtid, options, write};

/// The intervals of the set from which reception begins.
const GAPS: u64 = 2000;
/// The first transaction after it.
const FIRST: u64 = 2 * GAPS + 2;

/// Returns the set with so many transactions after it.
fn with(transactions: u64) -> GtidSet {
    (1..=GAPS).map(|place| 2 * place).chain(FIRST..FIRST + transactions).map(gtid).collect()
}

/// Returns the intervals that a store holds for all its segments.
fn held(store: &RelayStore) -> usize {
    let state = store.shared.state.lock();
    state.segments.values().map(|segment| segment.grown.intervals().count()).sum()
}

/// Each header on disk has the whole set, which is too much for the memory of a store with many segments.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_holds_once_what_was_received_before_all_its_segments() {
    let disk = MemoryFs::new(1);
    let folder = Path::new("/relay/channel");
    let options = RelayStoreOptions { files: Arc::new(disk), ..options(folder) };
    let most = GAPS as usize + 100;
    let (store, _) = RelayStore::open(options.clone(), &with(0)).expect("opens");
    let mut inlet = store.inlet().expect("a thread");
    write(&mut inlet, (FIRST..FIRST + 20).map(|gno| (gno, vec![2000]))).await;
    inlet.stored().await;
    assert!(store.usage().segments >= 20 && held(&store) < most, "{}", held(&store));
    let mut reader = store.reader(with(0));
    let mut end = None;
    for _ in 0..10 {
        end = reader.next(SOON).await.expect("undamaged");
    }
    store.release(end.expect("all arrive").end);
    assert!(held(&store) < most, "{}", held(&store));
    assert_eq!((store.before(), store.passed_over()), (with(10), with(10)));
    assert!(store.follows(&with(10)) && !store.follows(&with(9)));
    drop((inlet, reader, store));
    let (store, _) = RelayStore::open(options, &with(12)).expect("opens");
    assert_eq!((store.before(), store.received()), (with(12), &with(20)));
    assert!(held(&store) < most, "{}", held(&store));
    let next = store.reader(with(15)).next(SOON).await.expect("undamaged").expect("one more");
    assert_eq!(next.header.gtid, gtid(FIRST + 15));
}
