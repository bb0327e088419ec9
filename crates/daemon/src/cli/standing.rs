//! The running daemon's answer to the question why a channel applies nothing.

use std::path::Path;
use std::time::Duration;

use super::arguments::Admin;
use super::client::Client;
use crate::observe::view::{ChannelState, ChannelView};

/// In words, with how to proceed; `None` if it applies, waits for a server or a delay that `patience` outlasts, or the
/// daemon can't be asked.
pub(crate) fn why_nothing_is_applied(
    config: &Path,
    admin: &Admin,
    channel: &str,
    patience: Duration,
) -> Option<String> {
    let client = Client::new(config, admin).ok()?;
    why(&client.view_of(channel).ok()?, patience)
}

fn why(view: &ChannelView, patience: Duration) -> Option<String> {
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
        ChannelState::WaitingForDelay
            if view.applier.remaining_delay > Some(patience.as_secs_f64()) =>
        {
            let next =
                format!("csa-daemon --channel {name} set source_delay 0s; then verify again");
            ("waits for longer than --catch-up-timeout", next)
        }
        _ => return None,
    };
    Some(format!("channel {name} {is} ({detail}): {next}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::view::ApplierView;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn only_what_somebody_has_to_end_is_a_reason() {
        for state in ChannelState::ALL {
            let view =
                ChannelView { channel_name: "shop".to_owned(), state, ..ChannelView::default() };
            let is_standing = matches!(
                state,
                ChannelState::Failed | ChannelState::Stopped | ChannelState::Paused
            );
            assert_eq!(why(&view, PATIENCE).is_some(), is_standing, "{state:?}");
        }
    }

    #[test]
    fn a_delay_that_outlasts_the_patience_is_a_reason() {
        let why = |seconds| {
            let remaining_delay = Some(seconds);
            let view = ChannelView {
                channel_name: "shop".to_owned(),
                state: ChannelState::WaitingForDelay,
                applier: ApplierView { remaining_delay, ..ApplierView::default() },
                ..ChannelView::default()
            };
            why(&view, PATIENCE)
        };
        assert_eq!(why(59.0), None);
        assert!(why(61.0).is_some_and(|why| why.contains("set source_delay 0s")));
    }
}
