//! The throttle by health of the target.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// `[channel.throttle_by]`, while the channel applies.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ThrottleByView {
    /// Transactions per second that are permitted now; absent while nothing is held back.
    pub(crate) rate: Option<u32>,
    /// The time at which it began.
    pub(crate) since: Option<String>,
    pub(crate) limits: Vec<LimitView>,
}

/// A limit, and the last value of the server that is asked.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LimitView {
    /// `threads_running`, `replica_lag` (in seconds) or `query`.
    pub(crate) key: String,
    pub(crate) server: String,
    /// Absent while it is not known.
    pub(crate) value: Option<f64>,
    pub(crate) limit: f64,
    pub(crate) exceeded: bool,
    /// The reason why the last question was not answered.
    pub(crate) unanswered: Option<String>,
}

impl ThrottleByView {
    /// Returns the limits that are exceeded, in words.
    pub(crate) fn reasons(limits: &[LimitView]) -> String {
        let exceeded = limits.iter().filter(|limit| limit.exceeded);
        let said: Vec<String> = exceeded
            .map(|LimitView { key, server, value, limit, .. }| {
                format!("{key} of {server} is {}, limit {limit}", short(value.unwrap_or_default()))
            })
            .collect();
        match said.is_empty() {
            true => "rising again, since every limit is kept".to_owned(),
            false => said.join(", "),
        }
    }

    /// Returns the rate and its reason, and questions that nobody answers; nothing while all is
    /// well.
    pub(crate) fn sentence(&self) -> String {
        let mut text = String::new();
        // Writing to a String can't fail.
        if let Some(rate) = self.rate {
            let reasons = Self::reasons(&self.limits);
            let _ = write!(text, "throttled to {rate} transactions/s: {reasons}");
        }
        for LimitView { key, server, unanswered, .. } in &self.limits {
            let Some(why) = unanswered else { continue };
            let between = if text.is_empty() { "" } else { "; " };
            let _ = write!(text, "{between}throttle_by.{key} of {server}: {why}");
        }
        text
    }
}

/// Values are shown with one decimal, whole ones without.
fn short(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_names_limits_and_silence() {
        let limit = LimitView {
            key: "threads_running".to_owned(),
            server: "t:3306".to_owned(),
            value: Some(83.0),
            limit: 50.0,
            exceeded: true,
            unanswered: None,
        };
        let silent = LimitView {
            key: "replica_lag".to_owned(),
            server: "r:3306".to_owned(),
            value: None,
            exceeded: false,
            unanswered: Some("unanswered for 3 s: gone".to_owned()),
            ..limit.clone()
        };
        let mut view = ThrottleByView { rate: Some(120), since: None, limits: vec![limit, silent] };
        assert_eq!(
            view.sentence(),
            "throttled to 120 transactions/s: threads_running of t:3306 is 83, limit 50; \
             throttle_by.replica_lag of r:3306: unanswered for 3 s: gone"
        );
        view.limits.truncate(1);
        view.rate = None;
        assert_eq!(view.sentence(), "");
    }
}
