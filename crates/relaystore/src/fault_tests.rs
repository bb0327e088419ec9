//! Faults of the disk under the writer, which must not lose anything.

use std::any::Any;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use csa_provider::{GtidSet, TransactionSink as _};
use parking_lot::Mutex;

use crate::fs::{FileSystem, RealFs, StoredFile};
use crate::tests::{NOW, SOON, bytes_of, gtid, options, read, transaction, write};
use crate::{Error, RelayStore, SyncPolicy};

/// The next behaviour of the disk.
#[derive(Debug, Default)]
struct Faults {
    /// Bytes that may still be written; `None` for any number.
    space: Option<u64>,
    /// Each call writes at most this much.
    write_max: Option<usize>,
    fail_sync: bool,
    /// Free bytes the file system reports.
    free: Option<u64>,
    /// Lengths up to which files are synced.
    synced: Vec<(PathBuf, u64)>,
}

#[derive(Debug, Clone, Default)]
struct FaultFs(Arc<Mutex<Faults>>);

#[derive(Debug)]
struct FaultFile {
    file: Box<dyn StoredFile>,
    path: PathBuf,
    faults: Arc<Mutex<Faults>>,
}

impl FaultFs {
    fn file(
        &self,
        file: io::Result<Box<dyn StoredFile>>,
        path: &Path,
    ) -> io::Result<Box<dyn StoredFile>> {
        let (path, faults) = (path.to_owned(), Arc::clone(&self.0));
        Ok(Box::new(FaultFile { file: file?, path, faults }))
    }

    /// Leaves only synced bytes, like a power failure.
    fn lose_power(&self, directory: &Path) {
        for (path, synced) in &self.0.lock().synced {
            if path.starts_with(directory)
                && let Ok(file) = File::options().write(true).open(path)
            {
                file.set_len(*synced).expect("cut");
            }
        }
    }
}

impl FileSystem for FaultFs {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        RealFs.create_directory(path)
    }

    fn names(&self, directory: &Path) -> io::Result<Vec<OsString>> {
        RealFs.names(directory)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        RealFs.lock(path)
    }

    fn make_private(&self, path: &Path) {
        RealFs.make_private(path);
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn StoredFile>> {
        self.file(RealFs.create(path), path)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn StoredFile>> {
        RealFs.open(path)
    }

    fn open_for_writing(&self, path: &Path) -> io::Result<Box<dyn StoredFile>> {
        self.file(RealFs.open_for_writing(path), path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealFs.remove(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        RealFs.sync_directory(path)
    }

    fn free_bytes(&self, path: &Path) -> u64 {
        self.0.lock().free.unwrap_or_else(|| RealFs.free_bytes(path))
    }
}

impl StoredFile for FaultFile {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(into, offset)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut faults = self.faults.lock();
        let mut len = bytes.len().min(faults.write_max.unwrap_or(usize::MAX));
        if let Some(space) = faults.space.as_mut() {
            len = len.min(usize::try_from(*space).expect("small"));
            *space -= len as u64;
            if len == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        self.file.write_at(&bytes[..len], offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut faults = self.faults.lock();
        if faults.fail_sync {
            return Err(io::Error::other("the disk is gone"));
        }
        let len = self.file.len()?;
        faults.synced.retain(|(path, _)| *path != self.path);
        faults.synced.push((self.path.clone(), len));
        Ok(())
    }
}

fn open(directory: &Path, sync: SyncPolicy, faults: &FaultFs) -> RelayStore {
    let files = Arc::new(faults.clone());
    let options = crate::RelayStoreOptions { sync, files, ..options(directory) };
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
    let directory = tempfile::tempdir().expect("temp dir");
    let faults = FaultFs::default();
    let store = open(directory.path(), SyncPolicy::Transaction, &faults);
    let mut inlet = store.inlet();
    write(&mut inlet, [(1, vec![10])]).await;
    let mut reader = store.reader(GtidSet::new());
    assert_eq!(read(&mut reader, SOON), Some((1, bytes_of(1, &[10]))));
    faults.0.lock().fail_sync = true;
    write(&mut inlet, [(2, vec![10])]).await;
    let mut refused = None;
    for _ in 0..500 {
        let (event, placement) = transaction(3, &[]).remove(0);
        refused = inlet.append(event, placement).await.err();
        if refused.is_some() {
            break;
        }
        inlet.abandon().await.ok();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let refused = refused.expect("the writer ended").to_string();
    assert!(refused.contains("syncing") && refused.contains("segment-"), "{refused}");
    assert_eq!(read(&mut reader, NOW), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn short_writes_are_gone_on_with() {
    let directory = tempfile::tempdir().expect("temp dir");
    let faults = FaultFs::default();
    faults.0.lock().write_max = Some(7);
    let store = open(directory.path(), SyncPolicy::Os, &faults);
    let mut inlet = store.inlet();
    write(&mut inlet, (1..=9).map(|gno| (gno, vec![100, 500]))).await;
    drop(inlet);
    drop(store);
    let store = open(directory.path(), SyncPolicy::Os, &FaultFs::default());
    let mut reader = store.reader(GtidSet::new());
    for gno in 1..=9 {
        assert_eq!(read(&mut reader, SOON), Some((gno, bytes_of(gno, &[100, 500]))));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_loses_nothing() {
    for space in [0, 1, 50, 700, 1500, 2500, 4000, 6000] {
        let directory = tempfile::tempdir().expect("temp dir");
        let faults = FaultFs::default();
        let store = open(directory.path(), SyncPolicy::Transaction, &faults);
        faults.0.lock().space = Some(space);
        let mut inlet = store.inlet();
        let writing = tokio::spawn(async move {
            write(&mut inlet, (1..=9).map(|gno| (gno, vec![100, 900]))).await;
            inlet
        });
        until(|| store.usage().waiting.is_some_and(|text| text.contains("full disk"))).await;
        let mut reader = store.reader(GtidSet::new());
        let mut seen = 0;
        while let Some((gno, bytes)) = read(&mut reader, NOW) {
            seen += 1;
            assert_eq!((gno, bytes), (seen, bytes_of(seen, &[100, 900])));
        }
        assert!(seen < 9);
        faults.0.lock().space = None;
        for gno in seen + 1..=9 {
            assert_eq!(read(&mut reader, SOON), Some((gno, bytes_of(gno, &[100, 900]))));
        }
        let inlet = writing.await.expect("all written");
        assert!(store.usage().waiting.is_none());
        drop((inlet, reader, store));
        let store = open(directory.path(), SyncPolicy::Os, &FaultFs::default());
        assert_eq!(store.received().count(), 9);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn under_the_floor_reception_waits_and_can_be_stopped() {
    let directory = tempfile::tempdir().expect("temp dir");
    let faults = FaultFs::default();
    faults.0.lock().free = Some(100);
    let files = Arc::new(faults.clone());
    let options =
        crate::RelayStoreOptions { min_free_disk: 1000, files, ..options(directory.path()) };
    let (store, _) = RelayStore::open(options, &GtidSet::new()).expect("opens");
    let mut inlet = store.inlet();
    write(&mut inlet, [(1, vec![10])]).await;
    until(|| store.usage().waiting.is_some_and(|text| text.contains("min_free_disk"))).await;
    assert_eq!(store.usage().free_disk, None);
    store.measure_disk();
    assert_eq!((store.usage().free_disk, store.usage().min_free_disk), (Some(100), 1000));
    faults.0.lock().free = Some(1 << 40);
    let mut reader = store.reader(GtidSet::new());
    assert_eq!(read(&mut reader, SOON), Some((1, bytes_of(1, &[10]))));
    faults.0.lock().free = Some(100);
    write(&mut inlet, [(2, vec![10])]).await;
    until(|| store.usage().waiting.is_some()).await;
    // Transactions that readers can't see are not received.
    assert_eq!((store.received_so_far().count(), store.received().count()), (1, 0));
    drop((inlet, reader, store));
    let store = open(directory.path(), SyncPolicy::Os, &FaultFs::default());
    assert_eq!(store.received().count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_power_failure_takes_nothing_that_was_shown() {
    let directory = tempfile::tempdir().expect("temp dir");
    let faults = FaultFs::default();
    let store = open(directory.path(), SyncPolicy::Transaction, &faults);
    let mut inlet = store.inlet();
    write(&mut inlet, (1..=9).map(|gno| (gno, vec![100, 500]))).await;
    for (event, placement) in transaction(10, &[700, 700, 700]).into_iter().take(4) {
        inlet.append(event, placement).await.expect("room");
    }
    let mut reader = store.reader(GtidSet::new());
    for gno in 1..=9 {
        assert_eq!(read(&mut reader, SOON), Some((gno, bytes_of(gno, &[100, 500]))));
    }
    // The inlet syncs when it ends, so the power fails before that.
    faults.0.lock().fail_sync = true;
    drop((inlet, reader, store));
    faults.lose_power(directory.path());
    let store = open(directory.path(), SyncPolicy::Transaction, &FaultFs::default());
    assert_eq!(store.received(), &(1..=9).map(gtid).collect::<GtidSet>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_segment_cut_between_transactions_is_missed() {
    let directory = tempfile::tempdir().expect("temp dir");
    let faults = FaultFs::default();
    let store = open(directory.path(), SyncPolicy::Os, &faults);
    let mut inlet = store.inlet();
    write(&mut inlet, (1..=12).map(|gno| (gno, vec![400]))).await;
    let mut reader = store.reader(GtidSet::new());
    let mut ends = Vec::new();
    for _ in 1..=12 {
        ends.push(reader.next(SOON).expect("undamaged").expect("arrives").end);
    }
    drop((inlet, reader, store));
    let second = ends[1];
    assert_eq!((second.segment, ends[2].segment), (1, 1));
    let path = directory.path().join("segment-0000000000000001.relay");
    File::options().write(true).open(path).expect("opens").set_len(second.offset).expect("cut");
    let store = open(directory.path(), SyncPolicy::Os, &faults);
    let mut reader = store.reader(GtidSet::new());
    assert!(read(&mut reader, NOW).is_some() && read(&mut reader, NOW).is_some());
    let error = reader.next(NOW).expect_err("transaction 3 is missing");
    assert!(matches!(error, Error::Damaged { transaction, .. } if transaction == second));
}
