//! A file's bytes: those that programs see, those on the platter, and the changes in between.

use std::fmt;

use super::random::Random;

/// A disk writes one of these whole or not at all.
const SECTOR: usize = 512;

#[derive(Default)]
pub(super) struct Inode {
    /// The contents in the page cache.
    cached: Vec<u8>,
    /// The contents that a crash leaves, but for the changes that reached the disk on their own.
    durable: Vec<u8>,
    /// Changes since the last sync, in their order.
    pending: Vec<Change>,
}

enum Change {
    /// A sector was written: all of it, as the cache had it then.
    Sector {
        at: usize,
        bytes: Vec<u8>,
    },
    Len(usize),
}

impl fmt::Debug for Inode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cached, durable, pending } = self;
        write!(f, "{} bytes, {} on disk, {} changes", cached.len(), durable.len(), pending.len())
    }
}

impl Inode {
    pub(super) fn len(&self) -> usize {
        self.cached.len()
    }

    pub(super) fn read(&self, into: &mut [u8], offset: usize) -> usize {
        let bytes = self.cached.get(offset..).unwrap_or_default();
        let len = bytes.len().min(into.len());
        into[..len].copy_from_slice(&bytes[..len]);
        len
    }

    pub(super) fn write(&mut self, bytes: &[u8], offset: usize) {
        let (before, end) = (self.cached.len(), offset + bytes.len());
        self.cached.resize(before.max(end), 0);
        self.cached[offset..end].copy_from_slice(bytes);
        for at in (offset / SECTOR * SECTOR..end).step_by(SECTOR) {
            let sector = &self.cached[at..self.cached.len().min(at + SECTOR)];
            self.pending.push(Change::Sector { at, bytes: sector.to_vec() });
        }
        if end > before {
            self.pending.push(Change::Len(end));
        }
    }

    pub(super) fn set_len(&mut self, len: usize) {
        self.cached.resize(len, 0);
        self.pending.push(Change::Len(len));
    }

    pub(super) fn sync(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            match change {
                Change::Sector { at, bytes } => write_sector(&mut self.durable, at, &bytes),
                Change::Len(len) => self.durable.resize(len, 0),
            }
        }
        self.durable.resize(self.cached.len(), 0);
    }

    /// A sync that fails: some changes are on the disk and the others never will be, although the
    /// cache still shows them and the kernel counts them as written.
    pub(super) fn fail_sync(&mut self, random: &mut Random) {
        self.reach_disk(random);
        self.pending.push(Change::Len(self.cached.len()));
    }

    /// Only what is on the disk is left.
    pub(super) fn crash(&mut self, random: &mut Random) {
        self.reach_disk(random);
        self.cached.clone_from(&self.durable);
    }

    /// Each pending sector reaches the disk or does not. Lengths are the file system's own data and
    /// keep their order, as in a journal; nothing orders them and the sectors.
    fn reach_disk(&mut self, random: &mut Random) {
        let pending = std::mem::take(&mut self.pending);
        let lens = pending.iter().filter(|change| matches!(change, Change::Len(_))).count();
        let mut lens_kept = random.below(lens as u64 + 1);
        let sectors_kept = random.below(5);
        let mut len = self.durable.len();
        for change in pending {
            match change {
                Change::Sector { at, bytes } if random.below(4) < sectors_kept => {
                    write_sector(&mut self.durable, at, &bytes);
                }
                Change::Len(new) if lens_kept > 0 => {
                    lens_kept -= 1;
                    if let Some(beyond) = self.durable.get_mut(new..) {
                        beyond.fill(0);
                    }
                    len = new;
                }
                _ => {}
            }
        }
        self.durable.resize(len, 0);
    }
}

fn write_sector(disk: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    disk.resize(disk.len().max(at + bytes.len()), 0);
    disk[at..at + bytes.len()].copy_from_slice(bytes);
}
