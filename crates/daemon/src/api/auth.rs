//! Who may do what.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use secrecy::{ExposeSecret as _, SecretString};

use super::error::ApiError;
use crate::config::Access;
use crate::daemon::Daemon;

/// What a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    Read,
    Control,
}

/// Names the operator in the log and in `csa.audit`.
pub(super) const BY: &str = "csa-by";

/// Lets a request pass, or answers it.
pub(super) async fn guard(
    State((daemon, needs)): State<(Arc<Daemon>, Needs)>,
    request: Request,
    next: Next,
) -> Response {
    match check(&daemon.access(), needs, request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

/// Whether a request with these headers may do what `needs` says.
pub(super) fn check(access: &Access, needs: Needs, headers: &HeaderMap) -> Result<(), ApiError> {
    if needs == Needs::Nothing {
        return Ok(());
    }
    let permitted = permitted(access, headers);
    if permitted == Needs::Nothing {
        return Err(ApiError::new(
            StatusCode::UNAUTHORIZED,
            "a token is needed",
            "send Authorization: Bearer with the token of daemon.admin_token_file",
        ));
    }
    if needs == Needs::Read {
        return Ok(());
    }
    if !access.control {
        return Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "this daemon takes no commands",
            "set daemon.admin_control = true and reload with SIGHUP",
        ));
    }
    // Browsers name the page behind a request; no page has any business here, least of all one that
    // found a way to 127.0.0.1.
    if headers.contains_key(header::ORIGIN) {
        return Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "commands are not taken from web pages",
            "use csa-daemon or another client that sends no Origin",
        ));
    }
    if permitted == Needs::Read {
        return Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "this token permits to look only",
            "send the token of daemon.admin_token_file",
        ));
    }
    Ok(())
}

fn permitted(access: &Access, headers: &HeaderMap) -> Needs {
    let Some(token) = &access.token else { return Needs::Control };
    let given = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "))
        .unwrap_or_default();
    let is = |token: &SecretString| is_same(token.expose_secret().as_bytes(), given.as_bytes());
    if is(token) {
        Needs::Control
    } else if access.read_token.as_ref().is_some_and(is) {
        Needs::Read
    } else {
        Needs::Nothing
    }
}

/// Takes as long for a good guess as for a bad one.
fn is_same(token: &[u8], given: &[u8]) -> bool {
    let differing = token.iter().zip(given).fold(0, |differing, (a, b)| differing | (a ^ b));
    token.len() == given.len() && differing == 0
}

/// Who sent a command, for the log.
pub(super) fn sender(headers: &HeaderMap, ConnectInfo(peer): ConnectInfo<SocketAddr>) -> String {
    match headers.get(BY).and_then(|by| by.to_str().ok()) {
        Some(by) => format!("{by} from {}", peer.ip()),
        None => peer.ip().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(access: &Access, needs: Needs, headers: &[(&'static str, &str)]) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().expect("a value"));
        }
        check(access, needs, &map).err().map_or(200, |e| e.into_response().status().as_u16())
    }

    #[test]
    fn tokens_permit_what_they_say() {
        let token = |text: &str| Some(SecretString::from(text));
        let open = Access { control: true, ..Access::default() };
        let read_only = Access { control: false, ..open.clone() };
        let tokens = Access { token: token("all"), read_token: token("look"), ..open.clone() };
        let bearer = |text: &'static str| [("authorization", text)];
        let page = [("origin", "http://127.0.0.1:9104")];
        use Needs::{Control, Nothing, Read};
        for (access, needs, headers, wanted) in [
            (&open, Control, &[][..], 200),
            (&open, Control, &page, 403),
            (&open, Read, &page, 200),
            (&read_only, Control, &[], 403),
            (&read_only, Read, &[], 200),
            (&tokens, Nothing, &[], 200),
            (&tokens, Read, &[], 401),
            (&tokens, Read, &bearer("Bearer loo"), 401),
            (&tokens, Read, &bearer("Bearer look"), 200),
            (&tokens, Read, &bearer("Bearer all"), 200),
            (&tokens, Read, &bearer("Basic all"), 401),
            (&tokens, Control, &bearer("Bearer look"), 403),
            (&tokens, Control, &bearer("Bearer alL"), 401),
            (&tokens, Control, &bearer("Bearer all"), 200),
            (&tokens, Control, &[], 401),
        ] {
            assert_eq!(status(access, needs, headers), wanted, "{needs:?} {headers:?}");
        }
    }
}
