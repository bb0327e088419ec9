#![doc = include_str!("../README.md")]
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::indexing_slicing))]

mod bytes_reader;
mod connection;
mod event;
mod gtid;
mod options;
mod preflight;
mod provider;
mod sink;
mod statement;
mod status;
#[cfg(any(test, feature = "test-util"))]
pub mod test_util;
mod timestamp;
mod tls;
mod transaction;

pub use bytes_reader::Malformed;
pub use connection::{ConnectionError, SourceConnection};
pub use event::{
    ChecksumAlgorithm, Column, ColumnType, ColumnValue, Date, DateTime, EventError, EventHeader,
    EventType, Field, FormatDescription, JsonDiff, JsonOperation, JsonValue, PayloadEvents,
    QueryCharset, QueryEvent, RawEvent, RowsEvent, RowsKind, SessionContext, TableMap, Time,
    TransactionHeader, TransactionPayload, Value, ValueColumn, ValueType, XaPrepareEvent,
    charset_of, collation_name, is_full_image, scan_image,
};
pub use gtid::{Gtid, GtidSet, Interval, InvalidTag, ParseGtidError, Tag, Uuid};
pub use options::{SourceOptions, TlsMode};
pub use preflight::{PreflightError, SourceFacts, preflight};
pub use provider::{Error, Provider};
pub use sink::{SinkError, TransactionSink};
pub use statement::{Statement, XaVerb};
pub use status::{SourceStatus, SourceView};
pub use timestamp::rfc3339;
pub use transaction::{Placement, StreamError, TransactionAssembler};
