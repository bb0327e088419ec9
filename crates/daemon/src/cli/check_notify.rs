//! `check --notify`: a test event for the receiver of each channel.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt as _;

use csa_provider::server::visible::one_line;
use rustix::process::geteuid;
use serde::Serialize;

use crate::config::{AdminFiles, ChannelSettings, DaemonConfig};
use crate::host::{Failure, runtime};
use crate::notify::{Event, Origin, deliver, host, name_of};

/// A receiver to which a test event was sent.
#[derive(Debug, Serialize)]
pub(super) struct TestedReceiver {
    channel: String,
    /// The program, or the server.
    receiver: String,
    /// The reason why it has not taken the event.
    error: Option<String>,
}

impl fmt::Display for TestedReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { channel, receiver, error } = self;
        let receiver = one_line(receiver);
        match error {
            None => write!(f, "channel {channel}: {receiver} has taken a test event"),
            Some(why) => write!(f, "channel {channel}: {}", one_line(why)),
        }
    }
}

/// Returns the warning that this process runs as another user than the daemon does, whose token shows its user.
pub(super) fn another_user(daemon: &DaemonConfig) -> Option<String> {
    let token = fs::metadata(AdminFiles::of(daemon).token).ok()?;
    warning(geteuid().as_raw(), token.uid())
}

fn warning(own: u32, daemon: u32) -> Option<String> {
    (own != daemon).then(|| {
        format!(
            "--notify: a receiver that works for this user (uid {own}) may fail for the daemon's (uid {daemon}), also at \
             files that it makes now; run this as the daemon's user"
        )
    })
}

/// Sends each event once, whatever `events` says.
///
/// # Errors
/// No channel has a receiver.
pub(super) fn send_tests(channels: &[&ChannelSettings]) -> Result<Vec<TestedReceiver>, Failure> {
    let with_receiver: Vec<_> =
        channels.iter().filter(|channel| channel.notify.has_receiver()).collect();
    if with_receiver.is_empty() {
        let why = "--notify: no channel has a receiver; set command or url in [channel.notify]";
        return Err(Failure::Input(why.to_owned()));
    }
    let runtime = runtime()?;
    let mut tested = Vec::new();
    for channel in with_receiver {
        let origin = Origin::now(host());
        let event = Event::test(&channel.name, origin);
        let delivered = runtime.block_on(deliver(&channel.notify, &event));
        tested.push(TestedReceiver {
            channel: channel.name.clone(),
            receiver: name_of(&channel.notify),
            error: delivered.err(),
        });
    }
    // The look-up of a name may take longer than an attempt.
    runtime.shutdown_background();
    Ok(tested)
}

/// # Errors
/// A receiver has not taken its event.
pub(super) fn verdict(tested: &[TestedReceiver]) -> Result<(), Failure> {
    let failed = tested.iter().filter(|tested| tested.error.is_some());
    let failed: Vec<&str> = failed.map(|tested| tested.channel.as_str()).collect();
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Failure::Input(format!(
            "no test event arrived for {}: see above, and docs/notifications.md",
            failed.join(", ")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_user_than_the_daemons_is_named() {
        assert_eq!(warning(998, 998), None);
        let said = warning(0, 998).expect("a warning");
        assert!(said.contains("(uid 0)") && said.contains("(uid 998)"), "{said}");
    }
}
