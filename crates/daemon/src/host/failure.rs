//! The failure of a command, and its exit code.

use std::process::ExitCode;

use super::signals::StopSignal;

/// The failure of a command, which decides its exit code.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Wrong input: nothing was written. Exit code 2.
    #[error("{0}")]
    Input(String),
    /// A failure after that. Exit code 1.
    #[error("{0}")]
    Runtime(String),
    /// Not everything could be compared. Exit code 2.
    #[error("{0}")]
    NotCompared(String),
    /// The servers differ. Exit code 1.
    #[error("{0}")]
    Different(String),
    /// A signal has ended a comparison. The exit code is that of a program that does not catch it.
    #[error("{text}")]
    Interrupted { text: String, signal: StopSignal },
}

impl From<&Failure> for ExitCode {
    fn from(failure: &Failure) -> Self {
        match failure {
            Failure::Input(_) | Failure::NotCompared(_) => Self::from(2),
            Failure::Runtime(_) | Failure::Different(_) => Self::FAILURE,
            Failure::Interrupted { signal, .. } => Self::from(signal.exit_code()),
        }
    }
}
