//! Values of FLOAT(M,D) and DOUBLE(M,D), which the server rounds and limits before it stores them
//! (`Field_real::truncate`). Pure.

use csa_provider::binlog::ColumnValue;

use crate::server::definitions::table::FixedPoint;

/// Returns the number to write so that such a column stores this value; `None` if it would store another one.
pub(super) fn number_to_write(fixed: FixedPoint, value: &ColumnValue<'_>) -> Option<f64> {
    let number = number(value)?;
    let is_value = |other: f64| match value {
        ColumnValue::Float(number) => (other as f32).to_bits() == number.to_bits(),
        _ => other.to_bits() == number.to_bits(),
    };
    // The nearest FLOAT to the largest number of the column may be larger, and would be refused.
    let limit = largest(fixed).copysign(number);
    if number.abs() > limit.abs() && is_value(limit) {
        return Some(limit);
    }
    // With as many digits as a DOUBLE has, rounding what was rounded may change the last bit.
    let near = [number, number.next_up(), number.next_down()];
    near.into_iter().find(|&near| is_value(rounded(fixed, near)))
}

/// Returns true if the nearest number to the largest of the column is beyond it, and is this value.
pub(super) fn is_beyond(fixed: FixedPoint, value: &ColumnValue<'_>) -> bool {
    number(value).is_some_and(|number| number.abs() > largest(fixed))
}

fn number(value: &ColumnValue<'_>) -> Option<f64> {
    match value {
        ColumnValue::Float(number) => Some(f64::from(*number)),
        ColumnValue::Double(number) => Some(*number),
        _ => None,
    }
}

fn largest(fixed: FixedPoint) -> f64 {
    power_of_ten(fixed.precision.saturating_sub(fixed.scale)) - 1.0 / power_of_ten(fixed.scale)
}

/// Rounds as the server does, which takes the digits before the point away first.
fn rounded(fixed: FixedPoint, number: f64) -> f64 {
    let (whole, power) = (number.floor(), power_of_ten(fixed.scale));
    whole + ((number - whole) * power).round_ties_even() / power
}

/// Returns the DOUBLE next to the power. `powi` need not return it.
fn power_of_ten(exponent: u8) -> f64 {
    format!("1e{exponent}").parse().unwrap_or(f64::INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn float(precision: u8, scale: u8, number: f32) -> Option<f64> {
        number_to_write(FixedPoint { precision, scale }, &ColumnValue::Float(number))
    }

    fn double(precision: u8, scale: u8, number: f64) -> Option<f64> {
        number_to_write(FixedPoint { precision, scale }, &ColumnValue::Double(number))
    }

    #[test]
    fn a_float_at_its_limit_is_written_as_the_limit() {
        assert_eq!(float(8, 2, 1e6), Some(999_999.99));
        assert_eq!(float(10, 2, -1e8), Some(-99_999_999.99));
        assert_eq!(float(8, 0, 1e8), Some(99_999_999.0));
        // The server refuses what is beyond.
        assert_eq!(float(7, 2, 1e6), Some(1e6));
        let limit = FixedPoint { precision: 8, scale: 2 };
        assert!(is_beyond(limit, &ColumnValue::Float(-1e6)));
        assert!(!is_beyond(limit, &ColumnValue::Float(999_999.94)));
    }

    #[test]
    fn what_would_be_rounded_is_not_written() {
        assert_eq!(float(7, 2, 1.2345), None);
        assert_eq!(double(9, 2, 1.2345), None);
        assert_eq!(double(9, 2, 1.0 / 3.0), None);
        assert_eq!(float(7, 2, -0.0), None, "the sign is lost");
    }

    #[test]
    fn what_the_column_holds_is_written_as_it_is() {
        // The server rounds -0.01 to the last of these.
        for number in [0.0, 0.1, 1.25, 123.45, 99_999.99, -0.010_000_000_000_000_009] {
            assert_eq!(double(9, 2, number), Some(number));
            let nearest = number as f32;
            assert_eq!(float(9, 2, nearest), Some(f64::from(nearest)), "{number}");
        }
    }

    #[test]
    fn what_would_be_rounded_again_is_written_as_its_neighbour() {
        for (stored, written) in [
            (-7.019_660_172_673_324_5, -7.019_660_172_673_325),
            (4.812_929_184_674_862_5, 4.812_929_184_674_863),
        ] {
            assert_eq!(double(20, 15, stored), Some(written));
        }
    }
}
