//! Durations like "500ms" and sizes like "64MiB".

use std::fmt;
use std::time;

use serde::de::{self, Deserialize, Deserializer, Visitor};

/// "500ms", "5s", "2m", "1h".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Duration(pub(crate) time::Duration);

/// Bytes: "64MiB", "10GiB", or a plain number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

impl Duration {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (number, unit) = split(text)?;
        let millis = match unit {
            "ms" => number,
            "s" => number.checked_mul(1000)?,
            "m" | "min" => number.checked_mul(60_000)?,
            "h" => number.checked_mul(3_600_000)?,
            _ => return None,
        };
        Some(Self(time::Duration::from_millis(millis)))
    }
}

impl Size {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (number, unit) = split(text)?;
        let shift = match unit {
            "" | "B" => 0,
            "KiB" | "K" => 10,
            "MiB" | "M" => 20,
            "GiB" | "G" => 30,
            "TiB" | "T" => 40,
            _ => return None,
        };
        number.checked_mul(1 << shift).map(Self)
    }
}

fn split(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    Some((number.parse().ok()?, unit.trim()))
}

struct Text<T> {
    wanted: &'static str,
    parse: fn(&str) -> Option<T>,
    number: fn(u64) -> Option<T>,
}

impl<T> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.wanted)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        u64::try_from(number)
            .ok()
            .and_then(self.number)
            .ok_or_else(|| E::invalid_value(de::Unexpected::Signed(number), &self))
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Text {
            wanted: "a duration like \"500ms\", \"5s\" or \"2m\"",
            parse: Self::parse,
            number: |number| (number == 0).then_some(Self(time::Duration::ZERO)),
        })
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Text {
            wanted: "a size like \"64MiB\" or \"10GiB\"",
            parse: Self::parse,
            number: |number| Some(Self(number)),
        })
    }
}
