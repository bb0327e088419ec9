#![doc = include_str!("../README.md")]

mod applier;
mod as_source;
mod catalogue;
mod checkpoint;
mod commit_turn;
mod control;
mod dml;
mod error;
mod failing_row;
mod late;
mod lock_inversion;
mod mariadb;
mod merge;
mod options;
mod preflight;
mod progress;
mod retry;
mod row_executor;
mod row_image;
mod session;
mod sessions;
mod skip;
mod sql;
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

pub use applier::{AdmittedStream, Applier, CommitObserver};
pub use catalogue::TargetCatalogue;
pub use checkpoint::{Checkpoint, StartFrom};
pub use control::{ControlSession, lock_name};
pub use error::{Error, ErrorClass, Result};
pub use failing_row::{FailingColumn, FailingRow, PresentRow};
pub use options::{
    ApplierOptions, ExecMode, Executor, TargetGtids, TargetOptions, TlsMode, TlsOptions, Tuning,
};
pub use preflight::{
    BINLOG_PRIVILEGES, DDL_PRIVILEGES, GTID_PRIVILEGES, PRIVILEGES, PreflightError, TargetFacts,
    preflight,
};
pub use session::connect;
pub use sessions::{SessionState, SessionView};
pub use status::{ApplierStatus, ApplierView, GroupView, HeldBack, StatementView};
pub use vendor::Vendor;
