//! The signals that end a command.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::failure::{Failure, StopSignal};

/// Listens for a signal, which does nothing else from now on.
///
/// # Errors
/// The system refuses.
pub(crate) fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::Runtime(format!("listening for signals: {error}")))
}

/// SIGINT and SIGTERM.
#[derive(Debug)]
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    /// Listens for both.
    ///
    /// # Errors
    /// See [`listen`].
    pub(crate) fn listen() -> Result<Self, Failure> {
        let (interrupt, terminate) = (SignalKind::interrupt(), SignalKind::terminate());
        Ok(Self { interrupt: listen(interrupt)?, terminate: listen(terminate)? })
    }

    /// Returns at the next of them. May be dropped anywhere.
    pub(crate) async fn next(&mut self) {
        self.which().await;
    }

    /// Returns the next of them. May be dropped anywhere.
    pub(crate) async fn which(&mut self) -> StopSignal {
        tokio::select! {
            _ = self.interrupt.recv() => StopSignal::Interrupt,
            _ = self.terminate.recv() => StopSignal::Terminate,
        }
    }

    /// Returns a token that the next of them cancels.
    pub(crate) fn token(mut self) -> CancellationToken {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        tokio::spawn(async move {
            self.next().await;
            stopped.cancel();
        });
        stop
    }

    /// Cancels `kill` at the next of them, or after `patience`.
    pub(crate) fn then_kill(mut self, kill: CancellationToken, patience: Duration) {
        // In a task that nothing waits for: the process ends as soon as its channels have.
        tokio::spawn(async move {
            tokio::select! {
                () = self.next() => {}
                () = tokio::time::sleep(patience) => {}
            }
            kill.cancel();
        });
    }
}
