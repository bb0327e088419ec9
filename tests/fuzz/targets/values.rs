//! Any bytes as the value of any type of column: a value or an error.
#![no_main]

use csa_provider::binlog::{ColumnValue, JsonDiff, JsonValue, OldTemporal, ValueType};
use libfuzzer_sys::fuzz_target;

fn value_type(selector: u8, [a, b]: [u8; 2]) -> ValueType {
    let fraction = a % 7;
    match selector % 20 {
        0 => ValueType::Integer {
            bytes: [1, 2, 3, 4, 8][usize::from(a % 5)],
            unsigned: Some(b & 1 == 1),
        },
        1 => ValueType::Integer { bytes: [1, 2, 3, 4, 8][usize::from(a % 5)], unsigned: None },
        2 => ValueType::Year,
        3 => ValueType::Float,
        4 => ValueType::Double,
        // A damaged table map may say so.
        5 => ValueType::Decimal { precision: a, scale: b },
        6 => ValueType::Date,
        7 => ValueType::Time { fraction: a },
        8 => ValueType::DateTime { fraction },
        9 => ValueType::Timestamp { fraction: a },
        10 => ValueType::Enum { bytes: a },
        11 => ValueType::Set { bytes: a },
        12 => ValueType::Bit { bits: u16::from_le_bytes([a, b]) },
        13 => ValueType::Char { max_bytes: u16::from_le_bytes([a, b]) },
        14 => ValueType::Varchar { max_bytes: u16::from_le_bytes([a, b]) },
        15 => ValueType::Blob { length_bytes: a },
        16 => ValueType::Geometry,
        17 => ValueType::Vector,
        18 => ValueType::Old(OldTemporal::DateTime),
        _ => ValueType::Json,
    }
}

// Layout: selector of the type, two bytes of metadata, the value.
fuzz_target!(|data: &[u8]| {
    let &[selector, a, b, ref bytes @ ..] = data else { return };
    match ColumnValue::read(value_type(selector, [a, b]), a & 1 == 1, bytes) {
        Ok(ColumnValue::Json(document)) => drop(JsonValue::parse(document)),
        Ok(ColumnValue::Date(value)) => drop(value.to_string()),
        Ok(ColumnValue::Time(value)) => drop(value.to_string()),
        Ok(ColumnValue::DateTime(value) | ColumnValue::Timestamp(value)) => drop(value.to_string()),
        Ok(_) | Err(_) => {}
    }
    if let Ok(changes) = JsonDiff::parse(bytes) {
        assert!(changes.len() <= bytes.len());
    }
});
