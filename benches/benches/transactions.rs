//! Transactions for the benches of parts.

use std::sync::Arc;

use csa_provider::binlog::EventType;
use csa_provider::test_util::{
    event, format_description, int_image, int_table_map, query_event, rows_event,
};
use csa_relaystore::read::RelayedTransaction;
use csa_relaystore::test_util::relayed_events;
use csa_scheduler::admission::AdmittedTransaction;
use csa_scheduler::changes::RowChanges;

/// A transaction of `updates` updates, as the source sends it.
pub(crate) fn relayed(gno: u64, updates: i32) -> RelayedTransaction {
    let mut events = vec![query_event("", "BEGIN")];
    for update in 0..updates {
        let row =
            |value| int_image(&[Some(gno as i32 * updates + update), Some(1), None, Some(value)]);
        events.push(int_table_map(7, "d", "t", 4));
        events.push(rows_event(EventType::UPDATE_ROWS, 7, 4, &[row(1), row(2)].concat()));
    }
    events.push(event(EventType::XID, &[0; 8]));
    relayed_events(gno, &Arc::new(format_description()), &events)
}

/// Returns a transaction like the template with another number and these changes.
pub(crate) fn admitted(
    template: &RelayedTransaction,
    gno: u64,
    changes: RowChanges,
) -> AdmittedTransaction {
    let mut relayed = template.clone();
    relayed.header.gtid.gno = gno;
    csa_scheduler::test_util::admitted(relayed, Some(changes))
}
