use std::path::Path;

use csa_provider::binlog::GtidSet;

use crate::disk::*;
use crate::opening::*;
use crate::read::*;
use crate::tests::{bytes_of, gtid, options, write};
use crate::write::*;

type Transactions = Vec<(u64, Vec<usize>)>;

fn transactions() -> Transactions {
    (1..=12).map(|gno| (gno, vec![100, 400, gno as usize])).collect()
}

/// The findings of an inspector: numbers and events.
fn found(directory: &Path) -> Vec<(u64, Vec<u8>)> {
    let inspector = RelayInspector::open(&options(directory)).expect("readable");
    let transactions = inspector.map(|transaction| {
        let transaction = transaction.expect("undamaged");
        let bytes = transaction.events().flat_map(|e| e.expect("event").bytes().to_vec()).collect();
        (transaction.header.gtid.gno, bytes)
    });
    transactions.collect()
}

fn expected(transactions: &[(u64, Vec<usize>)]) -> Vec<(u64, Vec<u8>)> {
    transactions.iter().map(|(gno, sizes)| (*gno, bytes_of(*gno, sizes))).collect()
}

async fn filled(directory: &Path) -> (RelayStore, RelayInlet) {
    let (store, _) = RelayStore::open(options(directory), &GtidSet::new()).expect("opens");
    let mut inlet = store.inlet().expect("a thread");
    write(&mut inlet, transactions()).await;
    let mut reader = store.reader(GtidSet::new());
    for _ in transactions() {
        reader.next(crate::tests::SOON).await.expect("undamaged").expect("all arrive");
    }
    assert!(reader.next_now().expect("undamaged").is_none());
    (store, inlet)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_is_seen_while_it_is_open_and_when_it_is_closed() {
    let directory = tempfile::tempdir().expect("temp dir");
    assert!(found(&directory.path().join("missing")).is_empty());
    let (store, mut inlet) = filled(directory.path()).await;
    assert_eq!(found(directory.path()), expected(&transactions()));
    let segments = RelayInspector::open(&options(directory.path())).expect("readable").segments();
    let segments = segments.expect("undamaged");
    assert_eq!(segments.len(), store.usage().segments);
    assert_eq!(segments.iter().map(|s| s.transactions).sum::<u64>(), 12);
    assert_eq!(
        segments.iter().map(|s| s.event_bytes).sum::<u64>(),
        store.usage().event_bytes_total
    );
    let mut all = GtidSet::new();
    segments.iter().for_each(|segment| all.union(&segment.gtid_set));
    assert_eq!(all, (1..=12).map(gtid).collect());
    // A transaction that is not whole is not shown.
    let unfinished = crate::tests::transaction(13, &[700]);
    for (event, placement) in unfinished.into_iter().take(2) {
        csa_provider::source::TransactionSink::append(&mut inlet, event, placement)
            .await
            .expect("room");
    }
    assert_eq!(found(directory.path()).len(), 12);
    drop(inlet);
    drop(store);
    assert_eq!(found(directory.path()), expected(&transactions()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_cut_short_at_the_end_is_left_out_and_damage_before_it_is_told() {
    let directory = tempfile::tempdir().expect("temp dir");
    drop(filled(directory.path()).await);
    let inspector = RelayInspector::open(&options(directory.path())).expect("readable");
    let segments = inspector.segments().expect("undamaged");
    let (first, last) = (&segments[0], &segments[segments.len() - 1]);
    let before = 12 - last.transactions as usize;
    let whole = std::fs::read(&last.path).expect("readable");
    for len in (0..=whole.len()).step_by(7) {
        std::fs::write(&last.path, &whole[..len]).expect("writable");
        let found = found(directory.path());
        assert_eq!(found, expected(&transactions()[..found.len()]));
        assert!(found.len() >= before);
    }
    std::fs::write(&last.path, &whole).expect("writable");
    // A purged segment is skipped, a damaged one is not.
    let bytes = std::fs::read(&first.path).expect("readable");
    std::fs::remove_file(&first.path).expect("removable");
    assert_eq!(found(directory.path()).len(), 12 - first.transactions as usize);
    std::fs::write(&first.path, &bytes[..bytes.len() - 5]).expect("writable");
    let inspector = RelayInspector::open(&options(directory.path())).expect("readable");
    let told = inspector.last().expect("something");
    assert!(matches!(told, Err(Error::Damaged { .. })), "{told:?}");
    let mut damaged = bytes.clone();
    let at = bytes.len() - 30;
    damaged[at] ^= 1;
    std::fs::write(&first.path, damaged).expect("writable");
    let inspector = RelayInspector::open(&options(directory.path())).expect("readable");
    let damaged = inspector
        .filter_map(Result::ok)
        .find_map(|transaction| transaction.events().find_map(Result::err));
    assert!(matches!(damaged, Some(Error::Damaged { .. })), "{damaged:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_tell_what_all_segments_but_the_last_have() {
    let directory = tempfile::tempdir().expect("temp dir");
    drop(filled(directory.path()).await);
    let list = || {
        let inspector = RelayInspector::open(&options(directory.path())).expect("readable");
        let facts = inspector.segments().expect("readable").into_iter();
        let facts = facts.map(|it| (it.path, it.transactions, it.event_bytes, it.gtid_set));
        facts.collect::<Vec<_>>()
    };
    let before = list();
    for (path, ..) in &before[..before.len() - 1] {
        let mut bytes = std::fs::read(path).expect("readable");
        let len = u32::from_le_bytes(bytes[10..14].try_into().expect("four bytes")) as usize;
        bytes[len..].fill(0);
        std::fs::write(path, bytes).expect("writable");
    }
    assert_eq!(list(), before);
}
