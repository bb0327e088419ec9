//! The limit of open files: each channel has sessions and files of its own, and shells and service managers give a
//! program few descriptors unless it asks for more (`setrlimit(2)`).

use std::sync::OnceLock;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};
use tracing::warn;

/// The limit that the process was started with, if it was raised.
static AT_START: OnceLock<Rlimit> = OnceLock::new();

/// Raises the process's limit to the highest that it may have.
pub(crate) fn raise_limit() {
    let found = getrlimit(Resource::Nofile);
    if found.current == found.maximum {
        return;
    }
    let highest = found.maximum;
    match setrlimit(Resource::Nofile, Rlimit { current: highest, maximum: highest }) {
        Ok(()) => drop(AT_START.set(found)),
        // A container's runtime may forbid it.
        Err(error) => {
            warn!(limit = found.current, %error, "the limit of open files stays as it is")
        }
    }
}

/// Gives a program its usual limit: some close every descriptor that they may have before they begin.
pub(super) fn restore_limit(of: Pid) {
    if let Some(limit) = AT_START.get() {
        // It may have ended already.
        let _ = prlimit(Some(of), Resource::Nofile, *limit);
    }
}
