//! Durations on the command line: as in the configuration file, and plain seconds where they have always been.

use std::time::{Duration, Instant};

use crate::config::DurationValue;

/// Reads a duration with a unit.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let duration = DurationValue::parse(text).map(|duration| duration.0);
    duration.ok_or_else(|| format!("{text:?} is not a duration like \"500ms\", \"5s\" or \"2m\""))
}

/// Reads a duration with a unit, or a number of seconds.
pub(crate) fn seconds_or_duration(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string()),
        Err(_) => duration(text),
    }
}

/// Returns the end of a wait that begins now; `None` if it is longer than the clock can count.
pub(crate) fn end_after(wait: Duration) -> Option<Instant> {
    Instant::now().checked_add(wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_may_be_too_long_to_have_an_end() {
        let longest = seconds_or_duration("1e19").expect("a duration");
        assert_eq!((end_after(longest), end_after(Duration::from_secs(u64::MAX))), (None, None));
        assert!(end_after(Duration::from_secs(60)).is_some_and(|end| end > Instant::now()));
    }

    #[test]
    fn plain_seconds_and_units_are_read() {
        let millis = |text: &str| seconds_or_duration(text).map(|time| time.as_millis());
        let read = ["0.5", "10", "10s", "2m"].map(|text| millis(text).ok());
        assert_eq!(read, [500, 10_000, 10_000, 120_000].map(Some));
        assert!(millis("-1").is_err() && millis("soon").is_err() && duration("10").is_err());
    }
}
