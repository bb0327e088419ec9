//! Operators' commands: in the log at once, and in `csa.audit` on the target of each channel
//! concerned.

use std::sync::Arc;
use std::time::Duration;

use csa_applier::{AuditEntry, Target};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::channel::Supervisor;
use crate::daemon::Daemon;
use crate::host::Sender;

/// How long a command waits for its row before it answers; the row is written later if need be.
const WAIT: Duration = Duration::from_secs(2);
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
                Some(tokio::spawn(write(target, entry, room, self.process.stop.clone())))
            }
            Err(_) => {
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
    stop: CancellationToken,
) {
    let mut was_said = false;
    loop {
        let Err(error) = csa_applier::record(&target, &entry).await else { return };
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
