//! The process and its host: failures and exit codes, threads, log, clock, state directory, HTTP client. The ground
//! floor of this crate: it knows nothing of channels.

mod clock;
mod descriptors;
mod failure;
mod http_agent;
mod http_transport;
pub(crate) mod logging;
mod memory;
mod program;
mod relay_store;
pub(crate) mod replaced_file;
mod runtime;
mod sender;
mod signals;
pub(crate) mod state_dir;
mod words;

pub(crate) use clock::{micros_of, now_micros, rfc3339};
pub(crate) use descriptors::raise_limit;
pub(crate) use failure::{Failure, StopSignal};
pub(crate) use http_agent::{agent, tls_agent};
pub(crate) use http_transport::Route;
pub(crate) use memory::available as available_memory;
pub(crate) use program::{Output, run_program};
pub(crate) use relay_store::{empty_closed_relay_store, empty_relay_store, unlocked};
pub(crate) use runtime::{blocking, caught, runtime};
pub(crate) use sender::Sender;
pub(crate) use signals::{StopSignals, listen};
pub(crate) use words::counted;
