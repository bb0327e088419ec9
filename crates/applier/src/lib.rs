#![doc = include_str!("../README.md")]

mod adopt;
mod applier;
mod as_source;
mod audit;
mod catalogue;
mod channel_record;
mod checkpoint;
mod commit_turn;
mod continuity;
mod control;
mod dml;
mod error;
mod failing_row;
mod generation;
mod late;
mod liveness;
mod lock_inversion;
mod mariadb;
mod merge;
mod options;
mod ownership;
mod preflight;
mod progress;
mod reconnect;
mod retry;
mod row_executor;
mod row_image;
mod row_session;
mod server_text;
mod session;
mod sessions;
mod skip;
mod sql;
mod start_position;
mod statement;
mod statement_context;
mod statement_intent;
mod statement_text;
mod status;
mod steps;
mod target_tables;
mod throttle;
mod transaction_error;
mod vendor;
mod worker;

#[cfg(test)]
mod recorded_stream_tests;

pub use adopt::adopt;
pub use applier::{AdmittedStream, Applier, CommitObserver};
pub use audit::{AuditEntry, record};
pub use catalogue::TargetCatalogue;
pub use channel_record::{ChannelIdentity, ChannelRecord};
pub use checkpoint::{Checkpoint, StartFrom};
pub use control::{Claim, ControlSession};
pub use error::{Error, ErrorClass, Result};
pub use failing_row::{FailingColumn, FailingRow, PresentRow};
pub use generation::Generation;
pub use options::{
    ApplierOptions, ExecMode, Executor, PublicKey, TargetGtids, TargetOptions, TlsMode, TlsOptions,
    Tuning,
};
pub use ownership::lock_name;
pub use preflight::{
    BINLOG_PRIVILEGES, DDL_PRIVILEGES, GTID_PRIVILEGES, PRIVILEGES, PreflightError, TargetChannels,
    TargetFacts, preflight, target_channels,
};
pub use server_text::ServerText;
pub use session::connect;
pub use sessions::{SessionState, SessionView};
pub use start_position::{Shared, StartPosition};
pub use status::{ApplierStatus, ApplierView, GroupView, HeldBack, StatementView};
pub use vendor::Vendor;
