//! One limit, and what is known of its value. Pure.

use std::time::Duration;

use tokio::time::Instant;

use super::governor::Pressure;
use crate::observe::view::LimitView;

/// A value that has not been answered for this long no longer counts. More often the question is at fault (a
/// replica that was removed, a privilege, a query) than the target, whose own slowness holds the applier up
/// anyway.
pub(super) const FORGOTTEN: Duration = Duration::from_secs(30);
/// Below this part of the limit the rate rises; between it and the limit it stays.
const CALM: f64 = 0.8;

named! {
    /// A key of `[channel.throttle_by]`, or the answers of a source.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) enum MeasureKind {
        ThreadsRunning = "threads_running",
        ReplicaLag = "replica_lag",
        Query = "query",
        /// Milliseconds that small queries take.
        AnswerTime = "answer_milliseconds",
    }
}

/// A limit and its last values.
#[derive(Debug, Clone)]
pub(super) struct Measure {
    kind: MeasureKind,
    /// The server that is asked.
    server: String,
    limit: f64,
    value: Option<f64>,
    before: Option<f64>,
    /// True if it is newer than the last look.
    is_new: bool,
    /// The last answer, or the beginning.
    answered: Instant,
    error: Option<String>,
}

impl Measure {
    pub(super) fn new(kind: MeasureKind, server: String, limit: f64, now: Instant) -> Self {
        Self {
            kind,
            server,
            limit,
            value: None,
            before: None,
            is_new: false,
            answered: now,
            error: None,
        }
    }

    /// Notes an answer; true if it ends a time without any.
    pub(super) fn answered(&mut self, value: f64, now: Instant) -> bool {
        self.before = self.value.replace(value);
        (self.is_new, self.answered) = (true, now);
        self.error.take().is_some()
    }

    /// There was none; true if the reason is new.
    pub(super) fn failed(&mut self, why: String) -> bool {
        let is_new = self.error.is_none();
        self.error = Some(why);
        is_new
    }

    pub(super) fn look(&mut self, now: Instant) -> Pressure {
        let is_new = std::mem::take(&mut self.is_new);
        if self.is_forgotten(now) {
            return Pressure::Calm;
        }
        match self.value {
            _ if !is_new => Pressure::Hold,
            None => Pressure::Hold,
            Some(value) if value > self.limit => match self.before {
                Some(before) if value < before => Pressure::Hold,
                _ if self.limit > 0.0 => Pressure::Over(self.limit / value),
                _ => Pressure::Over(0.0),
            },
            Some(value) if value > self.limit - (1.0 - CALM) * self.limit.abs() => Pressure::Hold,
            Some(_) => Pressure::Calm,
        }
    }

    fn is_forgotten(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.answered) > FORGOTTEN
    }

    pub(super) fn view(&self, now: Instant) -> LimitView {
        let is_forgotten = self.is_forgotten(now);
        let silent = now.saturating_duration_since(self.answered).as_secs();
        let unanswered = self.error.as_ref().map(|error| match is_forgotten {
            true => format!("not counted, because unanswered for {silent} s: {error}"),
            false => format!("unanswered for {silent} s: {error}"),
        });
        let value = self.value.filter(|_| !is_forgotten);
        LimitView {
            key: self.kind.name().to_owned(),
            server: self.server.clone(),
            value,
            limit: self.limit,
            exceeded: value.is_some_and(|value| value > self.limit),
            unanswered,
        }
    }

    /// Returns the key and the server, for the log.
    pub(super) fn name(&self) -> String {
        format!("{} of {}", self.kind.name(), self.server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_judged_once_and_forgotten_late() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut measure = Measure::new(MeasureKind::ThreadsRunning, "t:1".to_owned(), 50.0, start);
        assert_eq!(measure.look(start), Pressure::Hold, "nothing is known yet");
        for (value, verdict) in [
            (30.0, Pressure::Calm),
            (45.0, Pressure::Hold),
            (50.0, Pressure::Hold),
            (100.0, Pressure::Over(0.5)),
            (99.0, Pressure::Hold),
            (99.0, Pressure::Over(50.0 / 99.0)),
            (40.0, Pressure::Calm),
            (80.0, Pressure::Over(0.625)),
        ] {
            measure.answered(value, start);
            assert_eq!(measure.look(start), verdict, "{value}");
            assert_eq!(measure.look(start), Pressure::Hold, "{value} again");
        }
        assert!(measure.failed("no answer".to_owned()), "the first");
        assert!(!measure.failed("still none".to_owned()));
        let late = start + FORGOTTEN;
        assert_eq!(measure.look(late), Pressure::Hold);
        assert!(measure.view(late).exceeded);
        let later = late + second;
        assert_eq!(
            measure.look(later),
            Pressure::Calm,
            "what is not known holds nothing up for ever"
        );
        let view = measure.view(later);
        assert!(!view.exceeded && view.value.is_none(), "{view:?}");
        let said = view.unanswered.expect("said");
        assert!(said.starts_with("not counted, because unanswered for 31 s: still none"), "{said}");
        assert!(measure.answered(60.0, later));
        assert_eq!(measure.look(later), Pressure::Hold, "less than before");
    }

    #[test]
    fn limits_of_zero_and_less_work() {
        let now = Instant::now();
        let look = |limit: f64, value: f64| {
            let mut measure = Measure::new(MeasureKind::Query, "t:1".to_owned(), limit, now);
            measure.answered(value, now);
            measure.look(now)
        };
        assert_eq!(look(0.0, 0.0), Pressure::Calm);
        assert_eq!(look(0.0, 1.0), Pressure::Over(0.0));
        assert_eq!(look(-10.0, -9.0), Pressure::Over(0.0));
        assert_eq!(look(-10.0, -11.0), Pressure::Hold);
        assert_eq!(look(-10.0, -12.0), Pressure::Calm);
    }
}
