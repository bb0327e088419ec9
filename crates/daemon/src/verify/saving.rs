//! The times at which the state of a run is saved.

use std::convert::Infallible;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::event::VerifyEvent;
use super::resume::Resume;

/// Between two reports of the state from which a later run resumes, as long as it is small.
pub(super) const SAVED: Duration = Duration::from_secs(1);
/// The longest time for which a run is repeated after a kill.
const LONGEST: Duration = Duration::from_secs(60);
/// Each table that is compared makes the time longer: the state has the reports of all, and is written as a whole.
const BY_TABLE: Duration = Duration::from_millis(10);
/// A report takes at most one part in so many of the time.
const PART: u32 = 20;

/// Reports the state as long as it is newer than the last report. A table that takes hours is known as begun meanwhile,
/// and a server with many small tables does not have all of them written for each one.
pub(super) async fn keep_saved(
    resume: &Mutex<Resume>,
    observe: &(dyn Fn(VerifyEvent<'_>) + Sync),
) -> Infallible {
    let mut took = Duration::ZERO;
    loop {
        let tables = resume.lock().tables();
        tokio::time::sleep(pause(tables, took)).await;
        let begun = Instant::now();
        save(resume, observe);
        took = begun.elapsed();
    }
}

/// Returns the time until the next report of a state with so many tables, whose last report `took` so long.
fn pause(tables: usize, took: Duration) -> Duration {
    let by_tables = BY_TABLE.saturating_mul(u32::try_from(tables).unwrap_or(u32::MAX));
    took.saturating_mul(PART).max(by_tables).clamp(SAVED, LONGEST)
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
    fn a_large_state_is_saved_rarely() {
        let millis = Duration::from_millis;
        let seconds = |tables, took| pause(tables, millis(took)).as_secs();
        assert_eq!((seconds(0, 0), seconds(100, 1)), (1, 1));
        assert_eq!((seconds(1_000, 0), seconds(1_000, 900)), (10, 18));
        assert_eq!((seconds(100_000, 0), seconds(usize::MAX, u64::MAX)), (60, 60));
    }

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
