use jiff::Timestamp;

/// Formats microseconds since the epoch by RFC 3339 in UTC. Times after the year 9999, which only a
/// damaged event has, are shown as the last one of that year.
#[must_use]
pub fn rfc3339(micros: u64) -> String {
    let time =
        i64::try_from(micros).ok().and_then(|micros| Timestamp::from_microsecond(micros).ok());
    format!("{:.6}", time.unwrap_or(Timestamp::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_around_leap_days() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400_000_001, "2000-02-29T00:00:00.000001Z"),
            (951_868_799_000_000, "2000-02-29T23:59:59.000000Z"),
            (1_772_323_200_000_000, "2026-03-01T00:00:00.000000Z"),
        ] {
            assert_eq!(rfc3339(micros), text);
        }
        assert!(rfc3339(u64::MAX).starts_with("9999-12-30T"));
    }
}
