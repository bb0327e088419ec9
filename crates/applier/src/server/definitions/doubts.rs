//! Doubts about definitions that were read: somebody else may have changed them on the target, which nobody tells the
//! channel.

use std::time::Duration;

use csa_provider::seams::Backoff;
use tokio::time::Instant;

use crate::commits::Commits;

/// Pauses between two readings of definitions that nobody is known to have changed. They grow, because groups are taken apart
/// for other reasons as well, and each reading costs questions for all tables in use.
const PAUSES: Backoff = Backoff::new(Duration::from_secs(60), Duration::from_secs(3600));

#[derive(Debug)]
pub(super) struct Doubts {
    commits: Commits,
    pauses: Backoff,
    next: Option<Instant>,
}

impl Doubts {
    pub(super) fn of(commits: Commits) -> Self {
        Self { commits, pauses: PAUSES, next: None }
    }

    /// Returns true if the definitions are to be read again now, and counts them as read.
    pub(super) fn are_due(&mut self) -> bool {
        // The clock is read only with a doubt: this is asked for each transaction.
        if !self.commits.are_definitions_doubted() {
            return false;
        }
        let now = Instant::now();
        if self.next.is_some_and(|next| now < next) {
            return false;
        }
        self.next = Some(now + self.pauses.pause());
        self.commits.definitions_read_again();
        true
    }
}

#[cfg(test)]
mod tests {
    use csa_provider::binlog::GtidSet;
    use csa_scheduler::sequence::Sequence;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn doubts_that_come_again_are_followed_ever_more_rarely() {
        let commits = Commits::new(Sequence::default(), GtidSet::new());
        let mut doubts = Doubts::of(commits.clone());
        assert!(!doubts.are_due(), "nothing was taken apart");
        for pause in [0, 60, 120, 240] {
            commits.doubt_definitions();
            if let Some(almost) = Duration::from_secs(pause).checked_sub(Duration::from_secs(1)) {
                tokio::time::advance(almost).await;
                assert!(!doubts.are_due(), "{pause}");
                tokio::time::advance(Duration::from_secs(1)).await;
            }
            assert!(doubts.are_due() && !doubts.are_due(), "{pause}");
        }
    }
}
