//! Faults of the disk under the writer, which must not lose anything.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use csa_provider::binlog::GtidSet;
use csa_provider::source::TransactionSink as _;

use crate::disk::FileSystem as _;
use crate::disk::error::Error;
use crate::disk::memory_fs::MemoryFs;
use crate::disk::options::{RelayStoreOptions, SyncPolicy};
use crate::disk::segment::RelayPosition;
use crate::opening::store::RelayStore;
use crate::tests::{NOW, SOON, bytes_of, gtid, options, read, transaction, write};

const DIRECTORY: &str = "/relay/channel";

fn options_on(disk: &MemoryFs) -> RelayStoreOptions {
    RelayStoreOptions { files: Arc::new(disk.clone()), ..options(Path::new(DIRECTORY)) }
}

fn open(sync: SyncPolicy, disk: &MemoryFs) -> RelayStore {
    let options = RelayStoreOptions { sync, ..options_on(disk) };
    RelayStore::open(options, &GtidSet::new()).expect("opens").0
}

async fn until(mut condition: impl FnMut() -> bool) {
    for _ in 0..500 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never happened");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_synced_is_not_shown() {
    let disk = MemoryFs::new(1);
    let store = open(SyncPolicy::Transaction, &disk);
    let mut inlet = store.inlet().expect("a thread");
    let safe = inlet.safe().expect("a count");
    write(&mut inlet, [(1, vec![10])]).await;
    let mut reader = store.reader(GtidSet::new());
    assert_eq!(read(&mut reader, SOON).await, Some((1, bytes_of(1, &[10]))));
    until(|| *safe.borrow() == 1).await;
    disk.inject(|faults| faults.fail_syncs = true);
    write(&mut inlet, [(2, vec![10])]).await;
    let refused = inlet.failed().await.to_string();
    assert!(refused.contains("syncing") && refused.contains("segment-"), "{refused}");
    let (event, placement) = transaction(3, &[]).remove(0);
    assert_eq!(
        inlet.append(event, placement).await.expect_err("it has ended").to_string(),
        refused
    );
    assert_eq!(read(&mut reader, NOW).await, None);
    assert_eq!(*safe.borrow(), 1, "a transaction that is not on disk counts as safe");
    let interval = open(SyncPolicy::Interval(SOON), &MemoryFs::new(2));
    assert!(
        interval.inlet().expect("a thread").safe().is_none(),
        "it shows transactions before it syncs them"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn short_writes_are_gone_on_with() {
    let disk = MemoryFs::new(1);
    disk.inject(|faults| faults.write_max = Some(7));
    let store = open(SyncPolicy::Os, &disk);
    let mut inlet = store.inlet().expect("a thread");
    write(&mut inlet, (1..=9).map(|gno| (gno, vec![100, 500]))).await;
    drop(inlet);
    drop(store);
    let store = open(SyncPolicy::Os, &disk);
    let mut reader = store.reader(GtidSet::new());
    for gno in 1..=9 {
        assert_eq!(read(&mut reader, SOON).await, Some((gno, bytes_of(gno, &[100, 500]))));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_loses_nothing() {
    for space in [0, 1, 50, 700, 1500, 2500, 4000, 6000] {
        let disk = MemoryFs::new(1);
        let store = open(SyncPolicy::Transaction, &disk);
        let used = disk.used();
        disk.inject(|faults| faults.capacity = Some(used + space));
        let mut inlet = store.inlet().expect("a thread");
        let writing = tokio::spawn(async move {
            write(&mut inlet, (1..=9).map(|gno| (gno, vec![100, 900]))).await;
            inlet
        });
        until(|| store.usage().waiting.is_some_and(|text| text.contains("full disk"))).await;
        let mut reader = store.reader(GtidSet::new());
        let mut seen = 0;
        while let Some((gno, bytes)) = read(&mut reader, NOW).await {
            seen += 1;
            assert_eq!((gno, bytes), (seen, bytes_of(seen, &[100, 900])));
        }
        assert!(seen < 9);
        disk.inject(|faults| faults.capacity = None);
        for gno in seen + 1..=9 {
            assert_eq!(read(&mut reader, SOON).await, Some((gno, bytes_of(gno, &[100, 900]))));
        }
        let inlet = writing.await.expect("all written");
        assert!(store.usage().waiting.is_none());
        drop((inlet, reader, store));
        let store = open(SyncPolicy::Os, &disk);
        assert_eq!(store.received().count(), 9);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn under_the_floor_reception_waits_and_can_be_stopped() {
    let disk = MemoryFs::new(1);
    let leave = |free: u64| {
        let used = disk.used();
        disk.inject(|faults| faults.capacity = Some(used + free));
    };
    let options = RelayStoreOptions { min_free_disk: 1000, ..options_on(&disk) };
    let (store, _) = RelayStore::open(options, &GtidSet::new()).expect("opens");
    leave(100);
    let mut inlet = store.inlet().expect("a thread");
    write(&mut inlet, [(1, vec![10])]).await;
    until(|| store.usage().waiting.is_some_and(|text| text.contains("min_free_disk"))).await;
    assert_eq!(store.usage().free_disk, None);
    store.measure_disk();
    assert_eq!((store.usage().free_disk, store.usage().min_free_disk), (Some(100), 1000));
    leave(1 << 40);
    let mut reader = store.reader(GtidSet::new());
    assert_eq!(read(&mut reader, SOON).await, Some((1, bytes_of(1, &[10]))));
    leave(100);
    write(&mut inlet, [(2, vec![10])]).await;
    until(|| store.usage().waiting.is_some()).await;
    // Transactions that readers can't see are not received.
    assert_eq!((store.received_so_far().count(), store.received().count()), (1, 0));
    drop((inlet, reader, store));
    let store = open(SyncPolicy::Os, &disk);
    assert_eq!(store.received().count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_power_failure_takes_nothing_that_was_shown() {
    let disk = MemoryFs::new(1);
    let store = open(SyncPolicy::Transaction, &disk);
    let mut inlet = store.inlet().expect("a thread");
    write(&mut inlet, (1..=9).map(|gno| (gno, vec![100, 500]))).await;
    for (event, placement) in transaction(10, &[700, 700, 700]).into_iter().take(4) {
        inlet.append(event, placement).await.expect("room");
    }
    let mut reader = store.reader(GtidSet::new());
    for gno in 1..=9 {
        assert_eq!(read(&mut reader, SOON).await, Some((gno, bytes_of(gno, &[100, 500]))));
    }
    // The inlet syncs when it ends, so the power fails before that.
    disk.crash(1);
    drop((inlet, reader, store));
    let store = open(SyncPolicy::Transaction, &disk);
    assert_eq!(store.received(), &(1..=9).map(gtid).collect::<GtidSet>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_segment_cut_between_transactions_is_missed() {
    let disk = MemoryFs::new(1);
    let store = open(SyncPolicy::Os, &disk);
    let mut inlet = store.inlet().expect("a thread");
    write(&mut inlet, (1..=12).map(|gno| (gno, vec![400]))).await;
    let mut reader = store.reader(GtidSet::new());
    let mut ends = Vec::new();
    for _ in 1..=12 {
        ends.push(reader.next(SOON).await.expect("undamaged").expect("arrives").end);
    }
    drop((inlet, reader, store));
    let second = ends[1];
    assert_eq!((second.segment, ends[2].segment), (1, 1));
    let path = Path::new(DIRECTORY).join("segment-0000000000000001.relay");
    disk.open_for_writing(&path).expect("opens").set_len(second.offset).expect("cut");
    let store = open(SyncPolicy::Os, &disk);
    let mut reader = store.reader(GtidSet::new());
    assert!(read(&mut reader, NOW).await.is_some() && read(&mut reader, NOW).await.is_some());
    // Whoever asks again is not led past the gap.
    for _ in 0..2 {
        let error = reader.next_now().expect_err("transaction 3 is missing");
        assert!(matches!(error, Error::Damaged { transaction, .. } if transaction == second));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_that_the_system_refuses_costs_an_attempt_only() {
    let disk = MemoryFs::new(1);
    let store = open(SyncPolicy::Os, &disk);
    // More than there are addresses.
    let thread = std::thread::Builder::new().stack_size(1 << 62);
    let error = store.inlet_of(thread).expect_err("no thread");
    assert!(error.to_string().starts_with("starting the thread"), "{error}");
    drop(store);
    let store = open(SyncPolicy::Os, &disk);
    write(&mut store.inlet().expect("a thread"), [(1, vec![10])]).await;
    assert!(read(&mut store.reader(GtidSet::new()), SOON).await.is_some());
}

#[test]
fn no_task_waits_for_the_end_of_another_ones_writer() {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let store = open(SyncPolicy::Os, &MemoryFs::new(1));
        let (mut inlet, _writer) = store.inlet_and_writer();
        // In the place of a writer that syncs for long.
        let (finish, finished) = std::sync::mpsc::channel::<()>();
        inlet.written_by(std::thread::spawn(move || {
            let _ = finished.recv();
        }));
        let (begin, begun) = tokio::sync::oneshot::channel();
        let ends = tokio::spawn(async move {
            begin.send(()).expect("somebody waits");
            drop(inlet);
        });
        begun.await.expect("it ends");
        let other = tokio::spawn(async {});
        tokio::time::timeout(SOON, other).await.expect("meanwhile").expect("no panic");
        assert!(!ends.is_finished());
        drop(finish);
        ends.await.expect("no panic");
    });
}

/// Opens a store for an archive with 20 transactions, and returns the first and the last one of a segment in its middle.
async fn archived(disk: &MemoryFs) -> (RelayStore, (u64, u64), RelayPosition) {
    let options = RelayStoreOptions { archived: true, ..options_on(disk) };
    let (store, _) = RelayStore::open(options, &GtidSet::new()).expect("opens");
    let mut inlet = store.inlet().expect("a thread");
    write(&mut inlet, (1..=20).map(|gno| (gno, vec![400]))).await;
    let mut reader = store.reader(GtidSet::new());
    let mut starts = Vec::new();
    for _ in 1..=20 {
        let next = reader.next(SOON).await.expect("undamaged").expect("arrives");
        starts.push((next.header.gtid.gno, next.start.segment));
    }
    let segment = starts[10].1;
    starts.retain(|(_, of)| *of == segment);
    let (first, last) = (starts[0].0, starts[starts.len() - 1].0);
    assert!(first > 3 && last < 18, "{starts:?}");
    (store, (first, last), RelayPosition { segment, offset: 0 })
}

fn up_to(last: u64) -> GtidSet {
    (1..=last).map(gtid).collect()
}

fn path_of(position: RelayPosition) -> std::path::PathBuf {
    Path::new(DIRECTORY).join(format!("segment-{:016x}.relay", position.segment))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_segment_that_only_the_archive_needs_counts_as_damaged_once_it_is_lost() {
    let disk = MemoryFs::new(1);
    let (store, _, position) = archived(&disk).await;
    assert!(store.restart_after(&up_to(20)), "the target has all");
    let fail = |is_failing: bool| {
        disk.inject(|faults| faults.unreadable = is_failing.then(|| path_of(position)));
    };
    let failed = || {
        let mut reader = store.reader(GtidSet::new());
        loop {
            match reader.next_now() {
                Ok(next) => assert!(next.is_some(), "the disk fails before the end"),
                Err(error) => return error,
            }
        }
    };
    fail(true);
    let (once, twice) = (failed(), failed());
    assert!(store.loss(&up_to(20)).is_none(), "the target needs nothing of it");
    fail(false);
    assert!(matches!(store.as_damage(once), Error::Io { .. }), "it can be read again");
    fail(true);
    let damage = store.as_damage(twice);
    assert!(matches!(damage, Error::Damaged { transaction, .. } if transaction == position));
    fail(false);
    disk.remove(&path_of(position)).expect("removed");
    let damage = store.as_damage(failed());
    assert!(matches!(damage, Error::Damaged { transaction, .. } if transaction == position));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_is_filled_again_if_the_archive_needs_what_was_there() {
    for is_archived in [false, true] {
        let disk = MemoryFs::new(1);
        let (store, (first, last), position) = archived(&disk).await;
        drop(store);
        disk.remove(&path_of(position)).expect("removed");
        let options = RelayStoreOptions { archived: true, ..options_on(&disk) };
        let settled = up_to(if is_archived { last } else { last - 1 });
        let opened = RelayStore::open_behind(options, &up_to(20), &up_to(2), &settled);
        let store = opened.expect("opens").0;
        let found = (store.before(), store.received().clone());
        let expected = match is_archived {
            true => (up_to(last), up_to(20)),
            false => (GtidSet::new(), up_to(first - 1)),
        };
        assert_eq!(found, expected, "{is_archived}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_disk_has_more_space_once_a_whole_segment_is_archived() {
    let (store, ..) = archived(&MemoryFs::new(1)).await;
    let waits = |waits_for_disk| {
        let mut state = store.shared.state.lock();
        state.usage.waiting = Some("waiting".to_owned());
        state.usage.waits_for_disk = waits_for_disk;
        drop(state);
        store.waits_for_archive()
    };
    let mut reader = store.reader(GtidSet::new());
    for gno in 1..=20 {
        let relayed = reader.next(SOON).await.expect("undamaged").expect("is there");
        store.release(relayed.end);
        assert!(waits(false), "the store's own limit, after {gno}");
        assert!(gno > 1 || !waits(true), "a part of a segment");
    }
    assert!(waits(true), "the first segments are whole");
    store.note_archived(&up_to(20));
    assert!(!waits(false) && !waits(true), "nothing is left to archive");
}
