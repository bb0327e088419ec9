//! Operators' commands: in the log at once, and in `csa.audit` on the target of each channel
//! concerned.

use std::sync::Arc;
use std::time::Duration;

use csa_applier::{AuditEntry, Target};
use tokio::sync::{OwnedSemaphorePermit, TryAcquireError};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::channel::Supervisor;
use crate::daemon::{AUDIT_ROWS_MAX, Daemon};
use crate::host::Sender;

/// How long a command waits for its row before it answers; the row is written later if need be.
const WAIT: Duration = Duration::from_secs(2);
/// How long the end of the process waits for rows.
const LAST_WAIT: Duration = Duration::from_secs(5);
/// Why a row is given up at the end of the process.
const DAEMON_ENDS: &str = "the daemon ends, and the target has not answered";
/// Between two attempts.
const RETRY: Duration = Duration::from_secs(5);

impl Daemon {
    /// Records a command that was carried out for one channel.
    pub(crate) async fn record(
        &self,
        channel: &Supervisor,
        sender: &Sender,
        action: &str,
        detail: String,
    ) {
        let written = self.write_later(channel, sender.entry(channel.name(), action, detail));
        let _ = tokio::time::timeout(WAIT, written).await;
    }

    /// Records a command that concerns all channels.
    pub(crate) async fn record_for_all(&self, sender: &Sender, action: &str, detail: &str) {
        self.record_for(&self.channels(), sender, action, |_| detail.to_owned()).await;
    }

    /// The same for these channels, each with its own detail.
    pub(crate) async fn record_for(
        &self,
        channels: &[Arc<Supervisor>],
        sender: &Sender,
        action: &str,
        detail: impl Fn(&str) -> String,
    ) {
        let entry = |channel: &str| sender.entry(channel, action, detail(channel));
        let written: Vec<_> = channels
            .iter()
            .map(|channel| self.write_later(channel, entry(channel.name())))
            .collect();
        let all = async {
            for row in written {
                row.await;
            }
        };
        let _ = tokio::time::timeout(WAIT, all).await;
    }

    /// Waits at the end of the process for rows that are still being written, for a few seconds or until `kill`; the rest
    /// is given up, which the log says.
    pub(crate) async fn finish_audit(&self, kill: &CancellationToken) {
        let all_written = || self.audit_room.acquire_many(AUDIT_ROWS_MAX);
        tokio::select! {
            _ = all_written() => {}
            () = tokio::time::sleep(LAST_WAIT) => {}
            () = kill.cancelled() => {}
        }
        self.audit_over.cancel();
        let _all = all_written().await;
        self.audit_room.close();
    }

    /// The future ends when the row is written or given up; the row does not depend on anyone
    /// waiting for it.
    fn write_later(
        &self,
        channel: &Supervisor,
        entry: AuditEntry,
    ) -> impl Future<Output = ()> + use<> {
        let AuditEntry { channel: name, action, by, peer, detail, .. } = &entry;
        info!(channel = name, action, by, peer, detail, "command carried out");
        let settings = channel.settings();
        let task = match Arc::clone(&self.audit_room).try_acquire_owned() {
            // The log has it; there is no schema csa.
            _ if settings.archives_only() => None,
            Ok(room) => {
                let target = settings.target.clone();
                let ends = (self.process.stop.clone(), self.audit_over.clone());
                Some(tokio::spawn(write(target, entry, room, ends)))
            }
            Err(TryAcquireError::Closed) => {
                lost(&entry, DAEMON_ENDS);
                None
            }
            Err(TryAcquireError::NoPermits) => {
                lost(&entry, "too many rows wait for their targets");
                None
            }
        };
        async move {
            if let Some(task) = task {
                let _ = task.await;
            }
        }
    }
}

async fn write(
    target: Target,
    entry: AuditEntry,
    _room: OwnedSemaphorePermit,
    (stop, over): (CancellationToken, CancellationToken),
) {
    let mut was_said = false;
    loop {
        let recorded = tokio::select! {
            biased;
            recorded = csa_applier::record(&target, &entry) => recorded,
            // The row may be there, if only its answer is missing.
            () = over.cancelled() => return lost(&entry, DAEMON_ENDS),
        };
        let Err(error) = recorded else { return };
        // A stop ends the pause below, so each row gets one attempt after it.
        if error.class().is_failure() || stop.is_cancelled() {
            return lost(&entry, &error.to_string());
        }
        if !was_said {
            let AuditEntry { channel, action, .. } = &entry;
            warn!(channel, action, %error, "not in csa.audit yet: the daemon keeps trying");
            was_said = true;
        }
        tokio::select! {
            () = tokio::time::sleep(RETRY) => {}
            () = stop.cancelled() => {}
        }
    }
}

fn lost(entry: &AuditEntry, error: &str) {
    let AuditEntry { channel, action, by, peer, detail, .. } = entry;
    warn!(
        channel,
        action, by, peer, detail, error, "not in csa.audit: this line is its only record"
    );
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use parking_lot::Mutex;
    use tokio::time::Instant;
    use tracing::subscriber::set_default;

    use super::*;
    use crate::config::Config;
    use crate::config::tests::in_folder;
    use crate::host::logging::LogFilter;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Log {
        fn count(&self, words: &str) -> usize {
            String::from_utf8_lossy(&self.0.lock()).matches(words).count()
        }
    }

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_row_that_is_not_written_at_the_end_is_in_the_log() {
        // Accepts connections and never answers.
        let target = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = target.local_addr().expect("an address").port();
        let sender = Sender { peer: "a test".to_owned(), claimed: None };
        for (is_killed, least, most) in [(false, 5, 6), (true, 0, 1)] {
            let log = Log::default();
            let out = log.clone();
            let lines = tracing_subscriber::fmt().with_writer(move || out.clone()).finish();
            let _log = set_default(lines);
            let folder = tempfile::tempdir().expect("a temporary directory");
            let text = in_folder(folder.path(), port) + "connect_timeout = \"300s\"\n";
            let config = Config::parse(&text).expect("valid");
            let (stop, kill) = (CancellationToken::new(), CancellationToken::new());
            let path = folder.path().join("csa-daemon.toml");
            let daemon = Daemon::new(config, path, LogFilter::of_test(), &stop, &kill);

            daemon.record_for_all(&sender, "pause", "").await;
            assert_eq!(log.count("its only record"), 0, "it may be written still");
            stop.cancel();
            if is_killed {
                kill.cancel();
            }
            let begun = Instant::now();
            daemon.finish_audit(&kill).await;
            let took = begun.elapsed().as_secs();
            assert!((least..=most).contains(&took), "{took} s");
            assert_eq!(log.count("its only record"), 1);
            // A command that was under way.
            daemon.record_for_all(&sender, "stop", "").await;
            assert_eq!(log.count("its only record"), 2);
        }
    }
}
