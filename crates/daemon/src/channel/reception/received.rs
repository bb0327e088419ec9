//! The part of a reception that an applier reads, and the return of one that ended.

use std::sync::{Arc, Weak};
use std::time::Duration;

use csa_provider::binlog::GtidSet;
use csa_provider::seams::Backoff;
use csa_provider::source::{Known, ReceptionEnd, SharedForeign};
use csa_relaystore::disk;
use csa_relaystore::opening::RelayStore;
use parking_lot::Mutex as SyncMutex;
use tokio::sync::watch;

use crate::config::ChannelSettings;
use crate::host::{blocking, state_dir};

/// Returns the pauses before a source that ended reception is asked whether it serves again.
pub(super) fn before_return() -> Backoff {
    Backoff::unhurried(Duration::from_secs(120), Duration::from_secs(1800))
}

/// The part of it that an applier reads.
#[derive(Debug, Clone)]
pub(in crate::channel) struct Received {
    pub(in crate::channel) store: Arc<RelayStore>,
    /// Set by the reception's task, once, when nothing more will come.
    pub(in crate::channel) end: watch::Receiver<Option<ReceptionEnd>>,
    /// Damage in the store that the archive has met.
    pub(in crate::channel) damage: StoreDamage,
    pub(super) foreign: SharedForeign,
    pub(super) pauses: Arc<SyncMutex<Backoff>>,
}

impl Received {
    /// Returns once the source serves what follows, after an end of reception that passes; never for another.
    pub(in crate::channel) async fn returns(self, settings: Arc<ChannelSettings>) {
        let mut end = self.end.clone();
        if end.wait_for(passes).await.is_err() {
            return std::future::pending().await;
        }
        let ended = self.ended();
        // The store can be opened again from here on.
        drop(self);
        loop {
            let pause = ended.pauses.lock().pause();
            tokio::time::sleep(pause).await;
            if ended.is_served(&settings).await {
                return;
            }
        }
    }

    /// Nothing more is received.
    pub(super) fn ended(&self) -> Ended {
        Ended {
            store: Arc::downgrade(&self.store),
            received: self.store.received_so_far(),
            foreign: self.foreign.clone(),
            pauses: Arc::clone(&self.pauses),
        }
    }
}

/// Reception that has ended, without the store, which stays locked for as long as somebody has it.
pub(super) struct Ended {
    store: Weak<RelayStore>,
    received: GtidSet,
    foreign: SharedForeign,
    pauses: Arc<SyncMutex<Backoff>>,
}

impl Ended {
    /// The source has what follows, and the disk takes it.
    pub(super) async fn is_served(&self, settings: &ChannelSettings) -> bool {
        // A recording stays as it is.
        if settings.recorded.is_some() {
            return false;
        }
        let directory = settings.relay.directory.clone();
        let takes = blocking(move || state_dir::takes_writes(&directory)).await;
        if !matches!(takes, Ok(Ok(()))) {
            return false;
        }
        let foreign = self.foreign.get();
        let known = Known { received: self.received.clone(), foreign };
        let facts = csa_provider::source::preflight(&settings.source, Some(&known)).await;
        // A source that lacks transactions of its own would end the dump again. It may be committing them, and wait
        // for our acknowledgement.
        facts.is_ok_and(|facts| {
            settings.source.semi_sync || known.lacking(&facts.gtid_executed).is_empty()
        })
    }

    pub(super) fn is_of(&self, store: &Arc<RelayStore>) -> bool {
        std::ptr::eq(self.store.as_ptr(), Arc::as_ptr(store))
    }
}

/// Returns true if reception ended by something that may be over at some time.
pub(super) fn passes(end: &Option<ReceptionEnd>) -> bool {
    end.as_ref().is_some_and(|end| end.error.may_pass())
}

/// Damage that an applier does not see, because it has already read what comes after it.
#[derive(Debug, Clone, Default)]
pub(in crate::channel) struct StoreDamage(pub(super) Arc<watch::Sender<Option<disk::Error>>>);

impl StoreDamage {
    /// Returns once there is some.
    pub(in crate::channel) async fn is_found(&self) {
        // Its sender is here.
        drop(self.0.subscribe().wait_for(Option::is_some).await);
    }

    pub(in crate::channel) fn take(&self) -> Option<disk::Error> {
        self.0.send_replace(None)
    }
}

#[cfg(test)]
mod tests {
    use csa_provider::binlog::Uuid;
    use csa_provider::server::link::{Connecting, Endpoint, Network};
    use csa_provider::source::Foreign;
    use tempfile::TempDir;
    use tokio_util::sync::CancellationToken;

    use super::super::Reception;
    use super::*;
    use crate::channel::kept_foreign::KeptForeign;
    use crate::channel::live_settings::Controls;
    use crate::channel::supervisor::tests::fill;
    use crate::channel::watch::Watch;
    use crate::config::Config;
    use crate::config::tests::in_folder;

    /// Returns a channel's reception, which has not begun.
    fn reception() -> (Reception, ChannelSettings, TempDir) {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let relay = "\n[channel.relay]\nmin_free_disk = \"0\"\nsync = \"os\"\n";
        let text = in_folder(folder.path(), 1) + relay;
        let settings = Config::parse(&text).expect("valid").channels.remove(0);
        let watch = Watch::new(&settings, Controls::new(&settings));
        let reception = Reception::new(watch, settings.directory(), CancellationToken::new());
        (reception, settings, folder)
    }

    /// A network with a bug, which shows when a server has just sent something for the first time.
    #[derive(Debug)]
    struct Panics(SharedForeign, Foreign);

    impl Network for Panics {
        fn connect<'a>(&'a self, _: &'a Endpoint, _: Option<Duration>) -> Connecting<'a> {
            self.0.set(self.1.clone());
            panic!("a bug")
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_server_that_sent_something_is_in_the_file_after_a_panic() {
        let (reception, mut settings, _folder) = reception();
        let foreign = Foreign { followed: [Uuid::from_u128(7)].into(), ..Foreign::default() };
        let network = Panics(reception.foreign.shared().clone(), foreign.clone());
        settings.source.environment.network = Arc::new(network);
        let settings = Arc::new(settings);
        let attached = reception.attach(&settings, &GtidSet::new(), None, Foreign::default()).await;
        let mut end = attached.expect("opened").end;
        let ended = tokio::time::timeout(Duration::from_secs(60), end.wait_for(Option::is_some));
        drop(ended.await.expect("it ends").expect("it says so"));
        assert_eq!(KeptForeign::read(settings.directory()).shared().get(), foreign);
        reception.end().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn reception_that_was_told_to_end_does_not_continue() {
        let (reception, settings, _folder) = reception();
        fill(&settings).await;
        let settings = Arc::new(settings);
        let attached = reception.attach(&settings, &GtidSet::new(), None, Foreign::default()).await;
        drop(attached.expect("opened"));
        let current = reception.current.lock().await;
        let receiving = current.as_ref().expect("it receives");
        assert!(receiving.continues(&settings));
        // Whoever waited for its end was dropped by a stop.
        receiving.halt.cancel();
        assert!(!receiving.continues(&settings));
        drop(current);
        // Another one takes its place while the target is away.
        assert!(reception.resume(&settings).await.expect("opened again"));
        reception.end().await;
    }
}
