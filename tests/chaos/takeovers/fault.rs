//! The kinds of faults that befall two daemons, and who has the channel afterwards.

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    Killed,
    Stalled,
    Terminated,
    HandedOver,
    LinkSwallows,
    LinkReset,
    LinkHalfOpen,
    SessionsKilled,
    TargetKilled,
    KilledWithTarget,
    TargetKilledMeanwhile,
    SourceLinkSwallows,
    StandbyKilled,
}

/// The daemon that has the channel after a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Other,
    Either,
    Same,
}

impl Fault {
    pub(crate) const ALL: [Self; 13] = [
        Self::Killed,
        Self::Stalled,
        Self::Terminated,
        Self::HandedOver,
        Self::LinkSwallows,
        Self::LinkReset,
        Self::LinkHalfOpen,
        Self::SessionsKilled,
        Self::TargetKilled,
        Self::KilledWithTarget,
        Self::TargetKilledMeanwhile,
        Self::SourceLinkSwallows,
        Self::StandbyKilled,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::Stalled => "stalled",
            Self::Terminated => "terminated",
            Self::HandedOver => "handed over by stop",
            Self::LinkSwallows => "link to the target swallows",
            Self::LinkReset => "link to the target reset",
            Self::LinkHalfOpen => "link to the target half open",
            Self::SessionsKilled => "sessions on the target killed",
            Self::TargetKilled => "target killed",
            Self::KilledWithTarget => "killed with the target",
            Self::TargetKilledMeanwhile => "killed before the target",
            Self::SourceLinkSwallows => "link to the source swallows",
            Self::StandbyKilled => "standby killed",
        }
    }

    pub(crate) const fn next(self) -> Next {
        match self {
            Self::Killed
            | Self::Stalled
            | Self::Terminated
            | Self::HandedOver
            | Self::LinkSwallows
            | Self::LinkReset
            | Self::KilledWithTarget
            | Self::TargetKilledMeanwhile => Next::Other,
            // It is as soon there again as the other.
            Self::LinkHalfOpen | Self::SessionsKilled | Self::TargetKilled => Next::Either,
            Self::SourceLinkSwallows | Self::StandbyKilled => Next::Same,
        }
    }
}
