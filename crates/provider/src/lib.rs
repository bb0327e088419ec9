#![doc = include_str!("../README.md")]
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::indexing_slicing))]
// Tests may look at the real clock and disk.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod assembler;
mod backoff;
mod bytes_reader;
mod cause;
mod clock;
mod clock_difference;
mod connection;
mod durations;
mod environment;
mod event;
mod grants;
mod gtid;
mod history;
pub mod link;
mod options;
pub mod planted;
mod preflight;
mod product;
mod provider;
mod recorder;
mod semi_sync;
mod sink;
mod sql_text;
mod status;
#[cfg(any(test, feature = "test-util"))]
pub mod test_util;
mod timestamp;
pub mod visible;

pub use assembler::{Placement, StreamError, TransactionAssembler};
pub use backoff::Backoff;
pub use bytes_reader::Malformed;
pub use cause::SourceCause;
pub use clock::{Clock, CommitTimes, SystemClock};
pub use clock_difference::ClockDifference;
pub use connection::{ConnectionError, SourceConnection};
pub use durations::{BOUNDS_MICROS, Durations, DurationsView};
pub use environment::{Chance, Environment, SystemChance};
pub use event::{
    ChecksumAlgorithm, Column, ColumnType, ColumnValue, Date, DateTime, EventError, EventHeader,
    EventType, Field, FormatDescription, JsonDiff, JsonForm, JsonOperation, JsonValue, OldTemporal,
    PayloadEvents, QueryCharset, QueryEvent, RawEvent, RowsEvent, RowsKind, SessionContext,
    TableMap, Time, TransactionHeader, TransactionPayload, Value, ValueColumn, ValueType,
    XaPrepareEvent, charset_of, collation_name, is_full_image, scan_image,
};
pub use grants::{Grants, account_name};
pub use gtid::{Gtid, GtidSet, Interval, InvalidTag, ParseGtidError, Tag, Uuid};
pub use history::{Foreign, Known, SharedForeign, foreign_to, no_foreign};
pub use link::TlsMode;
pub use options::SourceOptions;
pub use preflight::{PreflightError, SourceFacts, preflight};
pub use product::{Product, unsupported_source, unsupported_target, version_numbers};
pub use provider::{Error, Provider, ReceptionEnd};
pub use recorder::{Details, Recorder, Recording, Span, Track};
pub use sink::{SinkError, TransactionSink};
pub use sql_text::{
    Dialect, Lexer, SpecialComment, Statement, Token, TokenKind, Unclosed, XaVerb, first_words,
    identifier, quote,
};
pub use status::{SourceStatus, SourceView};
pub use timestamp::rfc3339;
