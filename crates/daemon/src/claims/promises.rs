//! The promises of [`Engine`] as one test for every engine.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::engine::{Engine, EngineError, Member};

/// More than one request takes, in every engine.
const MANY: usize = 250;

fn member(name: &str, id: &str) -> Member {
    Member { name: name.to_owned(), id: id.to_owned(), weight: 7, ..Member::default() }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Checks all promises, with engines that are linked to the same service and have this time to live. `slack` is
/// the longest that the service takes to notice the end of a session, beyond that time.
///
/// # Panics
/// At the first one that is broken.
pub async fn check<E: Engine>(link: impl Fn() -> E, ttl: Duration, slack: Duration) {
    let (a, b) = (link(), link());
    for early in [a.renew().await, a.claim(&names(&["x"])).await.map(drop), a.leave().await] {
        assert!(matches!(early, Err(EngineError::SessionEnded)), "no session yet: {early:?}");
    }
    a.join(&member("a", "1")).await.expect("joined");
    b.join(&member("b", "2")).await.expect("joined");
    let other = link().join(&member("a", "3")).await;
    assert!(matches!(other, Err(EngineError::Refused(_))), "the name is taken: {other:?}");

    let many: Vec<String> = (0..MANY).map(|number| format!("C_{number:03}.é -/\"")).collect();
    claim_all(&a, &many, &b).await;
    let (taken, odd) = (&many[7..8], names(&["-x_", "-X_"]));
    b.look().await.expect("seen");
    assert_eq!(b.claim(taken).await.expect("no error"), names(&[]), "a has it");
    assert_eq!(b.claim(&odd).await.expect("claimed"), odd, "two names are two channels");
    assert_eq!(a.claim(&many[..2]).await.expect("claimed again"), many[..2]);
    b.release(taken).await.expect("no error");
    let fleet = b.look().await.expect("seen");
    assert_eq!(fleet.claims[&many[7]].holder, "a", "only the holder releases");
    assert!(!fleet.claims[&many[7]].is_current && fleet.claims["-x_"].is_current);
    assert_eq!(fleet.claims.len(), MANY + 2);
    assert_eq!(fleet.members, [member("a", "1"), member("b", "2")]);

    wakes_for_changes(&a, &b, &many[7]).await;
    let again = a_restart(&link, &many).await;

    // Renewed, a session outlives its time; what belongs to others does not.
    let started = Instant::now();
    while b.look().await.expect("seen").claims.len() != 3 {
        assert!(started.elapsed() < (ttl + slack) * 2, "the old session's claims end");
        b.renew().await.expect("renewed");
        again.renew().await.expect("renewed");
        sleep(ttl / 10).await;
    }
    for lost in [a.renew().await, a.claim(&names(&["y"])).await.map(drop)] {
        assert!(matches!(lost, Err(EngineError::SessionEnded)), "its session has ended: {lost:?}");
    }
    // One that is not renewed ends, and others may have its channels; it notices itself.
    let started = Instant::now();
    while b.claim(&many[1..2]).await.expect("no error").is_empty() {
        assert!(started.elapsed() < ttl + slack, "its session ends");
        b.renew().await.expect("renewed");
        b.look().await.expect("seen");
        sleep(ttl / 10).await;
    }
    assert!(started.elapsed() > ttl / 2, "it ended before its time: {:?}", started.elapsed());
    let lost = again.claim(&names(&["y"])).await;
    assert!(matches!(lost, Err(EngineError::SessionEnded)), "{lost:?}");
    let lost = again.renew().await;
    assert!(matches!(lost, Err(EngineError::SessionEnded)), "{lost:?}");
    // Its name is free for another daemon, and its claims are not that one's.
    let other = link();
    other.join(&member("a", "3")).await.expect("joined");
    let fleet = other.look().await.expect("seen");
    assert_eq!(fleet.members, [member("a", "3"), member("b", "2")]);
    assert!(fleet.claims.values().all(|claim| claim.holder == "b"), "{:?}", fleet.claims);
    b.leave().await.expect("left");
    let fleet = other.look().await.expect("seen");
    assert_eq!((fleet.members, fleet.claims.len()), (vec![member("a", "3")], 0));
    assert_eq!(other.claim(&odd).await.expect("claimed"), odd);
}

/// In as many requests as it takes.
async fn claim_all<E: Engine>(engine: &E, channels: &[String], other: &E) {
    let (mut left, started) = (channels.to_vec(), Instant::now());
    while !left.is_empty() {
        assert!(started.elapsed() < Duration::from_secs(60), "{} left", left.len());
        engine.look().await.expect("seen");
        let got = engine.claim(&left).await.expect("claimed");
        left.retain(|channel| !got.contains(channel));
        engine.renew().await.expect("renewed");
        other.renew().await.expect("renewed");
    }
}

async fn wakes_for_changes<E: Engine>(a: &E, b: &E, channel: &str) {
    let channel = [channel.to_owned()];
    // A watch may begin with changes that the last look has already shown.
    while timeout(Duration::from_millis(300), b.changed()).await.is_ok() {
        b.look().await.expect("seen");
    }
    let waiting = timeout(Duration::from_secs(10), b.changed());
    let (woken, released) = tokio::join!(waiting, a.release(&channel));
    woken.expect("in time").expect("changed");
    released.expect("released");
    let fleet = b.look().await.expect("seen");
    assert!(!fleet.claims.contains_key(&channel[0]));
    let mut drains = member("a", "1");
    drains.draining = true;
    let waiting = timeout(Duration::from_secs(10), b.changed());
    let (woken, published) = tokio::join!(waiting, a.join(&drains));
    woken.expect("in time").expect("changed");
    published.expect("published");
    assert_eq!(b.look().await.expect("seen").members[0], drains);
}

/// The same daemon after a restart: its claims are there, of a session that has ended for it.
async fn a_restart<E: Engine>(link: &impl Fn() -> E, many: &[String]) -> E {
    let again = link();
    again.join(&member("a", "1")).await.expect("joined");
    let channel = &many[1];
    assert!(!again.look().await.expect("seen").claims[channel].is_current);
    let own = std::slice::from_ref(channel);
    assert_eq!(again.claim(own).await.expect("claimed"), own);
    assert!(again.look().await.expect("seen").claims[channel].is_current);
    again
}
