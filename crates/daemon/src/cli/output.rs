//! Printing for readers that may leave, like `head`.

use std::io::{ErrorKind, Write as _, stderr, stdout};

use crate::host::Failure;

/// Prints `text` and says that somebody still reads.
///
/// # Errors
/// Standard output takes no more, for another reason than that its reader has left.
pub(crate) fn print(text: &str) -> Result<bool, Failure> {
    let mut out = stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::Runtime(format!("printing: {error}"))),
    }
}

/// Prints a line. What can't be printed is lost: the exit code of the command counts.
pub(crate) fn line(text: &str) {
    if let Err(failure) = print(&format!("{text}\n")) {
        complain(&failure.to_string());
    }
}

/// Prints a failure as a line of its own. Unlike `eprintln!`, which panics where standard error takes nothing, it keeps
/// the exit code.
pub(crate) fn complain(failure: &str) {
    let _ = stderr().write_all(format!("csa-daemon: {failure}\n").as_bytes());
}

/// Like `println!`, which panics when its reader has left.
macro_rules! say {
    ($($text:tt)*) => { $crate::cli::output::line(&format!($($text)*)) };
}
pub(crate) use say;
