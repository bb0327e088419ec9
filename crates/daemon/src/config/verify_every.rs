//! The comparisons that a channel makes on its own: conversion of `[channel.verify]`.

use std::time::Duration;

use super::declared_keys::VerifyConfig;
use super::error::ConfigError;

const MINUTES_OF_DAY: u16 = 24 * 60;

/// How often and how fast a channel compares its servers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct VerifyEvery {
    /// Zero: never.
    pub(crate) every: Duration,
    pub(crate) rows_per_second: Option<u64>,
    pub(crate) window: Option<DailyWindow>,
}

/// A part of each day, in minutes of UTC; it may include midnight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DailyWindow {
    from: u16,
    to: u16,
}

impl VerifyEvery {
    pub(crate) const KEYS: [&str; 3] = ["verify.every", "verify.rows_per_second", "verify.window"];

    pub(crate) fn is_on(&self) -> bool {
        !self.every.is_zero()
    }

    /// Returns true if rows may be compared at this moment, in microseconds since the epoch.
    pub(crate) fn is_open(&self, micros: u64) -> bool {
        self.window.is_none_or(|window| window.holds(micros))
    }

    /// Returns the values in words, in the order of [`Self::KEYS`].
    pub(crate) fn shown(&self) -> [String; Self::KEYS.len()] {
        [
            format!("{:?}", self.every),
            self.rows_per_second.unwrap_or(0).to_string(),
            self.window.map_or_else(|| "none".to_owned(), |window| window.to_string()),
        ]
    }
}

impl DailyWindow {
    fn parse(text: &str) -> Option<Self> {
        let minute = |text: &str| {
            let (hour, minute) = text.trim().split_once(':')?;
            let is_two = |part: &str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit());
            if !is_two(hour) || !is_two(minute) {
                return None;
            }
            let (hour, minute): (u16, u16) = (hour.parse().ok()?, minute.parse().ok()?);
            (hour < 24 && minute < 60).then_some(hour * 60 + minute)
        };
        let (from, to) = text.split_once('-')?;
        let (from, to) = (minute(from)?, minute(to)?);
        (from != to).then_some(Self { from, to })
    }

    fn holds(self, micros: u64) -> bool {
        let minute = (micros / 60_000_000 % u64::from(MINUTES_OF_DAY)) as u16;
        match self.from < self.to {
            true => (self.from..self.to).contains(&minute),
            false => minute >= self.from || minute < self.to,
        }
    }
}

impl std::fmt::Display for DailyWindow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { from, to } = self;
        write!(f, "{:02}:{:02}-{:02}:{:02}", from / 60, from % 60, to / 60, to % 60)
    }
}

pub(super) fn settings(config: &VerifyConfig) -> Result<VerifyEvery, ConfigError> {
    let window = config.window.as_deref().map(|text| {
        DailyWindow::parse(text).ok_or_else(|| {
            ConfigError(format!("verify.window: {text:?} is not like \"22:00-06:00\""))
        })
    });
    Ok(VerifyEvery {
        every: config.every.0,
        rows_per_second: Some(config.rows_per_second.into()).filter(|&rows| rows > 0),
        window: window.transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_may_include_midnight() {
        let at = |hour: u64, minute: u64| (20_000 * 24 * 60 + hour * 60 + minute) * 60_000_000;
        let day = DailyWindow::parse("08:30-17:00").expect("a window");
        assert!(day.holds(at(8, 30)) && day.holds(at(16, 59)));
        assert!(!day.holds(at(8, 29)) && !day.holds(at(17, 0)));
        let night = DailyWindow::parse("22:00-06:00").expect("a window");
        assert!(night.holds(at(23, 0)) && night.holds(at(0, 0)) && night.holds(at(5, 59)));
        assert!(!night.holds(at(6, 0)) && !night.holds(at(21, 59)));
        assert_eq!(night.to_string(), "22:00-06:00");
        for wrong in
            ["", "22:00", "22-06", "24:00-06:00", "22:60-06:00", "6:00-7:00", "06:00-06:00"]
        {
            assert_eq!(DailyWindow::parse(wrong), None, "{wrong}");
        }
    }
}
