//! The lines of the demonstration.

use std::fmt::Display;
use std::io::{Write, stdout};
use std::time::{Duration, Instant};

use super::standing::{Peak, Standing};

/// Numbers the steps before the load.
#[derive(Debug, Default)]
pub(super) struct Steps {
    number: u32,
}

impl Steps {
    /// Prints what the step does, and once it is done the time that it took.
    pub(super) async fn step<T>(&mut self, text: impl Display, work: impl Future<Output = T>) -> T {
        self.number += 1;
        print!("{}. {text} ... ", self.number);
        let _ = stdout().flush();
        let started = Instant::now();
        let outcome = work.await;
        println!("{}", seconds(started.elapsed()));
        outcome
    }
}

/// The two lines over the line of each second.
pub(super) fn heading() -> String {
    format!(
        "{:26}{:^22}  {:^22}\n{:>6}  {:<7} {:>9}  {:>8} {:>8}      {:>8} {:>8}",
        "",
        "csa-daemon",
        "native replica",
        "time",
        "phase",
        "trx/s",
        "lag",
        "backlog",
        "lag",
        "backlog"
    )
}

/// Returns the line of a second; `rate` is the source's.
pub(super) fn line(
    elapsed: Duration,
    phase: &str,
    rate: f64,
    csa: Standing,
    native: Standing,
) -> String {
    let elapsed = format!("{:.1}", elapsed.as_secs_f64());
    let rate = count(rate.round() as u64);
    let text = format!("{elapsed:>6}  {phase:<7} {rate:>9}  {} {}", side(csa), side(native));
    text.trim_end().to_owned()
}

fn side(standing: Standing) -> String {
    let note = if standing.is_reachable { "" } else { "down" };
    format!("{:>8} {:>8} {note:<4}", seconds(standing.lag), count(standing.backlog))
}

/// Returns seconds with one decimal.
pub(super) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// Returns a number with its thousands set apart.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The figures of the last five lines.
#[derive(Debug)]
pub(super) struct Summary {
    /// All transactions of the load, and how long it ran.
    pub(super) transactions: u64,
    pub(super) load: Duration,
    /// Transactions per second on the source in the burst.
    pub(super) burst_rate: f64,
    /// The worst without the time in which it was killed.
    pub(super) csa: Peak,
    /// The worst from the kill until the end of the recovery.
    pub(super) csa_killed: Peak,
    pub(super) native: Peak,
    pub(super) recovered: Duration,
    /// The part of it that the target's mysqld took.
    pub(super) target_back: Duration,
    pub(super) csa_drained: Duration,
    /// Absent if it took longer than the patience.
    pub(super) native_drained: Option<Duration>,
    pub(super) patience: Duration,
    /// The tables and rows that were compared.
    pub(super) tables: u64,
    pub(super) rows: u64,
    pub(super) is_equal: bool,
}

impl Summary {
    pub(super) fn lines(&self) -> [String; 5] {
        let native_drained = match self.native_drained {
            Some(time) => format!("after {}", seconds(time)),
            None => format!("not within {}", seconds(self.patience)),
        };
        let (lost, equal) = match self.is_equal {
            true => ("nothing lost", "EQUAL"),
            false => ("but tables differ", "DIFFERENT"),
        };
        [
            format!(
                "load:     {} transactions in {}, {} per second in the burst",
                count(self.transactions),
                seconds(self.load),
                count(self.burst_rate.round() as u64),
            ),
            format!(
                "peak lag: csa-daemon {} ({} when killed), native replica {}",
                seconds(self.csa.lag),
                seconds(self.csa_killed.lag),
                seconds(self.native.lag),
            ),
            format!(
                "drained:  csa-daemon after {}, native replica {native_drained}",
                seconds(self.csa_drained),
            ),
            format!(
                "killed:   csa-daemon and its target; recovered after {} (its mysqld took {}), {lost}",
                seconds(self.recovered),
                seconds(self.target_back),
            ),
            format!(
                "{equal}: {} tables, {} rows of the source and csa-daemon's target, by content",
                count(self.tables),
                count(self.rows),
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        let texts = [0, 7, 123, 1234, 12_345, 123_456, 1_234_567].map(count);
        assert_eq!(texts, ["0", "7", "123", "1,234", "12,345", "123,456", "1,234,567"]);
    }

    #[test]
    fn figures_end_where_their_headings_end() {
        let csa = Standing { lag: Duration::from_millis(440), backlog: 512, is_reachable: true };
        let native = Standing { lag: Duration::from_secs(12), backlog: 45_678, is_reachable: true };
        let text = line(Duration::from_millis(7_040), "burst", 6230.6, csa, native);
        let words: Vec<&str> = text.split_whitespace().collect();
        assert_eq!(words.join(" "), "7.0 burst 6,231 0.4 s 512 12.0 s 45,678");
        let heading = heading();
        let heading = heading.lines().last().unwrap();
        let ends = |line: &str, word: &str| line.find(word).unwrap() + word.len();
        assert_eq!(ends(heading, "trx/s"), ends(&text, "6,231"));
        assert_eq!(ends(heading, "lag"), ends(&text, "0.4 s"));
        assert_eq!(ends(heading, "backlog"), ends(&text, "512"));
        assert_eq!(heading.len(), text.len());
    }

    #[test]
    fn a_server_that_is_down_is_marked() {
        let down = Standing::default();
        assert!(line(Duration::ZERO, "killed", 0.0, down, down).contains("down"));
    }

    fn summary() -> Summary {
        let peak = |millis| Peak { lag: Duration::from_millis(millis), backlog: 9 };
        Summary {
            transactions: 61_234,
            load: Duration::from_secs(25),
            burst_rate: 7_000.4,
            csa: peak(700),
            csa_killed: peak(4_200),
            native: peak(11_000),
            recovered: Duration::from_millis(4_300),
            target_back: Duration::from_millis(3_100),
            csa_drained: Duration::from_millis(100),
            native_drained: Some(Duration::from_millis(9_500)),
            patience: Duration::from_secs(120),
            tables: 6,
            rows: 40_101,
            is_equal: true,
        }
    }

    #[test]
    fn the_summary_has_the_figures() {
        let [load, lag, drained, killed, equal] = summary().lines();
        assert_eq!(load, "load:     61,234 transactions in 25.0 s, 7,000 per second in the burst");
        assert_eq!(lag, "peak lag: csa-daemon 0.7 s (4.2 s when killed), native replica 11.0 s");
        assert_eq!(drained, "drained:  csa-daemon after 0.1 s, native replica after 9.5 s");
        assert!(
            killed.ends_with("recovered after 4.3 s (its mysqld took 3.1 s), nothing lost"),
            "{killed}"
        );
        assert!(equal.starts_with("EQUAL: 6 tables, 40,101 rows"), "{equal}");
    }

    #[test]
    fn the_summary_promises_nothing_when_tables_differ() {
        let summary = Summary { is_equal: false, native_drained: None, ..summary() };
        let [_, _, drained, killed, equal] = summary.lines();
        assert!(drained.ends_with("native replica not within 120.0 s"), "{drained}");
        assert!(!killed.contains("nothing lost"), "{killed}");
        assert!(equal.starts_with("DIFFERENT: "), "{equal}");
    }
}
