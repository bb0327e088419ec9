//! Checks that a target column holds every value of the source's, unchanged.
//!
//! Values that a strict session refuses on its own need no check here; those that it would round or cut
//! with no more than a note do.

use csa_provider::binlog::{OldTemporal, ValueColumn, ValueType, charset_of};

use crate::server::definitions::table::{FixedPoint, TargetColumn, TargetType};

/// Number of the collation `binary`.
const BINARY: u16 = 63;
/// Character sets in which ASCII bytes are ASCII.
const ASCII_KIN: [&str; 5] = ["utf8mb4", "utf8mb3", "utf8", "ascii", "latin1"];

/// A source column's strings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Strings {
    Binary,
    /// Character set, and the most bytes of a character if the table map has its collation.
    Text(String, Option<u8>),
}

/// Returns the character set of the source's strings; the target's where the table map has none.
pub(super) fn strings_of(source: &ValueColumn, target: &TargetType) -> Result<Strings, String> {
    match (source.collation, target) {
        (Some(BINARY), _) => Ok(Strings::Binary),
        (Some(collation), _) => charset_of(collation)
            .map(|(name, max_len)| Strings::Text(name.to_owned(), Some(max_len)))
            .ok_or_else(|| format!("its collation {collation} is not known to this version")),
        (None, TargetType::Text { charset, .. }) => Ok(Strings::Text(charset.clone(), None)),
        (None, _) => Ok(Strings::Binary),
    }
}

/// # Errors
/// Why the target's column can't hold what the source's can.
pub(super) fn check(
    source: &ValueColumn,
    strings: &Strings,
    target: &TargetColumn,
) -> Result<(), String> {
    use ValueType as S;
    let fits = match (source.value_type, &target.target_type) {
        (S::Integer { bytes, unsigned }, &TargetType::Integer { bytes: room, unsigned: to }) => {
            match (unsigned.unwrap_or(to), to) {
                (true, false) => room > bytes,
                (false, true) => false,
                _ => room >= bytes,
            }
        }
        (
            S::Decimal { precision, scale },
            &TargetType::Decimal { precision: room, scale: digits },
        ) => digits >= scale && room.saturating_sub(digits) >= precision.saturating_sub(scale),
        (S::Float, TargetType::Float(_) | TargetType::Double(_))
        | (S::Double, TargetType::Double(_))
        | (S::Year, TargetType::Year)
        | (S::Date, TargetType::Date)
        | (S::Enum { .. }, TargetType::Enum)
        | (S::Set { .. }, TargetType::Set)
        | (S::Json, TargetType::Json)
        | (S::Geometry, TargetType::Geometry)
        | (S::Vector, TargetType::Vector) => true,
        (S::Time { fraction }, &TargetType::Time { fraction: room })
        | (S::DateTime { fraction }, &TargetType::DateTime { fraction: room })
        | (S::Timestamp { fraction }, &TargetType::Timestamp { fraction: room }) => {
            room >= fraction
        }
        (S::Old(OldTemporal::Time), TargetType::Time { .. })
        | (S::Old(OldTemporal::DateTime), TargetType::DateTime { .. })
        | (S::Old(OldTemporal::Timestamp), TargetType::Timestamp { .. }) => true,
        (S::Bit { bits }, &TargetType::Bit { bits: room }) => room >= bits,
        (S::Char { .. } | S::Varchar { .. } | S::Blob { .. }, TargetType::Text { .. }) => {
            match strings {
                Strings::Text(charset, max_len) => {
                    text_fits(source.value_type, charset, *max_len, &target.target_type)
                }
                Strings::Binary => false,
            }
        }
        (
            S::Char { .. } | S::Varchar { .. } | S::Blob { .. },
            &TargetType::Binary { max_bytes, fixed },
        ) => *strings == Strings::Binary && binary_fits(source.value_type, max_bytes, fixed),
        // MariaDB's JSON is LONGTEXT; values without a text are refused one by one.
        (S::Json, TargetType::Text { charset, max_bytes, .. }) => {
            charset == "utf8mb4" && *max_bytes >= u64::from(u32::MAX)
        }
        _ => false,
    };
    match fits {
        true => Ok(()),
        false => Err(format!(
            "{} of the source does not fit into {} without loss",
            describe(source, strings),
            describe_target(&target.target_type)
        )),
    }
}

fn text_fits(source: ValueType, charset: &str, max_len: Option<u8>, target: &TargetType) -> bool {
    let TargetType::Text { charset: to, max_chars, max_bytes, fixed } = target else {
        return false;
    };
    // CHAR loses spaces at the end.
    if *fixed && !matches!(source, ValueType::Char { .. }) {
        return false;
    }
    if is_same(charset, to) {
        return byte_capacity(source) <= *max_bytes;
    }
    if !(to == "utf8mb4" || charset == "ascii" && ASCII_KIN.contains(&to.as_str())) {
        return false;
    }
    let max_len = u64::from(max_len.unwrap_or(1).max(1));
    match source {
        // Characters may grow; a strict session refuses a value that becomes too long.
        ValueType::Blob { .. } => byte_capacity(source) <= *max_bytes,
        _ => byte_capacity(source) / max_len <= *max_chars,
    }
}

/// `utf8` was the name of `utf8mb3`.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    let name = |charset: &'_ str| {
        if charset == "utf8" { "utf8mb3".to_owned() } else { charset.to_owned() }
    };
    name(one) == name(other)
}

fn binary_fits(source: ValueType, max_bytes: u64, fixed: bool) -> bool {
    match source {
        // BINARY is padded with zeros, which are part of the value.
        ValueType::Char { max_bytes: bytes } if fixed => u64::from(bytes) == max_bytes,
        _ => !fixed && byte_capacity(source) <= max_bytes,
    }
}

fn byte_capacity(source: ValueType) -> u64 {
    match source {
        ValueType::Char { max_bytes } | ValueType::Varchar { max_bytes } => u64::from(max_bytes),
        ValueType::Blob { length_bytes } => (1_u64 << (8 * u32::from(length_bytes.min(7)))) - 1,
        _ => u64::MAX,
    }
}

fn describe(source: &ValueColumn, strings: &Strings) -> String {
    let of = |text: String, bytes: u64| match strings {
        Strings::Binary => format!("{text} ({bytes} bytes, binary)"),
        Strings::Text(charset, _) => format!("{text} ({bytes} bytes, {charset})"),
    };
    match source.value_type {
        ValueType::Integer { bytes, unsigned } => {
            format!("an integer of {} bits{}", u16::from(bytes) * 8, sign(unsigned))
        }
        ValueType::Decimal { precision, scale } => format!("DECIMAL({precision},{scale})"),
        ValueType::Time { fraction } => format!("TIME({fraction})"),
        ValueType::DateTime { fraction } => format!("DATETIME({fraction})"),
        ValueType::Timestamp { fraction } => format!("TIMESTAMP({fraction})"),
        ValueType::Old(OldTemporal::Time) => "TIME of before MySQL 5.6.4".to_owned(),
        ValueType::Old(OldTemporal::DateTime) => "DATETIME of before MySQL 5.6.4".to_owned(),
        ValueType::Old(OldTemporal::Timestamp) => "TIMESTAMP of before MySQL 5.6.4".to_owned(),
        ValueType::Bit { bits } => format!("BIT({bits})"),
        ValueType::Char { max_bytes } => of("CHAR".to_owned(), u64::from(max_bytes)),
        ValueType::Varchar { max_bytes } => of("VARCHAR".to_owned(), u64::from(max_bytes)),
        ValueType::Blob { .. } => of("TEXT".to_owned(), byte_capacity(source.value_type)),
        other => format!("{other:?}").to_uppercase(),
    }
}

const fn sign(unsigned: Option<bool>) -> &'static str {
    match unsigned {
        Some(true) => " unsigned",
        Some(false) => " signed",
        None => "",
    }
}

pub(super) fn describe_target(target: &TargetType) -> String {
    match target {
        TargetType::Integer { bytes, unsigned } => {
            format!("an integer of {} bits{}", u16::from(*bytes) * 8, sign(Some(*unsigned)))
        }
        TargetType::Decimal { precision, scale } => format!("DECIMAL({precision},{scale})"),
        TargetType::Float(fixed) => format!("FLOAT{}", digits(*fixed)),
        TargetType::Double(fixed) => format!("DOUBLE{}", digits(*fixed)),
        TargetType::Time { fraction } => format!("TIME({fraction})"),
        TargetType::DateTime { fraction } => format!("DATETIME({fraction})"),
        TargetType::Timestamp { fraction } => format!("TIMESTAMP({fraction})"),
        TargetType::Bit { bits } => format!("BIT({bits})"),
        TargetType::Text { charset, max_bytes, fixed, .. } => {
            let name = if *fixed { "CHAR" } else { "VARCHAR or TEXT" };
            format!("{name} ({max_bytes} bytes, {charset})")
        }
        TargetType::Binary { max_bytes, fixed } => {
            let name = if *fixed { "BINARY" } else { "VARBINARY or BLOB" };
            format!("{name} ({max_bytes} bytes)")
        }
        TargetType::Other(name) => name.to_uppercase(),
        other => format!("{other:?}").to_uppercase(),
    }
}

fn digits(fixed: Option<FixedPoint>) -> String {
    fixed.map_or_else(String::new, |FixedPoint { precision, scale }| {
        format!("({precision},{scale})")
    })
}

#[cfg(test)]
mod tests {
    use csa_provider::binlog::ValueType as S;

    use super::*;
    use crate::server::definitions::table::Generated;

    const LATIN1: u16 = 8;
    const UTF8MB4: u16 = 255;

    fn fits(source: S, collation: Option<u16>, target: TargetType) -> bool {
        let source = ValueColumn { value_type: source, collation, name: None };
        let target = TargetColumn {
            name: "c".to_owned(),
            target_type: target,
            generated: Generated::No,
            has_default: true,
            on_update: false,
            is_now: false,
            indexed: false,
            hidden_key: false,
        };
        let strings = strings_of(&source, &target.target_type).expect("a known collation");
        check(&source, &strings, &target).is_ok()
    }

    fn text(charset: &str, max_chars: u64, fixed: bool) -> TargetType {
        let max_bytes = max_chars * if charset == "utf8mb4" { 4 } else { 1 };
        TargetType::Text { charset: charset.to_owned(), max_chars, max_bytes, fixed }
    }

    #[test]
    fn integers_may_grow_and_keep_their_sign() {
        let source = |bytes, unsigned| S::Integer { bytes, unsigned };
        let target = |bytes, unsigned| TargetType::Integer { bytes, unsigned };
        for (from, to, expected) in [
            (source(4, Some(false)), target(4, false), true),
            (source(4, Some(false)), target(8, false), true),
            (source(4, Some(false)), target(3, false), false),
            (source(1, Some(false)), target(8, true), false),
            (source(4, Some(true)), target(4, false), false),
            (source(4, Some(true)), target(8, false), true),
            (source(4, None), target(4, true), true),
            (source(8, None), target(4, true), false),
            (S::Year, target(8, false), false),
        ] {
            assert_eq!(fits(from, None, to.clone()), expected, "{from:?} into {to:?}");
        }
    }

    /// A strict session cuts these with no more than a note.
    #[test]
    fn nothing_is_rounded() {
        let decimal = |precision, scale| TargetType::Decimal { precision, scale };
        let source = S::Decimal { precision: 10, scale: 2 };
        assert!(fits(source, None, decimal(11, 3)));
        assert!(!fits(source, None, decimal(20, 1)), "a digit after the point is lost");
        assert!(!fits(source, None, decimal(10, 3)), "a digit before the point is lost");
        let fraction = S::Time { fraction: 3 };
        assert!(fits(fraction, None, TargetType::Time { fraction: 6 }));
        assert!(!fits(fraction, None, TargetType::Time { fraction: 2 }));
        assert!(!fits(S::DateTime { fraction: 0 }, None, TargetType::Timestamp { fraction: 0 }));
        assert!(fits(S::Float, None, TargetType::Double(None)));
        assert!(!fits(S::Double, None, TargetType::Float(None)));
        assert!(!fits(S::Bit { bits: 9 }, None, TargetType::Bit { bits: 8 }));
    }

    #[test]
    fn strings_keep_every_character_and_space() {
        let varchar = S::Varchar { max_bytes: 40 };
        let char = S::Char { max_bytes: 40 };
        for (from, collation, to, expected) in [
            (varchar, Some(UTF8MB4), text("utf8mb4", 10, false), true),
            (varchar, Some(UTF8MB4), text("utf8mb4", 9, false), false),
            (varchar, Some(UTF8MB4), text("latin1", 100, false), false),
            (varchar, Some(LATIN1), text("utf8mb4", 40, false), true),
            (varchar, Some(LATIN1), text("utf8mb4", 39, false), false),
            (varchar, None, text("cp932", 40, false), true),
            (varchar, Some(UTF8MB4), text("utf8mb4", 10, true), false),
            (char, Some(UTF8MB4), text("utf8mb4", 10, true), true),
            (varchar, Some(BINARY), text("latin1", 40, false), false),
            (varchar, Some(LATIN1), TargetType::Binary { max_bytes: 40, fixed: false }, false),
            (varchar, Some(BINARY), TargetType::Binary { max_bytes: 40, fixed: false }, true),
            (varchar, Some(BINARY), TargetType::Binary { max_bytes: 40, fixed: true }, false),
            (char, Some(BINARY), TargetType::Binary { max_bytes: 41, fixed: true }, false),
            (
                S::Blob { length_bytes: 2 },
                None,
                TargetType::Binary { max_bytes: 65_535, fixed: false },
                true,
            ),
            (
                S::Blob { length_bytes: 3 },
                None,
                TargetType::Binary { max_bytes: 65_535, fixed: false },
                false,
            ),
        ] {
            assert_eq!(
                fits(from, collation, to.clone()),
                expected,
                "{from:?} {collation:?} {to:?}"
            );
        }
        let unknown = ValueColumn { value_type: varchar, collation: Some(9999), name: None };
        assert!(strings_of(&unknown, &TargetType::Json).is_err());
    }
}
