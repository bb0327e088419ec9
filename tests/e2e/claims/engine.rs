//! The engine on etcd: what its claims promise.

use std::time::Duration;

use csa_daemon::claims::engine::{Engine as _, EngineError, Member};
use csa_daemon::claims::etcd::{Etcd, EtcdOptions};
use csa_daemon::claims::http::Endpoint;
use csa_tests::{Etcd as Server, eventually};
use serde_json::json;

const TTL: Duration = Duration::from_secs(3);

pub(super) fn engine(server: &Server, ttl: Duration, login: Option<(&str, &str)>) -> Etcd {
    // The first one answers nothing.
    let endpoints = ["http://127.0.0.1:1", &server.endpoint()];
    let endpoint = |text: &&str| Endpoint::parse(text, None).expect("an address");
    Etcd::new(EtcdOptions {
        endpoints: endpoints.iter().map(endpoint).collect(),
        prefix: "/fleet".to_owned(),
        ttl,
        login: login.map(|(user, password)| (user.to_owned(), password.into())),
    })
}

fn member(name: &str, id: &str) -> Member {
    Member { name: name.to_owned(), id: id.to_owned(), weight: 7, ..Member::default() }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_has_one_holder_and_ends_with_its_session() {
    let server = Server::start();
    let (a, b) = (engine(&server, TTL, None), engine(&server, TTL, None));
    a.join(&member("a", "1")).await.expect("joined");
    b.join(&member("b", "2")).await.expect("joined");
    // More than one request's worth.
    let many: Vec<String> = (0..250).map(|number| format!("c{number:03}")).collect();
    assert_eq!(a.claim(&many).await.expect("claimed"), many);
    assert_eq!(b.claim(&names(&["c007", "x"])).await.expect("claimed"), ["x"]);
    assert_eq!(a.claim(&many[..2]).await.expect("claimed again"), many[..2]);
    b.release(&names(&["c007"])).await.expect("no error");
    let fleet = b.look().await.expect("seen");
    assert_eq!(fleet.claims["c007"].holder, "a", "only the holder releases");
    assert!(!fleet.claims["c007"].is_current && fleet.claims["x"].is_current);
    assert_eq!(fleet.members, [member("a", "1"), member("b", "2")]);

    // A change wakes those who wait for one.
    let waiting = tokio::time::timeout(Duration::from_secs(10), b.changed());
    let released = names(&["c007"]);
    let (woken, released) = tokio::join!(waiting, a.release(&released));
    woken.expect("in time").expect("changed");
    released.expect("released");
    assert!(!b.look().await.expect("seen").claims.contains_key("c007"));

    // The same daemon after a restart: its claims are there, of a session that has ended for it.
    let again = engine(&server, TTL, None);
    again.join(&member("a", "1")).await.expect("joined");
    assert!(!again.look().await.expect("seen").claims["c001"].is_current);
    assert_eq!(again.claim(&names(&["c001"])).await.expect("claimed"), ["c001"]);
    assert!(again.look().await.expect("seen").claims["c001"].is_current);
    let other = engine(&server, TTL, None).join(&member("a", "3")).await;
    let other = other.expect_err("the name is taken").to_string();
    assert!(other.starts_with("claims.name: another daemon is in the fleet as \"a\""), "{other}");

    // Renewed, a session outlives its time; what belongs to others does not.
    eventually("the old session's claims end", TTL * 4, async || {
        b.renew().await.expect("renewed");
        again.renew().await.expect("renewed");
        b.look().await.expect("seen").claims.len() == 2
    })
    .await;
    let lost = a.renew().await.expect_err("its lease has ended");
    assert!(matches!(lost, EngineError::SessionEnded), "{lost}");
    let lost = a.claim(&names(&["y"])).await.expect_err("its lease has ended");
    assert!(matches!(lost, EngineError::SessionEnded), "{lost}");
    b.leave().await.expect("left");
    let fleet = again.look().await.expect("seen");
    assert_eq!((fleet.members, fleet.claims.len()), (vec![member("a", "1")], 1));
    server.kill9();
    let away = again.look().await.expect_err("killed");
    assert!(matches!(away, EngineError::Away(_)), "{away}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_is_used_where_etcd_has_accounts() {
    let server = Server::start();
    for (path, body) in [
        ("user/add", json!({ "name": "root", "password": "r" })),
        ("user/add", json!({ "name": "csa", "password": "p" })),
        ("role/add", json!({ "name": "root" })),
        ("role/add", json!({ "name": "fleet" })),
        ("user/grant", json!({ "user": "root", "role": "root" })),
        ("user/grant", json!({ "user": "csa", "role": "fleet" })),
        // '/fleet/' to '/fleet0'
        (
            "role/grant",
            json!({ "name": "fleet", "perm":
                { "permType": "READWRITE", "key": "L2ZsZWV0Lw==", "range_end": "L2ZsZWV0MA==" } }),
        ),
        ("enable", json!({})),
    ] {
        let answer = server.post(&format!("/v3/auth/{path}"), &body);
        assert!(answer.get("error").is_none(), "{path}: {answer}");
    }
    let a = engine(&server, TTL, Some(("csa", "p")));
    a.join(&member("a", "1")).await.expect("joined");
    assert_eq!(a.claim(&names(&["x"])).await.expect("claimed"), ["x"]);
    a.renew().await.expect("renewed");
    for (login, words) in [(Some(("csa", "wrong")), "claims.user: "), (None, "user name is empty")]
    {
        let refused = engine(&server, TTL, login).join(&member("b", "2")).await;
        let refused = refused.expect_err("refused");
        assert!(matches!(refused, EngineError::Refused(_)), "{refused:?}");
        assert!(refused.to_string().contains(words), "{refused}");
    }
}
