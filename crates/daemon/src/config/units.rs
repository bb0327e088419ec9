//! Durations like "500ms" and sizes like "64MiB". The crates for these (humantime, bytesize) accept
//! other spellings: "2days", "1h 5m", "1.5MB".

use std::{fmt, time};

use schemars::JsonSchema;
use serde::de::{Deserialize, Deserializer, Error as _};
use serde::{Serialize, Serializer};
use toml::Value;

/// "500ms", "5s", "2m", "1h"; of numbers only 0 needs no unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema)]
#[schemars(
    with = "String",
    extend(
        "type" = ["string", "integer"],
        "pattern" = "^\\s*[0-9]+\\s*(ms|s|m|min|h|d)\\s*$",
        "minimum" = 0,
        "maximum" = 0,
        "x-takes" = "duration",
    )
)]
pub(crate) struct Duration(pub(crate) time::Duration);

/// Bytes: "64MiB", "10GiB", or a plain number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[schemars(
    with = "String",
    extend(
        "type" = ["string", "integer"],
        "pattern" = "^\\s*[0-9]+\\s*(B|[KMGT](iB)?)?\\s*$",
        "minimum" = 0,
        "x-takes" = "size",
    )
)]
pub(crate) struct Size(pub(crate) u64);

/// The units from small to large.
const TIMES: [(&str, u64); 6] =
    [("ms", 1), ("s", 1000), ("min", 60_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
const SIZES: [(&str, u64); 10] = [
    ("", 1),
    ("B", 1),
    ("K", 1 << 10),
    ("KiB", 1 << 10),
    ("M", 1 << 20),
    ("MiB", 1 << 20),
    ("G", 1 << 30),
    ("GiB", 1 << 30),
    ("T", 1 << 40),
    ("TiB", 1 << 40),
];

impl Duration {
    pub(super) const LIKE: &str = "a duration like \"500ms\", \"5s\" or \"2m\"";

    pub(crate) fn parse(text: &str) -> Option<Self> {
        measure(text, &TIMES).map(time::Duration::from_millis).map(Self)
    }

    /// Returns the milliseconds of a value in the file.
    pub(super) fn millis(value: &Value) -> Option<u64> {
        match value {
            Value::Integer(0) => Some(0),
            Value::String(text) => measure(text, &TIMES),
            _ => None,
        }
    }
}

impl Size {
    pub(super) const LIKE: &str = "a size like \"64MiB\" or \"10GiB\"";

    pub(crate) fn parse(text: &str) -> Option<Self> {
        measure(text, &SIZES).map(Self)
    }

    pub(super) fn bytes(value: &Value) -> Option<u64> {
        match value {
            Value::Integer(number) => u64::try_from(*number).ok(),
            Value::String(text) => measure(text, &SIZES),
            _ => None,
        }
    }
}

fn measure(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim())?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

/// In the largest unit without a remainder; of two names for one, the last.
fn write(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)]) -> fmt::Result {
    let fits = |(_, factor): &&(&str, u64)| value > 0 && value.is_multiple_of(*factor);
    let (unit, factor) = units.iter().rfind(fits).unwrap_or(&units[1]);
    write!(f, "{}{unit}", value / factor)
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX), &TIMES)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, self.0, &SIZES)
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let millis = Self::millis(&Value::deserialize(deserializer)?);
        let wrong = || D::Error::custom(format!("not {}", Self::LIKE));
        millis.map(time::Duration::from_millis).map(Self).ok_or_else(wrong)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = Self::bytes(&Value::deserialize(deserializer)?);
        bytes.map(Self).ok_or_else(|| D::Error::custom(format!("not {}", Self::LIKE)))
    }
}
