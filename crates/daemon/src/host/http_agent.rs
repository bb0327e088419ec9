//! The HTTP client: without web proxies, over Unix sockets, and over TLS with authorities of our own choice.

use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use ureq::Agent;
use ureq::unversioned::resolver::DefaultResolver;

use super::failure::Failure;
use super::http_transport::Route;

/// Requests go to the address directly, without any web proxy.
pub(crate) fn agent(route: Option<Route>) -> Agent {
    let settings = Agent::config_builder().http_status_as_error(false).proxy(None).build();
    match route {
        Some(route) => Agent::with_parts(settings, route, DefaultResolver::default()),
        None => settings.new_agent(),
    }
}

/// Requests to an address with https, whose certificate `config` judges. `option` names the address. An answer may be
/// `silent` for that long, or for ever.
///
/// # Errors
/// The address can't be used.
pub(crate) fn tls_agent(
    option: &str,
    address: &str,
    config: ClientConfig,
    silent: Option<Duration>,
) -> Result<Agent, Failure> {
    let wrong = |why: &dyn std::fmt::Display| Failure::Input(format!("{option} {address}: {why}"));
    let host = address.strip_prefix("https://");
    let host = host.ok_or_else(|| wrong(&"it has to begin with https://"))?;
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let name = name.trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(name).map_err(|error| wrong(&error))?;
    Ok(agent(Some(Route::Tls { name, config: Arc::new(config), silent })))
}
