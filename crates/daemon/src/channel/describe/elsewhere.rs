//! The view of a channel that another daemon has. Pure.

use crate::observe::view::{ArchiveView, ChannelState, ChannelView, RelayView};

/// Leaves out what the other daemon changes: here nobody looks at it, so it would stay as it was, or grow, for good.
pub(super) fn shown(view: ChannelView) -> ChannelView {
    if view.state != ChannelState::Standby {
        return view;
    }
    let archive = view.archive.map(|archive| ArchiveView {
        lag_seconds: None,
        pending_bytes: 0,
        error: None,
        ..archive
    });
    let relay = RelayView { free_disk_bytes: None, waiting: None, ..view.relay };
    ChannelView { archive, relay, ..view }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(state: ChannelState) -> ChannelView {
        let archive = ArchiveView {
            lag_seconds: Some(900.0),
            pending_bytes: 5,
            files_total: 3,
            missing_transactions_total: 2,
            error: Some("away".to_owned()),
            ..ArchiveView::default()
        };
        let relay = RelayView { bytes: 7, free_disk_bytes: Some(1), ..RelayView::default() };
        shown(ChannelView { state, archive: Some(archive), relay, ..ChannelView::default() })
    }

    #[test]
    fn a_channel_that_another_daemon_has_shows_no_figures_that_only_that_one_changes() {
        let view = with(ChannelState::Standby);
        let archive = view.archive.expect("an archive");
        assert_eq!((archive.lag_seconds, archive.pending_bytes, archive.error), (None, 0, None));
        let totals = (archive.files_total, archive.missing_transactions_total);
        assert_eq!(totals, (3, 2), "a counter stays");
        assert_eq!((view.relay.bytes, view.relay.free_disk_bytes), (7, None));
    }

    #[test]
    fn any_other_channel_is_shown_as_it_is() {
        let view = with(ChannelState::Stopped);
        let archive = view.archive.expect("an archive");
        assert_eq!((archive.lag_seconds, archive.pending_bytes), (Some(900.0), 5));
        assert_eq!((archive.error.as_deref(), view.relay.free_disk_bytes), (Some("away"), Some(1)));
    }
}
