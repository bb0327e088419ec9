//! The source: its requirements, the link for the dump, reception with reconnects, and the assembly of transactions.

pub(crate) mod assembler;
pub(crate) mod cause;
pub(crate) mod clock_difference;
pub(crate) mod connection;
pub(crate) mod group;
pub(crate) mod history;
pub(crate) mod options;
pub(crate) mod preflight;
pub(crate) mod reception;
pub(crate) mod recorded;
pub(crate) mod requirements;
pub(crate) mod semi_sync;
pub(crate) mod side_logins;
pub(crate) mod sink;
pub(crate) mod status;

pub use assembler::{Placement, ROW_FORMAT, StreamError, TransactionAssembler};
pub use cause::SourceCause;
pub use clock_difference::ClockDifference;
pub use connection::{ConnectionError, SourceConnection};
pub use group::GroupDiscovery;
pub use history::{Foreign, Known, SharedForeign};
pub use options::SourceOptions;
pub use preflight::{PreflightError, SourceFacts, preflight};
pub use reception::{Error, Provider, ReceptionEnd};
pub use recorded::{RecordedProvider, Recording, RecordingError};
pub use requirements::{gtid_steps, requirements};
pub use sink::{LastReceived, SinkError, TransactionSink};
pub use status::{SourceStatus, SourceView};
