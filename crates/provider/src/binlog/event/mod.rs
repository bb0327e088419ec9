//! Binary log events: framing, and the contents of those that the pipeline needs
//! (<https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_replication_binlog_event.html>).

mod column;
mod event_type;
mod format_description;
mod gtid_event;
mod header;
mod payload;
mod query;
mod raw;
mod rows;
mod table_map;
mod value;
mod xa;

#[cfg(test)]
mod rows_tests;
#[cfg(test)]
mod tests;

pub use column::{ColumnType, TemporalType};
pub use event_type::EventType;
pub use format_description::FormatDescription;
pub use gtid_event::TransactionHeader;
pub use header::EventHeader;
pub use payload::{PayloadEvents, TransactionPayload};
pub use query::{QueryCharset, QueryEvent, SessionContext};
pub use raw::{ChecksumAlgorithm, RawEvent};
pub use rows::{Field, RowsEvent, RowsKind, UpdatedRow, Value, scan_image};
pub use table_map::{Column, TableMap};
pub use value::{
    ColumnValue, Date, DateTime, JsonDiff, JsonForm, JsonOperation, JsonValue, OldTemporal, Time,
    ValueColumn, ValueType, charset_of, collation_name,
};
pub use xa::XaPrepareEvent;

use crate::binlog::bytes_reader::Malformed;

/// The reason bytes are not a valid event.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    #[error("malformed {event} event: {source}")]
    Malformed {
        event: &'static str,
        #[source]
        source: Malformed,
    },
    #[error("event length {actual} does not match the {declared} in its header")]
    Length { declared: u32, actual: usize },
    #[error("checksum of {event} event is {computed:08x}, the event says {stored:08x}")]
    Checksum { event: &'static str, computed: u32, stored: u32 },
    #[error("unknown checksum algorithm {0}")]
    UnknownChecksum(u8),
    #[error("unknown status variable {0} in a query event")]
    UnknownStatusVariable(u8),
    #[error("unknown field {0} in a transaction payload event")]
    UnknownPayloadField(u64),
    #[error("unknown compression algorithm {0} in a transaction payload event")]
    UnknownCompression(u64),
    #[error("transaction payload can't be decompressed: {0}")]
    Decompress(std::io::Error),
    #[error("transaction payload holds more than the {0} bytes it declares")]
    PayloadTooLong(u64),
    #[error("transaction payload holds an event of {0} bytes; no event has more than 1 GiB")]
    EmbeddedTooLong(u64),
}
