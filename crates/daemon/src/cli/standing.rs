//! The running daemon's answer to the question why a channel applies nothing.

use std::path::Path;

use super::arguments::Admin;
use super::client::Client;
use crate::observe::view::{ChannelState, ChannelView};

/// In words, with how to proceed; `None` if it applies, waits for a server, or the daemon can't be asked.
pub(crate) fn why_nothing_is_applied(
    config: &Path,
    admin: &Admin,
    channel: &str,
) -> Option<String> {
    let client = Client::new(config, admin).ok()?;
    why(&client.view_of(channel).ok()?)
}

fn why(view: &ChannelView) -> Option<String> {
    let ChannelView { channel_name: name, state, state_detail: detail, .. } = view;
    let (is, next) = match state {
        ChannelState::Failed => {
            ("has failed", "csa-daemon status names the next steps; then verify again".to_owned())
        }
        ChannelState::Stopped => {
            ("is stopped", format!("csa-daemon --channel {name} restart; then verify again"))
        }
        ChannelState::Paused => {
            ("is paused", format!("csa-daemon --channel {name} resume; then verify again"))
        }
        _ => return None,
    };
    Some(format!("channel {name} {is} ({detail}): {next}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_somebody_has_to_end_is_a_reason() {
        for state in ChannelState::ALL {
            let view =
                ChannelView { channel_name: "shop".to_owned(), state, ..ChannelView::default() };
            let is_standing = matches!(
                state,
                ChannelState::Failed | ChannelState::Stopped | ChannelState::Paused
            );
            assert_eq!(why(&view).is_some(), is_standing, "{state:?}");
        }
    }
}
