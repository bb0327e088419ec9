//! The engines on real services: the promises of all, and the trouble that only one of them has.

use std::time::Duration;

use csa_daemon::claims::engine::{Engine as _, EngineError, Member};
use csa_daemon::claims::etcd::{Etcd, EtcdOptions};
use csa_daemon::claims::http::Endpoint;
use csa_daemon::claims::promises;
use csa_tests::{ACCOUNT_TOKEN, Etcd as Server, eventually};
use serde_json::json;

use super::service::{Leases, Service as _};

/// A request to one of two servers may take a tenth of it, on a busy machine too.
const TTL: Duration = Duration::from_secs(15);

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
#[ignore = "slow"]
async fn etcd_keeps_the_promises_of_an_engine() {
    let server = Server::start();
    promises::check(|| server.engine(TTL), TTL, TTL).await;
    let (a, b) = (server.engine(TTL), server.engine(TTL));
    a.join(&member("c", "1")).await.expect("joined");
    let taken = b.join(&member("c", "2")).await.expect_err("the name is taken").to_string();
    assert!(taken.starts_with("claims.name: another daemon is in the fleet as \"c\""), "{taken}");
    server.kill9();
    let away = a.look().await.expect_err("killed");
    assert!(matches!(away, EngineError::Away(_)), "{away}");
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_keep_the_promises_of_an_engine() {
    let Some(leases) = Leases::start() else { return };
    promises::check(|| leases.engine(TTL), TTL, TTL).await;
    let (a, b) = (leases.engine(TTL), leases.engine(TTL));
    a.join(&member("c", "1")).await.expect("joined");
    let taken = b.join(&member("c", "2")).await.expect_err("the name is taken").to_string();
    assert!(taken.starts_with("claims.name: another daemon is in the fleet as \"c\""), "{taken}");

    // A token that is renewed, and one that is worth nothing.
    leases.put_token("of nobody");
    let refused = a.renew().await.expect_err("refused").to_string();
    assert!(refused.starts_with("claims.token_file: "), "{refused}");
    leases.put_token(ACCOUNT_TOKEN);
    a.renew().await.expect("renewed");
    // Rights end, too.
    leases.server.kubectl(&["delete", "rolebinding", "csa-daemon"], "").expect("deleted");
    let refused = async || a.renew().await.err().map(|error| error.to_string()).unwrap_or_default();
    eventually("the rights end", TTL, async || {
        refused().await.contains("grant get, list, watch, create, update and delete on leases")
    })
    .await;
    leases.kill9();
    let away = a.look().await.expect_err("killed");
    assert!(matches!(away, EngineError::Away(_)), "{away}");
}

/// Lets etcd demand an account: `root`, or `csa` for the keys of the fleet.
fn demand_accounts(server: &Server) {
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
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_is_used_where_etcd_has_accounts() {
    let server = Server::start();
    demand_accounts(&server);
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

/// A signed token ends with each change of users and roles, of any account.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_a_change_of_accounts_has_ended_is_renewed() {
    let server = Server::start_with_signed_tokens();
    demand_accounts(&server);
    let a = engine(&server, TTL, Some(("csa", "p")));
    a.join(&member("a", "1")).await.expect("joined");
    assert_eq!(a.claim(&names(&["x"])).await.expect("claimed"), ["x"]);
    let add = |name: &str| {
        let login = json!({ "name": "root", "password": "r" });
        let answer = server.post("/v3/auth/authenticate", &login);
        let token = answer["token"].as_str().unwrap_or_else(|| panic!("{answer}"));
        let user = json!({ "name": name, "password": "o" });
        let answer = server.post_as(Some(token), "/v3/auth/user/add", &user);
        assert!(answer.get("error").is_none(), "{answer}");
    };
    add("other");
    let ended = a.look().await.expect_err("its token has ended");
    assert!(matches!(ended, EngineError::Away(_)), "{ended:?}");
    let fleet = a.look().await.expect("seen");
    assert!(fleet.claims["x"].is_current, "{fleet:?}");
    add("another");
    // A transaction may pass with the ended token.
    let claimed = match a.claim(&names(&["y"])).await {
        Err(EngineError::Away(_)) => a.claim(&names(&["y"])).await,
        outcome => outcome,
    };
    assert_eq!(claimed.expect("claimed"), ["y"]);
    a.release(&names(&["x", "y"])).await.expect("released");
}
