//! The error of a channel, and the row at which it failed.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct ErrorView {
    pub(crate) number: u16,
    pub(crate) message: String,
    pub(crate) timestamp: String,
    pub(crate) transaction: Option<String>,
    /// Possible next steps, each sufficient on its own.
    pub(crate) ways_on: Vec<String>,
    pub(crate) row: Option<FailingRowView>,
    /// Never serialized; [`ChannelView::reveal`] moves it to the fields that are.
    #[serde(skip)]
    pub(crate) values: Option<Box<ErrorValues>>,
}

/// Replaces the same fields of an [`ErrorView`] for those who may see row values.
#[derive(Clone, Default)]
pub(crate) struct ErrorValues {
    pub(crate) message: String,
    pub(crate) ways_on: Vec<String>,
    pub(crate) columns: Vec<FailingColumnView>,
}

impl std::fmt::Debug for ErrorValues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ErrorValues")
    }
}

/// The row at which a transaction failed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct FailingRowView {
    pub(crate) table: String,
    pub(crate) event_type: String,
    /// Numbers of the rows event in the transaction and of the row in the event, from 1.
    pub(crate) event_number: u64,
    pub(crate) row_number: Option<u64>,
    /// End of the event in the source's binary log.
    pub(crate) end_log_pos: Option<u32>,
    /// Index and columns with which the row was looked up on the target.
    pub(crate) key: Option<String>,
    /// `present`, `missing` or `unknown`.
    pub(crate) target_row: String,
    /// The reason why it is unknown.
    pub(crate) target_row_detail: Option<String>,
    /// Empty for those who may only read.
    pub(crate) columns: Vec<FailingColumnView>,
}

/// Values as text, long ones shortened; `None` where there is none.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct FailingColumnView {
    pub(crate) name: String,
    pub(crate) source_before: Option<String>,
    pub(crate) source_after: Option<String>,
    pub(crate) target: Option<String>,
}
