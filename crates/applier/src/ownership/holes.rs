//! Transactions that the target lacks below others that it has, where its `gtid_executed` is the checkpoint
//! (`target_gtids = "source"`). Applied now, after the later ones, they can bring old values back. Pure.
//!
//! A channel that commits out of the source's order leaves such holes when it ends, and so does a replica that
//! did before it: they have to be filled. One that commits in order leaves none, so with it somebody else
//! executed the later ones, or took GTIDs away. Two things are no holes. The source's own order need not be
//! that of its numbers: groups assign them in blocks, and a source may be a replica that commits out of order.
//! Only the relay store shows that order. And everything that the target lacked when the channel last wrote its
//! row for readers was looked at then.

use csa_provider::binlog::{Gtid, GtidSet};

use super::checkpoint::PROGRESS;
use crate::checkpoint::StartFrom;
use crate::ownership::channel_record::ChannelRecord;
use crate::ownership::start_position::shown;

/// Facts about a channel that is about to start.
#[derive(Debug)]
pub struct HolesBelow<'a> {
    pub channel: &'a str,
    /// The target, as errors name it.
    pub address: &'a str,
    pub start: &'a StartFrom,
    /// The channel as the target records it; `None` at its first start.
    pub record: Option<&'a ChannelRecord>,
    /// The target's `gtid_executed`.
    pub target: &'a GtidSet,
    /// Everything that the source has executed, or the relay store received while the source is away.
    pub source: &'a GtidSet,
    /// The channel commits in the source's order from now on.
    pub in_order: bool,
}

/// The relay store's word about transactions in question.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Received {
    /// Those that it has.
    pub found: GtidSet,
    /// Those of them after which it has transactions that the target has executed, and the last of these.
    pub passed: Option<(GtidSet, Gtid)>,
}

impl HolesBelow<'_> {
    /// Everything that the target has executed, or will have when the channel begins.
    #[must_use]
    pub fn executed(&self) -> GtidSet {
        let mut executed = self.target.clone();
        match (self.record.and_then(|record| record.checkpoint.as_ref()), self.start) {
            (Some(checkpoint), _) => executed.union(&checkpoint.executed),
            (None, StartFrom::Executed(set)) => executed.union(set),
            (None, StartFrom::Source) => executed.union(self.source),
            (None, StartFrom::Target) => {}
        }
        executed
    }

    /// The channel committed in order until now, as far as is known.
    fn was_in_order(&self) -> bool {
        self.record.is_some_and(|record| record.follows_target && !record.out_of_order)
    }

    /// Transactions in question: if there are any, [`Self::judge`] needs the relay store's word about them.
    #[must_use]
    pub fn holes(&self) -> GtidSet {
        let executed = self.executed();
        let holes = self.source.difference(&executed).below_ends_of(&executed);
        match self.record.and_then(|record| record.checkpoint.as_ref()) {
            Some(checkpoint) if self.was_in_order() => {
                let known = holes.below_ends_of(&checkpoint.executed);
                holes.difference(&known)
            }
            _ => holes,
        }
    }

    /// Returns a warning if `holes` will be filled and were not to be expected.
    ///
    /// # Errors
    /// The reason why they must not be filled, and how to proceed.
    pub fn judge(&self, holes: &GtidSet, received: &Received) -> Result<Option<String>, String> {
        let Self { channel, address, .. } = self;
        if self.in_order && self.was_in_order() {
            if let Some((passed, later)) = &received.passed {
                return Err(format!(
                    "target {address} lacks {passed} and has executed {later}, which the source committed \
                     later; channel {channel:?} commits in the source's order, so somebody executed {later} \
                     there by hand, or GTIDs were lost. Applied now, {passed} could bring old values back. If the tables \
                     have these changes, run there: SET GLOBAL gtid_purged='+{passed}'. If they are to be applied \
                     all the same, after the later ones, run there: SET sql_log_bin=0; UPDATE csa.checkpoint SET \
                     gtid_executed=@@GLOBAL.gtid_executed WHERE channel='{channel}' AND worker={PROGRESS}. \
                     Otherwise copy the source again"
                ));
            }
            // They come later in the source's order too.
            if holes.is_subset_of(&received.found) {
                return Ok(None);
            }
        }
        Ok((!holes.is_empty()).then(|| {
            format!(
                "target {address} lacks {} and has executed later transactions of the same servers; channel \
                 {channel:?} applies them now",
                shown(holes)
            )
        }))
    }
}

#[cfg(test)]
#[path = "holes_tests.rs"]
mod tests;
