//! The loop around the link, against scripted sources on loopback.

use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use std::time::Duration;

use super::*;
use crate::binlog::event::{ChecksumAlgorithm, RawEvent};
use crate::binlog::gtid::{Gtid, Tag, Uuid};
use crate::source::assembler::Placement;
use crate::source::connection::fake_source::{FakeSource, SERVER_UUID, options};
use crate::source::sink::{LastReceived, SinkError};
use crate::source::status::SourceView;
use crate::test_util::{event, event_bytes, format_description, gtid_event, query_event};

mod addresses;
mod flags;
mod history;
mod idle;
mod looks;
mod overlap;
mod semi_sync;

/// The longest wait for something expected soon, on a slow machine.
const PATIENCE: Duration = Duration::from_secs(20);

fn gtid(gno: u64) -> Gtid {
    Gtid { uuid: Uuid::from_bytes([9; 16]), tag: Tag::untagged(), gno }
}

/// The events that a sink received.
#[derive(Default)]
pub(in crate::source) struct Record {
    pub(in crate::source) received: GtidSet,
    open: Option<LastReceived>,
    last: Option<LastReceived>,
    /// Transactions that were dropped unfinished.
    pub(in crate::source) abandoned: Vec<Gtid>,
    /// Events that neither begin nor end a transaction.
    pub(in crate::source) events: Vec<EventType>,
    safe: Option<watch::Sender<u64>>,
    /// Nothing more is taken.
    full: bool,
    /// Nothing will ever be taken.
    failed: bool,
}

#[derive(Clone, Default)]
pub(in crate::source) struct RecordingInlet(pub(in crate::source) Arc<Mutex<Record>>);

impl TransactionSink for RecordingInlet {
    async fn append(&mut self, event: RawEvent, placement: Placement) -> Result<(), SinkError> {
        while self.0.lock().full {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let mut record = self.0.lock();
        match placement {
            Placement::Begin(header) => {
                let committed = header.original_commit_timestamp;
                record.open = Some(LastReceived { gtid: header.gtid, committed, bytes: 0 });
            }
            Placement::End => {
                let whole = record.open.take().expect("an open transaction");
                record.received.add(&whole.gtid);
                record.last = Some(whole);
            }
            Placement::PassedOver => panic!("handed over: {event:?}"),
            Placement::Body | Placement::Outside => record.events.push(event.event_type()),
        }
        Ok(())
    }

    async fn abandon(&mut self) -> Result<(), SinkError> {
        let mut record = self.0.lock();
        if record.failed {
            return Err(SinkError("the disk is gone".to_owned()));
        }
        let open = record.open.take();
        record.abandoned.extend(open.map(|open| open.gtid));
        Ok(())
    }

    async fn stored(&mut self) {}

    fn failed(&self) -> impl Future<Output = SinkError> + Send + use<> {
        let record = Arc::clone(&self.0);
        async move {
            while !record.lock().failed {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            SinkError("the disk is gone".to_owned())
        }
    }

    fn received(&self) -> GtidSet {
        self.0.lock().received.clone()
    }

    fn has_received(&self, gtid: &Gtid) -> bool {
        self.0.lock().received.contains(gtid)
    }

    fn last(&self) -> Option<LastReceived> {
        self.0.lock().last.clone()
    }

    fn safe(&self) -> Option<watch::Receiver<u64>> {
        self.0.lock().safe.as_ref().map(watch::Sender::subscribe)
    }
}

/// A running provider, and the address it connects to.
struct Bench {
    listener: TcpListener,
    status: Arc<SourceStatus>,
    sink: RecordingInlet,
    stop: CancellationToken,
    running: JoinHandle<Result<(), ReceptionEnd>>,
}

impl Bench {
    async fn start(options: SourceOptions) -> Self {
        Self::start_with(options, |provider| provider).await
    }

    async fn start_with(options: SourceOptions, change: impl FnOnce(Provider) -> Provider) -> Self {
        Self::start_into(RecordingInlet::default(), options, change).await
    }

    async fn start_into(
        sink: RecordingInlet,
        options: SourceOptions,
        change: impl FnOnce(Provider) -> Provider,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let status = Arc::<SourceStatus>::default();
        let stop = CancellationToken::new();
        let provider = Provider::new(SourceOptions { port, ..options }, Arc::clone(&status));
        let running = tokio::spawn(change(provider).run(sink.clone(), stop.clone()));
        Self { listener, status, sink, stop, running }
    }

    /// Returns the provider's next connection, unanswered.
    async fn connection(&self) -> FakeSource {
        let accepted = tokio::time::timeout(PATIENCE, self.listener.accept()).await;
        FakeSource::new(accepted.expect("a connection in time").unwrap().0)
    }

    /// The provider's next dump, and the GTID set it sent.
    async fn dump(&self) -> (FakeSource, GtidSet) {
        let mut source = self.connection().await;
        // It has what it sent.
        source.executed = self.sink.received().to_string();
        source.accept_login().await;
        let request = source.accept_dump("CRC32").await.pop().expect("a request");
        // Command, flags, server id, name length, position and set length precede the set.
        let set = GtidSet::decode(&request[1 + 2 + 4 + 4 + 8 + 4..]).expect("a set");
        source.event(format_description().raw()).await;
        (source, set)
    }

    async fn eventually(&self, what: &str, mut condition: impl FnMut(&SourceView) -> bool) {
        let started = Instant::now();
        while !condition(&self.status.view()) {
            assert!(started.elapsed() < PATIENCE, "{what}: {:?}", self.status.view());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// The error it ends with.
    async fn failure(self) -> Arc<Error> {
        let ended = tokio::time::timeout(PATIENCE, self.running).await.expect("an end in time");
        ended.expect("no panic").expect_err("a failure").error
    }

    /// Stops it, which is no error.
    async fn stop(self) {
        self.stop.cancel();
        let ended = tokio::time::timeout(PATIENCE, self.running).await.expect("an end in time");
        ended.expect("no panic").expect("stopped");
    }
}

async fn send_begin(source: &mut FakeSource, gno: u64) {
    source.event(gtid_event(&gtid(gno), 1).bytes()).await;
    source.event(query_event("db", "BEGIN").bytes()).await;
}

async fn send_transaction(source: &mut FakeSource, gno: u64) {
    send_begin(source, gno).await;
    source.event(event(EventType::XID, &[0; 8]).bytes()).await;
}

fn damaged_xid() -> Vec<u8> {
    let mut bytes = event(EventType::XID, &[0; 8]).bytes().to_vec();
    bytes[20] ^= 1;
    bytes
}

/// All ends of a link after which it may come back.
enum Cut {
    Connection,
    EndOfStream,
    Shutdown,
    Nonsense,
}

impl Cut {
    async fn make(self, mut source: FakeSource) {
        match self {
            Self::Connection => {}
            Self::EndOfStream => source.eof().await,
            Self::Shutdown => source.error(1053, "Server shutdown in progress").await,
            Self::Nonsense => source.send(b"nonsense").await,
        }
    }
}

#[tokio::test]
async fn an_unfinished_transaction_is_asked_for_again() {
    for cut in [Cut::Connection, Cut::EndOfStream, Cut::Shutdown, Cut::Nonsense] {
        let bench = Bench::start(options()).await;
        let (mut source, asked) = bench.dump().await;
        assert!(asked.is_empty());
        send_transaction(&mut source, 1).await;
        send_begin(&mut source, 2).await;
        bench.eventually("five events", |view| view.events_total == 1 + 3 + 2).await;
        cut.make(source).await;

        let (mut source, asked) = bench.dump().await;
        assert_eq!(asked, GtidSet::from_iter([gtid(1)]));
        assert_eq!(bench.sink.0.lock().abandoned, [gtid(2)]);
        send_transaction(&mut source, 2).await;
        bench.eventually("the whole transaction", |view| view.transactions_total == 2).await;
        assert_eq!(bench.sink.received(), GtidSet::from_iter([gtid(1), gtid(2)]));
        let view = bench.status.view();
        assert_eq!((view.connected, view.connects_total), (true, 2));
        assert_eq!(view.source_uuid.as_deref(), Some(SERVER_UUID));
        bench.stop().await;
    }
}

#[tokio::test]
async fn a_transaction_that_comes_again_ends_reception() {
    let bench = Bench::start(options()).await;
    let (mut source, _) = bench.dump().await;
    send_transaction(&mut source, 1).await;
    send_transaction(&mut source, 2).await;
    send_transaction(&mut source, 1).await;
    let error = bench.running.await.unwrap().unwrap_err().to_string();
    for words in [&gtid(1).to_string(), "history", "provision the target again"] {
        assert!(error.contains(words), "{words:?} is missing in {error}");
    }
    assert_eq!(bench.sink.received(), GtidSet::from_iter([gtid(1), gtid(2)]));
}

#[tokio::test]
async fn a_link_that_is_down_says_why() {
    let bench = Bench::start(SourceOptions { connect_retry: PATIENCE, ..options() }).await;
    let mut source = bench.connection().await;
    source.greet("caching_sha2_password", 0).await;
    source.login_packet().await;
    source.error(1045, "Access denied for user 'repl'").await;
    bench.eventually("an error", |view| view.last_error.is_some()).await;
    let view = bench.status.view();
    assert!(!view.connected);
    assert_eq!(view.last_error.as_deref(), Some("error 1045: Access denied for user 'repl'"));
    bench.stop().await;
}

#[tokio::test]
async fn damage_on_the_way_is_cured_by_asking_again() {
    let bench = Bench::start(options()).await;
    let (mut source, _) = bench.dump().await;
    send_begin(&mut source, 1).await;
    source.event(&damaged_xid()).await;
    let (mut source, asked) = bench.dump().await;
    assert!(asked.is_empty(), "{asked}");
    send_transaction(&mut source, 1).await;
    bench.eventually("the whole transaction", |view| view.transactions_total == 1).await;
    assert_eq!(bench.status.view().checksum_failures_total, 1);
    bench.stop().await;
}

#[tokio::test]
async fn damage_at_the_source_is_named_by_its_place() {
    let bench = Bench::start(options()).await;
    for _ in 0..2 {
        let (mut source, _) = bench.dump().await;
        send_begin(&mut source, 7).await;
        source.event(&damaged_xid()).await;
    }
    let text = bench.failure().await.to_string();
    for words in ["transaction 09090909-0909-0909-0909-090909090909:7", "checksum", "twice"] {
        assert!(text.contains(words), "{words:?} is missing in {text}");
    }
}

/// Two different damages do not prove damage at the source, even between the same two transactions.
#[tokio::test]
async fn two_accidents_in_an_idle_stream_are_cured_too() {
    let bench = Bench::start(options()).await;
    for (position, damaged_at) in [(4_u8, 20), (5, 25)] {
        let (mut source, _) = bench.dump().await;
        let checksum = ChecksumAlgorithm::Crc32;
        let heartbeat = event_bytes(EventType::HEARTBEAT, &[position; 13], checksum);
        source.event(&heartbeat).await;
        let mut damaged = heartbeat.to_vec();
        damaged[damaged_at] ^= 1;
        source.event(&damaged).await;
    }
    let (mut source, _) = bench.dump().await;
    send_transaction(&mut source, 1).await;
    bench.eventually("the stream continues", |view| view.transactions_total == 1).await;
    assert_eq!(bench.status.view().checksum_failures_total, 2);
    bench.stop().await;
}

#[tokio::test]
async fn a_source_that_gives_up_is_not_asked_again() {
    for (said, advice) in [
        ("the source purged required binary logs", "provision the target again"),
        ("Cannot replicate anonymous transaction", "gtid_mode=ON"),
    ] {
        let bench = Bench::start(options()).await;
        let (mut source, _) = bench.dump().await;
        send_transaction(&mut source, 3).await;
        source.error(1236, said).await;
        let status = Arc::clone(&bench.status);
        let text = bench.failure().await.to_string();
        let address = status.view().address;
        for words in [&address, "090909:3", said, advice] {
            assert!(text.contains(words), "{words:?} is missing in {text}");
        }
        assert!(!status.view().connected);
    }
}

#[tokio::test]
async fn a_silent_source_is_left_and_asked_again() {
    let heartbeat_interval = Duration::from_millis(50);
    let bench = Bench::start(SourceOptions { heartbeat_interval, ..options() }).await;
    let (_silent, _) = bench.dump().await;
    bench.eventually("the link is dead", |view| !view.connected && view.events_total == 1).await;
    let error = bench.status.view().last_error.expect("a reason");
    assert!(error.contains("heartbeats included"), "{error}");
    let (mut source, _) = bench.dump().await;
    send_transaction(&mut source, 1).await;
    bench.eventually("the stream continues", |view| view.transactions_total == 1).await;
    bench.stop().await;
}

/// Returns the pauses before each of the next connections, all of which fail.
async fn pauses(bench: &Bench, count: usize) -> Vec<Duration> {
    let mut pauses = Vec::new();
    let mut last = Instant::now();
    for _ in 0..count {
        drop(bench.connection().await);
        pauses.push(last.elapsed());
        last = Instant::now();
    }
    pauses
}

/// A pause of this length, with jitter; anything above is due to the machine.
fn assert_pause(found: Duration, pause: Duration) {
    assert!(found >= pause.mul_f64(0.7), "{found:?} is not {pause:?}");
    assert!(found < pause.mul_f64(1.25) + Duration::from_millis(700), "{found:?} is not {pause:?}");
}

#[tokio::test]
async fn pauses_double_to_their_longest_and_begin_anew_after_a_link() {
    let ms = Duration::from_millis;
    let retry = SourceOptions { connect_retry: ms(10), connect_retry_max: ms(800), ..options() };
    let bench = Bench::start(retry).await;
    let found = pauses(&bench, 10).await;
    // The first attempt needs no pause; without a limit the last would be 2.56 s.
    for (found, pause) in found.into_iter().skip(1).zip([10, 20, 40, 80, 160, 320, 640, 800, 800]) {
        assert_pause(found, ms(pause));
    }
    drop(bench.dump().await);
    let again = pauses(&bench, 1).await[0];
    assert!(again < ms(550), "{again:?} after a link that was good");
    bench.stop().await;
}
