use std::path::Path;
use std::sync::Arc;

use csa_provider::binlog::{EventType, GtidSet, RawEvent, TransactionHeader};
use csa_provider::source::{Placement, TransactionSink as _};
use csa_provider::test_util::{event, gtid_event};
use proptest::prelude::*;

use super::Outcome;
use crate::disk::memory_fs::{MemoryFs, Random};
use crate::disk::{RelayStoreOptions, SyncPolicy};
use crate::opening::RelayStore;
use crate::read::{EventCursor, RelayReader, RelayedTransaction};
use crate::tests::{NOW, SOON, bytes_of, format_event, gtid, options, read, transaction};
use crate::write::{NextStep, RelayInlet, RelayWriter};

struct World {
    store: RelayStore,
    inlet: RelayInlet,
    writer: RelayWriter,
    disk: MemoryFs,
}

impl World {
    async fn of(disk: MemoryFs, change: impl FnOnce(&mut RelayStoreOptions)) -> Self {
        let mut options = options(Path::new("/relay/channel"));
        options.files = Arc::new(disk.clone());
        change(&mut options);
        let (store, _) = RelayStore::open(options, &GtidSet::new()).expect("opens");
        let (inlet, writer) = store.inlet_and_writer();
        let mut world = Self { store, inlet, writer, disk };
        world.inlet.append(format_event(), Placement::Outside).await.expect("room");
        world
    }

    async fn send(&mut self, events: impl IntoIterator<Item = (RawEvent, Placement)>) {
        for (event, placement) in events {
            self.inlet.append(event, placement).await.expect("room");
        }
    }

    /// Has the writer write all that it can.
    fn write(&mut self) -> NextStep {
        loop {
            match self.writer.step() {
                NextStep::AtOnce => {}
                next => return next,
            }
        }
    }

    /// Has the first events of transaction 1 written. Returns a reader that has handed it out, and the other
    /// events.
    async fn begun(
        &mut self,
        sizes: &[usize],
        first: usize,
    ) -> (RelayReader, RelayedTransaction, Vec<(RawEvent, Placement)>) {
        let mut reader = self.reader();
        let mut events = transaction(1, sizes);
        let later = events.split_off(first);
        self.send(events).await;
        self.write();
        let relayed = reader.next_now().expect("undamaged").expect("a part of it");
        (reader, relayed, later)
    }

    fn reader(&self) -> RelayReader {
        let mut reader = self.store.reader(GtidSet::new());
        reader.follow_from(Some(1));
        reader
    }
}

/// Returns the bytes of the events that are there.
fn rest(events: &mut EventCursor) -> crate::disk::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for event in events.by_ref() {
        bytes.extend_from_slice(event?.bytes());
    }
    Ok(bytes)
}

const SIZES: [usize; 6] = [200; 6];

#[tokio::test]
async fn a_transaction_is_followed_to_its_end_and_handed_out_once() {
    let mut world = World::of(MemoryFs::new(1), |_| {}).await;
    let (mut reader, relayed, later) = world.begun(&SIZES, 4).await;
    let followed = Arc::clone(relayed.followed().expect("not whole"));
    assert!(followed.is_growing() && world.store.received_so_far().is_empty());
    assert_eq!(relayed.extent().end, relayed.start, "nothing of it may be released");
    let mut cursor = relayed.events();
    let mut bytes = rest(&mut cursor).expect("undamaged");
    let all = bytes_of(1, &SIZES);
    assert!(!bytes.is_empty() && bytes.len() < all.len() && all.starts_with(&bytes));
    assert!(reader.next_now().expect("undamaged").is_none());
    world.send(later).await;
    world.send(transaction(2, &[10])).await;
    world.write();
    assert_eq!(followed.seen().outcome, Outcome::Whole);
    bytes.extend(rest(&mut cursor).expect("undamaged"));
    assert!(bytes == all);
    assert_eq!(read(&mut reader, NOW).await, Some((2, bytes_of(2, &[10]))), "and not 1 again");
    let whole = world.store.reader(GtidSet::new()).next_now().expect("undamaged").expect("whole");
    assert_eq!((whole.header, whole.ordinal), (relayed.header.clone(), relayed.ordinal));
    assert_eq!(
        (whole.end, whole.event_bytes, whole.cumulative_bytes),
        (relayed.extent().end, relayed.extent().event_bytes, relayed.extent().cumulative_bytes)
    );
    assert!(!followed.give_up(), "it is whole");
}

/// It may be committed on the target before its reader looks for the next one.
#[tokio::test]
async fn a_transaction_can_be_purged_before_its_reader_is_past_it() {
    let mut world = World::of(MemoryFs::new(1), |options| options.segment_size = 500).await;
    let (mut reader, relayed, later) = world.begun(&SIZES, 4).await;
    world.send(later).await;
    world.send(transaction(2, &[10])).await;
    world.write();
    world.store.release(relayed.extent().end);
    assert_eq!(world.store.usage().segments, 1, "its segment is purged");
    assert_eq!(read(&mut reader, NOW).await, Some((2, bytes_of(2, &[10]))));
}

#[tokio::test]
async fn a_transaction_that_is_taken_back_is_handed_out_once_it_is_whole() {
    let mut world = World::of(MemoryFs::new(1), |_| {}).await;
    let (mut reader, _, later) = world.begun(&SIZES, 4).await;
    reader.take_back();
    assert!(reader.next_now().expect("undamaged").is_none(), "not again before it is whole");
    world.send(later).await;
    world.write();
    assert_eq!(read(&mut reader, NOW).await, Some((1, bytes_of(1, &SIZES))));
}

#[tokio::test]
async fn a_frame_beyond_the_limit_ends_it() {
    let mut world = World::of(MemoryFs::new(1), |_| {}).await;
    let (_reader, relayed, _) = world.begun(&[100, 100, 100, 2000, 100, 100], 7).await;
    relayed.followed().expect("not whole").limit_frames(1000);
    assert!(matches!(rest(&mut relayed.events()), Err(crate::disk::Error::CutOff)));
    assert!(relayed.followed().expect("not whole").is_lost());
}

/// Otherwise it would be committed on the target and could be gone from here.
#[tokio::test]
async fn a_transaction_is_not_whole_before_its_end_is_synced() {
    let change = |options: &mut RelayStoreOptions| options.sync = SyncPolicy::Transaction;
    let mut world = World::of(MemoryFs::new(1), change).await;
    let (_reader, relayed, later) = world.begun(&SIZES, 5).await;
    world.disk.inject(|faults| faults.fail_syncs = true);
    world.send(later).await;
    assert_eq!(world.write(), NextStep::Never);
    assert!(relayed.followed().expect("not whole").is_lost());
    assert!(matches!(rest(&mut relayed.events()), Err(crate::disk::Error::CutOff)));
}

#[tokio::test]
async fn a_wait_ends_with_more_with_the_end_and_with_the_writer() {
    let mut world = World::of(MemoryFs::new(1), |_| {}).await;
    let (mut reader, relayed, later) = world.begun(&SIZES, 4).await;
    let mut events = later.into_iter();
    let followed = Arc::clone(relayed.followed().expect("not whole"));
    for (next, outcome) in [(2, Outcome::Growing), (SIZES.len(), Outcome::Whole)] {
        let seen = followed.seen();
        let waiting = {
            let followed = Arc::clone(&followed);
            tokio::spawn(async move { followed.changed_since(seen).await })
        };
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        world.send(events.by_ref().take(next)).await;
        world.write();
        tokio::time::timeout(SOON, waiting).await.expect("woken").expect("no panic");
        assert_eq!(followed.seen().outcome, outcome);
    }
    world.send(transaction(2, &SIZES).into_iter().take(5)).await;
    world.write();
    let relayed = reader.next_now().expect("undamaged").expect("a part of it");
    drop(world.writer);
    assert!(relayed.followed().expect("not whole").is_lost(), "nobody writes its end");
}

/// The events of an attempt at a transaction: its number is the commit time, and fills the bodies.
fn attempt_at(gno: u64, attempt: u64, sizes: &[usize]) -> Vec<(RawEvent, Placement)> {
    let begin = gtid_event(&gtid(gno), attempt);
    let header = TransactionHeader::parse(&begin).expect("well-formed");
    let body = |size: &usize| event(EventType::WRITE_ROWS, &vec![attempt as u8; *size]);
    let mut events = vec![(begin, Placement::Begin(header))];
    events.extend(sizes.iter().map(|size| (body(size), Placement::Body)));
    events.push((event(EventType::XID, &attempt.to_le_bytes()), Placement::End));
    events
}

/// A transaction that is read while it comes.
struct Following {
    relayed: RelayedTransaction,
    events: EventCursor,
    read: Vec<u8>,
}

/// Transactions come, are cut off in the middle and come again with the same GTID and other contents, in
/// the same place of the segment, while one is followed event by event.
async fn followed_at_random(seed: u64) {
    let mut random = Random::new(seed);
    let (frame_bytes, segment_size) = (100 + random.below(600), 500 + random.below(6_000));
    let change = |options: &mut RelayStoreOptions| {
        (options.frame_bytes, options.segment_size) = (frame_bytes as usize, segment_size);
    };
    let mut world = World::of(MemoryFs::new(seed), change).await;
    let mut reader = world.reader();
    let mut sending: Option<std::vec::IntoIter<(RawEvent, Placement)>> = None;
    let mut following: Option<Following> = None;
    // Bytes of all attempts, and the numbers of those that ended.
    let (mut attempts, mut whole): (Vec<Vec<u8>>, Vec<usize>) = (Vec::new(), Vec::new());
    let mut has_read = 0;
    for _ in 0..300 {
        match random.below(14) {
            0..=4 => {
                let events = sending.get_or_insert_with(|| {
                    let mut size = || [30, 90, 300, 1200][random.below(4) as usize];
                    let mut sizes: Vec<usize> = (0..8).map(|_| size()).collect();
                    sizes.truncate(random.below(9) as usize);
                    let number = whole.len() as u64 + 1;
                    let events = attempt_at(number, attempts.len() as u64 + 1, &sizes);
                    attempts.push(events.iter().flat_map(|(e, _)| e.bytes().to_vec()).collect());
                    events.into_iter()
                });
                let next = events.next().expect("ends with its last event");
                if next.1 == Placement::End {
                    whole.push(attempts.len() - 1);
                    sending = None;
                }
                world.send([next]).await;
            }
            5 => {
                world.inlet.abandon().await.expect("room");
                sending = None;
            }
            6..=8 => drop(world.write()),
            _ => match &mut following {
                None => {
                    let Some(relayed) = reader.next_now().expect("undamaged") else { continue };
                    assert_eq!(relayed.header.gtid, gtid(has_read as u64 + 1));
                    let mut events = relayed.events();
                    if relayed.followed().is_some() {
                        following = Some(Following { relayed, events, read: Vec::new() });
                        continue;
                    }
                    assert!(rest(&mut events).expect("undamaged") == attempts[whole[has_read]]);
                    has_read += 1;
                }
                Some(of) => match of.events.next() {
                    Some(Ok(event)) => {
                        of.read.extend_from_slice(event.bytes());
                        let attempt = of.relayed.header.immediate_commit_timestamp as usize;
                        assert!(attempts[attempt - 1].starts_with(&of.read), "others in its place");
                    }
                    Some(Err(error)) => {
                        assert!(matches!(error, crate::disk::Error::CutOff), "{error}");
                        assert!(reader.next_now().expect("undamaged").is_none());
                        following = None;
                        reader = world.store.reader((1..=has_read as u64).map(gtid).collect());
                        reader.follow_from(Some(1));
                    }
                    None if of.relayed.followed().expect("followed").is_growing() => {}
                    None => {
                        assert!(of.read == attempts[whole[has_read]]);
                        has_read += 1;
                        following = None;
                    }
                },
            },
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_is_followed_is_the_transaction_or_nothing(seed in any::<u64>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("runtime").block_on(followed_at_random(seed));
    }
}

/// The same with threads: the writer cuts and writes again while the bytes are read.
#[tokio::test(flavor = "multi_thread")]
async fn bytes_written_in_the_place_of_others_are_never_read_for_them() {
    let directory = tempfile::tempdir().expect("temp dir");
    let options = RelayStoreOptions { wake_bytes: 1, ..options(directory.path()) };
    let (store, _) = RelayStore::open(options, &GtidSet::new()).expect("opens");
    let mut inlet = store.inlet().expect("a thread");
    inlet.append(format_event(), Placement::Outside).await.expect("room");
    let store = Arc::new(store);
    let is_over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let reading = {
        let (store, is_over) = (Arc::clone(&store), Arc::clone(&is_over));
        std::thread::spawn(move || {
            let mut read = 0_usize;
            while !is_over.load(std::sync::atomic::Ordering::Acquire) {
                let mut reader = store.reader(GtidSet::new());
                reader.follow_from(Some(1));
                let Some(relayed) = reader.next_now().expect("undamaged") else { continue };
                let mut events = relayed.events();
                // Each attempt has another GTID, and its bodies are filled with its number.
                let fill = relayed.header.gtid.gno as u8;
                while relayed.followed().expect("none is whole").is_growing() {
                    match events.next() {
                        Some(Ok(event)) => {
                            let body = event.body();
                            let is_row = event.event_type() == EventType::WRITE_ROWS;
                            assert!(!is_row || body.iter().all(|&byte| byte == fill));
                            read += 1;
                        }
                        Some(Err(crate::disk::Error::CutOff)) => break,
                        Some(Err(error)) => panic!("{error}"),
                        None => {}
                    }
                }
            }
            read
        })
    };
    for gno in 1..400 {
        let sizes: Vec<usize> =
            (0..20).map(|place| 50 + (gno as usize * 31 + place * 97) % 900).collect();
        let mut events = transaction(gno, &sizes);
        events.pop();
        for (event, placement) in events {
            inlet.append(event, placement).await.expect("room");
        }
        tokio::time::sleep(std::time::Duration::from_micros(gno % 7 * 200)).await;
        inlet.abandon().await.expect("room");
    }
    is_over.store(true, std::sync::atomic::Ordering::Release);
    let read = reading.join().expect("only what was written");
    assert!(read > 100, "{read} events were read of transactions that were cut off later");
}
