//! Figures in readable form. Pure.

/// Returns the size in units that are easy to read.
pub(super) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = "B";
    for larger in UNITS {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, larger);
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") }
}

/// Returns the time in one or two units that are easy to read.
pub(super) fn time(seconds: f64) -> String {
    let whole = seconds.round().max(0.0) as u64;
    let (minutes, hours) = (whole / 60, whole / 3600);
    match whole {
        _ if seconds < 0.0005 => "0 s".to_owned(),
        _ if seconds < 1.0 => format!("{:.0} ms", seconds * 1000.0),
        0..120 => format!("{seconds:.1} s"),
        120..7200 => format!("{minutes} min {} s", whole % 60),
        7200..172_800 => format!("{hours} h {} min", minutes % 60),
        _ => format!("{} d {} h", hours / 24, hours % 24),
    }
}

/// Returns the number with a comma after each thousand.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns the number and the noun, which has an s unless the number is 1.
pub(super) fn grouped_with(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_easy_to_read() {
        let times = [0.0, 0.25, 3.04, 119.0, 123.4, 7199.0, 7200.0, 100_000.0, 200_000.0].map(time);
        let expected = [
            "0 s",
            "250 ms",
            "3.0 s",
            "119.0 s",
            "2 min 3 s",
            "119 min 59 s",
            "2 h 0 min",
            "27 h 46 min",
            "2 d 7 h",
        ];
        assert_eq!(times, expected);
        assert_eq!([7, 1234, 1_234_567].map(grouped), ["7", "1,234", "1,234,567"]);
        let counts = [1, 1000].map(|number| grouped_with(number, "transaction"));
        assert_eq!(counts, ["1 transaction", "1,000 transactions"]);
        assert_eq!([512, 5 << 20].map(bytes), ["512 B", "5.0 MiB"]);
    }
}
