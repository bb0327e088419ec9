//! Channels that an operator has paused or stopped.

use super::*;

async fn a_channel_that_is_held_stays_until_its_daemon_drains<S: Service>() {
    let mut site = Site::<S>::new(2, 90).await;
    site.ledger.lock().held.clone_from(&site.channels);
    let own = site.of("a");
    // It would have a third of them.
    site.start("c");
    sleep(DELAY * 2).await;
    assert_eq!((site.of("a"), site.of("c")), (own, BTreeSet::new()));
    site.hosts["a"].handle.drain(true);
    let is_drained = |site: &Site<S>| site.hosts["a"].handle.view().is_drained();
    site.until("others have its channels", Duration::from_secs(30), is_drained).await;
    assert!(!site.of("c").is_empty(), "of those that were given away");
    site.hosts["a"].handle.drain(false);
    // Once they are resumed, each moves to where it belongs.
    site.ledger.lock().held.clear();
    sleep(DELAY * 2).await;
    site.check_shares();
    site.check_no_overlap();
}

async fn a_channel_that_is_held_as_it_begins_to_move_stays<S: Service>() {
    let mut site = Site::<S>::new(2, 90).await;
    site.ledger.lock().held_first.clone_from(&site.channels);
    let (own, begun) = (site.of("a"), site.begun());
    site.start("c");
    sleep(DELAY * 2).await;
    assert!(!site.ledger.lock().held.is_empty(), "some were to move");
    assert_eq!((site.of("a"), site.begun()), (own, begun));
    for channel in &site.channels {
        let holder = site.service.holder(channel);
        assert!(holder.is_some_and(|name| site.of(&name).contains(channel)), "{channel}");
    }
    // Once they are resumed, each moves to where it belongs.
    site.ledger.lock().held_first.clear();
    site.ledger.lock().held.clear();
    sleep(DELAY * 2).await;
    site.check_shares();
    site.check_no_overlap();
}

in_each_service! {
    a_channel_that_is_held_stays_until_its_daemon_drains
    a_channel_that_is_held_as_it_begins_to_move_stays
}
