//! Space for the writer: the store's own limit, the floor of free disk, a full disk.

use std::io::ErrorKind;
use std::sync::atomic::Ordering;

use tracing::{info, warn};

use crate::disk::error::{Error, Result};
use crate::state::shared::Shared;

/// The reason why nothing more can be written.
#[derive(Debug)]
pub(crate) enum NoRoom {
    /// The disk is full, or near the floor.
    Disk(String),
    /// The store is at its limit.
    Limit(String),
}

impl NoRoom {
    pub(crate) fn full_disk() -> Self {
        Self::Disk("a full disk".to_owned())
    }
}

/// Returns so many bytes in MiB, smaller amounts with more digits.
fn mib(bytes: u64) -> String {
    let value = bytes as f64 / f64::from(1 << 20);
    if value < 1.0 { format!("{value:.3}") } else { format!("{value:.1}") }
}

impl Shared {
    /// Returns the reason `bytes` more can't be written to the disk now, if there is one: it is near `min_free_disk`.
    /// Whoever must not wait for the disk takes the space `as_measured` by others.
    pub(crate) fn lacks_disk_for(&self, bytes: u64, as_measured: bool) -> Option<NoRoom> {
        let floor = self.options.min_free_disk;
        let free = match floor {
            0 => u64::MAX,
            _ if as_measured => self.state.lock().usage.free_disk.unwrap_or(u64::MAX),
            // Without the lock, which readers take for every look: statvfs may wait for the file system.
            _ => self.directory.free_bytes(),
        };
        (free < floor.saturating_add(bytes)).then(|| {
            let (free, floor) = (mib(free), mib(floor));
            NoRoom::Disk(format!("free disk: {free} MiB left, min_free_disk is {floor} MiB"))
        })
    }

    /// Returns the reason `bytes` more can't be taken now, if there is one: the store is at its limit. A transaction that is
    /// alone in the store passes: nothing would ever make room for it.
    pub(crate) fn lacks_room_for(&self, bytes: u64) -> Option<NoRoom> {
        let limit = self.options.space_limit;
        if limit == 0 {
            return None;
        }
        let state = self.state.lock();
        let used = state.bytes();
        let full = used + bytes > limit && !state.is_all_released();
        let reason = || format!("relay space: {} of {} MiB used", mib(used), mib(limit));
        full.then(|| NoRoom::Limit(reason()))
    }

    /// Records that the writer waits for room, and makes what room it can.
    ///
    /// # Errors
    /// The inlet or the store is dropped, so nobody waits any more.
    pub(crate) fn wait_for(&self, no_room: &NoRoom) -> Result<()> {
        if self.giving_up.load(Ordering::Acquire) {
            return Err(Error::Io {
                what: "waiting for space in",
                path: self.directory.directory().to_owned(),
                source: ErrorKind::Interrupted.into(),
            });
        }
        let (NoRoom::Disk(reason) | NoRoom::Limit(reason)) = no_room;
        let mut state = self.state.lock();
        state.usage.waits_for_disk = matches!(no_room, NoRoom::Disk(_));
        let waiting = state.usage.waiting.replace(format!("waiting for {reason}"));
        drop(state);
        if waiting.is_none() {
            warn!("reception waits for {reason}");
        }
        self.purge();
        Ok(())
    }

    pub(crate) fn clear_waiting(&self) {
        if self.state.lock().usage.waiting.take().is_some() {
            info!("reception resumes: there is room in the relay store");
        }
    }
}
