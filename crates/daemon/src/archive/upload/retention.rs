//! Deletes what is too old, and what killed daemons have left.

use std::time::Duration;

use csa_provider::binlog::GtidSet;

use crate::archive::index::FileIndex;
use crate::archive::layout;
use crate::archive::store::{ArchivedHistory, Result};
use crate::host::micros_of;

/// Files that one sweep deletes at most, so that it ends.
const MOST: usize = 1000;

/// Deletes files of all histories that are older than `keep` and that no pin needs. The newest file stays: it says where
/// the archive ends. Returns the number of deleted files.
pub(super) async fn sweep(
    current: &ArchivedHistory,
    keep: Option<Duration>,
    now: u64,
) -> Result<usize> {
    let archive = current.archive();
    let Some(keep) = keep else { return Ok(0) };
    let oldest = now.saturating_sub(u64::try_from(keep.as_micros()).unwrap_or(u64::MAX));
    let pins: Vec<GtidSet> =
        archive.pins().await?.into_iter().map(|(_, pin)| pin.gtid_set).collect();
    let mut deleted = 0;
    for name in archive.histories().await? {
        let history = archive.history(&name);
        let is_current = name == current.name;
        let objects = history.objects().await?;
        let mut kept = None;
        for (at, &number) in objects.numbers.iter().enumerate() {
            let is_last = is_current && at + 1 == objects.numbers.len();
            let index = history.index(number).await?;
            match index.filter(|index| !is_last && is_over(index, oldest, &pins)) {
                Some(index) if deleted < MOST => {
                    history.delete(&index).await?;
                    deleted += 1;
                }
                _ => {
                    kept = Some(number);
                    break;
                }
            }
        }
        // Files without an index, below the first that stays: a killed daemon left them.
        let before = kept.unwrap_or(if is_current { 0 } else { u64::MAX });
        for file in &objects.files {
            if layout::file_number(file).is_some_and(|number| number < before) {
                history.delete_file(file).await?;
            }
        }
        if kept.is_none() && !is_current {
            history.forget().await?;
        }
    }
    Ok(deleted)
}

/// Returns true if nobody needs the file any more.
fn is_over(index: &FileIndex, oldest: u64, pins: &[GtidSet]) -> bool {
    let is_old = micros_of(&index.last_committed).is_some_and(|last| last < oldest);
    is_old && pins.iter().all(|pin| index.added.is_subset_of(pin))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::index::tests::index;

    #[test]
    fn old_files_stay_while_a_backup_needs_them() {
        let uuid = "07070707-0707-0707-0707-070707070707";
        let file = index(5, "", &format!("{uuid}:10-20"));
        let at = |text: &str| micros_of(text).expect("a time");
        let (before, after) = (at("2026-11-26T08:04:59Z"), at("2026-11-26T08:05:01Z"));
        let pin = |set: &str| vec![format!("{uuid}:{set}").parse().expect("a set")];
        assert!(!is_over(&file, before, &[]), "too young");
        assert!(is_over(&file, after, &[]));
        assert!(!is_over(&file, after, &pin("1-19")), "the backup lacks 20");
        assert!(is_over(&file, after, &pin("1-20")));
        assert!(!is_over(&file, after, &[pin("1-20"), pin("1-3")].concat()));
    }
}
