//! A command to several channels: one request each, a few at a time, and a table of the results.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::claims::fleet_view::FleetView;
use parking_lot::Mutex;

use super::table;
use crate::host::Failure;

/// Requests at a time: a pause or a stop waits for running groups, and the daemon takes 40 connections
/// on its socket.
const AT_ONCE: usize = 8;

/// The outcome for one channel, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ChannelOutcome {
    Done(String),
    Failed(String),
    /// Another member of the fleet has the channel: its name.
    Elsewhere(String),
}

/// Does it for each of them, in any order.
pub(super) fn for_each(
    names: &[String],
    command: impl Fn(&str) -> Result<String, Failure> + Sync,
) -> Vec<ChannelOutcome> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(vec![ChannelOutcome::Failed(String::new()); names.len()]);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(names.len()) {
            scope.spawn(|| {
                while let Some((index, name)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    names.get(index).map(|name| (index, name))
                } {
                    outcomes.lock()[index] = match command(name) {
                        Ok(result) => ChannelOutcome::Done(result),
                        Err(failure) => ChannelOutcome::Failed(failure.to_string()),
                    };
                }
            });
        }
    });
    outcomes.into_inner()
}

/// Tells failures from channels that other members of the fleet have: the daemon refuses commands for those.
pub(super) fn set_apart(names: &[String], outcomes: &mut [ChannelOutcome], fleet: &FleetView) {
    for (name, outcome) in names.iter().zip(outcomes) {
        let holder = fleet.claims.get(name).filter(|holder| **holder != fleet.name);
        if let (ChannelOutcome::Failed(_), Some(holder)) = (&outcome, holder) {
            *outcome = ChannelOutcome::Elsewhere(holder.clone());
        }
    }
}

/// Returns the table, with a last line that counts.
pub(super) fn report(names: &[String], outcomes: &[ChannelOutcome]) -> String {
    let mut rows = vec![["CHANNEL", "RESULT", "ERROR"].map(str::to_owned)];
    let (mut done, mut elsewhere) = (0, 0);
    for (name, outcome) in names.iter().zip(outcomes) {
        let (result, error) = match outcome {
            ChannelOutcome::Done(result) => {
                done += 1;
                (result.clone(), "-".to_owned())
            }
            ChannelOutcome::Failed(error) => ("failed".to_owned(), error.clone()),
            ChannelOutcome::Elsewhere(holder) => {
                elsewhere += 1;
                (format!("elsewhere: daemon {holder} has it"), "-".to_owned())
            }
        };
        rows.push([name.clone(), result, error]);
    }
    let failed = failed(outcomes);
    let channels = if outcomes.len() == 1 { "channel" } else { "channels" };
    let elsewhere = match elsewhere {
        0 => String::new(),
        count => format!(", {count} elsewhere"),
    };
    format!(
        "{}{} {channels}: {done} done, {failed} failed{elsewhere}\n",
        table::columns(&rows),
        outcomes.len()
    )
}

/// Judges the outcomes of all channels.
///
/// # Errors
/// Returns the channels that failed, without those of other members of a fleet.
pub(super) fn verdict(names: &[String], outcomes: &[ChannelOutcome]) -> Result<(), Failure> {
    if failed(outcomes) == 0 {
        return Ok(());
    }
    let failed = names.iter().zip(outcomes).filter(|(_, outcome)| is_failed(outcome));
    let failed: Vec<&str> = failed.map(|(name, _)| name.as_str()).collect();
    Err(Failure::Runtime(format!("failed for {}", failed.join(", "))))
}

pub(super) fn failed(outcomes: &[ChannelOutcome]) -> usize {
    outcomes.iter().filter(|outcome| is_failed(outcome)).count()
}

fn is_failed(outcome: &ChannelOutcome) -> bool {
    matches!(outcome, ChannelOutcome::Failed(_))
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
                ChannelOutcome::Done(result) => assert_eq!(result, &format!("{name} paused")),
                other => assert_eq!(other, &ChannelOutcome::Failed(format!("{name} is stopped"))),
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

    #[test]
    fn channels_of_other_members_are_named_and_are_no_failure() {
        let names = ["mine", "yours", "broken", "free"].map(str::to_owned);
        let mut outcomes = for_each(&names, |name| match name {
            "mine" => Ok("paused".to_owned()),
            _ => Err(Failure::Runtime(format!("{name}: refused"))),
        });
        let claims = [("mine", "a"), ("yours", "b"), ("broken", "a")];
        let claims = claims.map(|(channel, holder)| (channel.to_owned(), holder.to_owned()));
        let fleet =
            FleetView { name: "a".to_owned(), claims: claims.into(), ..FleetView::default() };
        set_apart(&names, &mut outcomes, &fleet);
        assert_eq!(outcomes[1], ChannelOutcome::Elsewhere("b".to_owned()));
        let report = report(&names, &outcomes);
        assert!(report.contains("yours    elsewhere: daemon b has it  -\n"), "{report}");
        assert!(report.ends_with("4 channels: 1 done, 2 failed, 1 elsewhere\n"), "{report}");
        let said = verdict(&names, &outcomes).expect_err("two failed").to_string();
        assert_eq!(said, "failed for broken, free");
        assert!(verdict(&names[..2], &outcomes[..2]).is_ok());
    }
}
