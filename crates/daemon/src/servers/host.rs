//! This host: its disk and its clock.

use std::path::Path;

use super::options::CheckOptions;
use super::server::Clock;
use crate::host::state_dir::{self, existing};
use csa_provider::server::link::Side;
use csa_provider::server::{Finding, Place};

/// A larger difference between clocks is worth a warning.
const SKEW_MAX: i64 = 2_000_000;
const MIB: u64 = 1 << 20;

/// Disk space for the relay store, in bytes.
#[derive(Debug, Clone, Copy)]
struct Space {
    free: u64,
    /// Taken by the relay store already.
    used: u64,
    limit: u64,
    min_free: u64,
}

/// Checks that the relay store can grow to its limit.
pub(super) fn disk(options: &CheckOptions<'_>) -> Finding {
    const CHECK: &str = "host.disk";
    let relay = &options.channel.relay;
    let directory = existing(&relay.directory);
    if let Err(why) = state_dir::check(&relay.directory) {
        return Finding::error(CHECK, why)
            .fix(Place::Operator, format!("make {} writable", directory.display()))
            .fix(Place::Configuration, "[daemon] state_dir = another folder");
    }
    let stat = match rustix::fs::statvfs(&directory) {
        Ok(stat) => stat,
        Err(error) => {
            let text = format!("{}: {error}", directory.display());
            return Finding::error(CHECK, text)
                .fix(Place::Configuration, "[daemon] state_dir = another folder");
        }
    };
    let space = Space {
        free: stat.f_bavail.saturating_mul(stat.f_frsize),
        used: bytes_in(&relay.directory),
        limit: relay.space_limit,
        min_free: relay.min_free_disk,
    };
    space.finding(CHECK, &directory)
}

impl Space {
    fn finding(&self, check: &'static str, directory: &Path) -> Finding {
        let mib = |bytes: u64| format!("{} MiB", bytes / MIB);
        let (free, limit, min_free) = (mib(self.free), mib(self.limit), mib(self.min_free));
        let place = directory.display();
        if self.free <= self.min_free {
            return Finding::error(
                check,
                format!("{free} free at {place}: reception waits below min_free_disk ({min_free})"),
            )
            .fix(Place::Operator, format!("make room at {place}"))
            .fix(Place::Configuration, "[channel.relay] min_free_disk, or [daemon] state_dir");
        }
        let room = self.free.saturating_sub(self.min_free).saturating_add(self.used);
        if room < self.limit {
            let finding = Finding::warning(
                check,
                format!(
                    "{free} free at {place}: the relay store has room for {} (min_free_disk = \
                     {min_free} stays free), its space_limit is {limit}; reception waits earlier \
                     than that",
                    mib(room)
                ),
            )
            .fix(Place::Operator, format!("make room at {place}"));
            return match room / MIB {
                // It would mean no limit.
                0 => finding,
                room => finding.fix(
                    Place::Configuration,
                    format!("[channel.relay] space_limit = \"{room}MiB\""),
                ),
            };
        }
        let limit = match self.limit {
            0 => format!("no space_limit: the relay store grows until min_free_disk ({min_free})"),
            _ => format!("space_limit is {limit}"),
        };
        Finding::ok(check, format!("{free} free at {place}, {limit}"))
    }
}

/// Returns the total size of the files in a folder; 0 where there is none.
fn bytes_in(directory: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    let sizes = entries.flatten().filter_map(|entry| entry.metadata().ok());
    sizes.map(|metadata| metadata.len()).fold(0, u64::saturating_add)
}

/// Clocks matter because lag is this host's time minus the source's commit time.
pub(super) fn clock(side: Side, clock: Clock) -> Finding {
    let check = match side {
        Side::Source => "source.clock",
        Side::Target => "target.clock",
    };
    let seconds = |micros: i64| micros as f64 / 1e6;
    let distance = clock.ahead.saturating_abs();
    if distance.saturating_sub(clock.uncertain) <= SKEW_MAX {
        return Finding::ok(
            check,
            format!(
                "within {:.1} s of this host's",
                seconds(distance.saturating_add(clock.uncertain)).max(0.1)
            ),
        );
    }
    let way = if clock.ahead > 0 { "ahead of" } else { "earlier than" };
    let what = match side {
        Side::Source => "commit times are shown, and compared with until, by its clock",
        Side::Target => "times in csa.checkpoint are wrong by as much",
    };
    let by = seconds(distance);
    Finding::warning(check, format!("{by:.1} s {way} this host's: {what}"))
        .fix(Place::Operator, "have all hosts follow a time server (NTP)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use csa_provider::server::Level;

    #[test]
    fn room_is_what_is_free_and_what_is_the_relay_stores_already() {
        let of = |free, used| {
            let space =
                Space { free: free * MIB, used: used * MIB, limit: 100 * MIB, min_free: 10 * MIB };
            space.finding("host.disk", Path::new("/x"))
        };
        assert_eq!(of(110, 0).level, Level::Ok);
        assert_eq!(of(60, 50).level, Level::Ok);
        let tight = of(109, 0);
        assert_eq!(tight.level, Level::Warning);
        assert!(tight.to_string().contains("space_limit = \"99MiB\""), "{tight}");
        assert_eq!(of(11, 0).level, Level::Warning);
        assert_eq!(of(10, 500).level, Level::Error);
        let space = Space { free: 10 * MIB + 1, used: 0, limit: 100 * MIB, min_free: 10 * MIB };
        let least = space.finding("host.disk", Path::new("/x"));
        assert_eq!(least.level, Level::Warning);
        assert!(!least.to_string().contains("space_limit = \"0MiB\""), "{least}");
        let unlimited = Space { limit: 0, ..space }.finding("host.disk", Path::new("/x"));
        assert_eq!(unlimited.level, Level::Ok);
        assert!(unlimited.text.contains("until min_free_disk (10 MiB)"), "{unlimited}");
    }

    #[test]
    fn a_slow_answer_is_not_a_wrong_clock() {
        let of = |ahead, uncertain| clock(Side::Source, Clock { ahead, uncertain });
        assert_eq!(of(1_900_000, 0).level, Level::Ok);
        assert_eq!(of(-2_500_000, 600_000).level, Level::Ok);
        let late = of(-3_600_000_000, 1_000);
        assert_eq!(late.level, Level::Warning);
        assert!(late.text.starts_with("3600.0 s earlier than this host's"), "{late}");
        assert!(of(5_000_000, 0).text.contains("5.0 s ahead of"));
    }
}
