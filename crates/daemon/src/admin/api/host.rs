//! Host names that requests to the port may carry.
//!
//! A page of another site can point its own name at 127.0.0.1 (DNS rebinding); the browser then
//! takes our answers for that site's. It sends the name with each request and can't omit it.

use std::net::IpAddr;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Uri, header};

use super::error::ApiError;

/// Lets a request pass whose host is an address, `localhost`, one of `hosts`, or missing.
pub(super) fn check(hosts: &[String], uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
    let named = headers.get_all(header::HOST).into_iter().map(|value| value.to_str().ok());
    let asked = uri.authority().map(|authority| Some(authority.as_str()));
    let refused = asked.into_iter().chain(named).find(|name| {
        !name.and_then(|name| name.parse().ok()).is_some_and(|name| is_ours(hosts, &name))
    });
    let Some(name) = refused else { return Ok(()) };
    Err(ApiError::new(
        StatusCode::FORBIDDEN,
        format!("the request is for host {:?}", name.unwrap_or("not a name")),
        "use the address or localhost, or add the name to daemon.admin_hosts and reload",
    ))
}

fn is_ours(hosts: &[String], name: &Authority) -> bool {
    let host = name.host().trim_end_matches('.');
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    literal.parse::<IpAddr>().is_ok()
        || host.eq_ignore_ascii_case("localhost")
        || hosts.iter().any(|known| known.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_nobody_else_can_lead_here_pass() {
        let hosts = ["db1.example".to_owned()];
        let asked = |uri: &str, host: &[&str]| {
            let mut headers = HeaderMap::new();
            for host in host {
                headers.append(header::HOST, host.parse().expect("a value"));
            }
            check(&hosts, &uri.parse().expect("an address"), &headers).is_ok()
        };
        for host in [
            "127.0.0.1:9104",
            "127.0.0.1",
            "[::1]:9104",
            "192.0.2.7:80",
            "localhost:9104",
            "LOCALHOST",
            "localhost.",
            "db1.example:9104",
            "DB1.example",
        ] {
            assert!(asked("/status", &[host]), "{host}");
        }
        for host in [
            "evil.example:9104",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "db1.example.evil.example",
            "",
            "a b",
            "[::1",
            "2130706433",
        ] {
            assert!(!asked("/status", &[host]), "{host}");
        }
        // Health checks with HTTP/1.0 name no host, and no browser sends such requests.
        assert!(asked("/status", &[]));
        assert!(!asked("/status", &["localhost", "evil.example"]));
        assert!(!asked("http://evil.example/status", &["localhost"]));
        assert!(asked("http://localhost/status", &["localhost"]));
    }
}
