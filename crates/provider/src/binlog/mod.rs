//! The vocabulary of a change stream: GTIDs and events. Pure.

pub(crate) mod bytes_reader;
pub(crate) mod commit_times;
pub(crate) mod event;
pub mod file;
pub(crate) mod gtid;
pub(crate) mod version;

pub use bytes_reader::Malformed;
pub use commit_times::CommitTimes;
pub use event::{
    ChecksumAlgorithm, Column, ColumnType, ColumnValue, Date, DateTime, EventError, EventHeader,
    EventType, Field, FormatDescription, JsonDiff, JsonForm, JsonOperation, JsonValue, OldTemporal,
    PayloadEvents, QueryCharset, QueryEvent, RawEvent, RowsEvent, RowsKind, SessionContext,
    TableMap, TemporalType, Time, TransactionHeader, TransactionPayload, UpdatedRow, Value,
    ValueColumn, ValueType, XaPrepareEvent, charset_of, collation_name, scan_image,
};
pub use gtid::{Gtid, GtidSet, Interval, InvalidTag, ParseGtidError, Tag, Uuid, owned_gtids};
pub use version::version_numbers;
