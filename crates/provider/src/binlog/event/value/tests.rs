use mysql_common::binlog::decimal::Decimal;
use proptest::prelude::*;

use super::*;

fn read(value_type: ValueType, bytes: &[u8]) -> ColumnValue<'_> {
    ColumnValue::read(value_type, false, bytes).unwrap()
}

#[test]
fn integers_have_the_sign_that_the_source_tells() {
    let integer = |bytes, unsigned| ValueType::Integer { bytes, unsigned };
    let minus_one = [0xff; 8];
    for bytes in [1, 2, 3, 4, 8] {
        let image = &minus_one[..usize::from(bytes)];
        assert_eq!(read(integer(bytes, Some(false)), image), ColumnValue::Signed(-1));
        let most = u64::MAX >> (64 - u32::from(bytes) * 8);
        assert_eq!(read(integer(bytes, Some(true)), image), ColumnValue::Unsigned(most));
        // Not logged: the sign of the target's column.
        let value = ColumnValue::read(integer(bytes, None), true, image).unwrap();
        assert_eq!(value, ColumnValue::Unsigned(most));
    }
    assert_eq!(read(integer(3, Some(false)), &[0, 0, 0x80]), ColumnValue::Signed(-8_388_608));
    assert_eq!(read(ValueType::Year, &[0]), ColumnValue::Year(0));
    assert_eq!(read(ValueType::Year, &[255]), ColumnValue::Year(2155));
    assert_eq!(read(ValueType::Bit { bits: 9 }, &[1, 2]), ColumnValue::Number(258));
    assert_eq!(read(ValueType::Set { bytes: 8 }, &[255; 8]), ColumnValue::Number(u64::MAX));
}

/// Images as MySQL writes them.
#[test]
fn dates_and_times_are_read_as_they_are() {
    let text = |value_type, bytes: &[u8]| match read(value_type, bytes) {
        ColumnValue::Date(value) => value.to_string(),
        ColumnValue::Time(value) => value.to_string(),
        ColumnValue::DateTime(value) | ColumnValue::Timestamp(value) => value.to_string(),
        other => panic!("{other:?}"),
    };
    let time = |fraction| ValueType::Time { fraction };
    for (value_type, bytes, expected) in [
        (ValueType::Date, &[0, 0, 0][..], "0000-00-00"),
        (ValueType::Date, &[0x9f, 0x1f, 0x4e], "9999-12-31"),
        (time(0), &[0x80, 0x00, 0x00], "00:00:00"),
        (time(0), &[0xb4, 0x6e, 0xfb], "838:59:59"),
        (time(0), &[0x4b, 0x91, 0x05], "-838:59:59"),
        // -00:00:01.25 in hundredths, ten-thousandths and millionths.
        (time(2), &[0x7f, 0xff, 0xfe, 0xe7], "-00:00:01.250000"),
        (time(4), &[0x7f, 0xff, 0xfe, 0xf6, 0x3c], "-00:00:01.250000"),
        (time(6), &[0x7f, 0xff, 0xfe, 0xfc, 0x2f, 0x70], "-00:00:01.250000"),
        (time(6), &[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff], "-00:00:00.000001"),
        (ValueType::DateTime { fraction: 0 }, &[0x80, 0, 0, 0, 0], "0000-00-00 00:00:00"),
        // 8385959 and its negative, as MySQL 5.5 stored them.
        (ValueType::Old(OldTemporal::Time), &[0xa7, 0xf5, 0x7f], "838:59:59"),
        (ValueType::Old(OldTemporal::Time), &[0x59, 0x0a, 0x80], "-838:59:59"),
        (ValueType::Old(OldTemporal::Time), &[0, 0, 0], "00:00:00"),
        (ValueType::Old(OldTemporal::Time), &[0x01, 0, 0], "00:00:01"),
        (ValueType::Old(OldTemporal::DateTime), &[0; 8], "0000-00-00 00:00:00"),
        (
            ValueType::Old(OldTemporal::DateTime),
            &20_240_229_235_958_u64.to_le_bytes(),
            "2024-02-29 23:59:58",
        ),
        (ValueType::Old(OldTemporal::Timestamp), &[0; 4], "0000-00-00 00:00:00"),
        (ValueType::Old(OldTemporal::Timestamp), &[0xb0, 0x6b, 0xe0, 0x65], "2024-02-29 11:34:08"),
        (
            ValueType::DateTime { fraction: 3 },
            &[0x99, 0xb2, 0xba, 0xc0, 0x00, 0x04, 0xce],
            "2024-02-29 12:00:00.123000",
        ),
        (ValueType::Timestamp { fraction: 0 }, &[0; 4], "0000-00-00 00:00:00"),
        (ValueType::Timestamp { fraction: 0 }, &[0, 0, 0, 1], "1970-01-01 00:00:01"),
        (
            ValueType::Timestamp { fraction: 6 },
            &[0x7f, 0xff, 0xff, 0xff, 0x0f, 0x42, 0x3f],
            "2038-01-19 03:14:07.999999",
        ),
        (ValueType::Timestamp { fraction: 0 }, &[0x65, 0xe0, 0x6b, 0xb0], "2024-02-29 11:34:08"),
    ] {
        assert_eq!(text(value_type, bytes), expected, "{value_type:?} {bytes:x?}");
    }
}

#[test]
fn json_keeps_the_types_of_its_values() {
    // {"a": -1, "b": [true, 5 unsigned, "x"]}: offsets count from each container's own start.
    let array = [2, 3, 0, 15, 0, 4, 1, 0, 6, 5, 0, 12, 13, 0, 1, b'x'];
    let mut document = vec![0, 2, 0, 0, 0, 18, 0, 1, 0, 19, 0, 1, 0, 5, 0xff, 0xff, 2, 20, 0];
    document.extend(b"ab");
    document.extend(&array[1..]);
    let size = u16::try_from(document.len() - 1).unwrap();
    document[3..5].copy_from_slice(&size.to_le_bytes());
    let value = JsonValue::parse(&document).unwrap();
    let elements = vec![JsonValue::Bool(true), JsonValue::UInt(5), JsonValue::String(b"x")];
    let members = vec![(&b"a"[..], JsonValue::Int(-1)), (&b"b"[..], JsonValue::Array(elements))];
    assert_eq!(value, JsonValue::Object(members));
    assert_eq!(JsonValue::parse(&[]).unwrap(), JsonValue::Null);
    let decimal = [15, 246, 4, 3, 2, 0x81, 0x19];
    assert_eq!(JsonValue::parse(&decimal).unwrap(), JsonValue::Decimal("1.25".to_owned()));
    assert!(JsonValue::parse(&[13]).is_err(), "an unknown type");
}

/// Arrays of two elements that share one array: 2^50 values in some 500 bytes.
#[test]
fn values_that_share_their_bytes_are_refused() {
    let mut inner = vec![0, 0, 4, 0];
    for _ in 0..50 {
        let size = u16::try_from(inner.len() + 10).unwrap();
        let mut outer = vec![2, 0];
        outer.extend_from_slice(&size.to_le_bytes());
        outer.extend_from_slice(&[2, 10, 0, 2, 10, 0]);
        outer.extend_from_slice(&inner);
        inner = outer;
    }
    inner.insert(0, 2);
    assert!(inner.len() < 600);
    assert!(JsonValue::parse(&inner).is_err());
}

#[test]
fn changes_of_documents_are_read() {
    let diffs = [&[0, 3][..], b"$.a", &[3, 5, 7, 0], &[2, 3], b"$.b", &[1, 4], b"$[0]", &[2, 4, 0]]
        .concat();
    let diffs = JsonDiff::parse(&diffs).unwrap();
    let replaced = Some(JsonValue::Int(7));
    assert_eq!(
        diffs[0],
        JsonDiff { operation: JsonOperation::Replace, path: b"$.a", value: replaced }
    );
    assert_eq!(diffs[1], JsonDiff { operation: JsonOperation::Remove, path: b"$.b", value: None });
    assert_eq!((diffs.len(), &diffs[2].value), (3, &Some(JsonValue::Null)));
    assert!(JsonDiff::parse(&[3, 0]).is_err(), "an unknown operation");
}

fn any_type() -> impl Strategy<Value = ValueType> {
    prop_oneof![
        (1..=8_u8, any::<Option<bool>>())
            .prop_map(|(bytes, unsigned)| ValueType::Integer { bytes, unsigned }),
        (any::<u8>(), any::<u8>())
            .prop_map(|(precision, scale)| ValueType::Decimal { precision, scale }),
        any::<u8>().prop_map(|fraction| ValueType::Time { fraction }),
        any::<u8>().prop_map(|fraction| ValueType::DateTime { fraction }),
        any::<u8>().prop_map(|fraction| ValueType::Timestamp { fraction }),
        any::<u16>().prop_map(|bits| ValueType::Bit { bits }),
        any::<u8>().prop_map(|bytes| ValueType::Set { bytes }),
        Just(ValueType::Date),
        Just(ValueType::Double),
        Just(ValueType::Old(OldTemporal::Time)),
        Just(ValueType::Old(OldTemporal::DateTime)),
        Just(ValueType::Old(OldTemporal::Timestamp)),
    ]
}

#[test]
fn doubles_in_json_have_an_exponent_where_the_server_shows_one() {
    for (number, shown) in [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (0.1, "0.1"),
        (5e-5, "0.00005"),
        (1e-15, "0.000000000000001"),
        (1e-16, "1e-16"),
        (-1.25e-17, "-1.25e-17"),
        (1e14, "100000000000000.0"),
        (1e15, "1e15"),
        (1_234_567_890_123_456.0, "1.234567890123456e15"),
        (1_234_567_890_123_456.8, "1234567890123456.8"),
        (1.5e300, "1.5e300"),
    ] {
        let mut text = Vec::new();
        JsonValue::Double(number).push_text(JsonForm::Shown, &mut text).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), shown);
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        value_type in any_type(),
        bytes in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let _ = ColumnValue::read(value_type, false, &bytes);
        let _ = JsonDiff::parse(&bytes);
    }

    #[test]
    fn no_document_makes_it_panic(
        code in 0..16_u8,
        bytes in prop::collection::vec(prop_oneof![0..20_u8, any::<u8>()], 0..60),
    ) {
        let _ = JsonValue::parse(&[&[code], bytes.as_slice()].concat());
    }

    #[test]
    fn decimals_are_what_was_written(
        negative in any::<bool>(),
        integral in "(0|[1-9][0-9]{0,34})",
        fraction in "([0-9]{1,30})?",
        wider in 0..10_usize,
    ) {
        let precision = (integral.len() + fraction.len() + wider).min(65);
        prop_assume!(precision >= integral.len() + fraction.len());
        let zero = integral.bytes().chain(fraction.bytes()).all(|digit| digit == b'0');
        let sign = if negative && !zero { "-" } else { "" };
        let point = if fraction.is_empty() { "" } else { "." };
        let text = format!("{sign}{integral}{point}{fraction}");
        let padded = format!(
            "{sign}{integral:0>len$}{point}{fraction}",
            len = precision - fraction.len()
        );
        let mut bytes = Vec::new();
        Decimal::parse_str_bytes(padded.as_bytes()).unwrap().write_bin(&mut bytes).unwrap();
        let (precision, scale) = (precision as u8, fraction.len() as u8);
        // A number with only a fraction is packed without a digit before the point.
        prop_assume!(bytes.len() == packed_len(precision, scale));
        prop_assert_eq!(
            read(ValueType::Decimal { precision, scale }, &bytes),
            ColumnValue::Decimal(text)
        );
    }
}

fn packed_len(precision: u8, scale: u8) -> usize {
    const REST: [usize; 9] = [0, 1, 1, 2, 2, 3, 3, 4, 4];
    let digits = |digits: u8| usize::from(digits / 9) * 4 + REST[usize::from(digits % 9)];
    digits(precision - scale) + digits(scale)
}
