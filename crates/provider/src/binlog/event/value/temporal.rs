//! Dates and times, including zero and invalid ones (`my_datetime_packed_from_binary` and related
//! functions in mysys/my_time.cc).

use std::fmt;

use crate::binlog::bytes_reader::{Malformed, Reader};

/// A date as written: any part may be zero, and the day may not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Date {
    pub year: u16,
    pub month: u8,
    pub day: u8,
}

/// A TIME of up to 838 hours, with a sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Time {
    pub negative: bool,
    pub hours: u16,
    pub minutes: u8,
    pub seconds: u8,
    pub micros: u32,
}

/// A date and a time of day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DateTime {
    pub date: Date,
    pub hours: u8,
    pub minutes: u8,
    pub seconds: u8,
    pub micros: u32,
}

impl Date {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let value = reader.uint(3, "DATE")?;
        Ok(Self {
            year: (value >> 9) as u16,
            month: (value >> 5 & 15) as u8,
            day: (value & 31) as u8,
        })
    }

    /// Unpacks the date from the form that DATETIME and JSON share.
    fn packed(days: u64) -> Self {
        let months = days >> 5;
        Self { year: (months / 13) as u16, month: (months % 13) as u8, day: (days & 31) as u8 }
    }

    /// Returns the date `days` days after 1970-01-01
    /// (<https://howardhinnant.github.io/date_algorithms.html>).
    fn of_days(days: u32) -> Self {
        let days = days + 719_468;
        let era = days / 146_097;
        let day_of_era = days % 146_097;
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = year_of_era + era * 400 + u32::from(month <= 2);
        Self {
            year: year as u16,
            month: month as u8,
            day: (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u8,
        }
    }
}

impl DateTime {
    pub(super) fn read(fraction: u8, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let value = big_endian(reader.take(5, "DATETIME")?);
        // Values below the offset would be negative, and no DATETIME is.
        let value = value.checked_sub(0x80_0000_0000);
        let value = value.ok_or_else(|| reader.malformed("DATETIME"))?;
        Ok(Self::packed(value, read_micros(fraction, reader)?))
    }

    pub(super) fn read_timestamp(fraction: u8, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let seconds = big_endian(reader.take(4, "TIMESTAMP")?) as u32;
        let micros = read_micros(fraction, reader)?;
        Ok(Self::of_seconds(seconds, micros))
    }

    /// Returns the seconds, little-endian (`Field_timestamp::val_int` of MySQL 5.7).
    pub(super) fn read_old_timestamp(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self::of_seconds(reader.u32("TIMESTAMP")?, 0))
    }

    /// Reads YYYYMMDDhhmmss, a little-endian decimal number (`Field_datetime`).
    pub(super) fn read_old(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let value = reader.uint(8, "DATETIME")?;
        let part = |divisor: u64| (value / divisor % 100) as u8;
        let year = u16::try_from(value / 10_000_000_000);
        let date = Date {
            year: year.map_err(|_| reader.malformed("DATETIME"))?,
            month: part(100_000_000),
            day: part(1_000_000),
        };
        Ok(Self { date, hours: part(10_000), minutes: part(100), seconds: part(1), micros: 0 })
    }

    /// Of seconds since 1970; zero is the zero value.
    fn of_seconds(seconds: u32, micros: u32) -> Self {
        if seconds == 0 && micros == 0 {
            return Self::default();
        }
        let of_day = seconds % 86_400;
        Self {
            date: Date::of_days(seconds / 86_400),
            hours: (of_day / 3_600) as u8,
            minutes: (of_day / 60 % 60) as u8,
            seconds: (of_day % 60) as u8,
            micros,
        }
    }

    /// Unpacks the packed form without its fraction.
    fn packed(value: u64, micros: u32) -> Self {
        Self {
            date: Date::packed(value >> 17),
            hours: (value >> 12 & 31) as u8,
            minutes: (value >> 6 & 63) as u8,
            seconds: (value & 63) as u8,
            micros,
        }
    }

    /// Reads the eight bytes that a JSON document has of it.
    pub(super) fn of_json(packed: i64) -> Option<Self> {
        let packed = u64::try_from(packed).ok()?;
        Some(Self::packed(packed >> 24, (packed & 0xff_ffff) as u32))
    }
}

impl Time {
    pub(super) fn read(fraction: u8, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let len = usize::from(fraction.min(6).div_ceil(2));
        let value = big_endian(reader.take(3 + len, "TIME")?) as i64;
        // Fraction and rest together are one number, with an offset so that it sorts by bytes.
        let value = value - (0x80_0000 << (8 * len));
        let rest = value.unsigned_abs() >> (8 * len);
        let fraction = value.unsigned_abs() & ((1 << (8 * len)) - 1);
        let micros = micros_of(fraction as u32, len, reader)?;
        Ok(Self::parts(value < 0, rest, micros))
    }

    /// Reads hhmmss, a little-endian decimal number with a sign (`Field_time` of MySQL 5.7).
    pub(super) fn read_old(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let bytes = reader.uint(3, "TIME")? as i32;
        let value = bytes << 8 >> 8;
        let digits = value.unsigned_abs();
        Ok(Self {
            negative: value < 0,
            hours: (digits / 10_000) as u16,
            minutes: (digits / 100 % 100) as u8,
            seconds: (digits % 100) as u8,
            micros: 0,
        })
    }

    /// Reads the eight bytes that a JSON document has of it.
    pub(super) fn of_json(packed: i64) -> Self {
        let value = packed.unsigned_abs();
        Self::parts(packed < 0, value >> 24, (value & 0xff_ffff) as u32)
    }

    fn parts(negative: bool, value: u64, micros: u32) -> Self {
        Self {
            negative,
            hours: (value >> 12 & 0x3ff) as u16,
            minutes: (value >> 6 & 63) as u8,
            seconds: (value & 63) as u8,
            micros,
        }
    }
}

/// Reads a fraction of `fraction` digits, big-endian, with one byte for every two digits.
fn read_micros(fraction: u8, reader: &mut Reader<'_>) -> Result<u32, Malformed> {
    let len = usize::from(fraction.min(6).div_ceil(2));
    let value = big_endian(reader.take(len, "fraction of a second")?) as u32;
    micros_of(value, len, reader)
}

/// Returns the microseconds from hundredths, ten-thousandths or millionths, by the number of bytes.
fn micros_of(value: u32, len: usize, reader: &Reader<'_>) -> Result<u32, Malformed> {
    let unit: u32 = [0, 10_000, 100, 1].get(len).copied().unwrap_or(1);
    let micros = value.checked_mul(unit).filter(|&micros| micros < 1_000_000);
    micros.ok_or_else(|| reader.malformed("fraction of a second"))
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.negative { "-" } else { "" };
        write!(f, "{sign}{:02}:{:02}:{:02}", self.hours, self.minutes, self.seconds)?;
        write_micros(self.micros, f)
    }
}

impl fmt::Display for DateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:02}:{:02}:{:02}", self.date, self.hours, self.minutes, self.seconds)?;
        write_micros(self.micros, f)
    }
}

fn write_micros(micros: u32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match micros {
        0 => Ok(()),
        _ => write!(f, ".{micros:06}"),
    }
}

/// Returns the number in at most eight big-endian bytes.
pub(super) fn big_endian(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, &byte| value << 8 | u64::from(byte))
}
