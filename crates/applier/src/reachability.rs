//! The users of the target that have lost it.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

use crate::error::Error;

/// A user of the target that may have lost it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Party {
    Control,
    Catalogue,
    Worker(u16),
}

/// Why the target can't be reached or written to, by party; cheap to clone. That one can read proves
/// nothing for another that can't write: each removes only its own entry.
#[derive(Debug, Clone, Default)]
pub struct Reachability {
    lost: Arc<watch::Sender<BTreeMap<Party, String>>>,
}

impl Reachability {
    /// True if no other party knew it: the first to find out logs it.
    pub(crate) fn lost(&self, party: Party, error: &Error) -> bool {
        let mut is_news = false;
        self.lost.send_modify(|lost| {
            is_news = lost.is_empty();
            lost.insert(party, error.to_string());
        });
        is_news
    }

    pub(crate) fn reached(&self, party: Party) {
        self.lost.send_if_modified(|lost| lost.remove(&party).is_some());
    }

    /// True if the target is known to be away.
    pub(crate) fn is_lost(&self) -> bool {
        !self.lost.borrow().is_empty()
    }

    pub(crate) fn why_lost(&self) -> Option<String> {
        self.lost.borrow().first_key_value().map(|(_, why)| why.clone())
    }

    pub(crate) async fn until_lost(&self) {
        // The sender lives as long as `self`, so this fails never.
        let _ = self.lost.subscribe().wait_for(|lost| !lost.is_empty()).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_reads_does_not_speak_for_who_writes() {
        let target = Reachability::default();
        let error = |text: &str| Error::Held {
            channel: "c".to_owned(),
            what: text.to_owned(),
            by_another: true,
        };
        let soon = || tokio::time::timeout(Duration::from_secs(1), target.until_lost());
        assert!(!target.is_lost() && soon().await.is_err());
        assert!(target.lost(Party::Worker(1), &error("read-only")), "news");
        assert!(!target.lost(Party::Control, &error("away")), "known already");
        target.reached(Party::Control);
        target.reached(Party::Catalogue);
        assert!(target.is_lost() && soon().await.is_ok());
        assert!(target.why_lost().is_some_and(|why| why.contains("read-only")));
        target.reached(Party::Worker(1));
        assert!(!target.is_lost() && soon().await.is_err());
    }
}
