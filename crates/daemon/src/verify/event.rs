//! Messages from a run in progress.

use std::convert::Infallible;

use parking_lot::Mutex;

use super::report::TableReport;
use super::resume::{Resume, SAVED, Saved};

/// The current activity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Activity {
    #[default]
    Comparing,
    /// Rows that differed are being read again.
    Rechecking { rows: u64 },
    /// The target lags by more than `max_lag`.
    WaitingForLag,
}

/// The progress of a run.
#[derive(Debug, Clone, Default)]
pub struct VerifyProgress {
    pub tables: usize,
    pub tables_done: usize,
    /// The table being compared, as the source names it.
    pub table: String,
    pub rows: u64,
    /// The source's estimate.
    pub rows_estimated: u64,
    pub activity: Activity,
}

/// A message from a run in progress.
#[derive(Debug)]
pub enum VerifyEvent<'a> {
    Progress(&'a VerifyProgress),
    Table(&'a TableReport),
    /// An earlier run has compared these rows of a table.
    Resumed(&'a VerifyProgress),
    /// A later run can resume here.
    Saved(&'a Saved),
}

/// Reports the state as long as it is newer than the last report. A table that takes hours is known as begun meanwhile,
/// and a server with many small tables does not have all of them written for each one.
pub(super) async fn keep_saved(
    resume: &Mutex<Resume>,
    observe: &(dyn Fn(VerifyEvent<'_>) + Sync),
) -> Infallible {
    loop {
        tokio::time::sleep(SAVED).await;
        save(resume, observe);
    }
}

/// Reports the state of a run that is dropped, or ends with an error.
pub(super) struct SavedAtEnd<'a> {
    pub(super) resume: &'a Mutex<Resume>,
    pub(super) observe: &'a (dyn Fn(VerifyEvent<'_>) + Sync),
}

impl Drop for SavedAtEnd<'_> {
    fn drop(&mut self) {
        save(self.resume, self.observe);
    }
}

/// Reports the state if it is newer than the last report.
fn save(resume: &Mutex<Resume>, observe: &(dyn Fn(VerifyEvent<'_>) + Sync)) {
    if let Some(saved) = resume.lock().newer() {
        observe(VerifyEvent::Saved(saved));
    }
}

#[cfg(test)]
mod tests {
    use csa_provider::binlog::GtidSet;

    use super::super::resume::RunIdentity;
    use super::super::scope::TablePair;
    use super::super::table_name::TableName;
    use super::*;

    #[test]
    fn a_run_that_is_dropped_reports_its_state_and_one_that_ended_does_not() {
        let name: TableName = "d.a".parse().unwrap();
        let pair = TablePair { source: name.clone(), target: name, is_shared: false };
        for (ends, reports) in [(false, 1), (true, 0)] {
            let identity = RunIdentity::default();
            let resume = Mutex::new(Resume::new(identity, &GtidSet::new(), None));
            let count = Mutex::new(0);
            let observe = |_: VerifyEvent<'_>| *count.lock() += 1;
            let saved = SavedAtEnd { resume: &resume, observe: &observe };
            resume.lock().begin(&pair, "a1".to_owned(), false, None);
            if ends {
                resume.lock().completed();
            }
            drop(saved);
            assert_eq!(*count.lock(), reports);
        }
    }
}
