//! Tables that keep no row (BLACKHOLE). The server's own applier passes over an UPDATE or DELETE there and
//! still logs it for the target's replicas; of a client, the engine finds no row, and nothing is logged.
//! So such a change is refused by name: passed over, it would be missing on these replicas.

use std::collections::HashMap;

use csa_provider::binlog::{EventType, RowsEvent, RowsKind, TableMap};
use csa_scheduler::admission::AdmittedTransaction;
use csa_scheduler::filter::lower_case_name;
use tracing::info;

use crate::error::{Error, Result};
use crate::options::{ApplierOptions, Executor};
use crate::rows::dml::{codes, keeps_no_rows, name_of};
use crate::server::as_source;
use crate::server::definitions::TableName;
use crate::server::definitions::table::BLACKHOLE;
use crate::server::session::Session;

/// Returns true if the error may come from such a table. Statements are refused before they are
/// sent.
pub(crate) fn may_be_why(error: &Error, options: &ApplierOptions) -> bool {
    options.executor == Executor::RowImage
        && matches!(error, Error::Target { .. })
        && error.code() == Some(codes::KEY_NOT_FOUND)
}

/// Returns the error, or where a table of the transaction keeps no rows, that reason. The session has no
/// transaction.
pub(crate) async fn explained(
    error: Error,
    transaction: &AdmittedTransaction,
    session: &mut Session,
    options: &ApplierOptions,
) -> Error {
    match find(transaction, session, options).await {
        Ok(Some((schema, table))) => keeps_no_rows(&schema, &table).into(),
        Ok(None) => error,
        Err(why) => {
            info!(%why, "could not look up the engines of the transaction's tables");
            error
        }
    }
}

/// Returns a table that keeps no row, and that the transaction updates or deletes from.
async fn find(
    transaction: &AdmittedTransaction,
    session: &mut Session,
    options: &ApplierOptions,
) -> Result<Option<TableName>> {
    if options.statement_gtids {
        // The failed attempt may have left the source's GTID in gtid_next.
        session.run(as_source::AUTOMATIC).await?;
    }
    session.leave_now().await?;
    session.use_bytes(false).await?;
    let query = format!(
        "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE ENGINE='{BLACKHOLE}'"
    );
    let known: Vec<TableName> = session.rows(&query).await?;
    let folded = |(schema, table): &TableName| (lower_case_name(schema), lower_case_name(table));
    let known: Vec<TableName> = known.iter().map(folded).collect();
    let changed = changed(transaction);
    Ok(changed.into_iter().find(|table| known.contains(&folded(table))))
}

/// Returns the tables in which the transaction needs rows.
fn changed(transaction: &AdmittedTransaction) -> Vec<TableName> {
    let mut maps: HashMap<u64, TableName> = HashMap::new();
    let mut tables = Vec::new();
    for event in transaction.events().map_while(|event| event.ok()) {
        if event.event_type() == EventType::TABLE_MAP {
            if let Ok(map) = TableMap::parse(event.body()) {
                maps.insert(map.table_id, name_of(&map));
            }
            continue;
        }
        let rows = RowsEvent::parse_any(event.event_type(), event.body()).ok().flatten();
        let needed = rows.filter(|rows| rows.kind != RowsKind::Write);
        if let Some(name) = needed.and_then(|rows| maps.get(&rows.table_id))
            && !tables.contains(name)
        {
            tables.push(name.clone());
        }
    }
    tables
}
