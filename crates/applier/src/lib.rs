#![doc = include_str!("../README.md")]
// Tests may look at the real clock and disk.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod activity;
mod applier;
mod arrivals;
mod checkpoint;
mod commits;
mod error;
mod group;
mod intake;
mod lock_watch;
mod options;
mod ownership;
mod rows;
mod server;
mod statement;
mod status;
mod threads;

pub use activity::durations::{ApplierDurations, ApplierDurationsView};
pub use activity::sessions::{SessionState, SessionView};
pub use applier::{Applier, CommitObserver};
pub use arrivals::AdmittedStream;
pub use checkpoint::{Checkpoint, StartFrom};
pub use commits::Commits;
pub use error::failing_row::{FailingColumn, FailingRow, PresentRow};
pub use error::server_text::ServerText;
pub use error::{Error, ErrorClass, Fence, Invariant, Result};
pub use intake::{HeldUntil, Intake, IntakeObserver, Wait};
pub use options::{
    ApplierOptions, CollationMap, ConvergingTables, ExecMode, Executor, PublicKey, Route,
    RowImageColumns, TargetGtids, TargetOptions, TlsMode, TlsOptions, Tuning, current_collation,
};
pub use ownership::adopt::{adopt, adopt_move};
pub use ownership::audit::{AuditEntry, record};
pub use ownership::bookkeeping::RELOAD_AND_RESTART;
pub use ownership::channel_record::{ChannelIdentity, ChannelRecord};
pub use ownership::checkpoint::PROGRESS as PROGRESS_ROW;
pub use ownership::claim::ChannelClaim;
pub use ownership::control::ControlSession;
pub use ownership::copying::{
    Converging, CopiedTable, CopyClaim, CopyRange, CopyState, ExecutedBefore, locked_range,
    moved_range,
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
pub use ownership::start_position::{SharedTables, StartPosition, same_server};
pub use server::answer::{Answer, Warning};
pub use server::connect::connect;
pub use server::definitions::catalogue::TargetCatalogue;
pub use server::generation::Generation;
pub use server::lock_names::lock_name;
pub use server::lock_wait::{FoundLock, LockHolder, LockWait};
pub use server::port::{Linked, Pending, TargetLink};
pub use server::prelude::{Purpose, UNHURRIED, prelude};
pub use server::reachability::Reachability;
pub use server::room::Shortage;
pub use server::target::{Connector, Target};
pub use status::{ApplierStatus, ApplierView, GroupView, HeldBack, StatementView};
