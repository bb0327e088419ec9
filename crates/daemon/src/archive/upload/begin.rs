//! The place at which reception begins. A target may have what nobody has archived: its daemon was another one, or has lost
//! its relay store.

use std::time::Duration;

use csa_provider::binlog::GtidSet;
use tracing::{info, warn};

use super::options::ArchiveOptions;
use crate::archive::store::{Archive, Result};

/// Time after which a channel begins without an answer of the archive.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time for the list of an archive that answers, which may be long. The session that holds the channel is silent
/// meanwhile, and the target ends it after a minute.
const LIST_PATIENCE: Duration = Duration::from_secs(40);

/// Returns the part of `executed` after which a channel receives, so that its archive gets the rest. The source has
/// executed `all`, and has `purged` a part of it.
pub(crate) async fn begin(
    options: &ArchiveOptions,
    channel: &str,
    executed: &GtidSet,
    all: &GtidSet,
    purged: &GtidSet,
) -> GtidSet {
    let archived = match archived(options, channel).await {
        Ok(Some(archived)) => archived,
        Ok(None) => {
            warn!("the archive does not say in time where it ends");
            return executed.clone();
        }
        Err(error) => {
            warn!(%error, "the archive does not say where it ends");
            return executed.clone();
        }
    };
    let begin = after(executed, &archived, all, purged);
    let again = executed.difference(&begin);
    if !again.is_empty() {
        info!(transactions = %again.brief(), "the target has these, and the archive lacks them: they are received for it");
    }
    begin
}

/// Returns what is archived; `None` if the archive does not answer.
async fn archived(options: &ArchiveOptions, channel: &str) -> Result<Option<GtidSet>> {
    let archive = Archive::open(&options.location, channel)?;
    let Ok(histories) = tokio::time::timeout(PATIENCE, archive.histories()).await else {
        return Ok(None);
    };
    let Some(last) = histories?.pop() else { return Ok(Some(GtidSet::new())) };
    let history = archive.history(&last);
    match tokio::time::timeout(LIST_PATIENCE, history.end()).await {
        Ok(end) => Ok(Some(end?.archived)),
        Err(_) => Ok(None),
    }
}

/// Decides the place. Pure.
fn after(executed: &GtidSet, archived: &GtidSet, all: &GtidSet, purged: &GtidSet) -> GtidSet {
    let mut begin = executed.intersection(archived);
    // An archive of something else continues nothing.
    if begin.is_empty() {
        return executed.clone();
    }
    begin.union(&executed.intersection(purged));
    // Transactions of the target's own, and of other channels.
    begin.union(&executed.difference(all));
    begin
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_archive_lacks_is_received_again_if_the_source_has_it() {
        let set = |intervals: &str| -> GtidSet {
            match intervals {
                "" => GtidSet::new(),
                of => format!("07070707-0707-0707-0707-070707070707:{of}").parse().expect("a set"),
            }
        };
        let decide = |executed, archived, all, purged| {
            after(&set(executed), &set(archived), &set(all), &set(purged))
        };
        assert_eq!(decide("1-20", "1-20", "1-30", ""), set("1-20"));
        assert_eq!(decide("1-20", "1-25", "1-30", ""), set("1-20"), "the archive has more");
        assert_eq!(decide("1-20", "1-15", "1-30", "1-10"), set("1-15"));
        assert_eq!(decide("1-20", "1-15", "1-30", "1-17"), set("1-17"), "16-17 are a gap");
        assert_eq!(decide("1-20:50", "1-15", "1-30", ""), set("1-15:50"), "50 is the target's");
        assert_eq!(decide("1-20", "", "1-30", ""), set("1-20"), "a new archive");
    }
}
