use std::path::Path;
use std::time::Duration;

use csa_provider::binlog::TransactionHeader;
use csa_provider::binlog::{ChecksumAlgorithm, EventType, Gtid, GtidSet, RawEvent, Tag, Uuid};
use csa_provider::source::Placement;
use csa_provider::source::TransactionSink as _;
use csa_provider::test_util::{event, format_description, gtid_event};
use proptest::prelude::*;

use crate::disk::*;
use crate::opening::*;
use crate::read::*;
use crate::write::*;

pub(crate) const SOON: Duration = Duration::from_secs(5);
pub(crate) const NOW: Duration = Duration::from_millis(1);

pub(crate) fn options(directory: &Path) -> RelayStoreOptions {
    RelayStoreOptions {
        directory: directory.to_owned(),
        segment_size: 2000,
        space_limit: 0,
        min_free_disk: 0,
        sync: SyncPolicy::Os,
        archived: false,
        tail_bytes: 1500,
        frame_bytes: 300,
        wake_bytes: RelayStoreOptions::WAKE_BYTES,
        files: RealFs::shared(),
    }
}

pub(crate) fn gtid(gno: u64) -> Gtid {
    Gtid { uuid: Uuid::from_bytes([3; 16]), tag: Tag::untagged(), gno }
}

/// Returns the events of a transaction with a body of `sizes`.
pub(crate) fn transaction(gno: u64, sizes: &[usize]) -> Vec<(RawEvent, Placement)> {
    let begin = gtid_event(&gtid(gno), gno * 1000);
    let header = TransactionHeader::parse(&begin).expect("well-formed");
    let mut events = vec![(begin, Placement::Begin(header))];
    for &size in sizes {
        events.push((event(EventType::WRITE_ROWS, &vec![gno as u8; size]), Placement::Body));
    }
    events.push((event(EventType::XID, &gno.to_le_bytes()), Placement::End));
    events
}

pub(crate) fn format_event() -> RawEvent {
    RawEvent::trusted(format_description().raw().clone(), ChecksumAlgorithm::Crc32)
        .expect("well-formed")
}

pub(crate) async fn write(
    inlet: &mut RelayInlet,
    transactions: impl IntoIterator<Item = (u64, Vec<usize>)>,
) {
    inlet.append(format_event(), Placement::Outside).await.expect("room");
    for (gno, sizes) in transactions {
        for (event, placement) in transaction(gno, &sizes) {
            inlet.append(event, placement).await.expect("room");
        }
    }
}

pub(crate) async fn read(reader: &mut RelayReader, wait: Duration) -> Option<(u64, Vec<u8>)> {
    let relayed = reader.next(wait).await.expect("undamaged")?;
    let bytes = relayed.events().flat_map(|e| e.expect("event").bytes().to_vec()).collect();
    Some((relayed.header.gtid.gno, bytes))
}

pub(crate) fn bytes_of(gno: u64, sizes: &[usize]) -> Vec<u8> {
    transaction(gno, sizes).iter().flat_map(|(e, _)| e.bytes().to_vec()).collect()
}

/// Writes the transactions, closes the store, and leaves its files.
pub(crate) async fn filled(directory: &Path, transactions: &[(u64, Vec<usize>)]) {
    let (store, _) = RelayStore::open(options(directory), &GtidSet::new()).expect("opens");
    let mut inlet = store.inlet().expect("a thread");
    write(&mut inlet, transactions.to_vec()).await;
    drop(inlet);
    let mut reader = store.reader(GtidSet::new());
    for _ in transactions {
        reader.next(SOON).await.expect("undamaged").expect("all arrive");
    }
    drop(store);
}

pub(crate) fn reopen(directory: &Path, executed: &GtidSet) -> (RelayStore, Recovery) {
    RelayStore::open(options(directory), executed).expect("opens")
}

fn sizes() -> impl Strategy<Value = Vec<Vec<usize>>> {
    prop::collection::vec(prop::collection::vec(1_usize..700, 0..5), 1..25)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn what_goes_in_comes_out(first in sizes(), second in sizes(), inline in 100_u64..3000) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("runtime");
        let directory = tempfile::tempdir().expect("temp dir");
        runtime.block_on(async {
            let first: Vec<_> = (1..).zip(first).collect();
            let second: Vec<_> = (first.len() as u64 + 1..).zip(second).collect();
            filled(directory.path(), &first).await;
            let (store, recovery) = reopen(directory.path(), &GtidSet::new());
            prop_assert_eq!(recovery, Recovery::default());
            prop_assert_eq!(store.received().count(), first.len() as u64);
            let mut inlet = store.inlet().expect("a thread");
            write(&mut inlet, second.clone()).await;
            let mut reader = store.reader(GtidSet::new());
            reader.set_inline_limit(inline);
            for (gno, sizes) in first.iter().chain(&second) {
                let (found, bytes) = read(&mut reader, SOON).await.expect("there is one");
                prop_assert_eq!(found, *gno);
                prop_assert_eq!(bytes, bytes_of(*gno, sizes));
            }
            prop_assert!(read(&mut reader, NOW).await.is_none());
            prop_assert_eq!(reader.read_so_far().0, store.usage().transactions_total);
            Ok(())
        })?;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_torn_tail_is_cut_to_a_prefix_at_every_byte() {
    let directory = tempfile::tempdir().expect("temp dir");
    let transactions: Vec<_> = (1..=4).map(|gno| (gno, vec![100, 400])).collect();
    filled(directory.path(), &transactions).await;
    let (store, _) = reopen(directory.path(), &GtidSet::new());
    let last = store.usage().segments as u64;
    drop(store);
    let path = directory.path().join(format!("segment-{last:016x}.relay"));
    let whole = std::fs::read(&path).expect("readable");
    let mut seen = 0;
    for len in 0..=whole.len() {
        std::fs::write(&path, &whole[..len]).expect("writable");
        let (store, recovery) = reopen(directory.path(), &GtidSet::new());
        let mut reader = store.reader(GtidSet::new());
        let mut count = 0;
        while let Some((gno, bytes)) = read(&mut reader, NOW).await {
            count += 1;
            assert_eq!((gno, bytes), (count, bytes_of(count, &[100, 400])));
        }
        assert_eq!(store.received().count(), count);
        assert!(count >= seen, "a longer file holds no less");
        assert!(recovery.cut_bytes as usize <= len);
        seen = count;
    }
    assert_eq!(seen, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_byte_is_damage_or_nothing() {
    let directory = tempfile::tempdir().expect("temp dir");
    let transactions: Vec<_> = (1..=8).map(|gno| (gno, vec![100, 400])).collect();
    filled(directory.path(), &transactions).await;
    let path = directory.path().join("segment-0000000000000001.relay");
    let whole = std::fs::read(&path).expect("readable");
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x20;
        std::fs::write(&path, &bytes).expect("writable");
        let opened = RelayStore::open(options(directory.path()), &GtidSet::new());
        let (store, recovery) = opened.expect("damage is not taken for another version");
        if recovery.dropped_segments > 0 {
            // The header is damaged: everything is fetched again. Put the files back.
            drop(store);
            std::fs::remove_dir_all(directory.path()).expect("removable");
            filled(directory.path(), &transactions).await;
            continue;
        }
        let mut reader = store.reader(GtidSet::new());
        let mut next = 1;
        loop {
            match reader.next_now() {
                Ok(Some(relayed)) => {
                    let bytes: Vec<u8> =
                        relayed.events().flat_map(|e| e.expect("event").bytes().to_vec()).collect();
                    assert_eq!(bytes, bytes_of(next, &[100, 400]), "byte {at}");
                    next += 1;
                }
                Err(Error::Damaged { path, transaction, .. }) => {
                    assert!(path.ends_with("segment-0000000000000001.relay"));
                    assert_eq!(transaction.segment, 1);
                    break;
                }
                other => panic!("byte {at}: {other:?}"),
            }
        }
        drop(store);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_is_cut_and_fetched_again() {
    let directory = tempfile::tempdir().expect("temp dir");
    let transactions: Vec<_> = (1..=8).map(|gno| (gno, vec![100, 400])).collect();
    filled(directory.path(), &transactions).await;
    let path = directory.path().join("segment-0000000000000001.relay");
    let mut bytes = std::fs::read(&path).expect("readable");
    let at = bytes.len() - 10;
    bytes[at] ^= 1;
    std::fs::write(&path, &bytes).expect("writable");
    let (store, _) = reopen(directory.path(), &GtidSet::new());
    let mut reader = store.reader(GtidSet::new());
    let mut good = 0;
    let transaction = loop {
        match reader.next_now() {
            Ok(_) => good += 1,
            Err(Error::Damaged { transaction, .. }) => break transaction,
            other => panic!("{other:?}"),
        }
    };
    drop((reader, store));
    RelayStore::discard_from(&options(directory.path()), transaction).expect("cut");
    let (store, _) = reopen(directory.path(), &GtidSet::new());
    assert_eq!(store.received().count(), good);
    let mut inlet = store.inlet().expect("a thread");
    write(&mut inlet, (good + 1..=8).map(|gno| (gno, vec![100, 400]))).await;
    let mut reader = store.reader(GtidSet::new());
    for gno in 1..=8 {
        assert_eq!(read(&mut reader, SOON).await, Some((gno, bytes_of(gno, &[100, 400]))));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abandoned_transaction_leaves_nothing() {
    let directory = tempfile::tempdir().expect("temp dir");
    let (store, _) = RelayStore::open(options(directory.path()), &GtidSet::new()).expect("opens");
    let mut inlet = store.inlet().expect("a thread");
    write(&mut inlet, [(1, vec![10])]).await;
    for cut in 1..8 {
        for (event, placement) in
            transaction(2, &[700, 700, 700, 50, 700, 700]).into_iter().take(cut)
        {
            inlet.append(event, placement).await.expect("room");
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        inlet.abandon().await.expect("room");
        assert_eq!(inlet.received().count(), 1);
        assert!(store.usage().queued.is_none_or(|queued| queued.committed.immediate == 1000));
    }
    write(&mut inlet, [(2, vec![20])]).await;
    let mut reader = store.reader(GtidSet::new());
    assert_eq!(read(&mut reader, SOON).await, Some((1, bytes_of(1, &[10]))));
    assert_eq!(read(&mut reader, SOON).await, Some((2, bytes_of(2, &[20]))));
}

#[tokio::test(flavor = "multi_thread")]
async fn executed_transactions_are_passed_over_and_released_ones_purged() {
    let directory = tempfile::tempdir().expect("temp dir");
    let transactions: Vec<_> = (1..=20).map(|gno| (gno, vec![300])).collect();
    filled(directory.path(), &transactions).await;
    let executed: GtidSet = (1..=10).map(gtid).collect();
    let files = std::fs::read_dir(directory.path()).expect("readable").count();
    let (store, _) = reopen(directory.path(), &executed);
    let before = store.usage().segments;
    assert!(before + 1 < files, "what the target has by now goes at once");
    let _inlet = store.inlet().expect("a thread");
    let mut reader = store.reader(executed);
    let relayed = reader.next(SOON).await.expect("undamaged").expect("there is one");
    assert_eq!((relayed.header.gtid.gno, relayed.ordinal), (11, 11));
    let (mut end, first) = (relayed.end, relayed.start.segment);
    while end.segment == first {
        store.release(end);
        end = reader.next(SOON).await.expect("undamaged").expect("there is one").end;
    }
    assert!(store.usage().segments < before);
    let next = reader.next_now().expect("undamaged").map(|relayed| relayed.ordinal);
    assert!(next.is_none_or(|ordinal| ordinal > 11));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abandoned_transaction_is_never_read_ahead() {
    let directory = tempfile::tempdir().expect("temp dir");
    for tail_bytes in [0, 1 << 20] {
        let directory = directory.path().join(tail_bytes.to_string());
        let options =
            RelayStoreOptions { tail_bytes, segment_size: 1 << 20, ..options(&directory) };
        let (store, _) = RelayStore::open(options, &GtidSet::new()).expect("opens");
        let mut inlet = store.inlet().expect("a thread");
        let mut reader = store.reader(GtidSet::new());
        for gno in 1..=5 {
            // One whole transaction, then large frames of the next one
            // that are written and removed again.
            write(&mut inlet, [(gno, vec![10])]).await;
            let before = store.usage().bytes;
            for (event, placement) in transaction(gno + 1, &[900, 1100]).into_iter().take(3) {
                inlet.append(event, placement).await.expect("room");
            }
            inlet.append(format_event(), Placement::Outside).await.expect("room");
            for _ in 0..500 {
                if store.usage().bytes > before + 900 {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(read(&mut reader, SOON).await, Some((gno, bytes_of(gno, &[10]))));
            inlet.abandon().await.expect("room");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_ahead_of_the_store_leaves_no_hole() {
    let directory = tempfile::tempdir().expect("temp dir");
    filled(directory.path(), &[(1, vec![10]), (2, vec![10])]).await;
    let ahead: GtidSet = (1..=10).map(gtid).collect();
    let (store, _) = RelayStore::open(options(directory.path()), &ahead).expect("not locked");
    assert_eq!(*store.received(), ahead);
    let mut inlet = store.inlet().expect("a thread");
    write(&mut inlet, [(11, vec![10])]).await;
    drop((inlet, store));
    // The target was restored to an earlier state: 3 to 10 are in neither.
    let back: GtidSet = (1..=2).map(gtid).collect();
    let (store, recovery) = RelayStore::open(options(directory.path()), &back).expect("not locked");
    assert!(recovery.emptied_for.is_some() || recovery.dropped_segments > 0);
    assert_eq!(*store.received(), back);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_target_has_of_its_own_is_no_hole_while_it_lacks_what_was_received() {
    let directory = tempfile::tempdir().expect("temp dir");
    filled(directory.path(), &[(1, vec![10]), (2, vec![10])]).await;
    let own = "7a7a7a7a-7a7a-7a7a-7a7a-7a7a7a7a7a7a:1";
    let mut executed: GtidSet = own.parse().expect("valid");
    executed.add(&gtid(1));
    for gno in [3, 4] {
        let (store, recovery) =
            RelayStore::open(options(directory.path()), &executed).expect("not locked");
        assert_eq!(recovery, Recovery::default());
        assert!(store.follows(&executed));
        write(&mut store.inlet().expect("a thread"), [(gno, vec![10])]).await;
    }
    let (store, recovery) =
        RelayStore::open(options(directory.path()), &executed).expect("not locked");
    assert_eq!(recovery, Recovery::default());
    let mut reader = store.reader(executed);
    for gno in 2..=4 {
        assert_eq!(read(&mut reader, NOW).await, Some((gno, bytes_of(gno, &[10]))));
    }
    drop((reader, store));
    // A target that has lost its own transaction lacks what came before 3.
    let without_own: GtidSet = [gtid(1)].into_iter().collect();
    let (store, recovery) =
        RelayStore::open(options(directory.path()), &without_own).expect("not locked");
    assert_eq!((recovery.emptied_for, recovery.dropped_segments > 0), (None, true));
    assert_eq!(*store.received(), (1..=2).map(gtid).collect());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_larger_than_a_batch_passes() {
    let directory = tempfile::tempdir().expect("temp dir");
    let large = vec![3 << 20, 5, 2 << 20, 2 << 20];
    {
        let (store, _) =
            RelayStore::open(options(directory.path()), &GtidSet::new()).expect("opens");
        let mut inlet = store.inlet().expect("a thread");
        write(&mut inlet, [(1, vec![10]), (2, large.clone()), (3, vec![10])]).await;
    }
    let (store, recovery) =
        RelayStore::open(options(directory.path()), &GtidSet::new()).expect("not locked");
    assert_eq!(recovery, Recovery::default());
    for inline in [1000, 1 << 30] {
        let mut reader = store.reader(GtidSet::new());
        reader.set_inline_limit(inline);
        for (gno, sizes) in [(1, vec![10]), (2, large.clone()), (3, vec![10])] {
            assert!(read(&mut reader, NOW).await == Some((gno, bytes_of(gno, &sizes))));
        }
    }
    // Streamed, it takes its longest frame; held in memory, all of it.
    for (inline, expected) in [(1000, 3 << 20..4 << 20), (1 << 30, 7 << 20..8 << 20)] {
        let mut reader = store.reader((1..=1).map(gtid).collect());
        reader.set_inline_limit(inline);
        let relayed = reader.next(SOON).await.expect("undamaged").expect("there");
        let bytes = relayed.bytes_at_a_time().expect("readable");
        assert!(expected.contains(&bytes), "{bytes} of {expected:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_does_not_follow_the_target_is_emptied() {
    let directory = tempfile::tempdir().expect("temp dir");
    let provisioned: GtidSet = (1..=10).map(gtid).collect();
    let (store, _) = RelayStore::open(options(directory.path()), &provisioned).expect("opens");
    let mut inlet = store.inlet().expect("a thread");
    write(&mut inlet, [(11, vec![10])]).await;
    drop(inlet);
    store.reader(provisioned.clone()).next(SOON).await.expect("undamaged").expect("arrives");
    drop(store);
    let older: GtidSet = (1..=5).map(gtid).collect();
    let (store, recovery) = reopen(directory.path(), &older);
    assert_eq!(recovery.emptied_for, Some((6..=10).map(gtid).collect()));
    assert_eq!(*store.received(), older);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_process_holds_a_directory() {
    let directory = tempfile::tempdir().expect("temp dir");
    let _store = RelayStore::open(options(directory.path()), &GtidSet::new()).expect("opens");
    let second = RelayStore::open(options(directory.path()), &GtidSet::new()).unwrap_err();
    assert!(second.to_string().contains("in use by another process"), "{second}");
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_space_limit_reception_waits_and_resumes() {
    let directory = tempfile::tempdir().expect("temp dir");
    let limited = RelayStoreOptions { space_limit: 8000, ..options(directory.path()) };
    let (store, _) = RelayStore::open(limited, &GtidSet::new()).expect("opens");
    let mut inlet = store.inlet().expect("a thread");
    let writing = tokio::spawn(async move {
        // One transaction is larger than the limit.
        let large = (31, vec![200; 100]);
        write(&mut inlet, (1..=30).map(|gno| (gno, vec![900])).chain([large])).await;
        inlet
    });
    for _ in 0..500 {
        if store.usage().waiting.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let usage = store.usage();
    assert!(usage.waiting.is_some_and(|text| text.contains("of 0.008 MiB used")));
    assert!(usage.bytes <= 8000);
    // The oldest of those that wait with it.
    let queued = usage.queued.expect("it waits");
    assert_eq!(queued.committed.immediate, (usage.transactions_total + 1) * 1000);
    let mut reader = store.reader(GtidSet::new());
    for gno in 1..=31 {
        let relayed = reader.next(SOON).await.expect("undamaged").expect("continues");
        assert_eq!(relayed.header.gtid.gno, gno);
        store.release(relayed.end);
    }
    writing.await.expect("all written");
    assert_eq!(store.usage().queued, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_survey_says_what_opening_would_find_and_changes_nothing() {
    let directory = tempfile::tempdir().expect("temp dir");
    let set = |range: std::ops::RangeInclusive<u64>| range.map(gtid).collect::<GtidSet>();
    let look = |executed: &GtidSet| survey(&options(directory.path()), executed).expect("readable");
    let missing = options(&directory.path().join("none"));
    assert_eq!(survey(&missing, &GtidSet::new()).expect("no error"), None);
    assert_eq!(look(&GtidSet::new()), None);
    // From 6 on, in several segments.
    let transactions: Vec<_> = (6..=20).map(|gno| (gno, vec![300])).collect();
    let (store, _) = RelayStore::open(options(directory.path()), &set(1..=5)).expect("not locked");
    let mut inlet = store.inlet().expect("a thread");
    write(&mut inlet, transactions.clone()).await;
    drop(inlet);
    let mut reader = store.reader(set(1..=5));
    for _ in &transactions {
        reader.next(SOON).await.expect("undamaged").expect("all arrive");
    }
    // While it is open.
    let found = look(&set(1..=7));
    assert_eq!(found, Some(RelaySurvey { received: set(1..=20), follows: true }));
    let all = Some(RelayContents { before: set(1..=5), received: set(1..=20) });
    assert_eq!(store.contents(), all);
    drop((reader, store));
    assert_eq!(contents(&options(directory.path())).expect("readable"), all);
    assert_eq!(contents(&missing).expect("no error"), None);
    let files = || std::fs::read_dir(directory.path()).expect("a directory").count();
    let before = files();
    assert!(before > 3, "several segments");
    assert_eq!(look(&set(1..=5)), found);
    // The target was restored to a state before the store's beginning: opening would empty it.
    let shorter = Some(RelaySurvey { received: set(1..=20), follows: false });
    assert_eq!(look(&set(1..=4)), shorter);
    assert_eq!(files(), before);
    let (store, _) = reopen(directory.path(), &set(1..=7));
    assert_eq!(*store.received(), set(1..=20));
}
