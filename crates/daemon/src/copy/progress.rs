//! The progress of a copy, and its sentence.

use std::fmt;
use std::time::Duration;

use crate::observe::view::MovingTableView;

/// The progress of a copy.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CopyProgress {
    pub(crate) step: CopyStep,
    pub(crate) tables: usize,
    pub(crate) tables_done: usize,
    /// The tables of which rows are copied now.
    pub(crate) moving: Vec<MovingTableView>,
    pub(crate) rows: u64,
    /// Those of them that an interrupted copy had copied before.
    pub(crate) rows_before: u64,
    /// The source's guess.
    pub(crate) rows_estimated: u64,
    /// Bytes of the statements that insert them.
    pub(crate) bytes: u64,
    pub(crate) elapsed: Duration,
    /// The pause or the limit that holds it back, in words.
    pub(crate) held: Option<String>,
}

named! {
    /// The steps of a copy.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub(crate) enum CopyStep {
        /// It waits for a moment in which the source commits nothing.
        #[default]
        Snapshot = "snapshot",
        /// It makes schemas and tables.
        Tables = "tables",
        /// It copies rows, and adds indexes to tables whose rows are there.
        Rows = "rows",
        /// It compares all rows with those of the snapshot.
        Comparison = "comparison",
        /// It adds foreign keys, then functions, views, triggers and events.
        Programs = "programs",
        /// The channel runs while rows of tables that are copied again are left.
        RowsLeft = "rows_left",
        /// The channel applies what changed while rows were copied in chunks.
        Changes = "changes",
        /// Unique keys and foreign keys are added to tables that were copied in chunks.
        Keys = "keys",
    }
}

impl CopyProgress {
    /// Returns the rows per second, and the seconds that are left; `None` over a time in which a rate would be noise.
    pub(crate) fn rate(&self) -> Option<(f64, f64)> {
        let seconds = self.elapsed.as_secs_f64();
        let copied = self.rows.saturating_sub(self.rows_before);
        if seconds < 1.0 || copied == 0 {
            return None;
        }
        let rate = copied as f64 / seconds;
        Some((rate, self.rows_estimated.saturating_sub(self.rows) as f64 / rate))
    }
}

impl fmt::Display for CopyProgress {
    /// Writes a line like `2/7 tables, d.orders: 45000 of about 100000 rows, 9000/s, 6 s left`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tables, tables_done, moving, rows, rows_estimated, .. } = self;
        match self.step {
            CopyStep::Snapshot => {
                return formatter
                    .write_str("waiting for a moment in which the source commits nothing");
            }
            CopyStep::Tables => return write!(formatter, "making {tables} tables"),
            CopyStep::RowsLeft => {
                return formatter.write_str(
                    "applying changes; rows of tables that are copied again are left, and the same csa-daemon copy \
                     continues with them",
                );
            }
            CopyStep::Changes => {
                return formatter.write_str("applying what changed while rows were copied");
            }
            CopyStep::Comparison => {
                return formatter.write_str("comparing all rows with the source's snapshot");
            }
            CopyStep::Keys => return formatter.write_str("adding unique keys and foreign keys"),
            CopyStep::Programs => {
                return formatter
                    .write_str("adding foreign keys, functions, views, triggers and events");
            }
            CopyStep::Rows => {}
        }
        write!(formatter, "{tables_done}/{tables} tables, ")?;
        if let Some(table) = moving.first() {
            write!(formatter, "{}: ", table.table)?;
        }
        write!(formatter, "{rows} of about {rows_estimated} rows")?;
        if let Some((rate, left)) = self.rate() {
            write!(formatter, ", {rate:.0}/s, {left:.0} s left")?;
        }
        match &self.held {
            Some(held) => write!(formatter, ", {held}"),
            None => Ok(()),
        }
    }
}
