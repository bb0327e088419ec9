//! The place at which reception begins. A target may have what nobody has archived: its daemon was another one, or has lost
//! its relay store.

use std::time::Duration;

use csa_provider::binlog::GtidSet;
use tracing::{info, warn};

use super::options::ArchiveOptions;
use crate::archive::index::HistoryMark;
use crate::archive::store::{Archive, ArchiveError, HistoryEnd, Result};

/// Time after which a channel begins without an answer of the archive.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time for the list of an archive that answers, which may be long. The session that holds the channel is silent
/// meanwhile, and the target ends it after a minute.
const LIST_PATIENCE: Duration = Duration::from_secs(40);

/// The place at which a channel with an archive begins. Both sets are a part of what its target has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BeginningOfReception {
    /// The channel receives what follows.
    pub(crate) after: GtidSet,
    /// Nobody needs it: it is archived, or never will be.
    pub(crate) settled: GtidSet,
}

/// Returns the place after which a channel receives whose target has `executed`, so that its archive gets the rest, and the
/// last file again: its transactions are compared with those of the source. The source has executed `all`, and has `purged`
/// a part of it.
pub(crate) async fn begin(
    options: &ArchiveOptions,
    channel: &str,
    executed: &GtidSet,
    all: &GtidSet,
    purged: &GtidSet,
) -> BeginningOfReception {
    let found = match Archive::open(&options.location, channel) {
        Ok(archive) => end(&archive).await,
        Err(error) => Err(error),
    };
    let end = match found {
        Ok(Some(end)) => end,
        Ok(None) => {
            warn!("the archive does not say in time where it ends");
            return without_archive(executed, all);
        }
        Err(error) => {
            warn!(%error, "the archive does not say where it ends");
            return without_archive(executed, all);
        }
    };
    let begin = after(executed, &end, all, purged);
    let again = executed.difference(&begin.after).difference(&end.archived);
    if !again.is_empty() {
        info!(transactions = %again.brief(), "the target has these, and the archive lacks them: they are received for it");
    }
    begin
}

/// Returns the end of the archive, as far as this version can read it; `None` if it does not answer in time.
async fn end(archive: &Archive) -> Result<Option<HistoryEnd>> {
    let Ok(found) = tokio::time::timeout(PATIENCE, archive.last_readable_mark()).await else {
        return Ok(None);
    };
    let (mark, damage) = found?;
    if let Some(damage) = damage {
        warn_of(&damage);
    }
    let Some(mark) = mark else { return Ok(Some(HistoryEnd::default())) };
    tokio::time::timeout(LIST_PATIENCE, readable_end(archive, mark)).await.ok().transpose()
}

/// Returns the end of the last file that this version can read. A later version may have written more, and what it has
/// written does not say how much: without it the relay store would begin after transactions that no version archives.
async fn readable_end(archive: &Archive, mark: HistoryMark) -> Result<HistoryEnd> {
    let history = archive.history(&mark.history);
    let objects = history.objects().await?;
    // A second list would need the time of the first one again.
    let numbers = objects.numbers.clone();
    match history.end_of(objects).await {
        Err(damage @ ArchiveError::Damaged { .. }) => warn_of(&damage),
        end => return end,
    }
    let ended =
        |archived, before_last| HistoryEnd { archived, before_last, ..HistoryEnd::default() };
    for number in numbers.into_iter().rev() {
        match history.index(number).await {
            Ok(Some(index)) => return Ok(ended(index.end(), index.before)),
            Ok(None) | Err(ArchiveError::Damaged { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(ended(mark.begins_after.clone(), mark.begins_after))
}

fn warn_of(damage: &ArchiveError) {
    warn!(
        %damage,
        "a part of the archive can't be read; what follows its last readable file is received again"
    );
}

/// Decides the place. Pure.
fn after(
    executed: &GtidSet,
    end: &HistoryEnd,
    all: &GtidSet,
    purged: &GtidSet,
) -> BeginningOfReception {
    let without = without_archive(executed, all);
    // An archive of something else continues nothing.
    if !executed.intersects(&end.archived) {
        return without;
    }
    // Transactions of the target's own, and of other channels, never come.
    let mut rest = without.after.difference(all);
    rest.union(&executed.intersection(purged));
    let with = |part: &GtidSet| {
        let mut set = executed.intersection(part);
        set.union(&rest);
        set
    };
    BeginningOfReception { after: with(&end.before_last), settled: with(&end.archived) }
}

/// Returns the place where nothing is archived. That is `executed` without what the source may still get: another channel
/// takes it there from the target, or it is a replica that is late. It has transactions of the same servers. Such
/// transactions are received for the archive once the source has them.
fn without_archive(executed: &GtidSet, all: &GtidSet) -> BeginningOfReception {
    let coming = executed.difference(all).of_servers(|server| all.has_uuid(server));
    BeginningOfReception { after: executed.difference(&coming), settled: executed.clone() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;
    use object_store::throttle::{ThrottleConfig, ThrottledStore};

    use super::*;
    use crate::archive::index::tests::{index, mark};
    use crate::archive::index::{FORMAT, FileIndex};

    fn ended(before_last: GtidSet, archived: GtidSet) -> HistoryEnd {
        HistoryEnd { archived, before_last, ..HistoryEnd::default() }
    }

    #[test]
    fn what_the_archive_lacks_is_received_again_if_the_source_has_it() {
        let set = |intervals: &str| -> GtidSet {
            match intervals {
                "" => GtidSet::new(),
                of => format!("07070707-0707-0707-0707-070707070707:{of}").parse().expect("a set"),
            }
        };
        let decide = |executed, (before_last, archived), all, purged| {
            let end = ended(set(before_last), set(archived));
            after(&set(executed), &end, &set(all), &set(purged)).after
        };
        let (new, old) = (("", ""), ("1-12", "1-15"));
        assert_eq!(decide("1-20", ("1-18", "1-20"), "1-30", ""), set("1-18"), "it is compared");
        assert_eq!(decide("1-20", ("1-18", "1-25"), "1-30", ""), set("1-18"), "it has more");
        assert_eq!(decide("1-20", ("1-22", "1-25"), "1-30", ""), set("1-20"));
        assert_eq!(decide("1-20", ("", "1-20"), "1-30", ""), set(""), "it has one file");
        assert_eq!(decide("1-20", old, "1-30", "1-10"), set("1-12"));
        assert_eq!(decide("1-20", old, "1-30", "1-13"), set("1-13"), "14 and 15 are compared");
        assert_eq!(decide("1-20", old, "1-30", "1-17"), set("1-17"), "16-17 are a gap");
        assert_eq!(decide("1-20:50", old, "1-30", ""), set("1-12"), "50 may still come");
        assert_eq!(decide("1-20", new, "1-30", ""), set("1-20"), "a new archive");
        let settled = |archived, purged| {
            let end = ended(set("1-12"), set(archived));
            after(&set("1-20"), &end, &set("1-30"), &set(purged)).settled
        };
        assert_eq!(settled("1-25", ""), set("1-20"));
        assert_eq!(settled("1-15", ""), set("1-15"), "the archive needs the rest");
        assert_eq!(settled("1-15", "1-17"), set("1-17"), "it never gets 16-17");
    }

    #[test]
    fn what_comes_to_the_source_from_the_target_is_received_once_it_is_there() {
        let set = |source: &str, target: &str| -> GtidSet {
            let of = |server: u8, intervals: &str| match intervals {
                "" => String::new(),
                of => format!("0707070{server}-0707-0707-0707-070707070707:{of}"),
            };
            [of(1, source), of(2, target)].join(",").trim_matches(',').parse().expect("a set")
        };
        let executed = set("1-20", "1-40");
        let decide =
            |all: &GtidSet, end: &HistoryEnd| after(&executed, end, all, &GtidSet::new()).after;
        let end = ended(set("1-18", "1-30"), set("1-20", "1-30"));
        assert_eq!(decide(&set("1-25", "1-30"), &end), set("1-18", "1-30"));
        assert_eq!(
            decide(&set("1-25", "1-30"), &HistoryEnd::default()),
            set("1-20", "1-30"),
            "a new one"
        );
        // Nothing brings the target's own transactions to this source.
        let end = ended(set("1-18", ""), set("1-20", ""));
        assert_eq!(decide(&set("1-25", ""), &end), set("1-18", "1-40"));
        assert_eq!(decide(&set("1-25", ""), &HistoryEnd::default()), executed);
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_later_version_has_archived_is_received_again() {
        let of = |intervals: &str| format!("07070707-0707-0707-0707-070707070707:{intervals}");
        let set = |intervals: &str| -> GtidSet { of(intervals).parse().expect("a set") };
        // Its lists are long.
        let slow = ThrottleConfig {
            wait_list_per_call: Duration::from_secs(9),
            ..ThrottleConfig::default()
        };
        let store = Arc::new(ThrottledStore::new(InMemory::new(), slow));
        let archive = Archive::over(store, "shop");
        let mark = mark("a");
        let history = archive.begin(&mark).await.expect("begun");
        history.publish(&index(1, &of("1-800"), &of("801-900"))).await.expect("published");
        let later = index(2, &of("1-900"), &of("901-950"));
        let later = FileIndex { format: FORMAT + 1, ..later };
        history.publish(&later).await.expect("published");
        let began = tokio::time::Instant::now();
        let found = end(&archive).await.expect("readable").expect("an end");
        assert_eq!(began.elapsed().as_secs(), 18, "one list of marks, and one of files");
        assert_eq!((&found.before_last, &found.archived), (&set("1-800"), &set("1-900")));
        let begin = after(&set("1-1000"), &found, &set("1-1000"), &set("1-500"));
        assert_eq!((begin.after, begin.settled), (set("1-800"), set("1-900")));

        let later = HistoryMark { format: FORMAT + 1, history: "b".to_owned(), ..mark };
        archive.begin(&later).await.expect("begun");
        let found = end(&archive).await.expect("readable").expect("an end");
        assert_eq!(found.archived, set("1-900"), "a history of a later version");
    }
}
