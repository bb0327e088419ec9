//! Bugs for simulations to find, each a promise broken in one place: a simulation that finds none of them
//! proves nothing. They exist only with the feature `planted`, which nothing but the tests has, and there
//! they are off until a test plants one in its own thread.

/// A bug; each is where it would be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// The checkpoint row is written in a transaction of its own, after the group's.
    CheckpointAfterCommit,
    /// A group commits without waiting for its turn.
    CommitOutOfTurn,
    /// A COMMIT that is sent before the answer to the one before it does not wait for that one on the target.
    CommitUnguarded,
    /// A transaction under its source's GTID counts as committed without the proof that it has used the GTID.
    GtidUseUnproven,
    /// No key of a row makes a group wait for another.
    KeysIgnored,
    /// Only the first unique key of a table counts.
    OtherUniqueKeysIgnored,
    /// Rows that wait for the group just before theirs are sent with those that wait for earlier ones.
    LateRowsEarly,
    /// References to other tables make no group wait.
    ForeignKeysIgnored,
    /// A group's checkpoint row is written whatever its epoch.
    EpochIgnored,
    /// A lost answer to COMMIT counts as a failure.
    LostAnswerIsFailure,
    /// A lost answer to the COMMIT that ends a statement without a GTID makes the statement run
    /// again.
    LostAnswerRepeatsStatement,
    /// After a lost answer a series counts as committed if its first transaction is.
    FirstStandsForAll,
    /// A step of XA that got no answer counts as executed.
    LostAnswerEndsXa,
    /// With a daemon that stands by, the target keeps a silent session as long as without one.
    SilentHolderKept,
    /// A login that the target refuses while the channel runs counts by its number, as in a statement.
    RefusedLoginIsFailure,
    /// A group that waits for others keeps its session where a group before it has none.
    SessionsKept,
    /// A transaction that the server rolled back counts as applied.
    RolledBackNotRetried,
    /// A target that lacks what was committed there counts as the same.
    OlderTargetAccepted,
    /// The number of the connection that holds the lock tells one life of a server from the next.
    EarlierLifeAccepted,
    /// The SQL executor leaves out the statement that is still open when the rows end.
    LastRowsLeftOut,
    /// Definitions are read before the statement before a transaction is committed.
    BarrierIgnored,
    /// The low-water mark passes groups that are not committed.
    MarkOverGap,
    /// Event memory is not returned.
    MemoryKept,
    /// Event memory is granted beyond the limit.
    MemoryUnlimited,
    /// A sync of the relay store reports success and does nothing.
    SyncIgnored,
    /// A segment is purged once any of its transactions is released.
    PurgedTooEarly,
    /// No segment is purged.
    NeverPurged,
    /// Recovery keeps the torn end of the last segment.
    TornTailKept,
    /// Recovery does not check that the store follows the checkpoint.
    GapAccepted,
    /// A transaction counts as received once its first event is.
    ReceivedTooEarly,
    /// A transaction that was cut off stays in the store, and the next one follows it.
    CutTransactionKept,
    /// Those who follow a transaction under reception do not learn that it was cut off, and take the next one
    /// in its place for it.
    FollowersNotTold,
    /// The part of a transaction that had come before it was cut off is committed.
    LostPartCommitted,
    /// Checksums of events are not verified.
    DamageAccepted,
    /// Lag is 0 once everything received is applied.
    LagOfReceivedOnly,
    /// A backlog that was not read yet does not count.
    LagOfReadOnly,
    /// Events of unknown types are left out.
    UnknownEventLeftOut,
    /// A source that lacks received transactions is followed.
    OtherHistoryAccepted,
    /// The relay store lets go of transactions once they are sent to the archive, before their index is there.
    ArchivedTooEarly,
    /// An object store is believed that an object is written.
    ObjectStoreBelieved,
    /// A segment of the relay store that was in memory counts as written once it has a file.
    UnwrittenForgotten,
    /// A file and its index count as archived wherever a mount that went and came back has put them.
    MountTrusted,
    /// The index of a file replaces that of another daemon.
    ArchiveOverwritten,
    /// The archive continues after a gap as if there were none.
    ArchiveGapUnnoticed,
    /// A record that names no server counts as complete: the channel follows nobody.
    NoServersKnown,
    /// An update of a table whose copy converges stays an update, which passes over a missing row.
    ConvergingUpdateKept,
    /// Changes of tables that converge are merged before they are applied.
    ConvergingMerged,
    /// After a copy in chunks the channel begins with the changes after its last chunk.
    ChangesBeginLate,
    /// Tables count as converged once the channel has what was there before the first chunk.
    ChangesEndEarly,
    /// The changes end with what the source has executed after the last chunk, which may show more.
    ChangesEndGuessed,
    /// A chunk is noted in a transaction of its own, after its rows.
    ChunkNotedLater,
    /// A chunk is written whoever has its range by now.
    RangeEpochIgnored,
    /// Rows of a snapshot are written whoever has the channel by now.
    CopyLockIgnored,
    /// A copy does not keep the channel from running.
    CopyUnlocked,
    /// A table is copied again from a source that lacks what was applied.
    SourceBehindAccepted,
    /// The rows of a chunk are not limited.
    ChunkUnlimited,
    /// A chunk that was cut, because its rows are large, counts as the last one of its part.
    CutChunkLast,
    /// A snapshot counts as exact although transactions were committed while it was opened.
    SnapshotInexact,
}

/// Returns true if the bug is planted.
#[cfg(not(feature = "planted"))]
#[inline(always)]
#[must_use]
pub const fn is_planted(_: Bug) -> bool {
    false
}

#[cfg(feature = "planted")]
pub use switched::{Plant, is_planted};

#[cfg(feature = "planted")]
mod switched {
    use std::cell::Cell;
    use std::marker::PhantomData;

    use super::Bug;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Returns true if the bug is planted in this thread.
    #[must_use]
    pub fn is_planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }

    /// Keeps a bug planted in this thread until it is dropped.
    #[derive(Debug)]
    #[must_use]
    pub struct Plant(PhantomData<*const ()>);

    impl Plant {
        pub fn new(bug: Bug) -> Self {
            PLANTED.set(Some(bug));
            Self(PhantomData)
        }
    }

    impl Drop for Plant {
        fn drop(&mut self) {
            PLANTED.set(None);
        }
    }
}
