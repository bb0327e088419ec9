//! The record that a channel committed out of the source's order: a row of `csa.checkpoint` whose set is empty, where
//! the target's `gtid_executed` is the checkpoint. The next start then knows that holes there are to be expected
//! (holes.rs).

use crate::checkpoint::Checkpoint;
use crate::error::Result;
use crate::ownership::checkpoint::{self, OUT_OF_ORDER};
use crate::ownership::control::ControlSession;
use csa_provider::binlog::GtidSet;
use csa_provider::sql_text::quote;
use csa_scheduler::sequence::Sequence;

impl ControlSession {
    /// Records the order in which the channel commits from now on. It must run before the first group begins
    /// and after the row for readers has been written. After a crash in between the earlier record is still
    /// there, so the holes of the earlier run are still expected.
    pub(crate) async fn note_order(&mut self, in_order: bool) -> Result<()> {
        let Self { session, channel, checkpoint, .. } = self;
        if in_order {
            let delete = format!(
                "DELETE FROM csa.checkpoint WHERE channel={} AND worker={OUT_OF_ORDER}",
                quote(channel)
            );
            return session.run(delete).await.map(drop);
        }
        let empty = Checkpoint {
            sequence: Sequence::default(),
            executed: GtidSet::new(),
            epoch: checkpoint.epoch,
        };
        checkpoint::add_rows(session, channel, std::iter::once(OUT_OF_ORDER), &empty).await
    }
}
