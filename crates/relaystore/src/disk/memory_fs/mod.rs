//! A disk in memory, for tests and simulations: it loses at a crash what was not synced, sector by
//! sector, and refuses what it is set to refuse. Equal seeds and operations give equal contents.

mod inode;
mod random;

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::disk::fs::{FileSystem, StoredFile};
use inode::Inode;
#[cfg(test)]
pub(crate) use random::Random;
#[cfg(not(test))]
use random::Random;

const EIO: i32 = 5;

/// A file system in memory; clones are the same one.
#[derive(Debug, Clone)]
pub struct MemoryFs(Arc<Mutex<Disk>>);

/// The disk's behaviour from now on.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Bytes that all files may have together.
    pub capacity: Option<u64>,
    /// The most bytes that one call writes.
    pub write_max: Option<usize>,
    /// Every write fails, and not for lack of space.
    pub refuse_writes: bool,
    /// Reading this file fails.
    pub unreadable: Option<PathBuf>,
    /// Every sync of a file fails. Of what it should have made durable, some is lost for good.
    pub fail_syncs: bool,
    /// The number of changes until the power fails: after them nothing succeeds any more, not even
    /// reading, until [`MemoryFs::crash`].
    pub power_fails_after: Option<u64>,
}

#[derive(Debug)]
struct Disk {
    /// Files by name, as programs see them.
    names: BTreeMap<PathBuf, File>,
    /// The names that certainly survive a crash.
    durable: BTreeMap<PathBuf, File>,
    directories: BTreeSet<PathBuf>,
    /// Held locks, with a number for each holder.
    locks: BTreeMap<PathBuf, u64>,
    holders: u64,
    /// The number of crashes: what was opened before the last one is of no use any more.
    life: u64,
    faults: Faults,
    random: Random,
}

type File = Arc<Mutex<Inode>>;

#[derive(Debug)]
struct OpenFile {
    disk: Arc<Mutex<Disk>>,
    life: u64,
    file: File,
}

#[derive(Debug)]
struct HeldLock {
    disk: Arc<Mutex<Disk>>,
    path: PathBuf,
    holder: u64,
}

impl MemoryFs {
    /// Returns an empty disk. The seed decides what a failed sync loses.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Disk {
            names: BTreeMap::new(),
            durable: BTreeMap::new(),
            directories: BTreeSet::new(),
            locks: BTreeMap::new(),
            holders: 0,
            life: 0,
            faults: Faults::default(),
            random: Random::new(seed),
        })))
    }

    /// Changes the disk's behaviour.
    pub fn inject(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.0.lock().faults);
    }

    /// Returns the disk's behaviour now.
    #[must_use]
    pub fn faults(&self) -> Faults {
        self.0.lock().faults.clone()
    }

    /// Returns the bytes of all files.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.0.lock().used()
    }

    /// The power fails and returns; the disk works again. Synced contents and names are there. Of
    /// the sectors written since, and of the names created or removed since, the seed decides which
    /// have reached the disk. Locks are free, and files opened before fail.
    pub fn crash(&self, seed: u64) {
        let mut disk = self.0.lock();
        let mut random = Random::new(seed);
        let Disk { names, durable, .. } = &mut *disk;
        let paths: BTreeSet<_> = names.keys().chain(durable.keys()).cloned().collect();
        for path in paths {
            let (before, after) = (durable.get(&path), names.get(&path));
            let same = before.zip(after).is_some_and(|(before, after)| Arc::ptr_eq(before, after));
            if same || random.below(2) == 0 {
                continue;
            }
            match after.cloned() {
                Some(file) => durable.insert(path, file),
                None => durable.remove(&path),
            };
        }
        for file in durable.values() {
            file.lock().crash(&mut random);
        }
        disk.names = disk.durable.clone();
        disk.locks.clear();
        disk.life += 1;
        disk.faults = Faults::default();
    }

    fn opened(&self, disk: &Disk, file: &File) -> Box<dyn StoredFile> {
        Box::new(OpenFile { disk: Arc::clone(&self.0), life: disk.life, file: Arc::clone(file) })
    }
}

impl Disk {
    fn used(&self) -> u64 {
        self.names.values().map(|file| file.lock().len() as u64).sum()
    }

    fn free(&self) -> u64 {
        self.faults.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(self.used()))
    }

    fn is_on(&self) -> io::Result<()> {
        match self.faults.power_fails_after {
            Some(0) => Err(io::Error::other("the power has failed")),
            _ => Ok(()),
        }
    }

    /// Counts a change before it is made, and fails where the test wants it.
    fn change(&mut self) -> io::Result<()> {
        self.is_on()?;
        if let Some(left) = self.faults.power_fails_after.as_mut() {
            *left -= 1;
        }
        Ok(())
    }

    fn file(&self, path: &Path) -> io::Result<&File> {
        self.is_on()?;
        self.names.get(path).ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn is_directory(&self, path: &Path) -> io::Result<()> {
        self.is_on()?;
        if self.directories.contains(path) { Ok(()) } else { Err(ErrorKind::NotFound.into()) }
    }
}

impl FileSystem for MemoryFs {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.0.lock();
        disk.change()?;
        disk.directories.extend(path.ancestors().map(Path::to_owned));
        Ok(())
    }

    fn names(&self, directory: &Path) -> io::Result<Vec<OsString>> {
        let disk = self.0.lock();
        disk.is_directory(directory)?;
        let files = disk.names.keys().filter(|path| path.parent() == Some(directory));
        Ok(files.filter_map(|path| path.file_name()).map(OsString::from).collect())
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.0.lock();
        disk.change()?;
        disk.is_directory(path)?;
        let Disk { names, durable, .. } = &mut *disk;
        durable.retain(|name, _| name.parent() != Some(path));
        let inside = names.iter().filter(|(name, _)| name.parent() == Some(path));
        durable.extend(inside.map(|(name, file)| (name.clone(), Arc::clone(file))));
        Ok(())
    }

    fn free_bytes(&self, _: &Path) -> u64 {
        self.0.lock().free()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        let mut disk = self.0.lock();
        disk.is_on()?;
        if disk.locks.contains_key(path) {
            return Err(ErrorKind::WouldBlock.into());
        }
        disk.holders += 1;
        let holder = disk.holders;
        disk.locks.insert(path.to_owned(), holder);
        Ok(Box::new(HeldLock { disk: Arc::clone(&self.0), path: path.to_owned(), holder }))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn StoredFile>> {
        let mut disk = self.0.lock();
        disk.change()?;
        disk.is_directory(path.parent().unwrap_or(path))?;
        if disk.free() == 0 {
            return Err(ErrorKind::StorageFull.into());
        }
        let file = Arc::clone(disk.names.entry(path.to_owned()).or_default());
        file.lock().set_len(0);
        Ok(self.opened(&disk, &file))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn StoredFile>> {
        let disk = self.0.lock();
        Ok(self.opened(&disk, disk.file(path)?))
    }

    fn open_for_writing(&self, path: &Path) -> io::Result<Box<dyn StoredFile>> {
        self.open(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.0.lock();
        disk.change()?;
        disk.names.remove(path).map(|_| ()).ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn make_private(&self, _: &Path) {}
}

impl OpenFile {
    /// Returns the disk, if the power has not failed since the file was opened.
    fn disk(&self) -> io::Result<parking_lot::MutexGuard<'_, Disk>> {
        let disk = self.disk.lock();
        disk.is_on()?;
        if disk.life == self.life {
            Ok(disk)
        } else {
            Err(io::Error::other("opened before the power failed"))
        }
    }
}

impl StoredFile for OpenFile {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let disk = self.disk()?;
        let unreadable = disk.faults.unreadable.as_ref().and_then(|path| disk.names.get(path));
        if unreadable.is_some_and(|file| Arc::ptr_eq(file, &self.file)) {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        Ok(self.file.lock().read(into, usize::try_from(offset).unwrap_or(usize::MAX)))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut disk = self.disk()?;
        disk.change()?;
        if disk.faults.refuse_writes {
            return Err(io::Error::other("the disk refuses to write"));
        }
        let offset = usize::try_from(offset).map_err(|_| ErrorKind::FileTooLarge)?;
        let free = usize::try_from(disk.free()).unwrap_or(usize::MAX);
        let room = (self.file.lock().len().saturating_sub(offset)).saturating_add(free);
        let len = bytes.len().min(disk.faults.write_max.unwrap_or(usize::MAX)).min(room);
        if len == 0 && !bytes.is_empty() {
            return Err(ErrorKind::StorageFull.into());
        }
        self.file.lock().write(&bytes[..len], offset);
        Ok(len)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk()?.change()?;
        let len = usize::try_from(len).map_err(|_| ErrorKind::FileTooLarge)?;
        self.file.lock().set_len(len);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut disk = self.disk()?;
        disk.change()?;
        if disk.faults.fail_syncs {
            self.file.lock().fail_sync(&mut disk.random);
            return Err(io::Error::other("the disk is gone"));
        }
        self.file.lock().sync();
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        let _disk = self.disk()?;
        Ok(self.file.lock().len() as u64)
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        let mut disk = self.disk.lock();
        if disk.locks.get(&self.path) == Some(&self.holder) {
            disk.locks.remove(&self.path);
        }
    }
}
