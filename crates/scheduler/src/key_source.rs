//! The target's definitions, as admission asks for them.

use std::sync::Arc;

use csa_provider::binlog::{GtidSet, Uuid};

use crate::keys::{TableId, TableKeys};

/// The reason the definitions can't be read.
pub type KeySourceError = Box<dyn std::error::Error + Send + Sync>;

/// The source of the tables' keys: the target's definitions, as they are once everything before the
/// current transaction is committed.
#[allow(
    async_fn_in_trait,
    reason = "admission stays on one thread, so its futures need not be Send"
)]
pub trait KeySource {
    /// The table's number and keys; no keys mean that it does not exist.
    ///
    /// # Errors
    /// The target could not be asked.
    async fn table(
        &mut self,
        schema: &[u8],
        table: &[u8],
    ) -> std::result::Result<(TableId, Option<Arc<TableKeys>>), KeySourceError>;

    /// Returns the table of a trigger; `None` if there is no such trigger.
    ///
    /// # Errors
    /// The target could not be asked.
    async fn trigger_table(
        &mut self,
        schema: &str,
        trigger: &str,
    ) -> std::result::Result<Option<String>, KeySourceError>;

    /// Returns true if there is any table whose changes can't be rolled back.
    ///
    /// # Errors
    /// The target could not be asked.
    async fn has_not_transactional(&mut self) -> std::result::Result<bool, KeySourceError> {
        Ok(false)
    }

    /// True if this is the target's `server_uuid`, or that of a server which the target has replaced; MariaDB has
    /// none.
    ///
    /// # Errors
    /// The target could not be asked.
    async fn is_own(&mut self, _: &Uuid) -> std::result::Result<bool, KeySourceError> {
        Ok(false)
    }

    /// Returns those of these transactions that the target has executed under these GTIDs.
    ///
    /// # Errors
    /// The target could not be asked.
    async fn executed(&mut self, _: &GtidSet) -> std::result::Result<GtidSet, KeySourceError> {
        Ok(GtidSet::new())
    }

    /// Forgets what was read: definitions may have changed.
    fn forget(&mut self);
}
