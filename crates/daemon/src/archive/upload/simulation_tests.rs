//! Archives from seeds: an object store that fails, forgets its answers and lies, and daemons that are killed or work side by
//! side. At the end every transaction is archived once, in order, or a gap says which is not.
//! `CSA_ARCHIVE_SEEDS=FIRST-LAST` gives it more.

mod full;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use csa_provider::binlog::{EventType, Gtid, GtidSet, Tag, TransactionHeader, Uuid};
use csa_provider::seams::planted::Plant;
use csa_provider::source::{Placement, TransactionSink as _};
use csa_provider::test_util::{event, format_description, gtid_event};
use csa_relaystore::disk::{MemoryFs, RelayStoreOptions, SyncPolicy};
use csa_relaystore::write::RelayInlet;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt as _, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result as StoreResult,
};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::task::JoinHandle;

use super::*;
use crate::archive::index::{self, Compression, FileIndex};
use crate::archive::replay::FileReader;
use crate::archive::store::ArchiveLocation;

/// Nothing, or what is wrong with an archive.
type Judgement = std::result::Result<(), String>;

/// Transactions of a run.
const TRANSACTIONS: u64 = 60;
/// Virtual time after which the store has no more faults: reception that waits for room would else see them for days.
const FAULTS_FOR: Duration = Duration::from_secs(20_000);
/// Virtual time after which reception that still waits for the archive waits for ever.
const ENDLESS: Duration = Duration::from_secs(86_400);

/// A store in memory with the faults of a seed.
#[derive(Debug)]
struct FaultyStore {
    inner: Arc<InMemory>,
    /// The place of the mount without it.
    below: InMemory,
    mount: Option<Mutex<MountState>>,
    random: Mutex<StdRng>,
    /// One in so many requests has a fault; 0 for none.
    faults: Mutex<u32>,
    begun: Instant,
    lies: bool,
    /// It is full with so many objects.
    room: Mutex<Option<usize>>,
}

/// The moments at which the mount goes or comes back next.
#[derive(Debug)]
struct MountState {
    is_mounted: bool,
    changes: Instant,
    /// A history that begins below the mount is lost with it: the first file is to be there before.
    has_file: bool,
}

impl FaultyStore {
    /// Returns the place that a request of this moment reaches.
    fn place(&self) -> &InMemory {
        let Some(mount) = &self.mount else { return &self.inner };
        let mut mount = mount.lock();
        let may_go = mount.has_file && self.faults() > 0;
        if Instant::now() >= mount.changes && (may_go || !mount.is_mounted) {
            mount.is_mounted = !mount.is_mounted;
            let stays = if mount.is_mounted { 100..3_000 } else { 10..400 };
            let stays = self.random.lock().random_range(stays);
            mount.changes = Instant::now() + Duration::from_millis(stays);
        }
        if mount.is_mounted { &self.inner } else { &self.below }
    }

    fn faults(&self) -> u32 {
        if self.begun.elapsed() < FAULTS_FOR { *self.faults.lock() } else { 0 }
    }

    fn chance(&self) -> bool {
        let faults = self.faults();
        faults > 0 && self.random.lock().random_ratio(1, faults)
    }

    fn fault() -> Error {
        Error::Generic { store: "faulty", source: "no answer".into() }
    }
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("faulty")
    }
}

#[async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> StoreResult<PutResult> {
        let pause = self.random.lock().random_range(0..400);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let room = *self.room.lock();
        if let Some(room) = room
            && self.inner.list(None).count().await >= room
        {
            return Err(Self::fault());
        }
        if self.chance() {
            if self.mount.is_none() && self.random.lock().random() {
                // Its client gives up, and it carries out the request later.
                let (inner, path) = (Arc::clone(&self.inner), path.clone());
                let late = Duration::from_millis(self.random.lock().random_range(0..20_000));
                tokio::spawn(async move {
                    tokio::time::sleep(late).await;
                    drop(inner.put_opts(&path, payload, options).await);
                });
            }
            return Err(Self::fault());
        }
        if self.lies && self.chance() {
            // It says yes, and keeps nothing, or a part.
            let half = payload.content_length() / 2;
            if self.random.lock().random() && options.mode != PutMode::Create {
                let bytes: Vec<u8> = payload.iter().flatten().copied().take(half).collect();
                self.place().put(path, bytes.into()).await?;
            }
            return Ok(PutResult { e_tag: None, version: None, extensions: Default::default() });
        }
        let is_index =
            !path.as_ref().contains(layout::HISTORIES) && path.as_ref().ends_with(".json");
        let put = self.place().put_opts(path, payload, options).await;
        if let Some(mount) = self.mount.as_ref().filter(|_| is_index) {
            mount.lock().has_file = true;
        }
        if self.chance() {
            // It is written, or not, and the answer is lost.
            return Err(Self::fault());
        }
        put
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> StoreResult<Box<dyn MultipartUpload>> {
        self.place().put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> StoreResult<GetResult> {
        tokio::time::sleep(Duration::from_millis(5)).await;
        if self.chance() {
            return Err(Self::fault());
        }
        self.place().get_opts(path, options).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, StoreResult<Path>>,
    ) -> BoxStream<'static, StoreResult<Path>> {
        self.place().delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, StoreResult<ObjectMeta>> {
        if self.chance() {
            return futures_util::stream::once(async { Err(Self::fault()) }).boxed();
        }
        self.place().list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> StoreResult<ListResult> {
        if self.chance() {
            return Err(Self::fault());
        }
        self.place().list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> StoreResult<()> {
        self.place().copy_opts(from, to, options).await
    }
}

fn gtid(gno: u64) -> Gtid {
    Gtid { uuid: Uuid::from_bytes([3; 16]), tag: Tag::untagged(), gno }
}

fn up_to(last: u64) -> GtidSet {
    let mut set = GtidSet::new();
    for gno in 1..=last {
        set.add(&gtid(gno));
    }
    set
}

struct World {
    random: StdRng,
    store: Arc<FaultyStore>,
    relay: Arc<RelayStore>,
    inlet: RelayInlet,
    /// The source has these.
    executed: GtidSet,
    options: ArchiveOptions,
    uploaders: Vec<JoinHandle<()>>,
    status: Arc<ArchiveStatus>,
    state: tempfile::TempDir,
    /// Microseconds since the epoch from which commits count their seconds.
    origin: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let limit = if random.random_ratio(1, 3) { 12_000 } else { 0 };
        let is_alone = seed.is_multiple_of(3);
        let relay = RelayStoreOptions {
            directory: "/relay".into(),
            segment_size: 2000,
            space_limit: limit,
            min_free_disk: 0,
            sync: SyncPolicy::Os,
            archived: !is_alone,
            tail_bytes: 1500,
            frame_bytes: 300,
            wake_bytes: RelayStoreOptions::WAKE_BYTES,
            files: Arc::new(MemoryFs::new(seed)),
        };
        let (relay, _) = RelayStore::open(relay, &GtidSet::new()).expect("opens");
        let (inlet, writer) = relay.inlet_and_writer();
        tokio::spawn(writer.run());
        let options = ArchiveOptions {
            location: ArchiveLocation::default(),
            interval: Duration::from_secs(random.random_range(1..4)),
            keep: None,
            is_required: random.random::<bool>() || is_alone,
            is_alone,
            compression: if random.random() { Compression::Zstd } else { Compression::None },
            file_size: random.random_range(500..4000),
        };
        let faults = random.random_range(4..20);
        let store = FaultyStore {
            inner: Arc::default(),
            below: InMemory::new(),
            mount: seed.is_multiple_of(2).then(|| {
                let (is_mounted, changes) = (true, Instant::now());
                Mutex::new(MountState { is_mounted, changes, has_file: false })
            }),
            random: Mutex::new(StdRng::seed_from_u64(seed ^ 1)),
            faults: Mutex::new(faults),
            begun: Instant::now(),
            lies: random.random_ratio(1, 2),
            room: Mutex::default(),
        };
        Self {
            random,
            store: Arc::new(store),
            relay: Arc::new(relay),
            inlet,
            executed: up_to(TRANSACTIONS),
            options,
            uploaders: Vec::new(),
            status: Arc::default(),
            state: tempfile::tempdir().expect("a directory"),
            origin: 0,
        }
    }

    fn archive(&self) -> Archive {
        Archive::over(Arc::clone(&self.store) as Arc<dyn ObjectStore>, "test")
    }

    /// Starts a daemon's uploader.
    fn upload(&mut self) {
        let source = Arc::new(SourceStatus::default());
        source.set_executed(self.executed.clone());
        let (archive, options) = (self.archive(), self.options.clone());
        let (relay, status) = (Arc::clone(&self.relay), Arc::clone(&self.status));
        let marker = MarkerFile::in_directory(self.state.path());
        let begin = move || {
            let (relay, source, status) = (relay.clone(), source.clone(), status.clone());
            let marker = marker.clone();
            Uploader::over(archive.clone(), &options, "test", marker, relay, source, status)
        };
        // Without a target one that is overtaken ends, and an operator restarts it.
        let run = async move {
            while begin().run(CancellationToken::new()).await.is_err() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        self.uploaders.push(tokio::spawn(run));
    }

    async fn receive_format(&mut self) {
        let format = csa_provider::binlog::RawEvent::trusted(
            format_description().raw().clone(),
            csa_provider::binlog::ChecksumAlgorithm::Crc32,
        );
        self.inlet.append(format.expect("well-formed"), Placement::Outside).await.expect("room");
    }

    async fn receive(&mut self, gno: u64, size: usize) {
        let begin = gtid_event(&gtid(gno), self.origin + gno * 1_000_000);
        let header = TransactionHeader::parse(&begin).expect("well-formed");
        let body = event(EventType::WRITE_ROWS, &vec![gno as u8; size]);
        let end = event(EventType::XID, &gno.to_le_bytes());
        for (event, placement) in
            [(begin, Placement::Begin(header)), (body, Placement::Body), (end, Placement::End)]
        {
            self.inlet.append(event, placement).await.expect("room");
        }
    }

    /// The target commits everything that was received, now and then.
    fn commit(&self) -> JoinHandle<()> {
        let (relay, is_alone) = (Arc::clone(&self.relay), self.options.is_alone);
        tokio::spawn(async move {
            if is_alone {
                return;
            }
            let mut reader = relay.reader(GtidSet::new());
            loop {
                tokio::time::sleep(Duration::from_millis(700)).await;
                while let Some(transaction) = reader.next_now().expect("readable") {
                    relay.release(transaction.end);
                }
            }
        })
    }

    async fn run(mut self) -> Judgement {
        self.receive_format().await;
        let committing = self.commit();
        self.upload();
        for gno in 1..=TRANSACTIONS {
            let size = self.random.random_range(10..900);
            self.receive(gno, size).await;
            if self.random.random_ratio(1, 2) {
                let pause = self.random.random_range(0..3000);
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
            if self.random.random_ratio(1, 12) {
                // Killed, or not: then there are two.
                if self.random.random_ratio(2, 3)
                    && let Some(uploader) = self.uploaders.pop()
                {
                    uploader.abort();
                }
                self.upload();
            }
        }
        self.inlet.stored().await;
        // The good days.
        *self.store.faults.lock() = 0;
        for _ in 0..600 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if self.status.view(0, 0).is_some_and(|view| view.lag_seconds == Some(0.0)) {
                break;
            }
        }
        tokio::time::sleep(Duration::from_secs(200)).await;
        committing.abort();
        for uploader in &self.uploaders {
            uploader.abort();
        }
        self.judge().await
    }

    /// Waits until these transactions are archived.
    async fn archived(&mut self, expected: &GtidSet) {
        self.inlet.stored().await;
        for _ in 0..3000 {
            if self.status.archived().as_ref() == Some(expected) {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        panic!("{expected}: {:?}", self.status.view(0, 0));
    }

    /// Reads the archive as a restore does.
    async fn judge(&self) -> Judgement {
        let archive = self.archive();
        let of = |error: ArchiveError| error.to_string();
        let histories = archive.histories().await.map_err(of)?;
        let [history] = &histories[..] else { return Err(format!("histories {histories:?}")) };
        let history = archive.history(history);
        let mut before: Option<FileIndex> = None;
        let mut archived = Vec::new();
        let mut missing = GtidSet::new();
        for number in history.objects().await.map_err(of)?.numbers {
            let file = history.index(number).await.map_err(of)?.ok_or("a hole")?;
            if let Some(why) = before.as_ref().and_then(|before| index::follows(before, &file)) {
                return Err(why);
            }
            missing.union(&file.missing);
            let mut reader = FileReader::open(&history, file.clone()).await.map_err(of)?;
            while let Some(event) = reader.next().await.map_err(of)? {
                if let Ok(header) = TransactionHeader::parse(&event) {
                    archived.push(header.gtid.gno);
                }
            }
            before = Some(file);
        }
        if !missing.is_empty() && self.options.is_required {
            return Err(format!("a gap of {missing} in an archive that is required"));
        }
        let begin = history.begins_after().await.map_err(of)?;
        let expected: Vec<u64> = (1..=TRANSACTIONS)
            .filter(|&gno| !missing.contains(&gtid(gno)) && !begin.contains(&gtid(gno)))
            .collect();
        // A store that did not answer before the first file has no history to note a gap in.
        if !begin.is_empty() && self.options.is_required {
            return Err(format!("it begins after {begin}"));
        }
        match archived == expected {
            true => Ok(()),
            false => Err(format!("archived {archived:?}, missing {missing}")),
        }
    }
}

/// Returns a runtime whose time passes as fast as it can.
fn runtime() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread();
    { runtime }.enable_all().start_paused(true).build().expect("a runtime")
}

/// Runs a seed; a bug counts as found if an archive is wrong.
fn seed(seed: u64, bug: Option<Bug>) -> Judgement {
    let _plant = bug.map(Plant::new);
    runtime().block_on(async {
        let ended = tokio::time::timeout(ENDLESS, World::new(seed).run()).await;
        ended.unwrap_or_else(|_| Err("reception waits for ever".to_owned()))
    })
}

#[test]
fn every_transaction_is_archived_once_or_a_gap_says_so() {
    let range = std::env::var("CSA_ARCHIVE_SEEDS").ok();
    let range = range.as_deref().and_then(|range| range.split_once('-'));
    let number = |text: &str| text.parse().expect("a number");
    let (first, last) = range.map_or((1, 40), |(first, last)| (number(first), number(last)));
    for of in first..=last {
        seed(of, None).unwrap_or_else(|why| panic!("seed {of}: {why}"));
    }
}

#[test]
fn planted_bugs_are_found() {
    for bug in [
        Bug::ArchivedTooEarly,
        Bug::ObjectStoreBelieved,
        Bug::ArchiveOverwritten,
        Bug::ArchiveGapUnnoticed,
        Bug::MountTrusted,
    ] {
        let found = (1..=60).any(|of| seed(of, Some(bug)).is_err());
        assert!(found, "{bug:?} was not found");
    }
}
