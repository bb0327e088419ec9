//! Compares what was received again with what is archived: GTIDs alone don't tell a source from one that was reset.

use std::sync::Arc;
use std::time::Duration;

use csa_provider::binlog::{GtidSet, TransactionHeader};
use csa_relaystore::disk;
use csa_relaystore::opening::RelayStore;
use tracing::debug;

use super::ArchiveStatus;
use super::relief::PATIENCE;
use crate::archive::replay::{Bisection, FileReader};
use crate::archive::store::{ArchivedHistory, HistoryEnd, Result};
use crate::host::blocking;

/// Time between two looks for what is received again.
const LOOK: Duration = Duration::from_millis(50);

/// Compares the last archived transaction that the relay store receives again with the archived one of the same GTID: a
/// source that was set back has equal ones before it. Returns the difference in words; `None` if they are equal, or if
/// nothing is received again, or if the archive does not have that one any more.
///
/// The source, which has what is archived, sends it again, and is waited for: what it has not sent yet proves nothing.
/// While there is no room for it, the relay store may purge what is received and compared.
pub(super) async fn difference(
    store: &Arc<RelayStore>,
    history: &ArchivedHistory,
    end: &HistoryEnd,
    status: &ArchiveStatus,
) -> Result<Option<String>> {
    let mut compared = GtidSet::new();
    loop {
        // Before the look at what is received, which then has everything.
        let is_complete = store.is_complete();
        let received = store.received_so_far();
        let again = end.archived.difference(&store.passed_over());
        let there = again.intersection(&received);
        let is_last = there == again || is_complete;
        let waits_for_room = store.usage().waiting.is_some();
        if (is_last || waits_for_room) && there != compared {
            let (store, received) = (Arc::clone(store), received.clone());
            let (before_last, there) = (end.before_last.clone(), there.clone());
            let found = blocking(move || last_of(&store, &received, there, &before_last)).await;
            // Whoever reads on meets an error, too.
            let Ok(Ok(Some(found))) = found else { return Ok(None) };
            if let Some(why) = compare(history, end, &found, status).await? {
                return Ok(Some(why));
            }
        }
        if is_last || (waits_for_room && there.is_empty()) {
            return Ok(None);
        }
        if waits_for_room && there != compared {
            let (store, equal) = (Arc::clone(store), received.intersection(&end.archived));
            drop(blocking(move || store.note_archived(&equal)).await);
            compared = there;
        }
        status.waits("waiting for the source to send again what is archived");
        tokio::time::sleep(LOOK).await;
    }
}

/// Returns the last of the transactions `there`, which are a part of what a relay store has `received`. Those of the
/// archive's last file come after the others. Blocks on the disk.
fn last_of(
    store: &RelayStore,
    received: &GtidSet,
    there: GtidSet,
    before_last: &GtidSet,
) -> disk::Result<Option<TransactionHeader>> {
    let of_last = there.difference(before_last);
    let wanted = if of_last.is_empty() { there } else { of_last };
    // It begins with the segment of the first of them.
    let mut reader = store.reader(received.difference(&wanted));
    // A transaction may be larger than the memory of the host.
    reader.set_headers_only();
    let mut last = None;
    for _ in 0..wanted.count() {
        let next = reader.next_now()?.map(|relayed| relayed.header);
        let Some(next) = next.filter(|next| wanted.contains(&next.gtid)) else { break };
        last = Some(next);
    }
    Ok(last)
}

/// Compares a transaction with the archived one; returns the difference in words.
async fn compare(
    history: &ArchivedHistory,
    end: &HistoryEnd,
    received: &TransactionHeader,
    status: &ArchiveStatus,
) -> Result<Option<String>> {
    let Some(found) = find(history, &end.numbers, received, status).await? else { return Ok(None) };
    let is_same = may_be_same(&found, received);
    debug!(gtid = %received.gtid, is_same, "compared with the archived transaction");
    Ok((!is_same).then(|| {
        format!(
            "transaction {} is not the one that is archived under this GTID: the source was reset or set back",
            received.gtid
        )
    }))
}

/// Returns false for two transactions whose first commits were at different times, which every replica keeps. Sources
/// before 8.0.1 log only the time of the statement, and a later replica of such a source its own commit: these prove nothing
/// against another form.
fn may_be_same(one: &TransactionHeader, other: &TransactionHeader) -> bool {
    let (first, second) = (one.original_commit_timestamp, other.original_commit_timestamp);
    let knows_version = |header: &TransactionHeader| {
        header.immediate_server_version != TransactionHeader::UNKNOWN_VERSION
    };
    if first != 0 && second != 0 {
        return first == second;
    }
    knows_version(one)
        || knows_version(other)
        || one.immediate_commit_timestamp == other.immediate_commit_timestamp
}

/// Returns the archived transaction with the GTID of `like`.
async fn find(
    history: &ArchivedHistory,
    numbers: &[u64],
    like: &TransactionHeader,
    status: &ArchiveStatus,
) -> Result<Option<TransactionHeader>> {
    // The last file that begins before it.
    let mut search = Bisection::new(numbers.len());
    while let Some(at) = search.next() {
        let index = history.index(numbers.get(at).copied().unwrap_or_default()).await?;
        search.answer(index.is_none_or(|index| !index.before.contains(&like.gtid)));
    }
    let number = search.last().and_then(|at| numbers.get(at));
    let Some(&number) = number else { return Ok(None) };
    let Some(index) = history.index(number).await? else { return Ok(None) };
    if !index.added.contains(&like.gtid) {
        return Ok(None);
    }
    let mut reader = FileReader::open(history, index).await?;
    while let Some(event) = reader.next().await? {
        // A file may take longer than a session is given.
        status.hopes(PATIENCE);
        if let Ok(header) = TransactionHeader::parse(&event)
            && header.gtid == like.gtid
        {
            return Ok(Some(header));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::ops::RangeInclusive;

    use csa_provider::binlog::{ChecksumAlgorithm, EventType, Gtid, RawEvent, Tag, Uuid};
    use csa_provider::source::{Placement, TransactionSink as _};
    use csa_provider::test_util::{event, format_description, gtid_event};
    use csa_relaystore::disk::{MemoryFs, RelayStoreOptions, SyncPolicy};
    use csa_relaystore::write::RelayInlet;
    use object_store::memory::InMemory;
    use tokio::io::AsyncWriteExt as _;

    use super::*;
    use crate::archive::index::Compression;
    use crate::archive::index::tests::{index, mark};
    use crate::archive::store::Archive;
    use crate::archive::upload::part::{Made, PartMaker};

    const HOUR: Duration = Duration::from_secs(3600);
    const SOON: Duration = Duration::from_secs(20);

    fn set(first: u64, last: u64) -> GtidSet {
        let uuid = Uuid::from_bytes([3; 16]);
        (first..=last).map(|gno| Gtid { uuid, tag: Tag::untagged(), gno }).collect()
    }

    /// Opens a relay store that receives after `before`; the target has 20 transactions.
    fn store(before: u64, space_limit: u64) -> (Arc<RelayStore>, RelayInlet) {
        let options = RelayStoreOptions {
            directory: "/relay".into(),
            segment_size: 2000,
            space_limit,
            min_free_disk: 0,
            sync: SyncPolicy::Os,
            archived: true,
            tail_bytes: 1500,
            frame_bytes: 300,
            wake_bytes: RelayStoreOptions::WAKE_BYTES,
            files: Arc::new(MemoryFs::new(1)),
        };
        let before = set(1, before);
        let opened = RelayStore::open_behind(options, &set(1, 20), &before, &before);
        let store = opened.expect("opens").0;
        let inlet = store.inlet().expect("a thread");
        (Arc::new(store), inlet)
    }

    /// Receives transactions, those from `parted` on with other times than the archived ones.
    async fn receive(inlet: &mut RelayInlet, numbers: RangeInclusive<u64>, parted: u64) {
        let format = format_description().raw().clone();
        let format = RawEvent::trusted(format, ChecksumAlgorithm::Crc32).expect("well-formed");
        inlet.append(format, Placement::Outside).await.expect("room");
        for gno in numbers {
            let gtid = Gtid { uuid: Uuid::from_bytes([3; 16]), tag: Tag::untagged(), gno };
            let begin = gtid_event(&gtid, gno * 1000 + u64::from(gno >= parted));
            let header = TransactionHeader::parse(&begin).expect("well-formed");
            let body = event(EventType::WRITE_ROWS, &[7; 900]);
            let end = event(EventType::XID, &gno.to_le_bytes());
            inlet.append(begin, Placement::Begin(header)).await.expect("room");
            inlet.append(body, Placement::Body).await.expect("room");
            inlet.append(end, Placement::End).await.expect("room");
        }
        inlet.stored().await;
    }

    /// Returns an archive of ten transactions, the last four of them in the last file.
    async fn archived() -> (ArchivedHistory, HistoryEnd) {
        let archive = Archive::over(Arc::new(InMemory::new()), "shop");
        let history = archive.begin(&mark("a")).await.expect("begun");
        let (relay, mut inlet) = store(0, 0);
        receive(&mut inlet, 1..=10, u64::MAX).await;
        let mut maker = PartMaker::new(relay.reader(set(1, 6)), Compression::None, u64::MAX);
        let mut made = |interval| maker.make(&set(1, 6), interval, false).expect("readable");
        let Made::Bytes(mut bytes) = made(HOUR) else { panic!("nothing to archive") };
        let Made::Last(rest, _) = made(Duration::ZERO) else { panic!("the file has no end") };
        bytes.extend(rest);
        let index = index(1, &set(1, 6).to_string(), &set(7, 10).to_string());
        let mut writer = history.writer(&index.file, 0);
        writer.put(bytes.into()).await.expect("written");
        writer.shutdown().await.expect("written");
        history.publish(&index).await.expect("published");
        let end = history.end().await.expect("it answers");
        assert_eq!((&end.archived, &end.before_last), (&set(1, 10), &set(1, 6)));
        (history, end)
    }

    async fn found(store: &Arc<RelayStore>) -> Option<String> {
        let (history, end) = archived().await;
        let status = ArchiveStatus::default();
        let found = difference(store, &history, &end, &status);
        let found = tokio::time::timeout(SOON, found).await.expect("a verdict");
        found.expect("the archive answers")
    }

    #[test]
    fn times_are_compared_in_the_same_form_only() {
        let gtid = Gtid { uuid: Uuid::from_bytes([3; 16]), tag: Tag::untagged(), gno: 1 };
        let header = |original, immediate| {
            let event = csa_provider::test_util::gtid_event_of(&gtid, original, immediate);
            TransactionHeader::parse(&event).expect("well-formed")
        };
        // A source before 8.0.1, and its replicas.
        let old = |time| TransactionHeader {
            original_server_version: TransactionHeader::UNKNOWN_VERSION,
            immediate_server_version: TransactionHeader::UNKNOWN_VERSION,
            ..header(0, time)
        };
        assert!(may_be_same(&header(5, 5), &header(5, 7)), "a replica");
        assert!(!may_be_same(&header(5, 5), &header(6, 6)));
        assert!(!may_be_same(&header(5, 9), &header(6, 9)));
        assert!(may_be_same(&old(5), &old(5)));
        assert!(!may_be_same(&old(5), &old(6)));
        assert!(may_be_same(&old(5), &header(0, 7)), "a replica of it");
        assert!(may_be_same(&header(0, 7), &header(0, 8)), "two replicas of it");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_last_archived_transaction_says_whether_the_source_was_set_back() {
        for (before, parted, is_another) in [
            (6, u64::MAX, false),
            (6, 7, true),
            (6, 9, true),
            (8, 10, true),
            (6, 11, false),
            (3, 6, true),
            (10, 11, false),
        ] {
            let (store, mut inlet) = store(before, 0);
            receive(&mut inlet, before + 1..=12, parted).await;
            let why = found(&store).await;
            assert_eq!(why.is_some(), is_another, "{before}, {parted}: {why:?}");
            assert!(why.is_none_or(|why| why.contains(":10 is not the one")), "{parted}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_last_archived_transaction_is_waited_for() {
        let (store, mut inlet) = store(6, 0);
        receive(&mut inlet, 7..=8, 9).await;
        let of = Arc::clone(&store);
        let looks = tokio::spawn(async move { found(&of).await });
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!looks.is_finished(), "two equal ones prove nothing");
        receive(&mut inlet, 9..=12, 9).await;
        assert!(looks.await.expect("it ends").is_some());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_was_received_is_compared_when_no_more_comes() {
        for (parted, is_another) in [(9, false), (8, true)] {
            let (store, mut inlet) = store(6, 0);
            receive(&mut inlet, 7..=8, parted).await;
            drop(inlet);
            assert_eq!(found(&store).await.is_some(), is_another, "{parted}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_was_compared_makes_room_for_the_rest() {
        for (parted, is_another) in [(u64::MAX, false), (9, true)] {
            let (store, mut inlet) = store(3, 4000);
            let receives = receive(&mut inlet, 4..=12, parted);
            let looks = async {
                while store.usage().waiting.is_none() {
                    tokio::time::sleep(LOOK).await;
                }
                found(&store).await
            };
            // The rest finds no room once a verdict is there.
            tokio::select! {
                why = looks => assert_eq!(why.is_some(), is_another, "{parted}: {why:?}"),
                () = async { receives.await; std::future::pending().await } => {}
            }
        }
    }
}
