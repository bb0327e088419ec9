//! The tools that statements share with rows that can't be rolled back.

use std::sync::Arc;

use csa_scheduler::group::Group;

use crate::error::Result;
use crate::options::{ApplierOptions, TargetGtids};
use crate::ownership::intent;
use crate::ownership::keeper::Keeper;
use crate::server::definitions::tables::TargetTables;
use crate::server::target::Target;
use crate::status::ApplierStatus;

#[derive(Debug)]
pub(super) struct Parts {
    pub(super) target: Target,
    pub(super) options: ApplierOptions,
    pub(super) status: Arc<ApplierStatus>,
    pub(super) tables: Arc<TargetTables>,
}

impl Parts {
    /// Writes the checkpoint and removes the entry of what is there. Done again, it changes nothing more.
    pub(super) async fn conclude(
        &self,
        keeper: &mut Keeper,
        group: &Group,
        gtid: &str,
    ) -> Result<()> {
        let session = keeper.session();
        // Rows that changed nothing, or an operator's word that they are there, leave the GTID unused.
        if self.target.gtids == TargetGtids::Source && !session.has_executed(gtid).await? {
            session.consume_logged(gtid).await?;
        }
        let concluded = self.write_and_withdraw(keeper, group).await;
        if concluded.as_ref().is_err_and(|error| error.code().is_some()) {
            // The next BEGIN would commit the part of it that is open.
            keeper.session().run("ROLLBACK").await?;
        }
        concluded
    }

    /// One transaction: a crash leaves the entry and the old checkpoint, or neither.
    async fn write_and_withdraw(&self, keeper: &mut Keeper, group: &Group) -> Result<()> {
        keeper.session().run("BEGIN").await?;
        keeper.write_checkpoint(group.sequence, &group.executed_after).await?;
        let session = keeper.session();
        session.run(intent::withdraw(&self.options.channel)).await?;
        session.run("COMMIT").await.map(drop)
    }
}
