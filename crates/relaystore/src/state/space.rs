//! Space for the writer: the store's own limit, the floor of free disk, a full disk.

use std::io::ErrorKind;
use std::sync::atomic::Ordering;

use tracing::{info, warn};

use crate::disk::error::{Error, Result};
use crate::state::shared::Shared;

impl Shared {
    /// The reason `bytes` more can't be written now, if there is one: the store is at its limit or
    /// the disk near `min_free_disk`. A transaction that is alone in the store passes: nothing would
    /// ever make room for it.
    pub(crate) fn lacks_room_for(&self, bytes: u64) -> Option<String> {
        let (limit, floor) = (self.options.space_limit, self.options.min_free_disk);
        // Before the lock, which readers take for every look: statvfs may wait for the file system.
        let free = if floor == 0 { u64::MAX } else { self.directory.free_bytes() };
        if free < floor.saturating_add(bytes) {
            return Some(format!("free disk: {free} bytes left, min_free_disk is {floor}"));
        }
        if limit == 0 {
            return None;
        }
        let state = self.state.lock();
        let used = state.bytes();
        let full = used + bytes > limit && !state.is_all_released();
        full.then(|| format!("relay space: {used} of {limit} bytes used"))
    }

    /// Records that the writer waits for room, and makes what room it can.
    ///
    /// # Errors
    /// The inlet or the store is dropped, so nobody waits any more.
    pub(crate) fn wait_for(&self, reason: &str) -> Result<()> {
        if self.giving_up.load(Ordering::Acquire) {
            return Err(Error::Io {
                what: "waiting for space in",
                path: self.directory.directory().to_owned(),
                source: ErrorKind::Interrupted.into(),
            });
        }
        let waiting = self.state.lock().usage.waiting.replace(format!("waiting for {reason}"));
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
