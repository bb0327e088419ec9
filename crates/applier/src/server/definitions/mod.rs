//! Definitions of the target's tables: keys for the scheduler, columns for rows written as SQL.

mod ahead;
pub(crate) mod catalogue;
mod collations;
mod doubts;
mod keys;
mod known;
mod references;
pub(crate) mod table;
pub(crate) mod tables;

use csa_scheduler::filter::lower_case_name;

pub(crate) use keys::NOT_TRANSACTIONAL;

/// A table's schema and name. The keys' side has them in lower case if the target ignores case.
pub(crate) type TableName = (String, String);

/// Returns the function that gives a name the case in which the keys' side has it.
fn folding(folds_case: bool) -> impl Fn(String) -> String + Copy {
    move |name| if folds_case { lower_case_name(&name) } else { name }
}
