//! A failed row transaction as an error that names it and its tables.

use csa_provider::binlog::{EventType, TableMap};
use csa_scheduler::admission::AdmittedTransaction;

use super::failing_row::FailingRow;
use crate::error::Error;

/// ER_GTID_UNSAFE_NON_TRANSACTIONAL_TABLE.
pub(crate) const NOT_TRANSACTIONAL: u16 = 1785;
/// ER_BEFORE_DML_VALIDATION_ERROR: the table is not one that a group takes.
const NOT_FOR_GROUP: u16 = 3098;
/// ER_APPLIER_LOG_EVENT_VALIDATION_ERROR: the same for a row image.
const ROW_NOT_FOR_GROUP: u16 = 3635;
/// ER_UNKNOWN_ERROR: BINLOG returns no more than this for some causes.
pub(crate) const UNKNOWN: u16 = 1105;

pub(crate) fn named(
    transaction: &AdmittedTransaction,
    error: &Error,
    row: Option<Box<FailingRow>>,
) -> Error {
    let code = error.code().unwrap_or_default();
    let mut message = error.server_text();
    // The server names nothing for some types, such as VECTOR into another one.
    let mismatch = row.as_ref().and_then(|row| row.mismatch.as_deref());
    if let (UNKNOWN, Some(mismatch)) = (code, mismatch) {
        message.push(&format!(
            ": {mismatch}; give the column the source's type there (ALTER TABLE), or set executor = \
             \"sql\", which refuses such types by name"
        ));
    }
    let denied = row.as_ref().and_then(|row| row.denied.as_deref());
    if let (UNKNOWN, Some(denied)) = (code, denied) {
        message.push(&format!(
            ": {denied}. Grant it to the channel's account on the target (config/grants-target.sql)"
        ));
    }
    message.push(match code {
        NOT_TRANSACTIONAL => {
            " One of its tables is no longer transactional on the target: restart the channel, \
             which then writes such rows alone, or run there: ALTER TABLE … ENGINE=InnoDB"
        }
        NOT_FOR_GROUP | ROW_NOT_FOR_GROUP => {
            " A group takes rows only of InnoDB tables with a primary key. Give the table one on the target: ALTER \
             TABLE … ADD COLUMN my_row_id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT INVISIBLE PRIMARY KEY, or on the \
             source; then restart the channel"
        }
        UNKNOWN if mismatch.is_none() && denied.is_none() => {
            ": the target's error log has the cause. Column types differ (run there: SET PERSIST \
             replica_type_conversions='ALL_NON_LOSSY'), or our account may not write the table"
        }
        _ => "",
    });
    let gtid = transaction.relayed.header.gtid.to_string();
    Error::Transaction { gtid, of: tables_of(transaction), code, message, row, half_way: false }
}

/// The tables that a transaction writes, as many as fit a line.
pub(crate) fn tables_of(transaction: &AdmittedTransaction) -> String {
    const NAMED_MAX: usize = 5;
    let mut tables: Vec<String> = Vec::new();
    for event in transaction.events().map_while(|event| event.ok()) {
        if event.event_type() != EventType::TABLE_MAP {
            continue;
        }
        let Ok(map) = TableMap::parse(event.body()) else { continue };
        let name = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let table = format!("{}.{}", name(map.schema), name(map.table));
        if !tables.contains(&table) {
            tables.push(table);
        }
        if tables.len() > NAMED_MAX {
            tables.truncate(NAMED_MAX);
            tables.push("…".to_owned());
            break;
        }
    }
    format!("row changes of {}", tables.join(", "))
}
