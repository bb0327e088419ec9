//! Times in readable form.

use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) use csa_provider::rfc3339;
use toml::value::{Datetime, Offset};

/// Microseconds since the epoch, now.
pub(crate) fn now_micros() -> u64 {
    micros(SystemTime::now())
}

pub(crate) fn micros(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

pub(crate) fn rfc3339_of(time: SystemTime) -> String {
    rfc3339(micros(time))
}

/// Microseconds since the epoch of an RFC 3339 time, rounded up; `None` for anything else,
/// including a time without its offset.
pub(crate) fn micros_of(text: &str) -> Option<u64> {
    let Datetime { date: Some(date), time: Some(time), offset: Some(offset) } =
        text.parse().ok()?
    else {
        return None;
    };
    let minutes_east = match offset {
        Offset::Z => 0,
        Offset::Custom { minutes } => i64::from(minutes),
    };
    // Days since the epoch, after Howard Hinnant's `days_from_civil`.
    let (month, day) = (i64::from(date.month), i64::from(date.day));
    let year = i64::from(date.year) - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = era * 146_097 + day_of_era - 719_468;
    let of_day = i64::from(time.hour) * 3600
        + i64::from(time.minute) * 60
        + i64::from(time.second.unwrap_or(0));
    let seconds = u64::try_from(days * 86_400 + of_day - minutes_east * 60).ok()?;
    let micros = u64::from(time.nanosecond.unwrap_or(0).div_ceil(1000));
    seconds.checked_mul(1_000_000)?.checked_add(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        for micros in [0, 1, 951_782_400_000_001, 951_868_799_000_000, 1_772_323_200_000_000] {
            assert_eq!(micros_of(&rfc3339(micros)), Some(micros));
        }
        let day = |day: u64| Some(day * 86_400_000_000);
        assert_eq!(micros_of("1970-01-02T02:30:00+02:30"), day(1));
        assert_eq!(micros_of("1970-01-01 19:00:00-05:00"), day(1));
        assert_eq!(micros_of("1970-01-01T23:59:59.999999001Z"), day(1), "rounded up");
        for wrong in [
            "",
            "tomorrow",
            "2026-03-01",
            "2026-03-01T10:00:00",
            "10:00:00",
            "2026-02-30T10:00:00Z",
            "1969-12-31T23:59:59Z",
            "2026-03-01T25:00:00Z",
        ] {
            assert_eq!(micros_of(wrong), None, "{wrong}");
        }
    }
}
