//! One life of a daemon's process: it can end between any two effects on its disk and its target, and
//! nothing that it still tries afterwards happens.

use std::any::Any;
use std::ffi::OsString;
use std::hash::Hasher as _;
use std::io;
use std::path::Path;
use std::sync::Arc;

use csa_applier::{Answer, Connector, Linked, Pending, TargetLink, TargetOptions};
use csa_provider::server::link::{Limits, NextRows, Row, RowPart};
use csa_relaystore::disk::{FileSystem, MemoryFs, StoredFile};
use parking_lot::Mutex;
use tokio::time::{Duration, Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::target::Server;

/// Shared by everything that has effects; clones are the same life.
#[derive(Debug, Clone)]
pub(crate) struct Life {
    shared: Arc<Mutex<Shared>>,
    ended: CancellationToken,
}

#[derive(Debug)]
struct Shared {
    /// Effects until it ends; `None` for no such end.
    left: Option<u64>,
    began: Instant,
    /// It does nothing on its target until then.
    stalled_until: Option<Instant>,
    /// Of everything that it did, to compare two runs.
    digest: std::hash::DefaultHasher,
}

impl Life {
    pub(crate) fn new(left: Option<u64>) -> Self {
        let digest = std::hash::DefaultHasher::new();
        let shared = Shared { left, began: Instant::now(), stalled_until: None, digest };
        Self { shared: Arc::new(Mutex::new(shared)), ended: CancellationToken::new() }
    }

    /// Waits for its end in the middle of something.
    pub(crate) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    pub(crate) fn is_over(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Ends it here and now.
    pub(crate) fn end(&self) {
        self.ended.cancel();
    }

    /// For this time nothing passes between it and its target, and neither learns of it.
    pub(crate) fn stall(&self, time: Duration) {
        self.shared.lock().stalled_until = Some(Instant::now() + time);
    }

    async fn unstalled(&self) {
        let until = self.shared.lock().stalled_until;
        if let Some(until) = until.filter(|&until| until > Instant::now()) {
            sleep_until(until).await;
        }
    }

    pub(crate) fn digest(&self) -> u64 {
        self.shared.lock().digest.finish()
    }

    /// Returns false if the process no longer exists.
    fn effect(&self, what: &str, of: &[u8]) -> bool {
        if self.is_over() {
            return false;
        }
        let mut shared = self.shared.lock();
        let at = shared.began.elapsed();
        shared.digest.write_u128(at.as_micros());
        shared.digest.write(what.as_bytes());
        shared.digest.write(of);
        match &mut shared.left {
            Some(0) => self.end(),
            Some(left) => *left -= 1,
            None => {}
        }
        !self.is_over()
    }

    fn disk(&self, what: &str, of: &[u8]) -> io::Result<()> {
        self.effect(what, of).then_some(()).ok_or_else(|| io::Error::other("the process is gone"))
    }

    fn look(&self) -> io::Result<()> {
        (!self.is_over()).then_some(()).ok_or_else(|| io::Error::other("the process is gone"))
    }
}

/// The machine's disk, which outlives the process.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) life: Life,
    pub(crate) files: MemoryFs,
}

impl Disk {
    fn file(&self, file: Box<dyn StoredFile>) -> Box<dyn StoredFile> {
        Box::new(File { life: self.life.clone(), file })
    }
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}

impl FileSystem for Disk {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.life.disk("mkdir", bytes(path))?;
        self.files.create_directory(path)
    }

    fn names(&self, directory: &Path) -> io::Result<Vec<OsString>> {
        self.life.look()?;
        self.files.names(directory)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.life.disk("sync directory", bytes(path))?;
        self.files.sync_directory(path)
    }

    fn free_bytes(&self, directory: &Path) -> u64 {
        self.files.free_bytes(directory)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        self.life.look()?;
        self.files.lock(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn StoredFile>> {
        self.life.disk("create", bytes(path))?;
        Ok(self.file(self.files.create(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn StoredFile>> {
        self.life.look()?;
        Ok(self.file(self.files.open(path)?))
    }

    fn open_for_writing(&self, path: &Path) -> io::Result<Box<dyn StoredFile>> {
        self.life.look()?;
        Ok(self.file(self.files.open_for_writing(path)?))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.life.disk("remove", bytes(path))?;
        self.files.remove(path)
    }

    fn make_private(&self, path: &Path) {
        self.files.make_private(path);
    }
}

#[derive(Debug)]
struct File {
    life: Life,
    file: Box<dyn StoredFile>,
}

impl StoredFile for File {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.life.look()?;
        self.file.read_at(into, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.life.disk("write", bytes)?;
        self.file.write_at(bytes, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.life.disk("cut", &len.to_le_bytes())?;
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.life.disk("sync", &[])?;
        self.file.sync_data()
    }

    fn size(&self) -> io::Result<u64> {
        self.life.look()?;
        self.file.size()
    }
}

/// The process's connections to the target.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) life: Life,
    pub(crate) server: Server,
}

impl Connector for Door {
    fn connect<'a>(
        &'a self,
        target: &'a TargetOptions,
    ) -> Pending<'a, csa_applier::Result<Box<dyn TargetLink>>> {
        Box::pin(async move {
            self.life.unstalled().await;
            if !self.life.effect("connect", &[]) {
                return std::future::pending().await;
            }
            let link = self.server.connect(target).await?;
            let link: Box<dyn TargetLink> = Box::new(Link { life: self.life.clone(), link });
            Ok(link)
        })
    }
}

#[derive(Debug)]
struct Link {
    life: Life,
    link: Box<dyn TargetLink>,
}

impl TargetLink for Link {
    fn id(&self) -> u32 {
        self.link.id()
    }

    fn begin<'a>(&'a mut self, statements: &'a [u8]) -> Pending<'a, Linked<()>> {
        Box::pin(async {
            self.life.unstalled().await;
            match self.life.effect("statements", statements) {
                true => self.link.begin(statements).await,
                false => std::future::pending().await,
            }
        })
    }

    fn answers(&mut self, limits: Limits, least: usize) -> Pending<'_, Linked<Vec<Answer>>> {
        Box::pin(async move {
            let answers = match self.life.is_over() {
                false => self.link.answers(limits, least).await,
                true => std::future::pending().await,
            };
            self.life.unstalled().await;
            answers
        })
    }

    fn query<'a>(&'a mut self, query: &'a str, limits: Limits) -> Pending<'a, Linked<Vec<Row>>> {
        Box::pin(async move {
            self.life.unstalled().await;
            let rows = match self.life.effect("query", query.as_bytes()) {
                true => self.link.query(query, limits).await,
                false => std::future::pending().await,
            };
            self.life.unstalled().await;
            rows
        })
    }

    fn next_rows(&mut self, part: RowPart) -> Pending<'_, Linked<NextRows>> {
        Box::pin(async move {
            let rows = match self.life.is_over() {
                false => self.link.next_rows(part).await,
                true => std::future::pending().await,
            };
            self.life.unstalled().await;
            rows
        })
    }

    fn take_several(&mut self, several: bool) -> Pending<'_, Linked<()>> {
        Box::pin(async move {
            match self.life.is_over() {
                false => self.link.take_several(several).await,
                true => std::future::pending().await,
            }
        })
    }

    fn quit(self: Box<Self>) -> Pending<'static, ()> {
        self.link.quit()
    }
}
