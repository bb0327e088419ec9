//! The keys of `[channel.notify]`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::defaults::seconds;
use crate::config::units::Duration;

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

named! {
    /// The reason for an event. A later version may have more: a receiver passes over those that it does not know.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub(crate) enum EventKind {
        /// The channel has failed, or its start was refused.
        Failed = "failed",
        /// It runs again after a failure or a wait that was sent.
        Recovered = "recovered",
        /// The source is away.
        WaitingForSource = "waiting_for_source",
        /// The target is away, or takes no writes.
        WaitingForTarget = "waiting_for_target",
        /// The archive of a channel without a target can't be written.
        WaitingForArchive = "waiting_for_archive",
        /// Somebody else holds a lock on the target.
        WaitingForLock = "waiting_for_lock",
        /// Nothing more can be received before there is room.
        WaitingForSpace = "waiting_for_space",
        /// Somebody has paused the channel.
        Paused = "paused",
        /// It runs again after a pause or a stop.
        Resumed = "resumed",
        /// Somebody has stopped the channel, or it has reached `until`.
        Stopped = "stopped",
        /// Another daemon has the channel now.
        Standby = "standby",
        /// This daemon runs a channel that another one had.
        TookOver = "took_over",
        /// The copy with which the channel begins is whole.
        CopyFinished = "copy_finished",
        /// The comparison of a copy has found differences.
        CopyDiffers = "copy_differs",
        /// A comparison of `[channel.verify]` has found tables that differ, or further ones.
        VerifyDiffers = "verify_differs",
        /// The tables that differed are equal again.
        VerifyEqual = "verify_equal",
        /// Transactions left the relay store before they were archived.
        ArchiveGap = "archive_gap",
        /// `csa-daemon move` has moved the applications to the other server of the pair.
        CutOver = "cut_over",
        /// It has not, and they stay where they were.
        MoveUndone = "move_undone",
    }
}
