//! Channels that reloads add and remove, also while the keeper looks at nothing.

use super::*;

impl Simulated {
    pub(super) fn instance(&self, channel: &str) -> u64 {
        self.replaced.lock().get(channel).copied().unwrap_or_default()
    }

    /// Removes the channel, which ends it, and adds another one of the same name.
    fn replace(&self, channel: &str) {
        if let Some(running) = self.ledger.lock().running.get_mut(channel) {
            running.remove(&self.name);
        }
        self.details.lock().remove(channel);
        *self.replaced.lock().entry(channel.to_owned()).or_default() += 1;
    }
}

async fn a_channel_that_was_removed_and_added_again_runs_again<S: Service>() {
    let site = Site::<S>::new(2, 20).await;
    let (own, others, begun) = (site.of("a"), site.of("b"), site.begun());
    let host = &site.hosts["a"];
    host.is_cut.store(true, Ordering::Relaxed);
    sleep(Duration::from_secs(1)).await;
    site.channels.iter().for_each(|channel| host.work.replace(channel));
    host.handle.look_again();
    sleep(Duration::from_secs(2)).await;
    assert!(site.of("a").is_empty());
    host.is_cut.store(false, Ordering::Relaxed);
    site.until_all_run(Duration::from_secs(10)).await;
    assert_eq!((site.of("a"), site.of("b")), (own.clone(), others.clone()));
    assert_eq!(site.begun(), begun + own.len());
    let details = host.work.details.lock().clone();
    for channel in &others {
        let detail = details.get(channel).map(String::as_str);
        assert_eq!(detail, Some("daemon b has claimed the channel"), "{channel}");
    }
    // One that was replaced is given away as any other.
    host.handle.drain(true);
    let is_drained = |site: &Site<S>| site.hosts["a"].handle.view().is_drained();
    site.until("b has all", Duration::from_secs(10), is_drained).await;
    site.check_no_overlap();
}

async fn channels_come_and_go_with_the_configuration<S: Service>() {
    let mut site = Site::<S>::new(2, 20).await;
    // Of one daemon only: it runs there, whoever would win it.
    for number in 0..10 {
        site.hosts["a"].work.channels.lock().insert(format!("new-{number}"));
    }
    site.hosts["a"].handle.look_again();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(site.of("a").iter().filter(|name| name.starts_with("new")).count(), 10);
    // Of both: after the delay each has its share.
    site.channels.clone_from(&site.hosts["a"].work.channels.lock());
    site.hosts["b"].work.channels.lock().clone_from(&site.channels);
    site.hosts["b"].handle.look_again();
    sleep(DELAY + Duration::from_secs(5)).await;
    site.check_shares();
    for host in site.hosts.values() {
        host.work.channels.lock().retain(|name| !name.starts_with("new"));
        host.handle.look_again();
    }
    sleep(Duration::from_secs(5)).await;
    for number in 0..10 {
        assert_eq!(site.service.holder(&format!("new-{number}")), None);
    }
    site.check_no_overlap();
}

in_each_service! {
    channels_come_and_go_with_the_configuration
    a_channel_that_was_removed_and_added_again_runs_again
}
