//! Printing for readers that may leave, like `head`.

use std::io::{ErrorKind, Write as _, stdout};

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
        eprintln!("csa-daemon: {failure}");
    }
}

/// Like `println!`, which panics when its reader has left.
macro_rules! say {
    ($($text:tt)*) => { $crate::cli::output::line(&format!($($text)*)) };
}
pub(crate) use say;
