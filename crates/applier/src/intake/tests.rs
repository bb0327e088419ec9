//! The driver against a relay store on disk, with everything around it in the test's hands.

use std::sync::atomic::{AtomicUsize, Ordering};

use csa_provider::binlog::{
    ChecksumAlgorithm, EventType, Gtid, GtidSet, RawEvent, Tag, TransactionHeader, Uuid,
};
use csa_provider::source::{Placement, SinkError, TransactionSink as _};
use csa_provider::test_util::{
    event, format_description, gtid_event, int_image, int_table_map, query_event, rows_event,
};
use csa_relaystore::disk::{RealFs, RelayStoreOptions, SyncPolicy};
use csa_relaystore::opening::RelayStore;
use csa_relaystore::state::Followed;
use csa_relaystore::write::RelayInlet;
use csa_scheduler::admission::Verdict;
use csa_scheduler::key_source::KeySourceError;
use csa_scheduler::keys::{TableId, TableKeys};
use csa_scheduler::until::Until;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::*;

/// The longest wait for something expected soon, on a slow machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// Long enough to see that something does not happen.
const WHILE: Duration = Duration::from_millis(250);
const NOW: u64 = 1_000_000_000_000;

#[derive(Debug)]
struct Stopped;

impl Clock for Stopped {
    fn now_micros(&self) -> u64 {
        NOW
    }
}

/// Has the same keys for every table. Counts how often a table is asked for, and how often all are forgotten.
#[derive(Debug, Default)]
struct CountedTables {
    forgotten: Arc<AtomicUsize>,
    tables: Arc<AtomicUsize>,
    /// A stop comes as soon as a transaction is read whose tables may not be transactional.
    stopped: Option<CancellationToken>,
}

impl KeySource for CountedTables {
    async fn table(
        &mut self,
        _: &[u8],
        _: &[u8],
    ) -> Result<(TableId, Option<Arc<TableKeys>>), KeySourceError> {
        self.tables.fetch_add(1, Ordering::Relaxed);
        let keys = TableKeys { columns: 1, ..TableKeys::default() };
        Ok((TableId(1), Some(Arc::new(keys))))
    }

    async fn trigger_table(&mut self, _: &str, _: &str) -> Result<Option<String>, KeySourceError> {
        Ok(None)
    }

    async fn has_not_transactional(&mut self) -> Result<bool, KeySourceError> {
        self.stopped.iter().for_each(CancellationToken::cancel);
        Ok(self.stopped.is_some())
    }

    fn go_on(&self) -> Result<(), KeySourceError> {
        match self.stopped.as_ref().is_some_and(CancellationToken::is_cancelled) {
            true => Err("it stops".into()),
            false => Ok(()),
        }
    }

    fn forget(&mut self) {
        self.forgotten.fetch_add(1, Ordering::Relaxed);
    }
}

/// Every call, in order.
#[derive(Debug, Clone, Default)]
struct Observer(Arc<Mutex<Vec<Option<HeldUntil>>>>);

impl IntakeObserver for Observer {
    fn read(&mut self, _: &RelayedTransaction) {}

    fn read_to_end(&mut self, _: u64, _: u64) {}

    fn held_back(&mut self, held: Option<HeldUntil>) {
        self.0.lock().push(held);
    }

    fn clock_ahead(&self) -> i64 {
        0
    }
}

/// A running intake, and the other ends of its parts.
struct Bench {
    directory: tempfile::TempDir,
    store: RelayStore,
    inlet: RelayInlet,
    memory: EventMemory,
    delay: watch::Sender<Duration>,
    until: UntilGate,
    tuning: watch::Sender<Tuning>,
    reception: watch::Sender<Option<ReceptionEnd>>,
    statements: watch::Sender<u64>,
    stream: mpsc::Receiver<AdmittedTransaction>,
    observer: Observer,
    forgotten: Arc<AtomicUsize>,
    tables: Arc<AtomicUsize>,
    stops_while_reading: bool,
    end: CancellationToken,
    begin_early: Option<u64>,
    /// The commit time of what is received.
    committed: u64,
    running: Option<JoinHandle<IntakeEnd>>,
}

impl Bench {
    async fn new() -> Self {
        let directory = tempfile::tempdir().expect("a folder");
        let options = RelayStoreOptions {
            directory: directory.path().to_owned(),
            segment_size: 1 << 20,
            space_limit: 0,
            min_free_disk: 0,
            sync: SyncPolicy::Os,
            archived: false,
            tail_bytes: 1 << 16,
            frame_bytes: 300,
            wake_bytes: 1,
            files: RealFs::shared(),
        };
        let (store, _) = RelayStore::open(options, &GtidSet::new()).expect("opens");
        let mut inlet = store.inlet().expect("a thread");
        let format =
            RawEvent::trusted(format_description().raw().clone(), ChecksumAlgorithm::Crc32);
        inlet.append(format.expect("well-formed"), Placement::Outside).await.expect("room");
        Self {
            directory,
            store,
            inlet,
            memory: EventMemory::new(1 << 20),
            delay: watch::Sender::new(Duration::ZERO),
            until: UntilGate::default(),
            tuning: watch::Sender::new(Tuning { worker_count: 1, paused: false, throttle: None }),
            reception: watch::Sender::default(),
            statements: watch::Sender::default(),
            stream: mpsc::channel(1).1,
            observer: Observer::default(),
            forgotten: Arc::default(),
            tables: Arc::default(),
            stops_while_reading: false,
            end: CancellationToken::new(),
            begin_early: None,
            committed: NOW,
            running: None,
        }
    }

    fn start(&mut self) {
        let (sender, stream) = mpsc::channel(16);
        self.stream = stream;
        let tables = CountedTables {
            forgotten: Arc::clone(&self.forgotten),
            tables: Arc::clone(&self.tables),
            stopped: self.stops_while_reading.then(|| self.end.clone()),
        };
        let intake = Intake {
            reader: self.store.reader(GtidSet::new()),
            memory: self.memory.clone(),
            admission: Admission::new(tables),
            begin_early: self.begin_early,
            delay: self.delay.subscribe(),
            until: self.until.clone(),
            tuning: self.tuning.subscribe(),
            reception: self.reception.subscribe(),
            statements: self.statements.subscribe(),
            sender,
            observer: self.observer.clone(),
            clock: Arc::new(Stopped),
            end: self.end.clone(),
        };
        self.running = Some(tokio::spawn(intake.run()));
    }

    async fn receive(&mut self, gno: u64, body: Vec<RawEvent>) -> Result<(), SinkError> {
        let begin = gtid_event(&gtid(gno), self.committed);
        let header = TransactionHeader::parse(&begin).expect("well-formed");
        self.inlet.append(begin, Placement::Begin(header)).await?;
        let last = body.len() - 1;
        for (number, event) in body.into_iter().enumerate() {
            let placement = if number == last { Placement::End } else { Placement::Body };
            self.inlet.append(event, placement).await?;
        }
        Ok(())
    }

    async fn rows(&mut self, gno: u64) {
        let body = vec![
            query_event("", "BEGIN"),
            int_table_map(70, "d", "a", 1),
            rows_event(EventType::WRITE_ROWS, 70, 1, &int_image(&[Some(1)])),
            event(EventType::XID, &[0; 8]),
        ];
        self.receive(gno, body).await.expect("room");
    }

    /// All of a transaction but its end.
    async fn begun(&mut self, gno: u64, begin: &str) {
        let first = gtid_event(&gtid(gno), NOW);
        let header = TransactionHeader::parse(&first).expect("well-formed");
        self.inlet.append(first, Placement::Begin(header)).await.expect("room");
        let body = [query_event("", begin), int_table_map(70, "d", "a", 1)].into_iter();
        let row = |n| rows_event(EventType::WRITE_ROWS, 70, 1, &int_image(&[Some(n)]));
        for event in body.chain((0..30).map(row)) {
            self.inlet.append(event, Placement::Body).await.expect("room");
        }
    }

    async fn end(&mut self, event: RawEvent) {
        self.inlet.append(event, Placement::End).await.expect("room");
    }

    async fn ddl(&mut self, gno: u64) {
        let body = vec![query_event("d", "ALTER TABLE a ADD b INT")];
        self.receive(gno, body).await.expect("room");
    }

    async fn handed_over(&mut self) -> (u64, AdmittedTransaction) {
        let next = tokio::time::timeout(PATIENCE, self.stream.recv()).await.expect("in time");
        let admitted = next.expect("the intake runs");
        (admitted.relayed.header.gtid.gno, admitted)
    }

    /// Nothing is handed over, although something was received.
    async fn nothing(&mut self) {
        let next = tokio::time::timeout(WHILE, self.stream.recv()).await;
        assert!(next.is_err(), "{next:?}");
    }

    async fn ended(&mut self) -> IntakeEnd {
        let running = self.running.take().expect("started");
        tokio::time::timeout(PATIENCE, running).await.expect("in time").expect("no panic")
    }
}

fn gtid(gno: u64) -> Gtid {
    Gtid { uuid: Uuid::from_bytes([5; 16]), tag: Tag::untagged(), gno }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_after_a_statement_wait_until_it_is_committed() {
    let mut bench = Bench::new().await;
    bench.start();
    bench.rows(1).await;
    bench.ddl(2).await;
    bench.rows(3).await;
    assert_eq!(bench.handed_over().await.0, 1);
    let (gno, statement) = bench.handed_over().await;
    assert_eq!((gno, statement.verdict), (2, Verdict::Statement));
    bench.nothing().await;
    assert_eq!(bench.forgotten.load(Ordering::Relaxed), 0);
    bench.statements.send_replace(1);
    assert_eq!(bench.handed_over().await.0, 3);
    assert_eq!(bench.forgotten.load(Ordering::Relaxed), 1, "read again after it");
    bench.end.cancel();
    assert!(matches!(bench.ended().await, IntakeEnd::Stopped));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_the_wait_for_a_statement_and_for_memory() {
    let mut bench = Bench::new().await;
    bench.start();
    bench.ddl(1).await;
    bench.handed_over().await;
    bench.end.cancel();
    assert!(matches!(bench.ended().await, IntakeEnd::Stopped));

    let mut bench = Bench::new().await;
    // Less than two transactions need; one passes alone.
    bench.memory.set_limit(1);
    bench.start();
    bench.rows(1).await;
    bench.rows(2).await;
    bench.rows(3).await;
    let (_, first) = bench.handed_over().await;
    bench.nothing().await;
    drop(first);
    let (gno, _second) = bench.handed_over().await;
    assert_eq!(gno, 2);
    bench.nothing().await;
    bench.stream = mpsc::channel(1).1;
    assert!(matches!(bench.ended().await, IntakeEnd::Stopped), "nobody takes more");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_the_reading_of_a_large_transaction() {
    let mut bench = Bench::new().await;
    bench.stops_while_reading = true;
    bench.start();
    let rows = rows_event(EventType::WRITE_ROWS, 70, 1, &vec![0; 1 << 20]);
    let mut body = vec![query_event("", "BEGIN"), int_table_map(70, "d", "a", 1)];
    body.extend(std::iter::repeat_n(rows, 6));
    body.push(int_table_map(71, "d", "b", 1));
    body.push(event(EventType::XID, &[0; 8]));
    bench.receive(1, body).await.expect("room");
    assert!(matches!(bench.ended().await, IntakeEnd::Stopped));
    assert_eq!(bench.tables.load(Ordering::Relaxed), 1, "it was read to its end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_is_held_back_until_the_delay_changes() {
    let mut bench = Bench::new().await;
    bench.delay.send_replace(Duration::from_secs(3600));
    bench.start();
    bench.rows(1).await;
    bench.nothing().await;
    {
        let held = bench.observer.0.lock();
        let [Some(held)] = held.as_slice() else { panic!("{held:?}") };
        assert_eq!(held.committed.immediate, NOW);
        // It has been held for a moment, although this clock stands still.
        let due = NOW + 3_600_000_000;
        assert!((due - 60_000_000..=due).contains(&held.due), "{held:?}");
    }
    bench.delay.send_replace(Duration::ZERO);
    assert_eq!(bench.handed_over().await.0, 1);
    assert_eq!(bench.observer.0.lock().last(), Some(&None));
    bench.delay.send_replace(Duration::from_secs(3600));
    bench.rows(2).await;
    bench.nothing().await;
    // An end before it; the change marks the delay, too.
    let until = Until::BeforeGtids(GtidSet::from_iter([gtid(2)]));
    bench.until.set(Some(until.clone())).expect("not past");
    bench.delay.send_modify(|_| ());
    let end = bench.ended().await;
    assert!(matches!(&end, IntakeEnd::Until(end) if *end == until), "{end:?}");
    assert_eq!(bench.observer.0.lock().last(), Some(&None));
}

#[tokio::test(flavor = "multi_thread")]
async fn commit_times_of_the_future_cost_the_delay_once() {
    let mut bench = Bench::new().await;
    bench.delay.send_replace(WHILE);
    for gno in 1..=200 {
        bench.committed = NOW + 86_400_000_000 + gno;
        bench.rows(gno).await;
    }
    let begun = Instant::now();
    bench.start();
    for gno in 1..=200 {
        assert_eq!(bench.handed_over().await.0, gno);
        assert!(begun.elapsed() >= WHILE, "{gno}");
    }
    assert!(begun.elapsed() < 100 * WHILE, "each has waited");
    tokio::time::sleep(3 * TICK).await;
    let begun = Instant::now();
    bench.rows(201).await;
    assert_eq!((bench.handed_over().await.0, begun.elapsed() >= WHILE), (201, true), "too early");
}

#[tokio::test(flavor = "multi_thread")]
async fn reception_that_ended_ends_it_after_everything_received() {
    let mut bench = Bench::new().await;
    bench.rows(1).await;
    bench.rows(2).await;
    let error = SinkError("the disk is full".to_owned());
    let end = ReceptionEnd { error: Arc::new(error.into()), gtid: Some(gtid(3)) };
    bench.reception.send_replace(Some(end));
    bench.start();
    assert_eq!((bench.handed_over().await.0, bench.handed_over().await.0), (1, 2));
    let end = bench.ended().await;
    assert!(matches!(&end, IntakeEnd::Reception(end) if end.gtid == Some(gtid(3))), "{end:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_segment_that_cannot_be_opened_is_no_fault_of_the_transaction_in_it() {
    let mut bench = Bench::new().await;
    // So little that the transaction stays in its segment.
    bench.memory.set_limit(400);
    bench.delay.send_replace(Duration::from_secs(3600));
    bench.start();
    bench.begun(1, "BEGIN").await;
    bench.end(event(EventType::XID, &[0; 8])).await;
    bench.nothing().await;
    assert!(!bench.observer.0.lock().is_empty(), "it was read, and is held back");
    for file in std::fs::read_dir(bench.directory.path()).expect("a folder") {
        let path = file.expect("a file").path();
        if std::fs::metadata(&path).is_ok_and(|file| file.len() > 0) {
            std::fs::remove_file(path).expect("removed");
        }
    }
    bench.delay.send_replace(Duration::ZERO);
    let end = bench.ended().await;
    assert!(matches!(end, IntakeEnd::Unreadable(_)), "{end:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_transaction_is_handed_over_before_it_is_whole() {
    let mut bench = Bench::new().await;
    bench.begin_early = Some(500);
    bench.start();
    bench.rows(1).await;
    bench.begun(2, "BEGIN").await;
    assert_eq!(bench.handed_over().await.0, 1);
    let (gno, admitted) = bench.handed_over().await;
    assert_eq!((gno, &admitted.verdict), (2, &Verdict::Rows));
    let followed = Arc::clone(admitted.relayed.followed().expect("it has no end"));
    assert!(followed.is_growing() && !admitted.is_keyed());
    bench.nothing().await;
    bench.end(event(EventType::XID, &[0; 8])).await;
    bench.rows(3).await;
    // It holds more memory than there is.
    drop(admitted);
    assert_eq!(bench.handed_over().await.0, 3, "and not 2 again");
    assert!(!followed.is_growing() && !followed.is_lost());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_is_not_wanted_yet_is_given_up() {
    type Change = fn(&Bench);
    let changes: [Change; 3] = [
        |bench| bench.tuning.send_modify(|tuning| tuning.paused = true),
        |bench| {
            bench.delay.send_replace(Duration::from_secs(3600));
        },
        |bench| {
            let later = Until::AfterGtids(GtidSet::from_iter([gtid(9)]));
            bench.until.set(Some(later)).expect("not past");
        },
    ];
    for change in changes {
        let mut bench = Bench::new().await;
        bench.begin_early = Some(500);
        bench.start();
        bench.begun(1, "BEGIN").await;
        let (_, admitted) = bench.handed_over().await;
        let followed = admitted.relayed.followed().expect("it has no end");
        change(&bench);
        tokio::time::timeout(PATIENCE, until_lost(followed)).await.expect("given up");
        bench.end(event(EventType::XID, &[0; 8])).await;
        bench.nothing().await;
    }
}

async fn until_lost(followed: &Followed) {
    loop {
        // Bytes that the writer had in hand are changes too, so the first need not be the loss.
        let seen = followed.seen();
        if followed.is_lost() {
            return;
        }
        followed.changed_since(seen).await;
    }
}

#[tokio::test]
async fn a_transaction_that_falls_silent_is_given_up() {
    let mut bench = Bench::new().await;
    bench.begin_early = Some(500);
    bench.start();
    bench.begun(1, "BEGIN").await;
    let (_, admitted) = bench.handed_over().await;
    let followed = Arc::clone(admitted.relayed.followed().expect("it has no end"));
    let pass = async |time| {
        tokio::time::pause();
        tokio::time::advance(time).await;
        tokio::time::resume();
    };
    pass(SILENCE - PATIENCE).await;
    bench.nothing().await;
    assert!(!followed.is_lost());
    pass(PATIENCE).await;
    tokio::time::timeout(PATIENCE, until_lost(&followed)).await.expect("given up");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_distributed_transaction_is_handed_over_once_it_is_whole() {
    let mut bench = Bench::new().await;
    bench.begin_early = Some(500);
    bench.start();
    bench.begun(1, "XA START X'61',X'',1").await;
    bench.nothing().await;
    bench.inlet.append(query_event("", "XA END X'61',X'',1"), Placement::Body).await.expect("room");
    let mut prepare = vec![0];
    for number in [1_u32, 1, 0] {
        prepare.extend(number.to_le_bytes());
    }
    prepare.push(b'a');
    bench.end(event(EventType::XA_PREPARE, &prepare)).await;
    let (_, admitted) = bench.handed_over().await;
    assert_eq!(admitted.verdict, Verdict::Xa);
    assert!(admitted.relayed.followed().is_none());
}
