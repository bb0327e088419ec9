//! `page`: the address of the status page, ready for a browser.

use std::path::{Path, PathBuf};

use form_urlencoded::byte_serialize;
use secrecy::ExposeSecret as _;

use super::arguments::Admin;
use super::client::{Client, port, token_file, with_scheme};
use super::output::say;
use crate::config::{DaemonConfig, token};
use crate::host::Failure;
use crate::observe::view::StatusView;

/// Prints the address, with the token that permits commands there unless it is to be left out.
pub(crate) fn page(config: &Path, admin: &Admin, without_token: bool) -> Result<(), Failure> {
    let client = Client::new(config, admin)?;
    // Otherwise the browser would say only that nobody answers.
    let _: StatusView = client.get("/status")?;
    let (base, token_file) = address(config, admin)?;
    let token_file = token_file.filter(|_| !without_token);
    let token = token_file.map(|path| token("--token-file", &path, &mut Vec::new())).transpose()?;
    let channel = client.named_channel().map(|name| format!("channel={}", encoded(name)));
    let token = token.map(|token| format!("token={}", encoded(token.expose_secret())));
    let parts: Vec<String> = channel.into_iter().chain(token).collect();
    let fragment = if parts.is_empty() { String::new() } else { format!("#{}", parts.join("&")) };
    say!("{base}/{fragment}");
    Ok(())
}

/// Returns the page's address, and the file with its token if there is one.
fn address(config: &Path, admin: &Admin) -> Result<(String, Option<PathBuf>), Failure> {
    if let Some(address) = admin.admin.as_deref().filter(|address| !address.starts_with('/')) {
        return Ok((with_scheme(address), admin.token_file.clone()));
    }
    let daemon = DaemonConfig::load(config)?;
    let base = port(&daemon, &reachable(&daemon.admin_listen));
    Ok((base, admin.token_file.clone().or_else(|| token_file(&daemon))))
}

/// Returns an address for one that stands for all of a host's, which no browser reaches.
fn reachable(listen: &str) -> String {
    match listen.rsplit_once(':') {
        Some(("0.0.0.0", port)) => format!("127.0.0.1:{port}"),
        Some(("[::]", port)) => format!("[::1]:{port}"),
        _ => listen.to_owned(),
    }
}

/// Writes a value as the page reads it from its address.
fn encoded(text: &str) -> String {
    byte_serialize(text.as_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_one_that_a_browser_reaches() {
        let reached =
            ["0.0.0.0:9104", "[::]:9104", "db7.example.com:9104", "127.0.0.1:80"].map(reachable);
        assert_eq!(
            reached,
            ["127.0.0.1:9104", "[::1]:9104", "db7.example.com:9104", "127.0.0.1:80"]
        );
    }

    #[test]
    fn values_in_an_address_keep_their_meaning() {
        assert_eq!(encoded("aZ0-._"), "aZ0-._");
        assert_eq!(encoded("a b&c=d#+/~ü"), "a+b%26c%3Dd%23%2B%2F%7E%C3%BC");
    }
}
