#![doc = include_str!("../README.md")]
// Tests may look at the real clock and disk.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod activity;
mod applier;
mod arrivals;
mod checkpoint;
mod collation_map;
mod commits;
mod durations;
mod error;
mod group;
mod intake;
mod lock_wait;
mod options;
mod ownership;
mod reachability;
mod rows;
mod server;
mod statement;
mod status;
mod threads;

pub use activity::{SessionState, SessionView};
pub use applier::{Applier, CommitObserver};
pub use arrivals::AdmittedStream;
pub use checkpoint::{Checkpoint, StartFrom};
pub use collation_map::{CollationMap, current_collation};
pub use commits::Commits;
pub use durations::{ApplierDurations, ApplierDurationsView};
pub use error::failing_row::{FailingColumn, FailingRow, PresentRow};
pub use error::server_text::ServerText;
pub use error::{Error, ErrorClass, Fence, Invariant, Result};
pub use intake::{HeldUntil, Intake, IntakeObserver, Wait};
pub use lock_wait::{FoundLock, LockHolder, LockWait};
pub use options::{
    ApplierOptions, ExecMode, Executor, PublicKey, RowImageColumns, TargetGtids, TargetOptions,
    TlsMode, TlsOptions, Tuning,
};
pub use ownership::adopt::adopt;
pub use ownership::audit::{AuditEntry, record};
pub use ownership::channel_record::{ChannelIdentity, ChannelRecord};
pub use ownership::checkpoint::PROGRESS as PROGRESS_ROW;
pub use ownership::claim::ChannelClaim;
pub use ownership::control::ControlSession;
pub use ownership::copying::{
    Converging, CopiedTable, CopyClaim, CopyRange, CopyState, locked_range, moved_range,
};
pub use ownership::holes::{HolesBelow, Received};
pub use ownership::known::known_of;
pub use ownership::move_journal::{CREATE_MOVE, read_move, write_move};
pub use ownership::preflight::{
    PreflightError, TargetChannels, TargetFacts, preflight, target_channels,
};
pub use ownership::requirements::{OfSource, executor_for, logged_again, requirements};
pub use ownership::shown_state::{ShownState, StateSource};
pub use ownership::standby::Standby;
pub use ownership::start_position::{SharedTables, StartPosition};
pub use reachability::Reachability;
pub use rows::converging::ConvergingTables;
pub use server::answer::{Answer, Warning};
pub use server::connect::connect;
pub use server::definitions::catalogue::TargetCatalogue;
pub use server::generation::Generation;
pub use server::lock_names::lock_name;
pub use server::port::{Connector, Linked, Pending, Target, TargetLink};
pub use server::prelude::{Purpose, prelude};
pub use server::room::Shortage;
pub use server::route::Route;
pub use status::{ApplierStatus, ApplierView, GroupView, HeldBack, StatementView};
