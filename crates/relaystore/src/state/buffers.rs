//! Buffers that go round. The writer collects frames in one; once they are written, the memory tail and the
//! readers share its bytes, and when the last of them lets go the buffer returns to the writer. A reader of files reads
//! into others. A fresh buffer of this size is fresh pages, which cost more than what is written into them.

use std::sync::Arc;

use bytes::Bytes;
use crossbeam::queue::ArrayQueue;

/// A buffer is shared only if at least one part in so many is used: the memory tail holds many of them, and a
/// run of one small transaction must not hold a whole buffer.
const LEAST_USE: usize = 2;

/// The buffers that nobody uses at present.
#[derive(Debug, Clone)]
pub(crate) struct Buffers {
    free: Arc<ArrayQueue<Vec<u8>>>,
    capacity: usize,
}

impl Buffers {
    /// Keeps up to `count` free buffers of `capacity` bytes.
    pub(crate) fn new(count: usize, capacity: usize) -> Self {
        Self { free: Arc::new(ArrayQueue::new(count)), capacity }
    }

    /// Returns an empty buffer.
    pub(crate) fn take(&self) -> Vec<u8> {
        let mut buffer = self.free.pop().unwrap_or_else(|| Vec::with_capacity(self.capacity));
        buffer.clear();
        buffer
    }

    /// Returns so many bytes for somebody to write over; what is in them means nothing.
    pub(crate) fn take_filled(&self, len: usize) -> Vec<u8> {
        let mut buffer = self.free.pop().unwrap_or_else(|| Vec::with_capacity(self.capacity));
        buffer.resize(len, 0);
        buffer
    }

    /// Takes back a buffer that nobody shares. One that has grown is not kept, nor is one too many.
    fn give_back(&self, buffer: Vec<u8>) {
        if buffer.capacity() == self.capacity {
            self.free.push(buffer).ok();
        }
    }

    /// Returns the bytes of a buffer, to be shared without copying them if there are many.
    pub(crate) fn share(&self, buffer: Vec<u8>) -> Bytes {
        if buffer.len() * LEAST_USE < buffer.capacity() {
            let bytes = Bytes::copy_from_slice(&buffer);
            self.give_back(buffer);
            return bytes;
        }
        Bytes::from_owner(Lent { buffer, home: self.clone() })
    }
}

/// A buffer whose bytes are in use.
struct Lent {
    buffer: Vec<u8>,
    home: Buffers,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.home.give_back(std::mem::take(&mut self.buffer));
    }
}

#[cfg(test)]
mod tests {
    use super::Buffers;

    fn filled(buffers: &Buffers, len: usize) -> Vec<u8> {
        let mut buffer = buffers.take();
        buffer.resize(len, 7);
        buffer
    }

    #[test]
    fn a_buffer_returns_once_nobody_shares_its_bytes() {
        let buffers = Buffers::new(1, 100);
        let buffer = filled(&buffers, 80);
        let place = buffer.as_ptr();
        let bytes = buffers.share(buffer);
        assert_eq!(bytes.as_ptr(), place);
        let part = bytes.slice(70..);
        drop(bytes);
        let other = buffers.take();
        assert_ne!(other.as_ptr(), place);
        assert_eq!(part, [7; 10].as_slice());
        drop(part);
        let again = buffers.take();
        assert_eq!((again.as_ptr(), again.len()), (place, 0));
    }

    #[test]
    fn a_small_run_does_not_hold_a_buffer() {
        let buffers = Buffers::new(1, 100);
        let buffer = filled(&buffers, 10);
        let place = buffer.as_ptr();
        let bytes = buffers.share(buffer);
        assert_ne!(bytes.as_ptr(), place);
        assert_eq!(bytes, [7; 10].as_slice());
        let again = buffers.take();
        assert_eq!((again.as_ptr(), again.len()), (place, 0));
    }

    #[test]
    fn neither_a_buffer_that_has_grown_is_kept_nor_one_too_many() {
        let buffers = Buffers::new(1, 100);
        drop(buffers.share(filled(&buffers, 101)));
        assert!(buffers.free.is_empty());
        let two = [filled(&buffers, 80), filled(&buffers, 80)];
        drop(two.map(|buffer| buffers.share(buffer)));
        assert_eq!(buffers.free.len(), 1);
    }
}
