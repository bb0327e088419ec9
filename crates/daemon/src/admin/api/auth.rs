//! Rights of those who send requests.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use secrecy::{ExposeSecret as _, SecretString};

use super::error::ApiError;
use super::peer::Peer;
use super::serve::Place;
use crate::config::Access;
use crate::daemon::Daemon;

/// The rights that a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    Read,
    /// Row values.
    Rows,
    Control,
}

/// The rights of its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Permitted {
    Nothing,
    Look,
    /// Commands and row values too.
    All,
}

/// Browsers state in it what kind of page sends a request.
const FETCH_SITE: &str = "sec-fetch-site";
/// The largest body: a GTID set, or a filter for the log.
const BODY_MAX: usize = 1 << 20;
/// The most that is read of a body whose sender is refused.
const REFUSED_MAX: usize = 64 << 10;
/// The time limit for a body, which is small.
const BODY_TIME: Duration = Duration::from_secs(10);

/// Lets a request pass, or answers it with a refusal.
pub(super) async fn guard(
    State((daemon, needs)): State<(Arc<Daemon>, Needs)>,
    mut request: Request,
    next: Next,
) -> Response {
    let access = daemon.access();
    let is_local = request.extensions().get::<Peer>().is_some_and(Peer::is_local);
    let permitted = permitted(&access, &daemon.admin.own_token, is_local, request.headers());
    if let Err(error) = check(&access, permitted, needs, request.headers()) {
        if needs == Needs::Control {
            // Read, because a client that is still sending would find a closed connection instead
            // of the answer.
            let body = std::mem::take(request.body_mut());
            let _ = tokio::time::timeout(BODY_TIME, to_bytes(body, REFUSED_MAX)).await;
        }
        return error.into_response();
    }
    if needs != Needs::Nothing
        && let Some(place) = request.extensions().get::<Place>()
    {
        place.keep();
    }
    request.extensions_mut().insert(permitted);
    if needs == Needs::Control {
        request = match whole(request).await {
            Ok(request) => request,
            Err(error) => return error.into_response(),
        };
    }
    next.run(request).await
}

/// Returns the rights of a request with these headers. On the socket everyone who could open it has
/// all of them.
fn permitted(
    access: &Access,
    own_token: &SecretString,
    is_local: bool,
    headers: &HeaderMap,
) -> Permitted {
    let given = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "))
        .unwrap_or_default();
    let is = |token: &SecretString| is_same(token.expose_secret().as_bytes(), given.as_bytes());
    if is_local || is(own_token) || access.token.as_ref().is_some_and(is) {
        Permitted::All
    } else if access.token.is_none() || access.read_token.as_ref().is_some_and(is) {
        // Without a configured token, the port listens on loopback.
        Permitted::Look
    } else {
        Permitted::Nothing
    }
}

/// Refuses a sender with fewer rights than the request needs.
pub(super) fn check(
    access: &Access,
    permitted: Permitted,
    needs: Needs,
    headers: &HeaderMap,
) -> Result<(), ApiError> {
    if needs == Needs::Nothing {
        return Ok(());
    }
    if permitted == Permitted::Nothing {
        return Err(unauthorized(access));
    }
    if needs == Needs::Read {
        return Ok(());
    }
    if needs == Needs::Control && !access.control {
        return Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "this daemon takes no commands",
            "set daemon.admin_control = true and reload with SIGHUP",
        ));
    }
    check_page(needs, headers)?;
    match permitted {
        Permitted::All => Ok(()),
        _ if access.token.is_none() => Err(unauthorized(access)),
        _ => Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "this token permits reading only",
            "send the token of daemon.admin_token_file",
        )),
    }
}

/// Browsers name the page that sends a request. No page may give commands, and row values are for
/// our own page only.
fn check_page(needs: Needs, headers: &HeaderMap) -> Result<(), ApiError> {
    let site = headers.get(FETCH_SITE);
    let is_refused = match needs {
        Needs::Control => headers.contains_key(header::ORIGIN) || site.is_some(),
        _ => site.is_some_and(|site| site != "same-origin" && site != "none"),
    };
    if !is_refused {
        return Ok(());
    }
    Err(ApiError::new(
        StatusCode::FORBIDDEN,
        "web pages may not send commands, and only the daemon's own page may read row values",
        "use csa-daemon or another client that sends no Origin and no Sec-Fetch-Site",
    ))
}

fn unauthorized(access: &Access) -> ApiError {
    let fix = match access.token {
        Some(_) => {
            "send Authorization: Bearer with the token of daemon.admin_token_file".to_owned()
        }
        None => format!(
            "send Authorization: Bearer with the token in {}, or use csa-daemon, which finds {} \
             through the configuration; daemon.admin_token_file names a token of your own",
            access.files.token.display(),
            access.files.socket.display(),
        ),
    };
    ApiError::new(StatusCode::UNAUTHORIZED, "a token is needed", fix)
}

/// Takes the same time for any guess of the right length, so that timing tells nothing of the
/// token.
fn is_same(token: &[u8], given: &[u8]) -> bool {
    let differing = token.iter().zip(given).fold(0, |differing, (a, b)| differing | (a ^ b));
    token.len() == given.len() && differing == 0
}

/// Reads the body into the request; it may be neither large nor slow.
async fn whole(request: Request) -> Result<Request, ApiError> {
    let (parts, body) = request.into_parts();
    match tokio::time::timeout(BODY_TIME, to_bytes(body, BODY_MAX)).await {
        Ok(Ok(bytes)) => Ok(Request::from_parts(parts, Body::from(bytes))),
        Ok(Err(error)) => Err(ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body can't be read: {error}"),
            format!("send at most {BODY_MAX} bytes"),
        )),
        Err(_) => Err(ApiError::new(
            StatusCode::REQUEST_TIMEOUT,
            "the body did not arrive in time",
            format!("send it within {} s", BODY_TIME.as_secs()),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "own-token";

    fn status(access: &Access, needs: Needs, headers: &[(&'static str, &str)]) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().expect("a value"));
        }
        let permitted = permitted(access, &OWN.into(), false, &map);
        let checked = check(access, permitted, needs, &map);
        checked.err().map_or(200, |e| e.into_response().status().as_u16())
    }

    #[test]
    fn tokens_permit_what_they_say() {
        let token = |text: &str| Some(SecretString::from(text));
        let open = Access { control: true, ..Access::default() };
        let read_only = Access { control: false, ..open.clone() };
        let tokens = Access { token: token("all"), read_token: token("look"), ..open.clone() };
        let bearer = |text: &'static str| [("authorization", text)];
        let page = [("origin", "http://127.0.0.1:9104"), ("authorization", "Bearer own-token")];
        let site =
            |site: &'static str| [("sec-fetch-site", site), ("authorization", "Bearer own-token")];
        use Needs::{Control, Nothing, Read, Rows};
        for (access, needs, headers, wanted) in [
            (&open, Control, &[][..], 401),
            (&open, Rows, &[], 401),
            (&open, Read, &[], 200),
            (&open, Control, &bearer("Bearer own-token"), 200),
            (&open, Rows, &bearer("Bearer own-token"), 200),
            (&open, Control, &bearer("Bearer own-tokeN"), 401),
            (&open, Control, &page, 403),
            (&open, Control, &site("same-origin"), 403),
            (&open, Rows, &site("same-origin"), 200),
            (&open, Rows, &site("none"), 200),
            (&open, Rows, &site("same-site"), 403),
            (&open, Rows, &site("cross-site"), 403),
            (&open, Read, &page, 200),
            (&read_only, Control, &bearer("Bearer own-token"), 403),
            (&read_only, Rows, &bearer("Bearer own-token"), 200),
            (&read_only, Read, &[], 200),
            (&tokens, Nothing, &[], 200),
            (&tokens, Read, &[], 401),
            (&tokens, Read, &bearer("Bearer loo"), 401),
            (&tokens, Read, &bearer("Bearer look"), 200),
            (&tokens, Read, &bearer("Bearer all"), 200),
            (&tokens, Read, &bearer("Basic all"), 401),
            (&tokens, Control, &bearer("Bearer look"), 403),
            (&tokens, Rows, &bearer("Bearer look"), 403),
            (&tokens, Control, &bearer("Bearer alL"), 401),
            (&tokens, Control, &bearer("Bearer all"), 200),
            (&tokens, Control, &bearer("Bearer own-token"), 200),
            (&tokens, Control, &[], 401),
        ] {
            assert_eq!(status(access, needs, headers), wanted, "{needs:?} {headers:?}");
        }
        let none = HeaderMap::new();
        assert_eq!(permitted(&tokens, &OWN.into(), true, &none), Permitted::All, "the socket");
    }

    #[test]
    fn a_refusal_names_the_file_with_the_token() {
        let files = crate::config::AdminFiles {
            socket: "/s/admin-1.sock".into(),
            token: "/s/admin-1.token".into(),
        };
        let access = Access { control: true, files, ..Access::default() };
        let refused = check(&access, Permitted::Look, Needs::Control, &HeaderMap::new());
        let text = format!("{:?}", refused.expect_err("is refused"));
        assert!(text.contains("/s/admin-1.token") && text.contains("/s/admin-1.sock"), "{text}");
    }
}
