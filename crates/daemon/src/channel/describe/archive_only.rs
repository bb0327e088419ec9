//! The view of a channel that only archives: its state, and what was received and is not archived. Pure.

use csa_provider::binlog::GtidSet;

use super::facts::Facts;
use super::state::{Phase, with_reception};
use crate::host::counted;
use crate::observe::progress::Moment;
use crate::observe::view::{ApplierView, ArchiveView, BottleneckView, ChannelState, ChannelView};

/// The figures that take the place of those of a target.
pub(super) struct ArchiveOnly {
    state: (ChannelState, String),
    lag: Option<f64>,
    backlog: Option<(u64, u64)>,
}

impl ArchiveOnly {
    /// Returns `None` for a channel with a target.
    pub(super) fn of(facts: &Facts, at: Moment) -> Option<Self> {
        if facts.target.is_some() {
            return None;
        }
        let archive = facts.archive.as_ref();
        let progress = &facts.progress;
        let to_archive = |archived: &GtidSet| progress.received().difference(archived).count();
        let transactions = facts.archived.as_ref().map(to_archive);
        let bytes = archive.map_or(0, |archive| archive.pending_bytes);
        let lag = archive.and_then(|archive| archive.lag_seconds);
        // Without the source it is not known what else there is, and a stopped channel does not look at what it has.
        let is_level = transactions == Some(0) && progress.is_current(at.instant);
        let lag = lag.filter(|lag| *lag > 0.0 || is_level);
        Some(Self {
            state: state(facts, archive, transactions),
            lag,
            backlog: transactions.map(|transactions| (transactions, bytes)),
        })
    }

    /// Returns the view with nothing in it that concerns a target.
    pub(super) fn shown(self, view: ChannelView) -> ChannelView {
        let (state, state_detail) = self.state;
        ChannelView {
            state,
            state_detail,
            lag_seconds: self.lag,
            backlog_transactions: self.backlog.map(|backlog| backlog.0),
            backlog_bytes: self.backlog.map(|backlog| backlog.1),
            seconds_to_drain: None,
            bottleneck: BottleneckView::default(),
            applier: ApplierView { service_state: "OFF".to_owned(), ..ApplierView::default() },
            ..view
        }
    }
}

fn state(
    facts: &Facts,
    archive: Option<&ArchiveView>,
    backlog: Option<u64>,
) -> (ChannelState, String) {
    let detail = facts.detail.clone();
    match facts.phase {
        Phase::WaitingForSource => (ChannelState::WaitingForSource, detail),
        Phase::WaitingForArchive => (ChannelState::WaitingForArchive, detail),
        Phase::Stopped => {
            let source = &facts.progress.source;
            (ChannelState::Stopped, with_reception(&detail, facts.receiving, source))
        }
        Phase::Failed => (ChannelState::Failed, detail),
        Phase::Running => running(facts, archive, backlog),
        Phase::Standby => (ChannelState::Standby, detail),
        Phase::Starting | Phase::Copying | Phase::WaitingForTarget => {
            (ChannelState::Starting, "checking the source and the archive".to_owned())
        }
    }
}

/// Returns the first state that holds: a full disk, a server or store that is away, and last the progress.
fn running(
    facts: &Facts,
    archive: Option<&ArchiveView>,
    backlog: Option<u64>,
) -> (ChannelState, String) {
    let progress = &facts.progress;
    let pending = match backlog {
        None | Some(0) => String::new(),
        Some(pending) => format!("; {} to go", counted(pending, "transaction")),
    };
    let no_room = progress.usage.waiting.as_deref();
    if let Some(why) = no_room.filter(|_| progress.usage.waits_for_disk) {
        return (ChannelState::WaitingForSpace, format!("{why}{pending}"));
    }
    let error = archive.and_then(|archive| archive.error.as_deref());
    let source = &progress.source;
    if !source.connected && no_room.is_none() {
        let why = source.last_error.as_deref().unwrap_or("connecting");
        let error = error.map(|error| format!("; {error}")).unwrap_or_default();
        let text = format!("source {}: {why}{error}{pending}", source.address);
        return (ChannelState::WaitingForSource, text);
    }
    let room = no_room.map(|why| format!("; reception is {why}")).unwrap_or_default();
    if let Some(error) = error {
        return (ChannelState::WaitingForArchive, format!("{error}{pending}{room}"));
    }
    let text = match backlog {
        None => "looking for the end of the archive".to_owned(),
        Some(0) => "has archived everything received, waiting for more".to_owned(),
        Some(pending) => format!("archiving, {} to go", counted(pending, "transaction")),
    };
    (ChannelState::Running, text + &room)
}
