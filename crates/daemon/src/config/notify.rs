//! The receiver of a channel's events: conversion of `[channel.notify]`.

use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::path::PathBuf;
use std::time::Duration;

use ureq::http::Uri;

use super::addresses::is_private;
use super::admin_tls::authorities;
use super::declared_keys::{EventKind, NotifyConfig};
use super::error::ConfigError;
use super::secrets::{is_world_readable, token};

/// The receiver of a channel's events, and which of them it gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notify {
    pub(crate) receiver: Receiver,
    pub(crate) events: Vec<EventKind>,
    pub(crate) after: Duration,
    pub(crate) quiet: Duration,
    /// The time limit of an attempt.
    pub(crate) timeout: Duration,
}

/// The program or the server that takes events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Receiver {
    None,
    /// The program and its arguments.
    Command(Vec<String>),
    Webhook(Webhook),
}

/// A server that takes events by HTTP.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Webhook {
    /// `http://HOST:PORT` or `https://HOST:PORT`.
    pub(crate) server: String,
    /// The path and the query, which may be secret.
    pub(crate) path: String,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) tls_ca: Option<PathBuf>,
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhook").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Notify {
    pub(crate) const KEYS: [&str; 8] = [
        "notify.command",
        "notify.url",
        "notify.token_file",
        "notify.tls_ca",
        "notify.events",
        "notify.after",
        "notify.quiet",
        "notify.timeout",
    ];

    pub(crate) fn has_receiver(&self) -> bool {
        self.receiver != Receiver::None
    }

    /// Returns true if a receiver gets anything.
    pub(crate) fn is_set(&self) -> bool {
        self.has_receiver() && !self.events.is_empty()
    }

    /// Returns the values in words, in the order of [`Self::KEYS`]; the arguments of `command` and the path of `url` as a
    /// checksum.
    pub(crate) fn shown(&self) -> [String; Self::KEYS.len()] {
        let none = || "none".to_owned();
        let path = |path: &Option<PathBuf>| {
            path.as_ref().map_or_else(none, |path| path.display().to_string())
        };
        let (command, url, token_file, tls_ca) = match &self.receiver {
            Receiver::None => (none(), none(), none(), none()),
            Receiver::Command(command) => {
                let shown = format!("{} … ({})", program(command), checksum(command));
                (shown, none(), none(), none())
            }
            Receiver::Webhook(hook) => {
                (none(), hook.shown(), path(&hook.token_file), path(&hook.tls_ca))
            }
        };
        let events: Vec<&str> = self.events.iter().map(|event| event.name()).collect();
        let durations = [self.after, self.quiet, self.timeout].map(|time| format!("{time:?}"));
        let [after, quiet, timeout] = durations;
        [command, url, token_file, tls_ca, events.join(", "), after, quiet, timeout]
    }
}

impl Webhook {
    /// Tells one address from another without what is secret in it.
    fn shown(&self) -> String {
        format!("{}/… ({})", self.server, checksum(&self.path))
    }
}

/// Returns four digits that are others after a change, and tell nobody what is secret.
fn checksum(of: impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    format!("{:04x}", hasher.finish() & 0xffff)
}

/// Returns the program of a command alone, also where somebody has written both as one text.
pub(crate) fn program(command: &[String]) -> &str {
    command.first().and_then(|first| first.split(' ').next()).unwrap_or_default()
}

/// Checks that keys fit each other, and the files that they name.
pub(super) fn settings(
    config: NotifyConfig,
    warnings: &mut Vec<String>,
) -> Result<Notify, ConfigError> {
    let wrong = |text: String| Err(ConfigError(format!("notify.{text}")));
    let for_url = [("token_file", &config.token_file), ("tls_ca", &config.tls_ca)];
    let for_url = for_url.into_iter().find(|(_, path)| path.is_some()).map(|(key, _)| key);
    let receiver = match (config.command, config.url) {
        (command, Some(_)) if !command.is_empty() => {
            return wrong("command: command or url, not both".to_owned());
        }
        (command, Some(url)) => {
            debug_assert!(command.is_empty());
            Receiver::Webhook(webhook(&url, config.token_file, config.tls_ca, warnings)?)
        }
        (_, None) if for_url.is_some() => {
            return wrong(format!("{}: only with url", for_url.unwrap_or_default()));
        }
        (command, None) if command.is_empty() => Receiver::None,
        (command, None) => {
            if command.iter().any(|word| word.contains('\0')) {
                return wrong("command: an argument has a zero byte".to_owned());
            }
            // A name would depend on PATH, which differs between a shell and a service.
            if !command.first().is_some_and(|program| program.starts_with('/')) {
                let program = program(&command);
                return wrong(format!("command: {program:?}: write the path of the program"));
            }
            Receiver::Command(command)
        }
    };
    Ok(Notify {
        receiver,
        events: config.events,
        after: config.after.0,
        quiet: config.quiet.0,
        timeout: config.timeout.0,
    })
}

fn webhook(
    url: &str,
    token_file: Option<PathBuf>,
    tls_ca: Option<PathBuf>,
    warnings: &mut Vec<String>,
) -> Result<Webhook, ConfigError> {
    let wrong = |why: &str| ConfigError(format!("notify.url: {why}"));
    let form = || wrong("write http://HOST:PORT/PATH or https://HOST:PORT/PATH");
    let uri: Uri = url.parse().map_err(|_| form())?;
    let (Some(scheme), Some(host)) = (uri.scheme_str(), uri.host()) else { return Err(form()) };
    let standard = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return Err(form()),
    };
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err(wrong("put the account into token_file, as a bearer token"));
    }
    if scheme == "https" && tls_ca.is_none() {
        return Err(wrong(
            "https needs tls_ca, the authorities to trust: such as /etc/ssl/certs/ca-certificates.crt",
        ));
    }
    if let Some(path) = &tls_ca {
        authorities("notify.tls_ca", path)?;
    }
    let server = format!("{scheme}://{host}:{}", uri.port_u16().unwrap_or(standard));
    if let Some(path) = &token_file {
        // Read again for each request; a mistake is named at once.
        token("notify.token_file", path, &mut Vec::new())?;
        if is_world_readable(path) {
            let path = path.display();
            warnings.push(format!("notify.token_file: everyone can read {path}; chmod 600"));
        }
        if !is_private(&server) {
            let warning = "the token can be read on the way; use https";
            warnings.push(format!("notify.url: {server}: {warning}"));
        }
    }
    let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    Ok(Webhook { server, path, token_file, tls_ca })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(text: &str) -> Result<Notify, String> {
        let config: NotifyConfig = toml::from_str(text).expect("keys");
        settings(config, &mut Vec::new()).map_err(|error| error.0)
    }

    #[test]
    fn a_receiver_is_a_command_or_an_address() {
        assert!(!resolved("").expect("nothing").is_set());
        let command = resolved("command = [\"/bin/true\", \"a b\"]").expect("a command");
        assert_eq!(
            command.receiver,
            Receiver::Command(vec!["/bin/true".to_owned(), "a b".to_owned()])
        );
        assert!(command.is_set());
        assert!(!resolved("command = [\"/bin/true\"]\nevents = []").expect("silent").is_set());
        let hook = resolved("url = \"http://[::1]/a/b?c=d\"").expect("an address");
        let Receiver::Webhook(hook) = &hook.receiver else { panic!("{hook:?}") };
        assert_eq!((hook.server.as_str(), hook.path.as_str()), ("http://[::1]:80", "/a/b?c=d"));
        for (keys, why) in [
            ("command = [\"/bin/true\"]\nurl = \"http://a\"", "not both"),
            ("command = [\"true\"]", "the path of the program"),
            ("command = [\"/bin/true\"]\ntoken_file = \"/t\"", "only with url"),
            ("url = \"ftp://a\"", "http://HOST:PORT"),
            ("url = \"nothing\"", "http://HOST:PORT"),
            ("url = \"http://me:pw@a/\"", "token_file"),
            ("url = \"https://a/\"", "needs tls_ca"),
            ("url = \"http://a/\"\ntoken_file = \"/not/there\"", "/not/there"),
        ] {
            let said = resolved(keys).expect_err(keys);
            assert!(said.starts_with("notify.") && said.contains(why), "{keys}: {said}");
        }
    }

    #[test]
    fn the_path_of_an_address_is_not_shown() {
        let shown = |url: &str| {
            let notify = resolved(&format!("url = \"{url}\"")).expect("an address");
            assert!(!format!("{notify:?}").contains("secret"), "{notify:?}");
            notify.shown()[1].clone()
        };
        let (one, other) = (shown("http://a/secret/1"), shown("http://a/secret/2"));
        assert!(!one.contains("secret") && one.starts_with("http://a:80/"), "{one}");
        assert_ne!(one, other, "a change of it is seen");
    }

    #[test]
    fn the_arguments_of_a_command_are_not_shown() {
        let shown = |argument: &str| {
            let command = format!("command = [\"/bin/say\", \"{argument}\"]");
            resolved(&command).expect("a command").shown()[0].clone()
        };
        let (one, other) = (shown("secret 1"), shown("secret 2"));
        assert!(!one.contains("secret") && one.starts_with("/bin/say "), "{one}");
        assert_ne!(one, other, "a change of them is seen");
    }
}
