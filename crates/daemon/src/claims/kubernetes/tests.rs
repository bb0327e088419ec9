//! The engine over an API server in this process, in virtual time: its promises, its faults and its races.

use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::Method;
use tokio::time::{Instant, sleep};

use super::super::engine::{Engine as _, EngineError, Member};
use super::super::promises;
use super::Kubernetes;
use super::fake::{ApiServer, Trouble};

const TTL: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_secs(1);

fn member(name: &str) -> Member {
    Member {
        name: name.to_owned(),
        id: format!("of {name}"),
        weight: 1,
        channels: ["x".to_owned(), "y".to_owned()].into(),
        ..Member::default()
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// `a` and `b` in one fleet; `b` has the channel `x`, and `a` has seen it.
async fn pair() -> (ApiServer, Kubernetes, Kubernetes) {
    let server = ApiServer::new(TTL);
    let (a, b) = (server.link().0, server.link().0);
    a.join(&member("a")).await.expect("joined");
    b.join(&member("b")).await.expect("joined");
    assert_eq!(b.claim(&names(&["x"])).await.expect("claimed"), ["x"]);
    a.look().await.expect("seen");
    (server, a, b)
}

/// `a` lives for this long, and `b` does nothing.
async fn live(a: &Kubernetes, time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        sleep(STEP).await;
        a.renew().await.expect("renewed");
    }
}

fn is_away<T>(outcome: &Result<T, EngineError>) -> bool {
    matches!(outcome, Err(EngineError::Away(_)))
}

fn is_over<T>(outcome: &Result<T, EngineError>) -> bool {
    matches!(outcome, Err(EngineError::SessionEnded))
}

#[tokio::test(start_paused = true)]
async fn it_keeps_the_promises_of_an_engine() {
    let server = ApiServer::new(TTL);
    promises::check(|| server.link().0, TTL, TTL / 2).await;
    assert!(server.requests().iter().any(|request| request.contains("continue=")), "pages");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_lost_loses_nothing_else() {
    let server = ApiServer::new(TTL);
    let a = server.link().0;
    server.fault(Method::POST, "leases", Trouble::CutAfter);
    assert!(is_away(&a.join(&member("a")).await));
    a.join(&member("a")).await.expect("its own Lease is replaced");
    server.fault(Method::PUT, "-member-", Trouble::CutAfter);
    assert!(is_away(&a.renew().await));
    a.renew().await.expect("the version that it has not seen is its own");

    let channels = names(&["x", "y", "z"]);
    a.look().await.expect("seen");
    server.fault(Method::POST, "leases", Trouble::CutAfter);
    let first = a.claim(&channels).await.expect("the others are claimed");
    assert_eq!(first.len(), 2, "{first:?}");
    assert_eq!(a.claim(&channels).await.expect("claimed"), channels);
    assert_eq!(a.look().await.expect("seen").claims.len(), 3);
    server.fault(Method::PUT, "-claim-", Trouble::CutAfter);
    a.claim(&channels).await.expect("claimed, but for one answer");
    assert_eq!(a.claim(&channels).await.expect("claimed"), channels);
    server.fault(Method::DELETE, "-claim-", Trouble::CutAfter);
    assert!(is_away(&a.release(&channels).await));
    a.release(&channels).await.expect("released");
    assert_eq!(a.look().await.expect("seen").claims.len(), 0);
    server.fault(Method::DELETE, "-member-", Trouble::CutAfter);
    assert!(is_away(&a.leave().await));
    assert_eq!(server.objects().len(), 0);
    assert_eq!(server.faults_left(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_renews_before_it_is_fenced_keeps_its_claims() {
    let (server, a, b) = pair().await;
    live(&a, TTL * 2).await;
    // Overdue for `a`, whose deletion comes after a renewal.
    server.fault(Method::DELETE, "-member-", Trouble::Late(STEP));
    let renewal = async {
        sleep(STEP / 2).await;
        b.renew().await
    };
    let (fleet, renewed) = tokio::join!(a.look(), renewal);
    renewed.expect("it was faster");
    assert_eq!(server.faults_left(), 0, "a tried");
    assert_eq!(fleet.expect("seen").claims["x"].holder, "b");
    assert_eq!(a.claim(&names(&["x"])).await.expect("no error"), names(&[]));
    b.renew().await.expect("renewed");
    assert!(b.look().await.expect("seen").claims["x"].is_current);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_comes_back_after_it_was_fenced_has_nothing() {
    let (server, a, b) = pair().await;
    live(&a, TTL).await;
    assert_eq!(a.look().await.expect("seen").claims.len(), 1, "not yet");
    assert_eq!(a.claim(&names(&["x"])).await.expect("no error"), names(&[]));
    live(&a, TTL).await;
    // Without a look nobody is fenced, however much time has passed.
    assert_eq!(a.claim(&names(&["x"])).await.expect("no error"), names(&[]));
    let fleet = a.look().await.expect("seen");
    assert_eq!((fleet.members, fleet.claims.len()), (vec![member("a")], 0));
    // It wakes up before the claim is taken over, but after its end.
    assert!(is_over(&b.claim(&names(&["y"])).await), "by its own clock");
    assert!(is_over(&b.renew().await), "its Lease is gone");
    assert_eq!(a.claim(&names(&["x"])).await.expect("claimed"), ["x"]);
    b.join(&member("b")).await.expect("joined");
    let fleet = b.look().await.expect("seen");
    assert_eq!(fleet.claims["x"].holder, "a");
    assert_eq!(b.claim(&names(&["x"])).await.expect("no error"), names(&[]));
    b.release(&names(&["x"])).await.expect("no error");
    assert_eq!(server.holder("x").as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn of_two_that_take_a_free_claim_one_gets_it() {
    // The revived holder against the one who fenced it, in each order.
    for is_first in [true, false] {
        let (server, a, b) = pair().await;
        live(&a, TTL * 2).await;
        a.look().await.expect("seen");
        b.join(&member("b")).await.expect("joined again");
        b.look().await.expect("seen");
        let channels = names(&["x"]);
        if is_first {
            server.fault(Method::PUT, "-claim-", Trouble::Late(STEP));
        }
        let second = async {
            sleep(STEP / 2).await;
            if is_first { b.claim(&channels).await } else { a.claim(&channels).await }
        };
        let first =
            async { if is_first { a.claim(&channels).await } else { b.claim(&channels).await } };
        let (first, second) = tokio::join!(first, second);
        let (first, second) = (first.expect("no error"), second.expect("no error"));
        assert_eq!(first.len() + second.len(), 1, "{first:?} {second:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_answer_comes_after_the_session_is_over_does_not_count() {
    let (server, _, b) = pair().await;
    b.renew().await.expect("renewed");
    b.look().await.expect("seen");
    sleep(TTL - STEP / 2).await;
    server.fault(Method::POST, "leases", Trouble::SlowAnswer(STEP));
    assert!(is_over(&b.claim(&names(&["y"])).await));
    assert_eq!(server.faults_left(), 0);
    // Nobody has fenced it, so it may continue.
    b.renew().await.expect("renewed");
    assert!(b.look().await.expect("seen").claims["y"].is_current);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_was_replaced_is_over_at_once() {
    let (server, _, b) = pair().await;
    let again = server.link().0;
    again.join(&member("b")).await.expect("joined");
    assert!(is_over(&b.renew().await));
    assert!(is_over(&b.claim(&names(&["y"])).await));
    assert!(is_over(&b.leave().await));
    again.renew().await.expect("renewed");
    // The two take it from each other at most by what an operator can see: neither renews the other's Lease.
    b.join(&member("b")).await.expect("joined");
    assert!(is_over(&again.renew().await));
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_longer_than_any_session_nobody_is_fenced() {
    let server = ApiServer::new(TTL);
    let ((a, a_cut), (b, b_cut)) = (server.link(), server.link());
    for (engine, name) in [(&a, "a"), (&b, "b")] {
        engine.join(&member(name)).await.expect("joined");
        engine.look().await.expect("seen");
    }
    for cut in [&a_cut, &b_cut] {
        cut.store(true, Ordering::Relaxed);
    }
    for _ in 0..5 {
        sleep(TTL).await;
        assert!(is_away(&a.renew().await) && is_away(&a.look().await));
    }
    for cut in [&a_cut, &b_cut] {
        cut.store(false, Ordering::Relaxed);
    }
    // `a` is back first, and has renewed and looked before `b` does anything.
    live(&a, TTL / 2).await;
    assert_eq!(a.look().await.expect("seen").members.len(), 2);
    b.renew().await.expect("nobody has ended its session");
    assert_eq!(a.look().await.expect("seen").members.len(), 2);
    // Only one of them is cut off: it is fenced.
    b_cut.store(true, Ordering::Relaxed);
    live(&a, TTL * 2).await;
    assert_eq!(a.look().await.expect("seen").members.len(), 1);
    b_cut.store(false, Ordering::Relaxed);
    assert!(is_over(&b.renew().await));
}

#[tokio::test(start_paused = true)]
async fn a_watch_notices_changes_and_silence() {
    let (server, a, b) = pair().await;
    // A renewal is no change, but begins the member's time again.
    let renewals = async {
        sleep(TTL / 2).await;
        b.renew().await.expect("renewed");
        Instant::now()
    };
    let (woken, renewed, ()) = tokio::join!(
        async { a.changed().await.map(|()| Instant::now()) },
        renewals,
        live(&a, TTL * 2)
    );
    let silent = woken.expect("changed") - renewed;
    assert!(silent > TTL && silent < TTL + TTL / 5, "{silent:?} after the last renewal");
    let fleet = a.look().await.expect("seen");
    assert_eq!((fleet.members.len(), fleet.claims.len()), (1, 0), "fenced");

    // A position that is too old, in the stream and before it.
    b.join(&member("b")).await.expect("joined");
    a.renew().await.expect("renewed");
    server.compact();
    a.changed().await.expect("something may have changed");
    assert_eq!(a.look().await.expect("seen").members.len(), 2);
    server.fault(Method::GET, "watch=1", Trouble::Status(410));
    a.changed().await.expect("something may have changed");
    a.look().await.expect("seen");
    for status in [429, 500] {
        server.fault(Method::GET, "watch=1", Trouble::Status(status));
        assert!(is_away(&a.changed().await));
    }
    // A list whose pages expire.
    let many: Vec<String> = (0..20).map(|number| format!("m{number}")).collect();
    assert_eq!(b.claim(&many).await.expect("claimed"), many);
    server.compact();
    a.changed().await.expect("something may have changed");
    server.fault(Method::GET, "continue=0", Trouble::Status(410));
    server.fault(Method::GET, "limit=500&continue=", Trouble::Late(STEP / 10));
    let listing = a.look();
    let expiry = async {
        sleep(STEP / 10 + Duration::from_millis(5)).await;
        server.compact();
    };
    let (listed, ()) = tokio::join!(listing, expiry);
    assert!(is_away(&listed), "{listed:?}");
    // 20 and x
    assert_eq!(a.look().await.expect("seen").claims.len(), 21);
}

#[tokio::test(start_paused = true)]
async fn many_changes_are_one() {
    let (_server, a, b) = pair().await;
    let many: Vec<String> = (0..50).map(|number| format!("m{number}")).collect();
    assert_eq!(b.claim(&many).await.expect("claimed"), many);
    a.changed().await.expect("changed");
    assert_eq!(a.look().await.expect("seen").claims.len(), 51);
    let more = tokio::time::timeout(STEP, a.changed()).await;
    assert!(more.is_err(), "they were known already: {more:?}");
    // One after the other, for longer than it waits for more: it does not wait for the last.
    let started = Instant::now();
    let others = async {
        for number in 0..100 {
            b.release(&many[number / 2..=number / 2]).await.expect("released");
            sleep(Duration::from_millis(20)).await;
        }
    };
    let woken = async {
        a.changed().await.expect("changed");
        started.elapsed()
    };
    let (took, ()) = tokio::join!(woken, others);
    assert!(took < STEP, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn refusals_name_the_key_and_trouble_passes() {
    let (server, a, _) = pair().await;
    for (status, words) in [
        (403, "claims.engine: "),
        (404, "claims.namespace: "),
        (422, "claims.engine: the API server refuses a Lease"),
    ] {
        server.fault(Method::GET, "leases?", Trouble::Status(status));
        let refused = a.look().await.expect_err("refused");
        assert!(matches!(refused, EngineError::Refused(_)), "{refused:?}");
        assert!(refused.to_string().starts_with(words), "{refused}");
    }
    for status in [408, 429, 500, 503] {
        for method in [Method::GET, Method::PUT] {
            server.fault(method, "leases", Trouble::Status(status));
        }
        assert!(is_away(&a.look().await) && is_away(&a.renew().await));
        server.fault(Method::POST, "leases", Trouble::Status(status));
        assert!(is_away(&a.claim(&names(&["y"])).await));
    }
    // Too slow for the time to live.
    let started = Instant::now();
    server.fault(Method::PUT, "leases", Trouble::Late(TTL));
    assert!(is_away(&a.renew().await));
    assert!(started.elapsed() < TTL / 3, "{:?}", started.elapsed());
    a.renew().await.expect("renewed");
    assert_eq!(a.look().await.expect("seen").members.len(), 2);
    assert_eq!(server.faults_left(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_renewed_is_read_again() {
    let server = ApiServer::new(TTL);
    let file = tempfile::NamedTempFile::new().expect("a file");
    let put = |token: &str| std::fs::write(file.path(), token).expect("writes");
    put("one\n");
    server.require_token("one");
    let a = server.link_with("fleet", Some(file.path())).0;
    a.join(&member("a")).await.expect("joined");
    server.require_token("two");
    let refused = a.renew().await.expect_err("refused").to_string();
    assert!(refused.starts_with("claims.token_file: ") && refused.contains("401"), "{refused}");
    put("two\n");
    a.renew().await.expect("renewed");
    assert_eq!(a.claim(&names(&["x"])).await.expect("claimed"), ["x"]);
    std::fs::remove_file(file.path()).expect("removed");
    let missing = a.renew().await.expect_err("no token").to_string();
    assert!(missing.starts_with("claims.token_file: "), "{missing}");
}

#[tokio::test(start_paused = true)]
async fn what_others_write_into_the_namespace_is_no_trouble() {
    let (server, a, b) = pair().await;
    // An edit by hand is not the end of a session or of a claim.
    server.edit("member", "b", |lease| lease["metadata"]["annotations"]["note"] = "?".into());
    b.renew().await.expect("renewed");
    server.edit("claim", "x", |lease| lease["metadata"]["annotations"]["note"] = "?".into());
    b.release(&names(&["x"])).await.expect("released");
    assert_eq!(server.holder("x"), None);
    // A Lease of the fleet that nobody can read is left out.
    assert_eq!(b.claim(&names(&["y"])).await.expect("claimed"), ["y"]);
    server.edit("claim", "y", |lease| {
        lease["metadata"]["annotations"] = serde_json::json!({});
    });
    let c = server.link().0;
    c.join(&member("c")).await.expect("joined");
    assert_eq!(c.look().await.expect("seen").claims.len(), 0);
    assert_eq!(c.claim(&names(&["y"])).await.expect("no error"), names(&[]));
    // Another daemon's name by accident.
    server.edit("member", "a", |lease| {
        lease["metadata"]["annotations"]["csa-daemon.internal/name"] = "else".into();
    });
    let refused = server.link().0.join(&member("a")).await.expect_err("refused").to_string();
    assert!(refused.starts_with("claims.name: the Lease fleet-member-a-"), "{refused}");
    drop(a);
    // Another fleet of the namespace.
    let other = server.link_with("other", None).0;
    other.join(&member("b")).await.expect("joined");
    let fleet = other.look().await.expect("seen");
    assert_eq!((fleet.members.len(), fleet.claims.len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn claims_that_nobody_will_take_are_deleted() {
    let (server, a, b) = pair().await;
    assert_eq!(b.claim(&names(&["y"])).await.expect("claimed"), ["y"]);
    let knows = Member { channels: ["x".to_owned()].into(), ..member("a") };
    a.join(&knows).await.expect("published");
    b.leave().await.expect("left");
    a.changed().await.expect("changed");
    a.look().await.expect("seen");
    assert_eq!(server.holder("x").as_deref(), Some("b"), "a may take it over");
    assert_eq!(server.holder("y"), None);
    assert_eq!(a.claim(&names(&["x"])).await.expect("claimed"), ["x"]);
}
