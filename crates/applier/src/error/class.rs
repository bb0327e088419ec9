//! The consequence of an error for the channel.

use csa_provider::link::LinkError;

/// Consequence of an error for the channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// Deadlock or lock wait timeout: roll back and try again.
    Retry,
    /// The target is away or refuses writes for now: wait for it, then find out what was committed.
    Unavailable,
    /// Repeating would not help: the channel stops.
    Stop,
}

pub(crate) fn class_of(error: &LinkError) -> ErrorClass {
    match error {
        LinkError::Server { code, .. } => class_of_code(*code),
        // It would be as long next time.
        LinkError::TooLong(_) => ErrorClass::Stop,
        // Even a login that is refused while the channel runs: a server in between may refuse it,
        // or a certificate that is being replaced. At a start it stops the channel.
        _ => ErrorClass::Unavailable,
    }
}

/// The consequence of a server error.
const fn class_of_code(code: u16) -> ErrorClass {
    match code {
        // Lock wait timeout, deadlock.
        1205 | 1213 => ErrorClass::Retry,
        // Too many connections, shutdown in progress, query interrupted, session killed, read-only
        // modes, idle disconnect.
        1040 | 1053 | 1317 | 1290 | 1836 | 1927 | 3169 | 4031 => ErrorClass::Unavailable,
        _ => ErrorClass::Stop,
    }
}
