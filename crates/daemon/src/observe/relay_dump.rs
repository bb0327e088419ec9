//! Contents of relayed transactions as lines of JSON: tables, operations, keys and sizes; values
//! only on request.

use std::collections::HashMap;
use std::io::Write;
use std::time::Duration;

use csa_applier::TargetCatalogue;
use csa_provider::binlog::{
    EventType, GtidSet, QueryEvent, RawEvent, RowsEvent, TableMap, TransactionHeader, scan_image,
};
use csa_provider::sql_text::{Statement, first_words};
use csa_relaystore::read::{RelayInspector, RelayedTransaction};
use csa_scheduler::changes::table_id;
use csa_scheduler::events::flattened_events;
use csa_scheduler::key_source::KeySource as _;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::config::ChannelSettings;
use crate::host::rfc3339;
use crate::observe::row_values::{self, Images};

/// After a wait this long for a table's key, the target is not asked again.
const KEY_PATIENCE: Duration = Duration::from_secs(5);

/// The transactions to show, and how much of each.
#[derive(Debug, Clone, Default)]
pub(crate) struct WantedTransactions {
    /// All transactions without one.
    pub(crate) gtid_set: Option<GtidSet>,
    pub(crate) limit: u64,
    /// Row values and the text of statements, which may hold passwords.
    pub(crate) rows: bool,
}

/// A line of the output.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Line {
    /// Begins a transaction; lines of its events follow.
    Transaction {
        gtid: String,
        original_commit_timestamp: String,
        immediate_commit_timestamp: String,
        last_committed: i64,
        sequence_number: i64,
        event_bytes: u64,
        segment: u64,
        offset: u64,
    },
    Rows {
        table: String,
        operation: String,
        /// `None` where rows can't be counted (partial JSON updates).
        rows: Option<u64>,
        bytes: u64,
        /// Columns of the primary key on the target, from 1; `None` without one or without an answer.
        key_columns: Option<Vec<usize>>,
    },
    Row {
        before: Option<Vec<String>>,
        after: Option<Vec<String>>,
    },
    Statement {
        database: String,
        /// Its first words; the whole text on request.
        statement: String,
        bytes: u64,
    },
    Event {
        event_type: String,
        bytes: u64,
    },
    /// The last line.
    End {
        transactions: u64,
        /// More transactions match than are shown.
        more: bool,
        error: Option<String>,
    },
}

type SchemaAndTable = (Vec<u8>, Vec<u8>);

/// Reads a channel's relay store and writes lines. Blocks.
pub(crate) struct Dump<'a, W> {
    settings: &'a ChannelSettings,
    wanted: WantedTransactions,
    catalogue: TargetCatalogue,
    runtime: Handle,
    /// Cancels waiting for the target.
    end: CancellationToken,
    keys: HashMap<SchemaAndTable, Option<Vec<usize>>>,
    /// Table maps of the current transaction.
    maps: HashMap<u64, RawEvent>,
    /// Of the current transaction's format.
    years_have_signs: bool,
    out: W,
}

impl<'a, W: Write> Dump<'a, W> {
    pub(crate) fn new(
        settings: &'a ChannelSettings,
        wanted: WantedTransactions,
        runtime: Handle,
        out: W,
    ) -> Self {
        let end = CancellationToken::new();
        let catalogue = TargetCatalogue::new(settings.target.clone(), end.clone());
        Self {
            settings,
            wanted,
            catalogue,
            runtime,
            end,
            keys: HashMap::new(),
            maps: HashMap::new(),
            years_have_signs: false,
            out,
        }
    }

    /// # Errors
    /// Nobody reads the lines any longer.
    pub(crate) fn run(mut self) -> std::io::Result<()> {
        let (mut transactions, mut more, mut error) = (0, false, None);
        let inspector = RelayInspector::open(&self.settings.relay);
        let found = inspector.map_err(|wrong| error = Some(wrong.to_string()));
        for transaction in found.into_iter().flatten() {
            let transaction = match transaction {
                Ok(transaction) => transaction,
                Err(wrong) => {
                    error = Some(wrong.to_string());
                    break;
                }
            };
            let gtid = &transaction.header.gtid;
            if self.wanted.gtid_set.as_ref().is_some_and(|set| !set.contains(gtid)) {
                self.look()?;
                continue;
            }
            if transactions >= self.wanted.limit {
                more = true;
                break;
            }
            transactions += 1;
            self.begin(&transaction)?;
            if let Some(wrong) = self.events(&transaction)? {
                error = Some(wrong);
                break;
            }
        }
        self.line(&Line::End { transactions, more, error })?;
        self.out.flush()
    }

    fn begin(&mut self, transaction: &RelayedTransaction) -> std::io::Result<()> {
        self.maps.clear();
        self.years_have_signs = transaction.format.years_have_signs();
        let TransactionHeader { gtid, last_committed, sequence_number, .. } = &transaction.header;
        self.line(&Line::Transaction {
            gtid: gtid.to_string(),
            original_commit_timestamp: rfc3339(transaction.header.first_commit()),
            immediate_commit_timestamp: rfc3339(transaction.header.immediate_commit_timestamp),
            last_committed: *last_committed,
            sequence_number: *sequence_number,
            event_bytes: transaction.event_bytes,
            segment: transaction.start.segment,
            offset: transaction.start.offset,
        })
    }

    /// Returns what is wrong with the transaction, if anything.
    fn events(&mut self, transaction: &RelayedTransaction) -> std::io::Result<Option<String>> {
        for event in flattened_events(transaction) {
            let event = match event {
                Ok(event) => event,
                Err(wrong) => return Ok(Some(wrong.to_string())),
            };
            if let Some(wrong) = self.event(event)? {
                return Ok(Some(format!("transaction {}: {wrong}", transaction.header.gtid)));
            }
        }
        Ok(None)
    }

    fn event(&mut self, event: RawEvent) -> std::io::Result<Option<String>> {
        let bytes = event.len() as u64;
        match event.event_type() {
            // The transaction's line stands for it.
            EventType::GTID | EventType::GTID_TAGGED => Ok(None),
            EventType::TABLE_MAP => {
                self.maps.insert(table_id(event.body()), event);
                Ok(None)
            }
            EventType::QUERY => {
                let query = match QueryEvent::parse(event.body()) {
                    Ok(query) => query,
                    Err(wrong) => return Ok(Some(wrong.to_string())),
                };
                let statement = match self.wanted.rows {
                    true => String::from_utf8_lossy(query.statement).into_owned(),
                    false => first_words(query.statement, Statement::read(&query).1),
                };
                let database = String::from_utf8_lossy(query.database).into_owned();
                self.line(&Line::Statement { database, statement, bytes })?;
                Ok(None)
            }
            kind if kind.is_rows() => self.rows(&event),
            // The event's text would be the statement with its values.
            other => {
                let event_type = other.name().to_owned();
                self.line(&Line::Event { event_type, bytes })?;
                Ok(None)
            }
        }
    }

    fn rows(&mut self, event: &RawEvent) -> std::io::Result<Option<String>> {
        let Some(map_event) = self.maps.get(&table_id(event.body())).cloned() else {
            return Ok(Some("rows without a table map".to_owned()));
        };
        let described = TableMap::parse(map_event.body()).and_then(|map| {
            let rows = RowsEvent::parse(event.event_type(), event.body())?;
            let count = rows.map(|rows| count(&map, &rows)).transpose()?;
            Ok((map, count))
        });
        let (map, count) = match described {
            Ok(described) => described,
            Err(wrong) => return Ok(Some(wrong.to_string())),
        };
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let key_columns = self.key_columns(map.schema, map.table);
        self.line(&Line::Rows {
            table: format!("{}.{}", text(map.schema), text(map.table)),
            operation: operation(event.event_type()).to_owned(),
            rows: count,
            bytes: event.len() as u64,
            key_columns,
        })?;
        if !self.wanted.rows {
            return Ok(None);
        }
        let years_have_signs = self.years_have_signs;
        let show = |Images { before, after }| self.line(&Line::Row { before, after });
        row_values::for_each(&map, event, years_have_signs, show)
    }

    fn key_columns(&mut self, schema: &[u8], table: &[u8]) -> Option<Vec<usize>> {
        let name = (schema.to_vec(), table.to_vec());
        if let Some(known) = self.keys.get(&name) {
            return known.clone();
        }
        // Only a target says which columns identify a row there.
        if self.settings.archives_only() {
            return None;
        }
        let end = self.end.clone();
        let patience = self.runtime.spawn(async move {
            tokio::time::sleep(KEY_PATIENCE).await;
            end.cancel();
        });
        let keys = self.runtime.block_on(self.catalogue.table(schema, table));
        let keys = keys.ok().and_then(|(_, keys)| keys);
        patience.abort();
        let columns = keys.and_then(|keys| {
            Some(keys.unique.first()?.parts.iter().map(|part| part.column + 1).collect::<Vec<_>>())
        });
        self.keys.insert(name, columns.clone());
        columns
    }

    /// Fails once nobody reads the lines any longer, which is otherwise noticed with the next one only.
    fn look(&mut self) -> std::io::Result<usize> {
        self.out.write(&[])
    }

    fn line(&mut self, line: &Line) -> std::io::Result<()> {
        serde_json::to_writer(&mut self.out, line)?;
        self.out.write_all(b"\n")
    }
}

fn count(
    map: &TableMap<'_>,
    rows: &RowsEvent<'_>,
) -> Result<u64, csa_provider::binlog::EventError> {
    let columns = map.columns()?;
    let (mut at, mut count) = (0, 0);
    while at < rows.images.len() {
        let begin = at;
        for bitmap in [rows.before, rows.after] {
            if !bitmap.is_empty() {
                let rest = rows.images.get(at..).unwrap_or_default();
                at += scan_image(&columns, bitmap, rest, &[], |_, _| {})?;
            }
        }
        count += 1;
        // Images without a column take no bytes; the rest belongs to no row.
        if at == begin {
            break;
        }
    }
    Ok(count)
}

fn operation(event_type: EventType) -> &'static str {
    match event_type {
        EventType::WRITE_ROWS | EventType::WRITE_ROWS_V1 => "INSERT",
        EventType::DELETE_ROWS | EventType::DELETE_ROWS_V1 => "DELETE",
        _ => "UPDATE",
    }
}
