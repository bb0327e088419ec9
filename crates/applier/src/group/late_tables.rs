//! Tables whose rows wait for other groups, shown to explain what limits the speed.

use std::collections::BTreeMap;

use csa_provider::binlog::TableMap;
use csa_scheduler::changes::RowsBlock;
use csa_scheduler::group::Group;
use csa_scheduler::keys::TableUse;
use csa_scheduler::sequence::Sequence;

/// Returns the rows of a group that touch keys of a group above `low_water`, by table.
pub(crate) fn late_rows(group: &Group, low_water: Sequence) -> BTreeMap<String, u64> {
    let is_late = |key| group.late.get(&key).is_some_and(|&earlier| earlier > low_water.get());
    let mut late = BTreeMap::new();
    let changes = group.transactions.iter().filter_map(|transaction| transaction.changes.as_ref());
    for changes in changes {
        for block in &changes.blocks {
            let rows = block.rows.0 as usize..block.rows.1 as usize;
            let waiting = |&row: &usize| changes.keys_of(row).iter().any(|key| is_late(key.key()));
            let waiting = rows.filter(waiting).count() as u64;
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
