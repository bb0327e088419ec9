use proptest::prelude::*;

use super::*;
use crate::test_util::{int_image, int_table_map, rows_event};

/// Returns a table map of `d.t` with these type codes and metadata.
fn columns(codes: &[u8], metadata: &[u8], optional: &[u8]) -> Result<Vec<Column>, EventError> {
    let mut body = vec![1, 0, 0, 0, 0, 0, 1, 0, 1, b'd', 0, 1, b't', 0];
    body.push(u8::try_from(codes.len()).unwrap());
    body.extend(codes);
    body.push(u8::try_from(metadata.len()).unwrap());
    body.extend(metadata);
    body.extend(vec![0xff; codes.len().div_ceil(8)]);
    body.extend(optional);
    TableMap::parse(&body).unwrap().columns()
}

/// Returns the bytes of one value at the start of `bytes`.
fn value_len(code: u8, metadata: &[u8], bytes: &[u8]) -> usize {
    let columns = columns(&[code], metadata, &[]).unwrap();
    let image = [&[0], bytes].concat();
    scan_image(&columns, &[1], &image, &[], |_, _| {}).unwrap() - 1
}

/// Lengths by `calc_field_size` of the server's binary log library.
#[test]
fn every_type_has_its_length() {
    let bytes = [3_u8; 300];
    for (code, metadata, len) in [
        (1, &[][..], 1),       // TINYINT
        (2, &[], 2),           // SMALLINT
        (9, &[], 3),           // MEDIUMINT
        (3, &[], 4),           // INT
        (8, &[], 8),           // BIGINT
        (13, &[], 1),          // YEAR
        (4, &[4], 4),          // FLOAT
        (5, &[8], 8),          // DOUBLE
        (246, &[10, 2], 5),    // DECIMAL(10,2): 8 digits in 4 bytes, 2 in 1
        (246, &[65, 30], 30),  // DECIMAL(65,30): 16+14 with 35 and 30 digits
        (10, &[], 3),          // DATE
        (17, &[0], 4),         // TIMESTAMP
        (17, &[6], 7),         // TIMESTAMP(6)
        (18, &[3], 7),         // DATETIME(3)
        (19, &[2], 4),         // TIME(2)
        (15, &[10, 0], 4),     // VARCHAR of 10 bytes: a length of one byte, here 3
        (254, &[0xfe, 30], 4), // CHAR of 30 bytes
        (254, &[0xf7, 1], 1),  // ENUM
        (254, &[0xf8, 8], 8),  // SET of 64
        (16, &[0, 8], 8),      // BIT(64)
        (16, &[1, 1], 2),      // BIT(9)
        (252, &[1], 4),        // TINYBLOB
    ] {
        assert_eq!(value_len(code, metadata, &bytes), len, "type {code} {metadata:?}");
    }
    // Lengths of more than one byte.
    let long = [&[2, 1][..], &[7; 300]].concat();
    assert_eq!(value_len(15, &[0, 4], &long), 2 + 258, "VARCHAR of 1024 bytes");
    assert_eq!(value_len(254, &[0xee, 0], &long), 2 + 258, "CHAR of 256 bytes");
    let json = [&[5, 0, 0, 0][..], &[7; 10]].concat();
    assert_eq!(value_len(245, &[4], &json), 9, "JSON");
    assert_eq!(value_len(242, &[4], &json), 9, "VECTOR");
    assert_eq!(value_len(255, &[4], &json), 9, "GEOMETRY");
    assert!(columns(&[20], &[], &[]).is_err(), "a type of no row image");
}

#[test]
fn collations_follow_their_columns() {
    // INT, VARCHAR, TEXT, ENUM, CHAR; the charset field names the three character columns.
    let codes = [3, 15, 252, 254, 254];
    let metadata = [10, 0, 2, 0xf7, 1, 0xfe, 30];
    let own = [3, 5, 46, 252, 255, 0, 8];
    let collations = |optional: &[u8]| {
        let columns = columns(&codes, &metadata, optional).unwrap();
        columns.iter().map(|column| column.collation).collect::<Vec<_>>()
    };
    assert_eq!(collations(&own), [None, Some(46), Some(255), None, Some(8)]);
    // A default of 46, the second character column 63.
    assert_eq!(collations(&[2, 3, 46, 1, 63]), [None, Some(46), Some(63), None, Some(46)]);
    assert_eq!(collations(&[]), [None; 5]);
    // VECTOR is among the character columns; as MySQL 9.7 writes VARBINARY, VECTOR, GEOMETRY, TEXT.
    let codes = [15, 242, 255, 252];
    let metadata = [12, 0, 4, 4, 2];
    let collations = |optional: &[u8]| {
        let columns = columns(&codes, &metadata, optional)?;
        Ok::<_, EventError>(columns.iter().map(|column| column.collation).collect::<Vec<_>>())
    };
    let own = collations(&[3, 3, 63, 63, 8]).unwrap();
    assert_eq!(own, [Some(63), Some(63), None, Some(8)]);
    // It is unknown which collation is for which column.
    assert!(collations(&[3, 4, 63, 63, 63, 8]).is_err());
}

#[test]
fn nulls_and_left_out_columns_are_told_apart() {
    let map = int_table_map(1, "d", "t", 3);
    let columns = TableMap::parse(map.body()).unwrap().columns().unwrap();
    let mut found = Vec::new();
    let image = int_image(&[None, Some(5)]);
    let end = scan_image(&columns, &[0b101], &image, &[0, 1, 2], |_, value| found.push(value));
    assert_eq!(end.unwrap(), image.len());
    assert_eq!(found, [Value::Null, Value::Absent, Value::At(1..5)]);
}

proptest! {
    /// Any bytes give an error or an image within them.
    #[test]
    fn no_bytes_break_the_parsers(
        body in prop::collection::vec(any::<u8>(), 0..200),
        flip in any::<prop::sample::Index>(),
        with in 1_u8..,
    ) {
        let scan = |columns: &[Column], event: &RowsEvent<'_>| {
            let mut rest = event.images;
            while !rest.is_empty() {
                let bitmap = if event.kind == RowsKind::Write { event.after } else { event.before };
                match scan_image(columns, bitmap, rest, &[0, 2], |_, _| {}) {
                    Ok(end) if end > 0 => rest = &rest[end..],
                    _ => break,
                }
            }
        };
        let _ = TableMap::parse(&body).and_then(|map| map.columns());
        // A well-formed pair with one byte changed, followed by random bytes.
        let mut map = int_table_map(1, "d", "t", 3).body().to_vec();
        map.extend(&body);
        let at = flip.index(map.len());
        map[at] ^= with;
        let images = [int_image(&[Some(1), None, Some(3)]), body].concat();
        let mut rows = rows_event(EventType::WRITE_ROWS, 1, 3, &images).body().to_vec();
        let at = flip.index(rows.len());
        rows[at] ^= with;
        let columns = TableMap::parse(&map).and_then(|map| map.columns()).unwrap_or_default();
        for event_type in [EventType::WRITE_ROWS, EventType::UPDATE_ROWS, EventType::DELETE_ROWS] {
            if let Ok(Some(event)) = RowsEvent::parse(event_type, &rows) {
                scan(&columns, &event);
            }
        }
    }
}

/// An update of `(a INT, j JSON, k JSON)` with `k` as changes in its after image.
#[test]
fn partial_updates_say_which_documents_are_changes() {
    let columns = columns(&[3, 245, 245], &[4, 4], &[]).unwrap();
    let json = |bytes: &[u8]| [&u32::try_from(bytes.len()).unwrap().to_le_bytes(), bytes].concat();
    let a = 7_i32.to_le_bytes();
    let before = [&[0][..], &a, &json(b"jjj"), &json(b"kk")].concat();
    let after = |options: &[u8]| [options, &[0], &a, &json(b"jj"), &json(b"dk")].concat();
    let body = |images: &[u8]| {
        let head = [&[1, 0, 0, 0, 0, 0, 1, 0, 2, 0, 3][..], &[7, 7]].concat();
        [&head, images].concat()
    };
    let read = |images: &[u8]| {
        let body = body(images);
        let event = RowsEvent::parse_any(EventType::PARTIAL_UPDATE_ROWS, &body).unwrap().unwrap();
        let (mut before, mut after) = (Vec::new(), Vec::new());
        let len = event.read_row(&columns, images, &mut before, &mut after)?;
        assert_eq!(len, images.len());
        assert_eq!(before, [Field::Bytes(&a), Field::Bytes(b"jjj"), Field::Bytes(b"kk")]);
        let debug = format!("{:?}", after.iter().skip(1).collect::<Vec<_>>());
        Ok::<_, EventError>(debug)
    };
    let of = |second: &str| format!("[Bytes([106, 106]), {second}([100, 107])]");
    let (changed, whole) = (of("JsonDiff"), of("Bytes"));
    // The second of the two documents.
    assert_eq!(read(&[before.clone(), after(&[1, 2])].concat()).unwrap(), changed);
    assert_eq!(read(&[before.clone(), after(&[0])].concat()).unwrap(), whole);
    assert!(read(&[before, after(&[2])].concat()).is_err(), "unknown options");
}

#[test]
fn signs_and_names_follow_their_columns() {
    // TINYINT UNSIGNED, YEAR, VARCHAR, INT, DECIMAL UNSIGNED: four have a sign.
    let optional =
        [&[1, 1, 0b1101_0000][..], &[4, 10, 1, b'a', 1, b'b', 1, b'c', 1, b'd', 1, b'e']].concat();
    let mut body = vec![1, 0, 0, 0, 0, 0, 1, 0, 1, b'd', 0, 1, b't', 0, 5, 1, 13, 15, 3, 246];
    body.extend([4, 10, 0, 5, 2, 0]);
    body.extend(&optional);
    let map = TableMap::parse(&body).unwrap();
    let columns = map.value_columns(true).unwrap();
    let integer = |place: usize| match columns[place].value_type {
        ValueType::Integer { unsigned, .. } => unsigned,
        other => panic!("{other:?}"),
    };
    assert_eq!((integer(0), integer(3)), (Some(true), Some(false)));
    assert_eq!(columns[4].value_type, ValueType::Decimal { precision: 5, scale: 2 });
    assert_eq!(columns[4].name.as_deref(), Some("e"));
    assert!(!map.has_generated_primary_key());
    body[6] = 4;
    assert!(TableMap::parse(&body).unwrap().has_generated_primary_key());
}

/// `(YEAR, BIGINT UNSIGNED, BIGINT)` as 8.0.15 and 8.0.31 log it.
#[test]
fn years_have_signs_only_in_later_versions() {
    let signs = |bits: u8, years_have_signs| {
        let mut body = b"\x67\0\0\0\0\0\x01\0\x01y\0\x01t\0\x03\x0d\x08\x08\0\x07\x01\x01".to_vec();
        body.push(bits);
        let columns = TableMap::parse(&body).unwrap().value_columns(years_have_signs).unwrap();
        [1, 2].map(|place: usize| match columns[place].value_type {
            ValueType::Integer { unsigned, .. } => unsigned,
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(signs(0xc0, true), [Some(true), Some(false)]);
    // It is not known whether the first bit is the YEAR's, so the second column is in doubt.
    assert_eq!(signs(0xc0, false), [Some(true), None]);
    assert_eq!(signs(0x80, false), [None, Some(false)]);
}
