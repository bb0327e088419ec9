//! The daemon's own clock, which a test can step: `libfaketime` is between the daemon and the kernel.
//! The clocks of the servers stay as they are.

use std::path::PathBuf;

use crate::{DaemonBuilder, tool};

/// A clock for daemons, which look at it once a second.
#[derive(Debug)]
pub struct Clock {
    library: String,
    directory: tempfile::TempDir,
}

impl Clock {
    /// # Panics
    /// If `libfaketime` is not available.
    #[must_use]
    #[track_caller]
    pub fn start() -> Self {
        let directory = tempfile::TempDir::with_prefix("csa-clock-").expect("a directory");
        let library = tool("libfaketimeMT.so.1").get_program().to_string_lossy().into_owned();
        let clock = Self { library, directory };
        clock.step(0);
        clock
    }

    /// Makes the daemon use this clock. Time spans stay real.
    #[must_use]
    pub fn given_to(&self, daemon: DaemonBuilder) -> DaemonBuilder {
        daemon
            .env("LD_PRELOAD", &self.library)
            .env("FAKETIME_TIMESTAMP_FILE", &self.file().display().to_string())
            .env("FAKETIME_CACHE_DURATION", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
    }

    /// From now on the clock is so many seconds ahead, or late if negative.
    ///
    /// # Panics
    /// If the file can't be written.
    pub fn step(&self, seconds: i64) {
        std::fs::write(self.file(), format!("{seconds:+}\n")).expect("writing the clock");
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("clock")
    }
}
