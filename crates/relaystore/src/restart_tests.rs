//! One store with several appliers one after another, and a store that is filled before the target
//! is known.

use csa_provider::binlog::{ChecksumAlgorithm, Gtid, GtidSet, RawEvent, Tag, Uuid};
use csa_provider::source::{Placement, TransactionSink as _};
use csa_provider::test_util::format_description_of;

use crate::disk::*;
use crate::opening::*;
use crate::read::*;
use crate::tests::{NOW, SOON, bytes_of, gtid, options, read, reopen, transaction, write};

/// Returns the transactions up to `last`.
fn up_to(last: u64) -> GtidSet {
    (1..=last).map(gtid).fold(GtidSet::new(), |mut set, gtid| {
        set.add(&gtid);
        set
    })
}

fn body() -> Vec<usize> {
    vec![100, 600]
}

#[tokio::test(flavor = "multi_thread")]
async fn an_applier_that_begins_earlier_finds_everything_or_is_refused() {
    let directory = tempfile::tempdir().expect("temp dir");
    let (store, _) = RelayStore::open(options(directory.path()), &GtidSet::new()).expect("opens");
    let mut inlet = store.inlet().expect("a thread");
    write(&mut inlet, (1..=12).map(|gno| (gno, body()))).await;
    let mut reader = store.reader(GtidSet::new());
    let mut ends = Vec::new();
    for _ in 1..=12 {
        ends.push(reader.next(SOON).await.expect("undamaged").expect("there").end);
    }
    let segments = store.usage().segments;
    assert!(segments > 4, "{segments}");
    // Applied up to 3, and the segments up to there are purged.
    store.release(ends[2]);
    assert!(store.usage().segments < segments);
    assert!(!store.restart_after(&GtidSet::new()), "what was purged is not there any more");
    assert!(!store.follows(&up_to(13)), "13 was never received");
    // Released up to 11, in segments that can't all be purged; then the target comes back at 5.
    let older = up_to(5);
    store.release(RelayPosition { segment: ends[4].segment, offset: ends[4].offset });
    assert!(store.restart_after(&older));
    // A new segment purges only what the new applier has committed.
    write(&mut inlet, (13..=16).map(|gno| (gno, body()))).await;
    let mut reader = store.reader(older);
    for gno in 6..=16 {
        assert_eq!(read(&mut reader, SOON).await.map(|found| found.0), Some(gno));
    }
    assert!(read(&mut reader, NOW).await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_earlier_applier_released_stays_for_one_that_begins_before_it() {
    let directory = tempfile::tempdir().expect("temp dir");
    let one_segment = RelayStoreOptions { segment_size: 1 << 20, ..options(directory.path()) };
    let (store, _) = RelayStore::open(one_segment, &GtidSet::new()).expect("opens");
    let mut inlet = store.inlet().expect("a thread");
    write(&mut inlet, (1..=3).map(|gno| (gno, body()))).await;
    let mut reader = store.reader(GtidSet::new());
    let mut last = None;
    for _ in 1..=3 {
        last = reader.next(SOON).await.expect("undamaged");
    }
    store.release(last.expect("there").end);
    assert!(store.restart_after(&up_to(1)));
    // Enough for several segments: the first would be purged if it still counted as released.
    write(&mut inlet, (4..=6).map(|gno| (gno, vec![900 << 10]))).await;
    drop(inlet);
    let mut reader = store.reader(up_to(1));
    for gno in 2..=6 {
        assert_eq!(read(&mut reader, SOON).await.map(|found| found.0), Some(gno));
    }
    assert!(store.usage().segments > 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn reception_resumes_without_knowing_the_target() {
    let directory = tempfile::tempdir().expect("temp dir");
    let empty = directory.path().join("empty");
    assert!(RelayStore::resume(options(&empty)).expect("nothing to open").is_none());
    assert!(!empty.exists(), "nothing is created");
    let path = directory.path().join("relay");
    let (store, _) = RelayStore::open(options(&path), &up_to(2)).expect("opens");
    let mut inlet = store.inlet().expect("a thread");
    write(&mut inlet, (3..=9).map(|gno| (gno, body()))).await;
    drop(inlet);
    drop(store);

    let (store, recovery) = RelayStore::resume(options(&path)).expect("opens").expect("has some");
    assert_eq!(recovery, Recovery::default());
    assert_eq!(store.received(), &up_to(9));
    let mut inlet = store.inlet().expect("a thread");
    write(&mut inlet, (10..=15).map(|gno| (gno, body()))).await;
    let mut reader = store.reader(up_to(2));
    for gno in 3..=15 {
        assert_eq!(
            read(&mut reader, SOON).await.map(|found| found.0),
            Some(gno),
            "nothing is purged"
        );
    }
    drop(reader);
    // The target has one transaction less than the store begins with.
    assert!(!store.restart_after(&up_to(1)));
    let segments = store.usage().segments;
    assert!(store.restart_after(&up_to(8)));
    assert!(store.usage().segments < segments, "what it has is purged");
    let mut reader = store.reader(up_to(8));
    for gno in 9..=15 {
        assert_eq!(read(&mut reader, SOON).await.map(|found| found.0), Some(gno));
    }
    drop((inlet, reader, store));
    let (_, recovery) = reopen(&path, &up_to(1));
    assert!(recovery.emptied_for.is_some(), "{recovery:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_store_has_nothing_for_a_target_that_is_made_again() {
    let directory = tempfile::tempdir().expect("temp dir");
    let options = options(directory.path());
    RelayStore::empty(&options).expect("nothing is there yet");
    let (store, _) = reopen(directory.path(), &GtidSet::new());
    let mut inlet = store.inlet().expect("a thread");
    write(&mut inlet, (1..=9).map(|gno| (gno, body()))).await;
    drop(inlet);
    let held = RelayStore::empty(&options);
    assert!(matches!(held, Err(Error::Locked { .. })), "{held:?}");
    drop(store);
    // Otherwise its own 5 to 9 would follow what this target has.
    let executed = up_to(4);
    let found = survey(&options, &executed).expect("readable");
    assert_eq!(found, Some(RelaySurvey { received: up_to(9), follows: true }));
    RelayStore::empty(&options).expect("emptied");
    assert_eq!(survey(&options, &executed).expect("readable"), None);
    let (store, _) = reopen(directory.path(), &executed);
    assert_eq!(*store.received(), executed);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_the_target_had_is_known_to_be_passed_over() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = RelayStoreOptions { archived: true, ..options(directory.path()) };
    let set = |first: u64, last| up_to(last).difference(&up_to(first - 1));
    for (executed, passed, written) in [
        (up_to(3), up_to(3), 4..=9),
        // Another daemon had the channel meanwhile.
        (up_to(14), set(10, 14), 15..=17),
        (up_to(14), set(10, 14), 18..=19),
        (up_to(25), set(20, 25), 26..=27),
    ] {
        let (store, _) = RelayStore::open(options.clone(), &executed).expect("opens");
        assert!(passed.is_subset_of(&store.passed_over()), "{}", store.passed_over());
        let mut inlet = store.inlet().expect("a thread");
        write(&mut inlet, written.map(|gno| (gno, body()))).await;
        inlet.stored().await;
        let mut all = up_to(3);
        all.union(&set(10, 14));
        all.union(&set(20, 25));
        assert!(store.passed_over().is_subset_of(&all), "{}", store.passed_over());
        assert_eq!(store.before(), up_to(3));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_archive_lacks_is_received_although_the_target_has_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = RelayStoreOptions { archived: true, ..options(directory.path()) };
    {
        let opened = RelayStore::open_behind(options.clone(), &up_to(20), &up_to(5), &up_to(5));
        let (store, _) = opened.expect("opens");
        assert_eq!((store.received(), store.passed_over()), (&up_to(5), up_to(5)));
        let mut inlet = store.inlet().expect("a thread");
        write(&mut inlet, (6..=12).map(|gno| (gno, body()))).await;
        inlet.stored().await;
        assert!(!store.follows(&up_to(20)), "reception is not there yet");
        // Nobody reads them for the target, but they are released once they are archived.
        assert!(read(&mut store.reader(up_to(20)), NOW).await.is_none());
        let segments = store.usage().segments;
        store.note_archived(&up_to(12));
        assert!(store.usage().segments < segments);
    }
    // It begins again where the archive and the store are now.
    let opened = RelayStore::open_behind(options.clone(), &up_to(20), &up_to(12), &up_to(12));
    let (store, _) = opened.expect("opens");
    assert_eq!(store.received(), &up_to(12));
    let mut inlet = store.inlet().expect("a thread");
    write(&mut inlet, (13..=24).map(|gno| (gno, body()))).await;
    inlet.stored().await;
    let mut reader = store.reader(up_to(20));
    assert_eq!(read(&mut reader, SOON).await.map(|(gno, _)| gno), Some(21));
    store.note_archived(&up_to(24));
    assert!(!store.follows(&up_to(30)) && store.follows(&up_to(20)));
    for gno in 22..=24 {
        let found = read(&mut reader, SOON).await.map(|(gno, _)| gno);
        assert_eq!(found, Some(gno), "what the target lacks is not released");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn released_segments_stay_until_they_are_archived() {
    let directory = tempfile::tempdir().expect("a directory");
    let archived = RelayStoreOptions { archived: true, ..options(directory.path()) };
    let all: Vec<_> = (1..=40).map(|gno| (gno, body())).collect();
    {
        let (store, _) = RelayStore::open(archived.clone(), &GtidSet::new()).expect("opens");
        let mut inlet = store.inlet().expect("a thread");
        write(&mut inlet, all).await;
        inlet.stored().await;
    }
    let (store, _) = RelayStore::open(archived.clone(), &up_to(40)).expect("opens");
    let segments = store.usage().segments;
    assert!(segments > 4, "{segments}");
    assert_eq!(store.before(), GtidSet::new(), "all is kept for the archive");
    store.note_archived(&up_to(20));
    let kept = store.usage().segments;
    assert!((2..segments).contains(&kept), "{kept} of {segments}");
    assert!(store.before().is_subset_of(&up_to(20)));
    let mut reader = store.reader(up_to(20));
    assert_eq!(read(&mut reader, SOON).await.map(|(gno, _)| gno), Some(21));
    drop(reader);
    store.note_archived(&up_to(10));
    assert_eq!(store.usage().segments, kept, "it never moves back");
    store.note_archived(&up_to(40));
    assert_eq!(store.usage().segments, 1);
    drop(store);
    // What the target lacks stays, however much is archived or given up.
    let other = tempfile::tempdir().expect("a directory");
    let archived = RelayStoreOptions { archived: true, ..options(other.path()) };
    let (store, _) = RelayStore::open(archived, &GtidSet::new()).expect("opens");
    let mut inlet = store.inlet().expect("a thread");
    write(&mut inlet, (1..=40).map(|gno| (gno, body()))).await;
    inlet.stored().await;
    let segments = store.usage().segments;
    store.note_archived(&up_to(40));
    store.give_up_unarchived();
    assert_eq!(store.usage().segments, segments);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_the_target_has_keeps_nothing_from_being_purged() {
    let directory = tempfile::tempdir().expect("a directory");
    let archived = RelayStoreOptions { archived: true, ..options(directory.path()) };
    let own = Gtid { uuid: Uuid::from_bytes([9; 16]), tag: Tag::untagged(), gno: 6 };
    let executed = |last| {
        let mut set = up_to(last);
        set.add(&own);
        set
    };
    // The second time it is new, and from then on the headers show it.
    for (before, last) in [(up_to(0), 20), (executed(20), 40), (executed(40), 60)] {
        let (store, _) = RelayStore::open(archived.clone(), &before).expect("opens");
        let mut inlet = store.inlet().expect("a thread");
        write(&mut inlet, (last - 19..=last).map(|gno| (gno, body()))).await;
        inlet.stored().await;
        let all = if last == 20 { up_to(20) } else { executed(last) };
        assert!(store.restart_after(&all), "{last}");
        let segments = store.usage().segments;
        store.note_archived(&up_to(last - 10));
        let kept = store.usage().segments;
        assert!((2..segments).contains(&kept), "{last}: {kept} of {segments}");
        let mut reader = store.reader(executed(last - 10));
        assert_eq!(read(&mut reader, SOON).await.map(|(gno, _)| gno), Some(last - 9));
        // All but a part of the last segment.
        store.note_archived(&up_to(last - 1));
        assert!(store.usage().segments < kept, "{last}");
        if last > 20 {
            store.note_archived(&up_to(last));
            assert_eq!(store.usage().segments, 1, "{last}");
        }
    }
}

/// The source sends it with a new file, after the transaction that has filled the segment.
#[tokio::test(flavor = "multi_thread")]
async fn a_format_description_at_the_end_of_a_segment_holds_no_room() {
    let directory = tempfile::tempdir().expect("a directory");
    let limited = RelayStoreOptions { space_limit: 6000, ..options(directory.path()) };
    {
        let (store, _) = RelayStore::open(limited.clone(), &GtidSet::new()).expect("opens");
        let mut inlet = store.inlet().expect("a thread");
        write(&mut inlet, [(1, vec![4000])]).await;
        let format = format_description_of(b"9.7.5").raw().clone();
        let format = RawEvent::trusted(format, ChecksumAlgorithm::Crc32).expect("well-formed");
        inlet.append(format, Placement::Outside).await.expect("room");
        for (event, placement) in transaction(2, &[100]) {
            inlet.append(event, placement).await.expect("room");
        }
        inlet.stored().await;
        let mut reader = store.reader(up_to(1));
        let second = reader.next(SOON).await.expect("undamaged").expect("there").start;
        assert!(second.segment > 1, "{second:?}");
        drop((inlet, reader, store));
        // A daemon is killed before the second is whole.
        RelayStore::discard_from(&limited, second).expect("cut");
    }
    let (store, _) = RelayStore::open(limited, &GtidSet::new()).expect("opens");
    assert_eq!(store.received(), &up_to(1));
    let mut inlet = store.inlet().expect("a thread");
    let mut reader = store.reader(GtidSet::new());
    let first = reader.next(SOON).await.expect("undamaged").expect("there");
    store.release(first.end);
    // It takes more than the first leaves, and is alone.
    let (sent, second) = tokio::join!(
        tokio::time::timeout(SOON, write(&mut inlet, [(2, vec![4000])])),
        read(&mut reader, SOON),
    );
    assert_eq!((sent, second.map(|(gno, _)| gno)), (Ok(()), Some(2)));
    assert_eq!(store.usage().waiting, None);
}

/// A store says which transaction it was given last, so that the source can be asked for it again.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_transaction_is_known_until_the_target_has_others() {
    let directory = tempfile::tempdir().expect("temp dir");
    let one_segment = || RelayStoreOptions { segment_size: 1 << 20, ..options(directory.path()) };
    let open = |executed: &GtidSet| RelayStore::open(one_segment(), executed).expect("opens").0;
    let store = open(&GtidSet::new());
    let mut inlet = store.inlet().expect("a thread");
    assert_eq!(inlet.last(), None);
    write(&mut inlet, (1..=2).map(|gno| (gno, body()))).await;
    let last = inlet.last().expect("a transaction");
    assert_eq!((&last.gtid, last.committed), (&gtid(2), 2000));
    assert_eq!(last.bytes, bytes_of(2, &body()).len() as u64);
    // One that is not whole counts for nothing.
    for (event, placement) in transaction(3, &body()).into_iter().take(2) {
        inlet.append(event, placement).await.expect("room");
    }
    inlet.abandon().await.expect("open");
    assert_eq!(inlet.last().as_ref(), Some(&last));
    store.write_out(SOON).await;
    drop((inlet, store));
    for executed in [GtidSet::new(), up_to(2)] {
        let store = open(&executed);
        assert_eq!(store.inlet().expect("a thread").last().as_ref(), Some(&last), "{executed}");
    }
    let (resumed, _) = RelayStore::resume(one_segment()).expect("opens").expect("a store");
    assert_eq!(resumed.inlet().expect("a thread").last(), Some(last));
    drop(resumed);
    // A target that was provisioned again has what this store never had.
    assert_eq!(open(&up_to(3)).inlet().expect("a thread").last(), None);
}

/// Writes transactions 1 to 5, each into a segment of its own; returns the numbers of these.
async fn one_by_one(store: &RelayStore, inlet: &mut crate::write::RelayInlet) -> Vec<u64> {
    write(inlet, (1..=5).map(|gno| (gno, vec![2_000]))).await;
    let mut reader = store.reader(GtidSet::new());
    let mut numbers = Vec::new();
    for _ in 1..=5 {
        let next = reader.next(SOON).await.expect("undamaged").expect("there");
        assert!(numbers.last().is_none_or(|last| *last < next.start.segment), "{numbers:?}");
        numbers.push(next.start.segment);
    }
    numbers
}

fn segment(number: u64) -> String {
    format!("segment-{number:016x}.relay")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_segment_that_is_gone_is_a_loss_for_whoever_needs_it() {
    let directory = tempfile::tempdir().expect("temp dir");
    let (store, _) = RelayStore::open(options(directory.path()), &GtidSet::new()).expect("opens");
    let mut inlet = store.inlet().expect("a thread");
    let third = one_by_one(&store, &mut inlet).await[2];
    assert!(store.loss(&GtidSet::new()).is_none());
    std::fs::remove_file(directory.path().join(segment(third))).expect("removed");
    let loss = store.loss(&up_to(1)).expect("it is needed");
    assert_eq!((loss.position.segment, &loss.before), (third, &up_to(2)), "{}", loss.error);
    assert!(loss.error.to_string().contains("segment-"), "{}", loss.error);
    assert!(store.loss(&up_to(2)).is_some() && store.loss(&up_to(3)).is_none());
    drop((inlet, store));
    RelayStore::discard_from(&options(directory.path()), loss.position).expect("cut");
    let (store, recovery) = reopen(directory.path(), &up_to(1));
    assert_eq!((store.received(), recovery.emptied_for), (&up_to(2), None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_segment_is_lost_that_cannot_be_read_twice() {
    let disk = MemoryFs::new(1);
    let folder = std::path::Path::new("/relay/channel");
    let options = RelayStoreOptions { files: std::sync::Arc::new(disk.clone()), ..options(folder) };
    let (store, _) = RelayStore::open(options.clone(), &GtidSet::new()).expect("opens");
    let mut inlet = store.inlet().expect("a thread");
    let second = one_by_one(&store, &mut inlet).await[1];
    let path = folder.join(segment(second));
    let fail = |is_failing: bool| {
        disk.inject(|faults| faults.unreadable = is_failing.then(|| path.clone()));
    };
    let failed_read = async || {
        let error = store.reader(up_to(1)).next(SOON).await.expect_err("the disk fails");
        store.doubt(&error);
    };
    fail(true);
    assert!(store.loss(&up_to(1)).is_none(), "nobody has read it");
    failed_read().await;
    fail(false);
    assert!(store.loss(&up_to(1)).is_none(), "it can be read again");
    fail(true);
    assert!(store.loss(&up_to(1)).is_none(), "nobody has read it since");
    failed_read().await;
    let loss = store.loss(&up_to(1)).expect("it fails again");
    assert_eq!((loss.position.segment, &loss.before), (second, &up_to(1)));
    assert!(store.loss(&up_to(1)).is_some(), "also for the next who asks");
    drop((inlet, store));
    RelayStore::discard_from(&options, loss.position).expect("cut");
    let (store, _) = RelayStore::open(options, &up_to(1)).expect("opens");
    assert_eq!(store.received(), &up_to(1));
}

/// Returns a closed store of the transactions 1 to 5, in a segment each; the header of one of these is damaged.
async fn with_damaged_header(gno: usize) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("temp dir");
    let (store, _) = RelayStore::open(options(directory.path()), &GtidSet::new()).expect("opens");
    let mut inlet = store.inlet().expect("a thread");
    let number = one_by_one(&store, &mut inlet).await[gno - 1];
    drop((inlet, store));
    let path = directory.path().join(segment(number));
    let mut bytes = std::fs::read(&path).expect("readable");
    bytes[0] ^= 0x20;
    std::fs::write(&path, bytes).expect("writable");
    directory
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_header_costs_no_other_segment_that_is_of_use() {
    for (damaged, executed) in [(3, up_to(3)), (3, up_to(4)), (1, up_to(1))] {
        let directory = with_damaged_header(damaged).await;
        let look = || survey(&options(directory.path()), &executed).expect("readable");
        let all = Some(RelaySurvey { received: up_to(5), follows: true });
        assert_eq!(look(), all);
        if damaged > 1 {
            let resumed = RelayStore::resume(options(directory.path())).expect("opens");
            assert!(resumed.is_none(), "without the target neither side counts");
            assert_eq!(look(), all, "and nothing is deleted");
        }
        let (store, recovery) = reopen(directory.path(), &executed);
        assert_eq!((recovery.dropped_segments, recovery.emptied_for), (1, None));
        assert_eq!(*store.received(), up_to(5));
        let mut reader = store.reader(executed.clone());
        for gno in executed.count() + 1..=5 {
            assert_eq!(read(&mut reader, SOON).await.map(|found| found.0), Some(gno));
        }
    }
    // The target needs it, so what comes after it is of no use.
    let directory = with_damaged_header(3).await;
    let (store, recovery) = reopen(directory.path(), &up_to(1));
    assert_eq!((recovery.dropped_segments, store.received()), (3, &up_to(2)));
    // The last one was perhaps just being made.
    let directory = with_damaged_header(5).await;
    let resumed = RelayStore::resume(options(directory.path())).expect("opens");
    let (store, recovery) = resumed.expect("has some");
    assert_eq!((recovery.dropped_segments, store.received()), (1, &up_to(4)));
}
