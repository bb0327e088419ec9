//! Compares what was received again with what is archived: GTIDs alone don't tell a source from one that was reset.

use std::sync::Arc;
use std::time::Duration;

use csa_provider::binlog::TransactionHeader;
use csa_relaystore::opening::RelayStore;

use super::ArchiveStatus;
use crate::archive::replay::{Bisection, FileReader};
use crate::archive::store::{ArchivedHistory, HistoryEnd, Result};
use crate::host::blocking;

/// Time between two looks for the first transaction.
const LOOK: Duration = Duration::from_millis(50);

/// Compares the first transaction of the relay store with the archived one of the same GTID. Returns the difference in
/// words; `None` if they are equal, or if the archive does not have that one any more. The source, which has what is
/// archived, sends a part of it again, and is waited for: nothing in the relay store proves nothing.
pub(super) async fn difference(
    store: &Arc<RelayStore>,
    history: &ArchivedHistory,
    end: &HistoryEnd,
    status: &ArchiveStatus,
) -> Result<Option<String>> {
    if end.archived.is_subset_of(&store.before()) {
        return Ok(None);
    }
    let received = loop {
        let looked = Arc::clone(store);
        let first = move || {
            let mut reader = looked.reader(looked.before());
            // A transaction may be larger than the memory of the host.
            reader.set_headers_only();
            reader.next_now()
        };
        match blocking(first).await {
            Ok(Ok(Some(first))) => break first.header,
            Ok(Ok(None)) => {
                status.waits("waiting for the source to send again what is archived");
                tokio::time::sleep(LOOK).await;
            }
            // Whoever reads on meets this, too.
            Ok(Err(_)) | Err(_) => return Ok(None),
        }
    };
    if !end.archived.contains(&received.gtid) {
        return Ok(None);
    }
    let Some(found) = find(history, &end.numbers, &received).await? else { return Ok(None) };
    Ok((time(&found) != time(&received)).then(|| {
        format!(
            "transaction {} is another one than the archived one of this GTID: the source was reset",
            received.gtid
        )
    }))
}

/// Returns the time of the first commit, which every replica keeps. Sources before 8.0.1 log only that of the statement.
const fn time(header: &TransactionHeader) -> u64 {
    match header.original_commit_timestamp {
        0 => header.immediate_commit_timestamp,
        time => time,
    }
}

/// Returns the archived transaction with the GTID of `like`.
async fn find(
    history: &ArchivedHistory,
    numbers: &[u64],
    like: &TransactionHeader,
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
        if let Ok(header) = TransactionHeader::parse(&event)
            && header.gtid == like.gtid
        {
            return Ok(Some(header));
        }
    }
    Ok(None)
}
