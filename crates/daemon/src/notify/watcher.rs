//! The task that looks at all channels, and hands what changed to their outboxes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use csa_provider::binlog::Uuid;
use tokio_util::sync::CancellationToken;

use super::event::{Event, Origin};
use super::kept;
use super::outbox::{Letter, Outbox};
use super::tally::Tally;
use super::tracker::{Rules, Tracker};
use crate::config::Notify;
use crate::host::{blocking, now_micros};
use crate::observe::view::ChannelView;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(500);

/// A channel at one moment.
#[derive(Debug)]
pub(crate) struct WatchedChannel {
    /// Without the GTID sets.
    pub(crate) view: ChannelView,
    pub(crate) notify: Arc<Notify>,
    pub(crate) tally: Arc<Tally>,
    /// The channel's part of `state_dir`.
    pub(crate) folder: PathBuf,
}

struct Mailbox {
    tracker: Tracker,
    outbox: Outbox,
}

/// Sends events until stopped; what is not delivered then is not sent. `look` returns the channels that have a
/// receiver. Only the last state that a receiver knows is kept on disk.
pub(crate) async fn watch<L>(look: L, stop: CancellationToken)
where
    L: Fn() -> Vec<WatchedChannel> + Send,
{
    let host = host();
    let mut mailboxes: BTreeMap<String, Mailbox> = BTreeMap::new();
    loop {
        let channels = look();
        // A channel that ends with the process has no event.
        if stop.is_cancelled() {
            return;
        }
        let is_known =
            |name: &String| channels.iter().any(|channel| channel.view.channel_name == *name);
        mailboxes.retain(|name, _| is_known(name));
        for channel in &channels {
            let name = &channel.view.channel_name;
            if !mailboxes.contains_key(name) {
                mailboxes.insert(name.clone(), open(channel).await);
            }
            if let Some(mailbox) = mailboxes.get_mut(name) {
                mailbox.take(channel, &host);
            }
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = stop.cancelled() => return,
        }
    }
}

async fn open(channel: &WatchedChannel) -> Mailbox {
    let WatchedChannel { view, notify, tally, folder } = channel;
    let path = folder.join("notify.json");
    let file = path.clone();
    let known = blocking(move || kept::read(&file)).await.unwrap_or_default();
    let outbox = Outbox::open(&view.channel_name, Arc::clone(notify), Arc::clone(tally), path);
    Mailbox { tracker: Tracker::new(known), outbox }
}

impl Mailbox {
    fn take(&mut self, channel: &WatchedChannel, host: &str) {
        let WatchedChannel { view, notify, .. } = channel;
        self.outbox.set_receiver(notify);
        let rules = Rules { after: notify.after, quiet: notify.quiet };
        for change in self.tracker.take(Instant::now(), view, rules) {
            let kind = change.kind.filter(|kind| notify.events.contains(kind));
            let event = kind.map(|kind| {
                let origin = Origin::now(host.to_owned());
                Event::new(kind, view, change.detail.as_deref(), change.changes, origin)
            });
            self.outbox.add(Letter { event, standing: change.standing });
        }
    }
}

impl Origin {
    /// Returns that of an event of this moment, on this host.
    pub(crate) fn now(host: String) -> Self {
        Self { id: Uuid::new_v4().to_string(), at: now_micros(), host }
    }
}

/// Returns the name of this host.
pub(crate) fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}
