//! The types of binary log events. Five steps add one:
//!
//! 1. Its code and name in the list below, and in `is_rows` or `is_statement_format` if it is one of those.
//!    From then on it stops a channel, even if the source marks it as ignorable. But in `is_rows` it goes to
//!    the target as it was logged (with `executor = "sql"` it stops), so do the rest first.
//! 2. Its parser in this folder.
//! 3. Its place in a transaction: `TransactionAssembler::place` (crates/provider/src/source/assembler.rs).
//! 4. Its meaning for keys and kind: `Reading::event` (crates/scheduler/src/admission/read.rs). One that has
//!    an effect of its own calls `reader.opaque()` there: groups with known keys are merged from their
//!    rows alone.
//! 5. Its way to the target: `RowImageCutter::push` (crates/applier/src/rows/binlog_statements.rs), which
//!    refuses every other type.
//!
//! Some need more. A rows event needs a place in `RowsEvent::parse` (rows.rs; `parse_any` if its images are not
//! plain), `rows_of` (crates/applier/src/rows/dml/mod.rs), `brought` (crates/scheduler/src/returned.rs) and
//! `operation` (crates/daemon/src/observe/relay_dump.rs). An event outside transactions needs one in
//! `Following::take` and `Following::pass_by` (crates/provider/src/source/reception/following.rs),
//! `Arrivals::note` (arrivals.rs beside it), `Requests::follow` (crates/provider/src/source/semi_sync.rs) and
//! `Writer::append` (crates/relaystore/src/write/writer.rs), which stores format descriptions only. An event that
//! begins a transaction needs one in `TransactionHeader::parse` (gtid_event.rs), one that contains others in
//! crates/scheduler/src/events.rs, and one without a meaning for replicas in `RawEvent::is_passed_over`
//! (raw.rs). CONTRIBUTING.md names the tests.

/// A binary log event's type code (libs/mysql/binlog/event/binlog_event.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventType(pub u8);

macro_rules! event_types {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        impl EventType {
            $(pub const $name: Self = Self($code);)*

            /// The server's name of the type, or "unknown".
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self.0 {
                    $($code => $text,)*
                    _ => "unknown",
                }
            }

            /// Returns true if the type is in the list below.
            #[must_use]
            pub const fn is_known(self) -> bool {
                matches!(self.0, $($code)|*)
            }
        }
    };
}

event_types! {
    START_V3 = 1, "Start_v3";
    QUERY = 2, "Query";
    STOP = 3, "Stop";
    ROTATE = 4, "Rotate";
    INTVAR = 5, "Intvar";
    SLAVE = 7, "Slave";
    APPEND_BLOCK = 9, "Append_block";
    DELETE_FILE = 11, "Delete_file";
    RAND = 13, "Rand";
    USER_VAR = 14, "User_var";
    FORMAT_DESCRIPTION = 15, "Format_desc";
    XID = 16, "Xid";
    BEGIN_LOAD_QUERY = 17, "Begin_load_query";
    EXECUTE_LOAD_QUERY = 18, "Execute_load_query";
    TABLE_MAP = 19, "Table_map";
    WRITE_ROWS_V1 = 23, "Write_rows_v1";
    UPDATE_ROWS_V1 = 24, "Update_rows_v1";
    DELETE_ROWS_V1 = 25, "Delete_rows_v1";
    INCIDENT = 26, "Incident";
    HEARTBEAT = 27, "Heartbeat";
    IGNORABLE = 28, "Ignorable";
    ROWS_QUERY = 29, "Rows_query";
    WRITE_ROWS = 30, "Write_rows";
    UPDATE_ROWS = 31, "Update_rows";
    DELETE_ROWS = 32, "Delete_rows";
    GTID = 33, "Gtid";
    ANONYMOUS_GTID = 34, "Anonymous_Gtid";
    PREVIOUS_GTIDS = 35, "Previous_gtids";
    TRANSACTION_CONTEXT = 36, "Transaction_context";
    VIEW_CHANGE = 37, "View_change";
    XA_PREPARE = 38, "XA_prepare";
    PARTIAL_UPDATE_ROWS = 39, "Update_rows_partial";
    TRANSACTION_PAYLOAD = 40, "Transaction_payload";
    HEARTBEAT_V2 = 41, "Heartbeat_v2";
    GTID_TAGGED = 42, "Gtid_tagged";
}

impl EventType {
    /// Returns true if the event holds row images.
    #[must_use]
    pub const fn is_rows(self) -> bool {
        matches!(
            self,
            Self::WRITE_ROWS_V1
                | Self::UPDATE_ROWS_V1
                | Self::DELETE_ROWS_V1
                | Self::WRITE_ROWS
                | Self::UPDATE_ROWS
                | Self::DELETE_ROWS
                | Self::PARTIAL_UPDATE_ROWS
        )
    }

    /// Returns true if the event belongs to statement-based replication of data changes.
    #[must_use]
    pub const fn is_statement_format(self) -> bool {
        matches!(
            self,
            Self::INTVAR
                | Self::RAND
                | Self::USER_VAR
                | Self::APPEND_BLOCK
                | Self::DELETE_FILE
                | Self::BEGIN_LOAD_QUERY
                | Self::EXECUTE_LOAD_QUERY
        )
    }
}
