//! The target's definitions, as admission asks for them.

use std::future::ready;
use std::sync::Arc;

use csa_provider::binlog::{GtidSet, Uuid};

use crate::keys::{TableId, TableKeys};

/// The reason the definitions can't be read.
pub type KeySourceError = Box<dyn std::error::Error + Send + Sync>;

/// The target's answer, or why it can't be asked.
pub type Answer<T> = std::result::Result<T, KeySourceError>;

/// The source of the tables' keys: the target's definitions, as they are once everything before the
/// current transaction is committed.
pub trait KeySource: Send {
    /// The table's number and keys; no keys mean that it does not exist.
    ///
    /// # Errors
    /// The target could not be asked.
    fn table(
        &mut self,
        schema: &[u8],
        table: &[u8],
    ) -> impl Future<Output = Answer<(TableId, Option<Arc<TableKeys>>)>> + Send;

    /// Returns the table of a trigger; `None` if there is no such trigger.
    ///
    /// # Errors
    /// The target could not be asked.
    fn trigger_table(
        &mut self,
        schema: &str,
        trigger: &str,
    ) -> impl Future<Output = Answer<Option<String>>> + Send;

    /// Returns true if there is any table whose changes can't be rolled back.
    ///
    /// # Errors
    /// The target could not be asked.
    fn has_not_transactional(&mut self) -> impl Future<Output = Answer<bool>> + Send {
        ready(Ok(false))
    }

    /// True if this is the target's `server_uuid`, or that of a server which the target has replaced; MariaDB has
    /// none.
    ///
    /// # Errors
    /// The target could not be asked.
    fn is_own(&mut self, _: &Uuid) -> impl Future<Output = Answer<bool>> + Send {
        ready(Ok(false))
    }

    /// Returns those of these transactions that the target has executed under these GTIDs.
    ///
    /// # Errors
    /// The target could not be asked.
    fn executed(&mut self, _: &GtidSet) -> impl Future<Output = Answer<GtidSet>> + Send {
        ready(Ok(GtidSet::new()))
    }

    /// Ends the reading of a long transaction for which nobody waits any more.
    ///
    /// # Errors
    /// It is to end.
    fn go_on(&self) -> Answer<()> {
        Ok(())
    }

    /// Returns true, once, if definitions may have changed without a statement of the channel.
    fn is_doubted(&mut self) -> bool {
        false
    }

    /// Forgets what was read: definitions may have changed.
    fn forget(&mut self);
}
