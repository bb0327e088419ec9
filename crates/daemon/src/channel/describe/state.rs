//! The state of a channel and its sentence. Pure.

use crate::observe::progress::Tail;
use csa_applier::ApplierView as Applied;
use csa_provider::source::SourceView;

use crate::channel::live_settings::Paused;
use crate::host::{counted, rfc3339};
use crate::observe::view::ChannelState;

/// The progress of a channel's run, as the parts that run it report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::channel) enum Phase {
    #[default]
    Starting,
    /// The source is copied first.
    Copying,
    WaitingForSource,
    WaitingForTarget,
    /// The archive is away, and there is no target.
    WaitingForArchive,
    Standby,
    Running,
    Stopped,
    Failed,
}

/// Everything that a state depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Circumstances<'a> {
    pub(super) phase: Phase,
    /// The reason for the phase.
    pub(super) detail: &'a str,
    /// Something is received into the relay store.
    pub(super) receiving: bool,
    /// A pipeline applies what was received.
    pub(super) attached: bool,
    pub(super) paused: bool,
    pub(super) paused_by: Option<&'a Paused>,
    pub(super) source: &'a SourceView,
    pub(super) applied: &'a Applied,
    /// The lock of others for which it waits.
    pub(super) lock_wait: Option<&'a str>,
    /// Why reception waits for room.
    pub(super) no_room: Option<&'a str>,
    /// It waits for the disk, and not for the store's own limit.
    pub(super) lacks_disk: bool,
    /// Transactions received and not committed; unknown while the relay store is being searched.
    pub(super) backlog: Option<u64>,
    /// Seconds until the next transaction is due.
    pub(super) due_in: Option<f64>,
    pub(super) tail: Tail,
}

/// Adds to the reason of a stop whether reception continues, and what keeps it from that: the source may purge.
pub(super) fn with_reception(detail: &str, receiving: bool, source: &SourceView) -> String {
    let why = source.last_error.as_deref();
    match (receiving, source.connected) {
        (true, true) => format!("{detail}; still receiving"),
        (true, false) => {
            let (address, why) = (&source.address, why.unwrap_or("connecting"));
            format!("{detail}; nothing is received: source {address}: {why}")
        }
        (false, _) => detail.to_owned(),
    }
}

impl Circumstances<'_> {
    pub(super) fn state(&self) -> (ChannelState, String) {
        let detail = self.detail.to_owned();
        match self.phase {
            Phase::Starting => (ChannelState::Starting, "checking both servers".to_owned()),
            Phase::Copying if self.attached => self.converging(),
            Phase::Copying if self.paused => (ChannelState::Paused, detail),
            Phase::Copying => (ChannelState::Starting, detail),
            Phase::WaitingForSource => (ChannelState::WaitingForSource, detail),
            Phase::WaitingForTarget => (ChannelState::WaitingForTarget, detail),
            Phase::WaitingForArchive => (ChannelState::WaitingForArchive, detail),
            Phase::Standby => (ChannelState::Standby, detail),
            Phase::Stopped => {
                (ChannelState::Stopped, with_reception(&detail, self.receiving, self.source))
            }
            Phase::Failed => (ChannelState::Failed, detail),
            Phase::Running => self.running(),
        }
    }

    /// The pipeline applies the changes made during a copy. A server that is away, or a full disk, is shown as in any run.
    fn converging(&self) -> (ChannelState, String) {
        let detail = self.detail;
        match self.running() {
            (
                state @ (ChannelState::WaitingForSource
                | ChannelState::WaitingForTarget
                | ChannelState::WaitingForSpace),
                why,
            ) => (state, format!("{why}; {detail}")),
            (ChannelState::Paused, _) => (ChannelState::Paused, detail.to_owned()),
            _ => (ChannelState::Starting, detail.to_owned()),
        }
    }

    /// The first that holds: a lost server before anything requested, and last the progress.
    fn running(&self) -> (ChannelState, String) {
        let (source, applied) = (self.source, self.applied);
        if !applied.target_connected {
            let why = applied.target_error.clone().unwrap_or_default();
            return (ChannelState::WaitingForTarget, why);
        }
        // Before the source: one that waits long enough for us to read ends the connection.
        if let Some(why) = self.waits_for_space() {
            return (ChannelState::WaitingForSpace, format!("{why}{}", self.pending()));
        }
        if !source.connected {
            let why = source.last_error.as_deref().unwrap_or("connecting");
            let address = &source.address;
            return (ChannelState::WaitingForSource, format!("source {address}: {why}"));
        }
        if let Some(wait) = self.lock_wait {
            return (ChannelState::WaitingForLock, wait.to_owned());
        }
        if self.paused {
            let pending = counted(self.backlog.unwrap_or_default(), "transaction");
            let by = self.paused_by.map_or_else(String::new, |Paused { by, since }| {
                format!("; by {by} since {}", rfc3339(*since))
            });
            let text = match applied.sessions.len() {
                0 => format!("paused, {pending} to go{by}"),
                1 => format!("pausing, 1 group is being finished{by}"),
                groups => format!("pausing, {groups} groups are being finished{by}"),
            };
            return (ChannelState::Paused, self.with_room(text));
        }
        if let (Some(seconds), Some(pending)) = (self.due_in, self.backlog) {
            let pending = counted(pending, "transaction");
            let text = format!(
                "waiting for delay; the next transaction is due in {seconds:.0} s, {pending} to go"
            );
            return (ChannelState::WaitingForDelay, self.with_room(text));
        }
        (ChannelState::Running, self.with_room(self.progress()))
    }

    /// Returns why nothing more can be received, unless applying makes the room: at the store's own limit it
    /// does, as long as something is left to apply.
    fn waits_for_space(&self) -> Option<&str> {
        self.no_room.filter(|_| self.lacks_disk || self.backlog == Some(0))
    }

    fn pending(&self) -> String {
        match self.backlog {
            None | Some(0) => String::new(),
            Some(pending) => format!("; {} to go", counted(pending, "transaction")),
        }
    }

    /// Adds that reception waits for room, which applying makes.
    fn with_room(&self, text: String) -> String {
        self.no_room.map_or_else(|| text.clone(), |why| format!("{text}; reception is {why}"))
    }

    fn progress(&self) -> String {
        match self.backlog {
            Some(0) if self.tail.is_caught_up() => {
                "has applied everything received, waiting for more".to_owned()
            }
            Some(0) if self.source.queueing.is_some() => format!(
                "has applied all whole transactions received; of the next, {:.1} MiB are here",
                self.source.queueing_bytes as f64 / f64::from(1 << 20)
            ),
            Some(0) => "has applied everything received; the source may have sent more".to_owned(),
            Some(pending) => format!("applying, {} to go", counted(pending, "transaction")),
            None => "reading the relay store".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_names_the_first_reason() {
        let source = SourceView { connected: true, ..SourceView::default() };
        let lost = SourceView {
            address: "s:1".to_owned(),
            last_error: Some("refused".to_owned()),
            ..SourceView::default()
        };
        let by = Paused { by: "ann (10.0.0.7)".to_owned(), since: 1_772_388_000_000_000 };
        let applied = Applied { target_connected: true, ..Applied::default() };
        let away = Applied { target_error: Some("read-only".to_owned()), ..Applied::default() };
        let running = Circumstances {
            phase: Phase::Running,
            detail: "from the checkpoint",
            receiving: true,
            attached: true,
            paused: false,
            paused_by: None,
            source: &source,
            applied: &applied,
            lock_wait: None,
            no_room: None,
            lacks_disk: false,
            backlog: Some(5),
            due_in: None,
            tail: Tail::Unknown,
        };
        let idle = Circumstances { backlog: Some(0), ..running };
        let full = Circumstances { no_room: Some("waiting"), ..running };
        let delayed = Circumstances { due_in: Some(7.2), ..running };
        let stopped = Circumstances { phase: Phase::Stopped, detail: "on request", ..running };
        let copying = Circumstances { phase: Phase::Copying, detail: "copying", ..running };
        for (standing, state, text) in [
            (running, ChannelState::Running, "applying, 5 transactions to go"),
            (
                Circumstances { backlog: None, ..running },
                ChannelState::Running,
                "reading the relay store",
            ),
            (
                idle,
                ChannelState::Running,
                "has applied everything received; the source may have sent more",
            ),
            (
                Circumstances { tail: Tail::Idle, ..idle },
                ChannelState::Running,
                "has applied everything received, waiting for more",
            ),
            (
                Circumstances { backlog: Some(1), ..running },
                ChannelState::Running,
                "applying, 1 transaction to go",
            ),
            (full, ChannelState::Running, "applying, 5 transactions to go; reception is waiting"),
            (
                Circumstances { paused: true, ..full },
                ChannelState::Paused,
                "paused, 5 transactions to go; reception is waiting",
            ),
            (
                Circumstances { lacks_disk: true, paused: true, source: &lost, ..full },
                ChannelState::WaitingForSpace,
                "waiting; 5 transactions to go",
            ),
            (
                Circumstances { lacks_disk: true, applied: &away, ..full },
                ChannelState::WaitingForTarget,
                "read-only",
            ),
            (Circumstances { backlog: Some(0), ..full }, ChannelState::WaitingForSpace, "waiting"),
            (
                delayed,
                ChannelState::WaitingForDelay,
                "waiting for delay; the next transaction is due in 7 s, 5 transactions to go",
            ),
            (
                Circumstances { paused: true, ..delayed },
                ChannelState::Paused,
                "paused, 5 transactions to go",
            ),
            (
                Circumstances { paused: true, paused_by: Some(&by), ..running },
                ChannelState::Paused,
                "paused, 5 transactions to go; by ann (10.0.0.7) since 2026-03-01T18:00:00.000000Z",
            ),
            (
                Circumstances { paused: true, source: &lost, ..running },
                ChannelState::WaitingForSource,
                "source s:1: refused",
            ),
            (
                Circumstances { source: &lost, applied: &away, ..running },
                ChannelState::WaitingForTarget,
                "read-only",
            ),
            (
                Circumstances { paused: true, lock_wait: Some("since then"), ..delayed },
                ChannelState::WaitingForLock,
                "since then",
            ),
            (stopped, ChannelState::Stopped, "on request; still receiving"),
            (
                Circumstances { source: &lost, ..stopped },
                ChannelState::Stopped,
                "on request; nothing is received: source s:1: refused",
            ),
            (copying, ChannelState::Starting, "copying"),
            (
                Circumstances { attached: false, source: &lost, ..copying },
                ChannelState::Starting,
                "copying",
            ),
            (
                Circumstances { source: &lost, ..copying },
                ChannelState::WaitingForSource,
                "source s:1: refused; copying",
            ),
            (
                Circumstances { applied: &away, ..copying },
                ChannelState::WaitingForTarget,
                "read-only; copying",
            ),
            (Circumstances { paused: true, ..copying }, ChannelState::Paused, "copying"),
            (
                Circumstances { lock_wait: Some("since then"), ..copying },
                ChannelState::Starting,
                "copying",
            ),
            (
                Circumstances {
                    phase: Phase::Standby,
                    detail: "another daemon",
                    source: &lost,
                    ..running
                },
                ChannelState::Standby,
                "another daemon",
            ),
            (Circumstances { receiving: false, ..stopped }, ChannelState::Stopped, "on request"),
            (
                Circumstances { phase: Phase::Failed, applied: &away, ..running },
                ChannelState::Failed,
                "from the checkpoint",
            ),
        ] {
            assert_eq!(standing.state(), (state, text.to_owned()), "{standing:?}");
        }
    }
}
