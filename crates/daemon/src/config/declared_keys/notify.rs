//! The keys of `[channel.notify]`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::defaults::seconds;
use crate::config::units::Duration;
use crate::notify::EventKind;

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct NotifyConfig {
    /// Program that is started for each event, and its arguments; no shell. It reads the event as JSON from its
    /// standard input. docs/notifications.md describes events and receivers.
    #[serde(default)]
    #[schemars(
        example = ["/usr/local/bin/on-event", "replication"],
        extend("x-takes" = "list of a program and its arguments", "x-applies" = "at-once")
    )]
    pub(in crate::config) command: Vec<String>,
    /// Address to which each event is posted as JSON, instead of `command`. Only its host appears in the log.
    #[schemars(
        example = &"https://alerts.example.com/csa-daemon",
        extend("x-takes" = "`http://…` or `https://…`", "x-applies" = "at-once")
    )]
    pub(in crate::config) url: Option<String>,
    /// File with a bearer token for `url`, read before each request.
    #[schemars(example = "/etc/csa-daemon/notify.token", extend("x-applies" = "at-once"))]
    pub(in crate::config) token_file: Option<PathBuf>,
    /// Certificates of the authorities to trust for `https`; a system's own bundle works, too.
    #[schemars(example = "/etc/ssl/certs/ca-certificates.crt", extend("x-applies" = "at-once"))]
    pub(in crate::config) tls_ca: Option<PathBuf>,
    /// Events that are sent. With an empty list nothing is.
    #[serde(default = "all")]
    #[schemars(extend("x-takes" = "list of events", "x-applies" = "at-once"))]
    pub(in crate::config) events: Vec<EventKind>,
    /// Time for which a channel waits for a server, a lock or space, or stands by, before that is an event.
    #[serde(default = "seconds::<30>")]
    #[schemars(extend("x-applies" = "at-once"))]
    pub(in crate::config) after: Duration,
    /// Time in which at most four changes of a channel's state are sent. Of more, only the state at its end is sent,
    /// with their number.
    #[serde(default = "seconds::<300>")]
    #[schemars(extend("x-at-least" = "1s", "x-applies" = "at-once"))]
    pub(in crate::config) quiet: Duration,
    /// Time limit of an attempt. A command that takes longer is killed.
    #[serde(default = "seconds::<10>")]
    #[schemars(extend("x-at-least" = "100ms", "x-applies" = "at-once"))]
    pub(in crate::config) timeout: Duration,
}

fn all() -> Vec<EventKind> {
    EventKind::ALL.to_vec()
}
