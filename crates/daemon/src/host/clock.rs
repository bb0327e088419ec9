//! Times in readable form.

use csa_provider::seams::{Clock as _, SystemClock};
use jiff::Timestamp;

pub(crate) use csa_provider::seams::rfc3339;

/// Returns the microseconds since the epoch, now.
pub(crate) fn now_micros() -> u64 {
    SystemClock.now_micros()
}

/// Returns the microseconds since the epoch of an RFC 3339 time, rounded up; `None` for anything
/// else, including a time without its offset.
pub(crate) fn micros_of(text: &str) -> Option<u64> {
    let nanos = text.parse::<Timestamp>().ok()?.as_nanosecond();
    u64::try_from(nanos).ok().map(|nanos| nanos.div_ceil(1000))
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
