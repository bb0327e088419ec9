//! A server that takes events by HTTP. Its answer counts by its status alone; the body is not read.

use std::sync::Arc;

use hyper::Method;
use secrecy::{ExposeSecret as _, SecretString};

use super::event::Event;
use crate::claims::http::{Endpoint, TlsSettings};
use crate::config::{Webhook, tls_client, token};
use crate::host::blocking;

/// Posts an event; every status from 200 to 299 means that it was taken.
pub(super) async fn post(hook: &Webhook, event: &Event) -> Result<(), String> {
    let server = hook.server.as_str();
    let files = hook.clone();
    let (token, tls) =
        blocking(move || read(&files)).await.map_err(|panic| panic.to_string())??;
    let endpoint = Endpoint::parse(server, tls.as_ref())?;
    let authorization = token.map(|token| format!("Bearer {}", token.expose_secret()));
    let user_agent = concat!("csa-daemon/", env!("CARGO_PKG_VERSION"));
    let mut headers = vec![("user-agent", user_agent), ("csa-event", event.event.as_str())];
    headers.extend(authorization.as_deref().map(|value| ("authorization", value)));
    let answer = endpoint.send(Method::POST, &hook.path, &headers, Some(&event.json())).await;
    let answer = answer.map_err(|error| format!("{server}: {error}"))?;
    match answer.status {
        200..=299 => Ok(()),
        status => Err(format!("{server} answered {status}")),
    }
}

/// Reads the files again for each request, so that a new token needs no reload; blocks.
fn read(hook: &Webhook) -> Result<(Option<SecretString>, Option<TlsSettings>), String> {
    let token = hook
        .token_file
        .as_deref()
        .map(|path| token("notify.token_file", path, &mut Vec::new()))
        .transpose()
        .map_err(|error| error.to_string())?;
    let is_https = hook.server.starts_with("https://");
    let tls = hook
        .tls_ca
        .as_deref()
        .filter(|_| is_https)
        .map(|path| tls_client("notify.tls_ca", path))
        .transpose()
        .map_err(|error| error.to_string())?;
    let tls = tls.map(|builder| {
        let settings = Arc::new(builder.with_no_client_auth());
        Arc::new(move || Arc::clone(&settings)) as TlsSettings
    });
    Ok((token, tls))
}
