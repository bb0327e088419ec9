//! Tables whose rows wait for other groups, shown to explain what limits the speed.

use std::collections::BTreeMap;

use csa_provider::binlog::TableMap;
use csa_scheduler::changes::RowsBlock;
use csa_scheduler::group::Group;
use csa_scheduler::keys::{KeyUse, TableUse};
use csa_scheduler::sequence::Sequence;

/// Returns the rows of a group that wait for a group after `after` and up to `last`, by table.
pub(crate) fn late_rows(group: &Group, after: Sequence, last: Sequence) -> BTreeMap<String, u64> {
    let earlier = |key: &KeyUse| group.late.get(&key.key()).copied().unwrap_or_default();
    let mut late = BTreeMap::new();
    let changes = group.transactions.iter().filter_map(|transaction| transaction.changes.as_ref());
    for changes in changes {
        for block in &changes.blocks {
            let rows = block.rows.0 as usize..block.rows.1 as usize;
            let waits_for = |row| changes.keys_of(row).iter().map(earlier).max();
            let waits_for = rows.filter_map(waits_for).map(Sequence::new);
            let waiting = waits_for.filter(|it| *it > after && *it <= last).count() as u64;
            if waiting > 0 {
                *late.entry(table_name(block)).or_default() += waiting;
            }
        }
    }
    late
}

/// Returns the tables that make the whole group wait, because keys don't distinguish their rows, with the
/// number of rows. Empty if the group conflicts with everything.
pub(crate) fn whole_tables(group: &Group) -> BTreeMap<String, u64> {
    let mut whole = BTreeMap::new();
    let changes = group.transactions.iter().filter_map(|transaction| transaction.changes.as_ref());
    for changes in changes {
        for block in &changes.blocks {
            if changes.tables.contains(&TableUse::Whole(block.layout.id)) {
                let rows = u64::from(block.rows.1 - block.rows.0);
                *whole.entry(table_name(block)).or_default() += rows;
            }
        }
    }
    whole
}

fn table_name(block: &RowsBlock) -> String {
    let body = [&[0; TableMap::ID_LEN], &*block.layout.table_map].concat();
    match TableMap::parse(&body) {
        Ok(map) => {
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            format!("{}.{}", text(map.schema), text(map.table))
        }
        // Not expected: admission has parsed it.
        Err(_) => "a table that can't be named".to_owned(),
    }
}
