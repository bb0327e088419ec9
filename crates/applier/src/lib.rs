#![doc = include_str!("../README.md")]

mod applier;
mod checkpoint;
mod control;
mod error;
mod options;
mod preflight;
mod row_image;
mod session;
mod sql;
mod statement;
mod statement_context;
mod status;
mod worker;

pub use applier::{AdmittedStream, Applier, CommitObserver};
pub use checkpoint::{Checkpoint, StartFrom};
pub use control::ControlSession;
pub use error::{Error, ErrorClass, Result};
pub use options::{ApplierOptions, TargetOptions, TlsMode, TlsOptions};
pub use preflight::{PreflightError, TargetFacts, preflight};
pub use status::{ApplierStatus, ApplierView, GroupView};
