//! The state of a channel for `csa.status` on its target.

use csa_applier::{ShownState, StateSource};

use super::watch::Watch;
use crate::observe::view::ChannelView;

impl StateSource for Watch {
    fn state(&self) -> ShownState {
        let ChannelView {
            state,
            state_detail,
            lag_seconds,
            backlog_transactions,
            received_transaction_set,
            applied_transaction_set,
            last_error,
            ..
        } = self.view();
        // Without values of rows: others may read the table.
        let error = last_error.unwrap_or_default();
        ShownState {
            state: state.name().to_owned(),
            reason: state_detail,
            lag_seconds,
            backlog_transactions,
            received: received_transaction_set,
            applied: applied_transaction_set,
            error_number: error.number,
            error: error.message,
        }
    }

    fn stream_failure(&self) -> Option<(u16, String)> {
        self.stream_failed()
    }
}
