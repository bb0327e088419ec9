//! Columns of every width have the same bytes for the same values.

use proptest::prelude::*;

use super::*;

fn bytes_of(class: &KeyClass, column_type: ColumnType, value: &[u8]) -> Vec<u8> {
    let column = Column { column_type, collation: None };
    let mut out = Vec::new();
    let part = PartBytes::of(class, &column).expect("the same type");
    assert!(part.append(value, &mut out), "{column_type:?} {value:?}");
    out
}

fn integer(value: &[u8]) -> Vec<u8> {
    bytes_of(&KeyClass::Integer, ColumnType::Integer(value.len() as u8), value)
}

/// The widths of integers, in bytes.
const WIDTHS: [usize; 5] = [1, 2, 3, 4, 8];

/// All images of a number, signed and unsigned.
fn images(value: i128) -> impl Iterator<Item = Vec<u8>> {
    let fits = move |width: &usize| {
        let end = 1_i128 << (8 * width);
        (-end / 2..end).contains(&value)
    };
    let image = move |width: usize| value.to_le_bytes()[..width].to_vec();
    WIDTHS.into_iter().filter(fits).map(image)
}

/// An unpacked DECIMAL without zeros at either end, and zeros that its column adds.
#[derive(Debug, Clone)]
struct Decimal {
    is_negative: bool,
    integral: String,
    fraction: String,
}

impl Decimal {
    /// Returns the image in a column with so many more digits (`decimal2bin` in strings/decimal.cc).
    fn image(&self, [before, after]: [usize; 2]) -> (ColumnType, Vec<u8>) {
        let integral = "0".repeat(before) + &self.integral;
        let fraction = self.fraction.clone() + &"0".repeat(after);
        let mut image = Vec::new();
        let mut push = |digits: &str| {
            let group: u32 = digits.parse().unwrap();
            image.extend_from_slice(&group.to_be_bytes()[4 - GROUP_BYTES[digits.len()]..]);
        };
        let (first, rest) = integral.split_at(integral.len() % GROUP);
        let groups = rest.as_bytes().chunks(GROUP).chain(fraction.as_bytes().chunks(GROUP));
        let groups = groups.map(|group| std::str::from_utf8(group).unwrap());
        Some(first).into_iter().filter(|first| !first.is_empty()).chain(groups).for_each(&mut push);
        if self.is_negative {
            image.iter_mut().for_each(|byte| *byte = !*byte);
        }
        image[0] ^= 0x80;
        let (precision, scale) = (integral.len() + fraction.len(), fraction.len());
        (ColumnType::Decimal(precision as u8, scale as u8), image)
    }

    fn bytes(&self, zeros: [usize; 2]) -> Vec<u8> {
        let (column_type, image) = self.image(zeros);
        bytes_of(&KeyClass::Decimal, column_type, &image)
    }
}

fn decimal() -> impl Strategy<Value = Decimal> {
    let digits = (any::<bool>(), "([1-9][0-9]{0,28})?", "([0-9]{0,28}[1-9])?");
    let decimal = digits.prop_map(|(is_negative, integral, fraction)| Decimal {
        is_negative,
        integral,
        fraction,
    });
    decimal.prop_filter("no digit at all", |it| !(it.integral.is_empty() && it.fraction.is_empty()))
}

fn temporal(kind: TemporalType, value: &[u8]) -> Vec<u8> {
    let column_type = ColumnType::Temporal(kind, value.len() as u8);
    bytes_of(&KeyClass::Temporal(kind), column_type, value)
}

/// The image of `whole` units and a fraction in the precision that has so many bytes, in a value of `bytes` bytes
/// without it (`my_time_packed_to_binary` and related functions in mysys/my_time.cc).
fn temporal_image(
    bytes: usize,
    offset: i64,
    (whole, micros): (i64, i64),
    fraction: usize,
) -> Vec<u8> {
    let packed = (whole.abs() << 24 | micros) * whole.signum();
    let unit = [1, 10_000, 100, 1][fraction];
    // In C++ the whole part is shifted, and the fraction has the sign of the number.
    let (high, low) = (packed >> 24, packed % (1 << 24) / unit);
    if fraction == 3 {
        return (packed + (offset << 24)).to_be_bytes()[8 - bytes - 3..].to_vec();
    }
    let (high, low) = ((high + offset).to_be_bytes(), low.to_be_bytes());
    [&high[8 - bytes..], &low[8 - fraction..]].concat()
}

proptest! {
    #[test]
    fn integers_are_the_same_in_every_width(
        value in prop_oneof![any::<i64>().prop_map(i128::from), any::<u64>().prop_map(i128::from), -300..70_000_i128],
    ) {
        let all: Vec<_> = images(value).map(|image| integer(&image)).collect();
        prop_assert!(!all.is_empty() && all.iter().all(|bytes| *bytes == all[0]), "{all:?}");
        prop_assert_eq!(all[0].len(), 8);
    }

    #[test]
    fn decimals_are_the_same_in_every_width(
        (one, other) in (decimal(), decimal()),
        zeros in prop::array::uniform2(1..20_usize),
    ) {
        let bytes = one.bytes([1, 0]);
        prop_assert_eq!(&one.bytes(zeros), &bytes);
        let text = |it: &Decimal| (it.is_negative, it.integral.clone(), it.fraction.clone());
        prop_assert_eq!(bytes == other.bytes(zeros), text(&one) == text(&other));
    }

    #[test]
    fn times_are_the_same_in_every_precision(
        whole in 1..(1_i64 << 22), is_negative in any::<bool>(), hundredths in 0..100_i64,
    ) {
        let sign = if is_negative { -1 } else { 1 };
        let value = (sign * whole, hundredths * 10_000);
        let all = |kind, bytes, offset, value| {
            let first = usize::from(hundredths != 0);
            let image = move |fraction| temporal_image(bytes, offset, value, fraction);
            (first..4).map(move |fraction| temporal(kind, &image(fraction))).collect::<Vec<_>>()
        };
        let times = all(TemporalType::Time, 3, 0x80_0000, value);
        prop_assert!(times.iter().all(|time| *time == times[0]), "{times:?}");
        let value = (whole, value.1);
        for times in [
            all(TemporalType::DateTime, 5, 0x80_0000_0000, value),
            all(TemporalType::Timestamp, 4, 0, value),
        ] {
            prop_assert!(times.iter().all(|time| *time == times[0]), "{times:?}");
        }
    }
}

#[test]
fn integers_keep_what_tells_them_apart() {
    let mut numbers: Vec<_> =
        (0..0xfeff_u32).map(|number| integer(&number.to_le_bytes())).collect();
    numbers.sort_unstable();
    numbers.dedup();
    // 0xFF is 0x00 where nothing else is above it.
    assert_eq!(numbers.len(), 0xfeff - 1);
    // Only these share one with 0.
    for number in [-1_i32, 255, 0xff00, 0xff_0000] {
        assert_eq!(integer(&number.to_le_bytes()), [0; 8], "{number:#x}");
    }
}

#[test]
fn formats_from_before_5_6_4_are_the_same() {
    let old = |kind, value: &[u8]| {
        bytes_of(&KeyClass::Temporal(kind), ColumnType::OldTemporal(kind), value)
    };
    // 2024-02-29 11:34:08, and -838:59:59.
    let seconds = 1_709_206_448_u32;
    assert_eq!(
        old(TemporalType::Timestamp, &seconds.to_le_bytes()),
        temporal(TemporalType::Timestamp, &seconds.to_be_bytes())
    );
    let packed = 0x80_0000_0000 | ((2024_u64 * 13 + 2) << 5 | 29) << 17 | 11 << 12 | 34 << 6 | 8;
    assert_eq!(
        old(TemporalType::DateTime, &20_240_229_113_408_u64.to_le_bytes()),
        temporal(TemporalType::DateTime, &packed.to_be_bytes()[3..])
    );
    let time = 0x80_0000_i32 - (838 << 12 | 59 << 6 | 59);
    assert_eq!(
        old(TemporalType::Time, &(-8_385_959_i32).to_le_bytes()[..3]),
        temporal(TemporalType::Time, &time.to_be_bytes()[1..])
    );
}

#[test]
fn numbers_of_members_and_bits_are_the_same_in_every_width() {
    let members = |class: &KeyClass, column_type, image: &[u8]| bytes_of(class, column_type, image);
    assert_eq!(
        members(&KeyClass::Enum, ColumnType::Enum(1), &[200]),
        members(&KeyClass::Enum, ColumnType::Enum(2), &[200, 0])
    );
    assert_eq!(
        members(&KeyClass::Set, ColumnType::Set(1), &[200]),
        members(&KeyClass::Set, ColumnType::Set(8), &[200, 0, 0, 0, 0, 0, 0, 0])
    );
    assert_eq!(
        members(&KeyClass::Bit, ColumnType::Bit(1), &[200]),
        members(&KeyClass::Bit, ColumnType::Bit(3), &[0, 0, 200])
    );
}

#[test]
fn other_types_are_no_keys() {
    for (class, column_type) in [
        (KeyClass::Integer, ColumnType::Year),
        (KeyClass::Year, ColumnType::Integer(1)),
        (KeyClass::Enum, ColumnType::Set(1)),
        (KeyClass::Double, ColumnType::Float),
        (KeyClass::Temporal(TemporalType::DateTime), ColumnType::Temporal(TemporalType::Date, 3)),
        (
            KeyClass::Temporal(TemporalType::DateTime),
            ColumnType::Temporal(TemporalType::Timestamp, 4),
        ),
        (KeyClass::Unknown, ColumnType::Integer(4)),
    ] {
        let column = Column { column_type, collation: None };
        assert!(PartBytes::of(&class, &column).is_none(), "{class:?} {column_type:?}");
    }
}
