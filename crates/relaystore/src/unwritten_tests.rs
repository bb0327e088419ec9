//! A store whose target keeps up writes nothing; everything else is on disk after the sync interval.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use csa_provider::binlog::GtidSet;
use csa_provider::source::{Placement, TransactionSink as _};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::disk::*;
use crate::opening::*;
use crate::read::*;
use crate::tests::{format_event, gtid, transaction};
use crate::write::*;

const SYNC: Duration = Duration::from_secs(1);
/// Less than a part of the interval.
const A_MOMENT: Duration = Duration::from_millis(20);

struct Running {
    fs: MemoryFs,
    options: RelayStoreOptions,
    store: RelayStore,
    inlet: RelayInlet,
    reader: RelayReader,
    writing: JoinHandle<()>,
    received: u64,
}

impl Running {
    async fn start(fs: MemoryFs, executed: u64) -> Self {
        Self::start_above(0, fs, executed).await
    }

    async fn start_above(min_free_disk: u64, fs: MemoryFs, executed: u64) -> Self {
        let options = RelayStoreOptions {
            directory: Path::new("/relay/channel").to_owned(),
            segment_size: 1 << 20,
            min_free_disk,
            sync: SyncPolicy::Interval(SYNC),
            tail_bytes: 1 << 20,
            files: Arc::new(fs.clone()),
            ..crate::tests::options(Path::new("/"))
        };
        let executed: GtidSet = (1..=executed).map(gtid).collect();
        let (store, _) = RelayStore::open(options.clone(), &executed).expect("opens");
        let received = store.received().count();
        let (mut inlet, writer) = store.inlet_and_writer();
        let writing = tokio::spawn(writer.run());
        inlet.append(format_event(), Placement::Outside).await.expect("room");
        let reader = store.reader(executed);
        Self { fs, options, store, inlet, reader, writing, received }
    }

    async fn receive(&mut self, sizes: &[usize]) {
        self.received += 1;
        for (event, placement) in transaction(self.received, sizes) {
            self.inlet.append(event, placement).await.expect("room");
        }
        sleep(A_MOMENT).await;
    }

    /// Returns a store that has begun segments without a file, and whose target has the first 20 transactions.
    async fn keeping_up() -> Self {
        Self::keeping_up_above(0).await
    }

    async fn keeping_up_above(min_free_disk: u64) -> Self {
        let mut running = Self::start_above(min_free_disk, MemoryFs::new(1), 0).await;
        for gno in 1..=20 {
            running.receive(&[100]).await;
            assert_eq!(running.apply(), gno);
            sleep(SYNC / 10).await;
        }
        running
    }

    /// Transactions arrive together.
    async fn block(&mut self, transactions: &[&[usize]]) {
        self.inlet.begin_block();
        for sizes in transactions {
            self.received += 1;
            for (event, placement) in transaction(self.received, sizes) {
                self.inlet.append(event, placement).await.expect("room");
            }
        }
        self.inlet.end_block();
    }

    /// The target commits the next transaction.
    fn apply(&mut self) -> u64 {
        let relayed = self.reader.next_now().expect("readable").expect("one more");
        self.store.release(relayed.end);
        relayed.header.gtid.gno
    }

    fn written(&self) -> u64 {
        self.store.usage().written_total
    }

    /// Reads what opening would find.
    fn on_disk(&self) -> Vec<u64> {
        let found = RelayInspector::open(&self.options).expect("readable");
        found.map(|transaction| transaction.expect("whole").header.gtid.gno).collect()
    }

    /// The process is killed.
    async fn kill(self) -> MemoryFs {
        self.writing.abort();
        self.writing.await.ok();
        self.fs
    }

    /// The daemon stops.
    async fn stop(self) -> MemoryFs {
        drop(self.inlet);
        self.writing.await.expect("no panic");
        self.fs
    }
}

#[tokio::test(start_paused = true)]
async fn a_target_that_keeps_up_has_nothing_written() {
    let mut running = Running::start(MemoryFs::new(1), 0).await;
    for gno in 1..=300 {
        running.receive(&[100]).await;
        assert_eq!(running.apply(), gno);
    }
    let usage = running.store.usage();
    assert_eq!((usage.written_total, usage.bytes, usage.syncs_total), (0, 0, 0), "6 s");
    assert!(usage.unwritten_bytes < 10_000, "what is applied is forgotten: {usage:?}");
    // The target stops.
    running.receive(&[100]).await;
    running.receive(&[100]).await;
    assert_eq!(running.written(), 0);
    sleep(SYNC).await;
    assert!(running.on_disk().ends_with(&[301, 302]));
    assert!(running.store.usage().syncs_total > 0);
    running.receive(&[100]).await;
    assert!(running.on_disk().ends_with(&[302, 303]), "a backlog is written at once");
    // It continues. The last file stays until there is another one.
    for gno in 301..=303 {
        assert_eq!(running.apply(), gno);
    }
    let written = running.written();
    for gno in 304..=400 {
        running.receive(&[100]).await;
        assert_eq!(running.apply(), gno);
    }
    assert!(running.written() < written + 5000, "a few until the pace is known");
    let usage = running.store.usage();
    assert_eq!(usage.segments, 1, "{usage:?}");
    assert!(running.on_disk().contains(&303));
    // Power fails: the source sends again what nobody has.
    let fs = running.kill().await;
    fs.crash(7);
    let running = Running::start(fs, 400).await;
    assert_eq!(running.received, 400);
}

#[tokio::test(start_paused = true)]
async fn a_block_needs_no_writer_while_nothing_needs_the_disk() {
    let mut running = Running::keeping_up().await;
    // The writer does not run before this task waits for something.
    running.block(&[&[100], &[50, 50]]).await;
    assert_eq!((running.apply(), running.apply()), (21, 22));
    assert_eq!(running.written(), 0);
    // What the target lacks is written in time, although the writer slept when it came.
    running.block(&[&[100]]).await;
    sleep(SYNC + A_MOMENT).await;
    assert!(running.on_disk().ends_with(&[23]));
    // With a file the writer writes, and is woken.
    running.block(&[&[100], &[100]]).await;
    assert!(
        running.reader.next_now().expect("readable").is_some_and(|it| it.header.gtid.gno == 23)
    );
    assert!(running.reader.next_now().expect("readable").is_none());
    sleep(A_MOMENT).await;
    assert!(running.on_disk().ends_with(&[24, 25]));
}

/// On a volume in the network, each question takes as long as a commit.
#[tokio::test(start_paused = true)]
async fn a_block_in_memory_does_not_ask_the_disk_for_its_free_space() {
    let mut running = Running::keeping_up_above(1000).await;
    let used = running.fs.used();
    running.fs.inject(|faults| faults.capacity = Some(used + 100));
    running.block(&[&[100]]).await;
    assert_eq!((running.apply(), running.written()), (21, 0));
    // Somebody else measures it each second.
    running.store.measure_disk();
    running.block(&[&[100]]).await;
    assert!(running.reader.next_now().expect("readable").is_none());
    assert_eq!(running.store.usage().waiting, None, "whoever can make room says so");
    sleep(A_MOMENT).await;
    assert!(running.store.usage().waiting.is_some_and(|text| text.contains("min_free_disk")));
    running.fs.inject(|faults| faults.capacity = None);
    sleep(A_MOMENT * 2).await;
    assert_eq!(running.apply(), 22);
}

/// An event that is larger than a batch needs a file, and so does more than the memory takes.
#[tokio::test(start_paused = true)]
async fn a_block_that_memory_does_not_take_is_left_to_the_writer() {
    for sizes in [vec![vec![RelayStoreOptions::WAKE_BYTES + 1]], vec![vec![100_000; 6]; 2]] {
        let mut running = Running::keeping_up().await;
        let transactions: Vec<_> = sizes.iter().map(Vec::as_slice).collect();
        running.block(&transactions).await;
        sleep(A_MOMENT).await;
        assert!(running.written() > 0);
        for gno in 21..21 + sizes.len() as u64 {
            assert_eq!(running.apply(), gno);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_nobody_applies_is_written_at_once() {
    let mut running = Running::start(MemoryFs::new(1), 0).await;
    running.receive(&[100]).await;
    running.apply();
    running.receive(&[100]).await;
    running.store.set_has_applier(false);
    sleep(A_MOMENT).await;
    assert!(running.on_disk().ends_with(&[2]));
    running.receive(&[100]).await;
    assert!(running.on_disk().ends_with(&[2, 3]));
    running.apply();
    running.apply();
    sleep(SYNC).await;
    running.receive(&[100]).await;
    assert!(running.on_disk().ends_with(&[3, 4]), "it is applied, and may be lost all the same");
    running.apply();
    running.store.set_has_applier(true);
    let written = running.written();
    sleep(SYNC).await;
    running.receive(&[100]).await;
    assert_eq!(running.written(), written);
}

#[tokio::test(start_paused = true)]
async fn a_stop_leaves_the_end_of_what_was_received() {
    let mut running = Running::start(MemoryFs::new(1), 0).await;
    for _ in 1..=50 {
        running.receive(&[100]).await;
        running.apply();
    }
    let options = running.options.clone();
    let fs = running.stop().await;
    // The target is away at the next start.
    let (store, _) = RelayStore::resume(options).expect("opens").expect("not empty");
    assert_eq!(store.received().count(), 50);
    drop(store);
    let mut running = Running::start(fs, 50).await;
    running.receive(&[100]).await;
    running.receive(&[100]).await;
    assert_eq!(running.apply(), 51);
    assert_eq!(running.written(), 0);
    let fs = running.stop().await;
    let mut running = Running::start(fs, 51).await;
    assert_eq!((running.received, running.apply()), (52, 52));
}

/// The source is asked for it again, so that one that was set back is noticed.
#[tokio::test(start_paused = true)]
async fn a_stop_leaves_the_last_transaction_of_what_was_never_written() {
    let running = Running::keeping_up().await;
    let last = running.inlet.last();
    assert_eq!(last.as_ref().map(|last| &last.gtid), Some(&gtid(20)));
    assert_eq!(running.written(), 0);
    let options = running.options.clone();
    let fs = running.stop().await;
    let (store, _) = RelayStore::resume(options).expect("opens").expect("not empty");
    assert_eq!(store.inlet_and_writer().0.last(), last);
    drop(store);
    let mut running = Running::start(fs, 20).await;
    assert_eq!(running.inlet.last(), last);
    running.receive(&[100]).await;
    assert_eq!(running.apply(), 21);
    let running = Running::start(running.kill().await, 21).await;
    assert_eq!(running.inlet.last(), None, "nothing but the target has it");
}

#[tokio::test(start_paused = true)]
async fn a_target_that_lags_has_all_but_the_newest_on_disk() {
    let mut running = Running::start(MemoryFs::new(1), 0).await;
    for _ in 1..=200 {
        running.receive(&[100]).await;
    }
    assert!(running.on_disk().len() >= 150, "{:?}", running.on_disk());
    let fs = running.kill().await;
    let mut running = Running::start(fs, 0).await;
    let received = running.received;
    assert!(received >= 150);
    for gno in 1..=received {
        assert_eq!(running.apply(), gno);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_streamed_or_much_gets_a_file() {
    let mut running = Running::start(MemoryFs::new(1), 0).await;
    running.reader.set_inline_limit(1000);
    running.receive(&[100]).await;
    running.apply();
    running.receive(&[800, 800]).await;
    assert!(running.reader.next_now().expect("readable").is_none(), "it has no file");
    sleep(A_MOMENT).await;
    let relayed = running.reader.next_now().expect("readable").expect("one more");
    assert!(matches!(relayed.body, TransactionBody::Streamed(_)));
    let events: Vec<_> = relayed.events().collect::<Result<_>>().expect("readable");
    assert_eq!(events.len(), 4);
    assert!(running.on_disk().ends_with(&[2]));

    let mut running = Running::start(MemoryFs::new(2), 0).await;
    for _ in 1..=10 {
        running.receive(&[100_000]).await;
    }
    assert!(running.on_disk().len() > 4, "half of the memory");
    for gno in 1..=10 {
        assert_eq!(running.apply(), gno);
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_keeps_memory_bounded_and_loses_nothing() {
    let mut running = Running::start(MemoryFs::new(1), 0).await;
    running.fs.inject(|faults| faults.capacity = Some(0));
    running.receive(&[100]).await;
    sleep(SYNC * 2).await;
    assert!(running.store.usage().waiting.is_some());
    assert_eq!(running.apply(), 1, "readers need no disk");
    sleep(SYNC).await;
    running.receive(&[100]).await;
    assert_eq!(running.apply(), 2);
    running.fs.inject(|faults| faults.capacity = None);
    running.receive(&[100]).await;
    sleep(SYNC).await;
    assert!(running.on_disk().ends_with(&[3]));
    assert!(running.store.usage().waiting.is_none());
}
