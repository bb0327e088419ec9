//! The failure of a command, and its exit code.

use std::process::ExitCode;

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

/// A signal that ends a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopSignal {
    Interrupt,
    Terminate,
}

impl StopSignal {
    /// Returns the exit code that a shell gives to a program that the signal has ended.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
        }
    }
}
