//! Decides whether a transaction is held as a whole or streamed, and the event memory it needs.

use csa_relaystore::read::{RelayedTransaction, TransactionBody};

use crate::error::Result;
use crate::events::{bytes_at_a_time, decompressed_bytes};
use crate::memory::Footprint;

/// The largest transaction that is held as a whole, decompressed: a quarter of the memory leaves
/// room for others at the same time. Larger ones are streamed.
#[must_use]
pub const fn inline_limit(memory: u64) -> u64 {
    memory / 4
}

/// The part of the inline limit for a piece of a transaction that is still being received. It is nearly half of
/// the memory for everything made of it.
const FOLLOWED_PART: u64 = 3;

/// The place that a transaction takes in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    pub footprint: Footprint,
    /// It is held and looked at as a whole; otherwise it is read event by event.
    pub whole: bool,
}

impl Room {
    /// Computes the room that a transaction needs; at most `statement_bytes` of events are sent to
    /// the target at once. A streamed transaction is opened once more to find its largest event, as long as
    /// that `is_wanted`; reading it blocks on the disk.
    ///
    /// # Errors
    /// [`crate::error::Error::Unreadable`] if the bytes can't be read back.
    pub fn of(
        relayed: &RelayedTransaction,
        inline_limit: u64,
        statement_bytes: u64,
        is_wanted: impl Fn() -> bool,
    ) -> Result<Self> {
        match relayed.body {
            TransactionBody::Whole(_) => {
                let (received, decompressed) = decompressed_bytes(relayed)?;
                if let Some(room) =
                    Self::held(received, decompressed, inline_limit, statement_bytes)
                {
                    return Ok(room);
                }
                let largest = bytes_at_a_time(relayed, is_wanted)?.saturating_sub(received);
                Ok(Self::streamed(received, largest, statement_bytes))
            }
            // A piece is one event, of up to a gigabyte.
            TransactionBody::Streamed(_) => {
                Ok(Self::streamed(0, bytes_at_a_time(relayed, is_wanted)?, statement_bytes))
            }
            // Larger pieces may follow. Room for them costs nobody anything: nothing is received
            // after it, and it begins when everything before it is committed.
            TransactionBody::Followed(_, ref followed) => {
                let largest =
                    bytes_at_a_time(relayed, is_wanted)?.max(inline_limit / FOLLOWED_PART);
                followed.limit_frames(largest.max(statement_bytes));
                Ok(Self::streamed(0, largest, statement_bytes))
            }
        }
    }

    /// As a whole; `None` if it is too large once decompressed (`decompressed` is 0 if it is not
    /// compressed).
    fn held(
        received: u64,
        decompressed: u64,
        inline_limit: u64,
        statement_bytes: u64,
    ) -> Option<Self> {
        let (kept, events) = match decompressed {
            0 => (0, received),
            // The compressed bytes are kept until it is applied.
            _ => (received, decompressed),
        };
        // The reader has applied the limit to bytes that are not compressed.
        let fits = decompressed == 0 || kept.saturating_add(events) <= inline_limit;
        fits.then(|| Self {
            footprint: Footprint::whole(kept, events, statement_bytes),
            whole: true,
        })
    }

    /// Opened piece by piece, of which `largest` is the longest; `kept` bytes stay in memory.
    fn streamed(kept: u64, largest: u64, statement_bytes: u64) -> Self {
        Self { footprint: Footprint::streamed(kept, statement_bytes.max(largest)), whole: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATEMENT: u64 = 100;

    #[test]
    fn a_transaction_is_held_as_long_as_it_fits_decompressed() {
        let whole = |kept, events| {
            Some(Room { footprint: Footprint::whole(kept, events, STATEMENT), whole: true })
        };
        for (received, decompressed, expected) in [
            (10, 0, whole(0, 10)),
            // The reader has decided about bytes that are not compressed.
            (5_000, 0, whole(0, 5_000)),
            (10, 90, whole(10, 90)),
            (10, 991, None),
            (10, 990, whole(10, 990)),
            (10, u64::MAX, None),
        ] {
            let room = Room::held(received, decompressed, 1_000, STATEMENT);
            assert_eq!(room, expected, "{received} {decompressed}");
        }
    }

    #[test]
    fn a_streamed_transaction_needs_its_longest_piece() {
        for (kept, largest, piece) in [(0, 0, STATEMENT), (7, 99, STATEMENT), (7, 5_000, 5_000)] {
            let room = Room::streamed(kept, largest, STATEMENT);
            let footprint = Footprint::streamed(kept, piece);
            assert_eq!(room, Room { footprint, whole: false }, "{kept} {largest}");
        }
        assert_eq!(inline_limit(4_000), 1_000);
    }
}
