//! A command to several channels: one request each, a few at a time, and a table of the results.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::Failure;
use crate::table;

/// Requests at a time: a pause or a stop waits for running groups, and the daemon takes 20 connections
/// on its socket.
const AT_ONCE: usize = 8;

/// The result in words, or the reason why there is none.
type Outcome = Result<String, String>;

/// Does it for each of them, in any order.
pub(super) fn for_each(
    names: &[String],
    command: impl Fn(&str) -> Result<String, Failure> + Sync,
) -> Vec<Outcome> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(vec![Err(String::new()); names.len()]);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(names.len()) {
            scope.spawn(|| {
                while let Some((index, name)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    names.get(index).map(|name| (index, name))
                } {
                    let outcome = command(name).map_err(|failure| failure.to_string());
                    outcomes.lock()[index] = outcome;
                }
            });
        }
    });
    outcomes.into_inner()
}

/// The table, with a last line that counts.
pub(super) fn report(names: &[String], outcomes: &[Outcome]) -> String {
    let mut rows = vec![["CHANNEL", "RESULT", "ERROR"].map(str::to_owned)];
    for (name, outcome) in names.iter().zip(outcomes) {
        let (result, error) = match outcome {
            Ok(result) => (result.as_str(), "-"),
            Err(error) => ("failed", error.as_str()),
        };
        rows.push([name, result, error].map(str::to_owned));
    }
    let failed = failed(outcomes);
    let done = outcomes.len() - failed;
    let channels = if outcomes.len() == 1 { "channel" } else { "channels" };
    format!(
        "{}{} {channels}: {done} done, {failed} failed\n",
        table::columns(&rows),
        outcomes.len()
    )
}

/// # Errors
/// The channels that failed.
pub(super) fn verdict(names: &[String], outcomes: &[Outcome]) -> Result<(), Failure> {
    if failed(outcomes) == 0 {
        return Ok(());
    }
    let failed = names.iter().zip(outcomes).filter(|(_, outcome)| outcome.is_err());
    let failed: Vec<&str> = failed.map(|(name, _)| name.as_str()).collect();
    Err(Failure::Runtime(format!("failed for {}", failed.join(", "))))
}

fn failed(outcomes: &[Outcome]) -> usize {
    outcomes.iter().filter(|outcome| outcome.is_err()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_channel_is_reached_and_reported_in_its_place() {
        let names: Vec<String> = (0..50).map(|n| format!("shard-{n:02}")).collect();
        let outcomes = for_each(&names, |name| match name.ends_with('7') {
            true => Err(Failure::Input(format!("{name} is stopped"))),
            false => Ok(format!("{name} paused")),
        });
        for (name, outcome) in names.iter().zip(&outcomes) {
            match outcome {
                Ok(result) => assert_eq!(result, &format!("{name} paused")),
                Err(error) => assert_eq!(error, &format!("{name} is stopped")),
            }
        }
        let report = report(&names, &outcomes);
        assert_eq!(report.lines().count(), 52, "{report}");
        assert!(
            report.starts_with("CHANNEL   RESULT           ERROR\nshard-00  shard-00 paused  -\n")
        );
        assert!(report.contains("shard-07  failed           shard-07 is stopped\n"), "{report}");
        assert!(report.ends_with("50 channels: 45 done, 5 failed\n"), "{report}");
        let said = verdict(&names, &outcomes).expect_err("five failed").to_string();
        assert_eq!(said, "failed for shard-07, shard-17, shard-27, shard-37, shard-47");
        assert!(verdict(&names[..7], &outcomes[..7]).is_ok());
    }
}
