//! The tools that statements share with rows that can't be rolled back.

use std::sync::Arc;

use crate::options::ApplierOptions;
use crate::status::ApplierStatus;
use crate::target::definitions::tables::TargetTables;
use crate::target::port::Target;

#[derive(Debug)]
pub(super) struct Parts {
    pub(super) target: Target,
    pub(super) options: ApplierOptions,
    pub(super) status: Arc<ApplierStatus>,
    pub(super) tables: Arc<TargetTables>,
}
