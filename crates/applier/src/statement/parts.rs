//! The tools that statements share with rows that can't be rolled back.

use std::sync::Arc;

use crate::options::ApplierOptions;
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
