//! The `status` of a `ReplicationChannel`. Pure.

use serde::{Deserialize, Serialize};

use crate::observe::view::{ChannelState, ChannelView};

/// The state of a resource that makes no channel.
const INVALID: &str = "invalid";
/// The daemon does not have the channel yet, or does not answer.
const PENDING: &str = "pending";

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Status {
    /// A state of the channel, or `invalid` or `pending`.
    pub(super) state: String,
    /// The reason, in a sentence.
    pub(super) message: String,
    /// Lag in words, for the column.
    pub(super) lag: Option<String>,
    pub(super) lag_seconds: Option<f64>,
    /// Transactions received and not committed.
    pub(super) backlog: Option<u64>,
    /// The pod that runs the channel.
    pub(super) holder: Option<String>,
    /// The generation of the `spec` that the daemon has.
    pub(super) observed_generation: i64,
    pub(super) conditions: Vec<Condition>,
}

/// `Ready`, as tools like `kubectl wait` expect it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Condition {
    r#type: String,
    status: String,
    reason: String,
    message: String,
    observed_generation: i64,
    last_transition_time: String,
}

/// Why the files of the daemon lack a resource's generation.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Problem {
    pub(super) why: String,
    /// It lasts until the resource changes, or something that it names. Others may pass.
    pub(super) is_mistake: bool,
}

impl Problem {
    pub(super) fn mistake(why: String) -> Self {
        Self { why, is_mistake: true }
    }
}

/// The resource as this pod finds it.
#[derive(Debug)]
pub(super) struct ObservedResource<'a> {
    /// The pod's name.
    pub(super) holder: &'a str,
    pub(super) generation: i64,
    pub(super) problem: Option<&'a Problem>,
    /// Why the daemon did not say what it has.
    pub(super) away: Option<&'a str>,
    /// The channel, if the daemon has it.
    pub(super) channel: Option<&'a ChannelView>,
    /// RFC 3339.
    pub(super) now: &'a str,
}

impl Status {
    /// Returns the status after `self`; `None` where another pod has to tell, because it runs the
    /// channel.
    pub(super) fn next(&self, found: &ObservedResource<'_>) -> Option<Self> {
        let running = found.channel.filter(|channel| channel.state != ChannelState::Standby);
        let others = self.holder.as_deref().is_some_and(|holder| holder != found.holder);
        let mistake = found.problem.filter(|problem| problem.is_mistake);
        if running.is_none() && mistake.is_none() && others {
            return None;
        }
        let generation = match found.problem {
            Some(_) => self.observed_generation,
            None => found.generation,
        };
        let (state, message) = match (mistake, found.channel) {
            (Some(mistake), _) => (INVALID, mistake.why.clone()),
            (None, Some(channel)) => (channel.state.name(), channel.state_detail.clone()),
            (None, None) => {
                let why = found.problem.map(|problem| problem.why.as_str()).or(found.away);
                (PENDING, why.unwrap_or("the daemon does not have the channel yet").to_owned())
            }
        };
        // Enough for people; each digit more would be another write to the API server.
        let lag =
            running.and_then(|channel| channel.lag_seconds).map(|lag| (lag * 10.0).round() / 10.0);
        let is_ready =
            mistake.is_none() && found.channel.is_some_and(|channel| channel.state.is_well());
        let status = if is_ready { "True" } else { "False" };
        let before = self.conditions.first().filter(|before| before.status == status);
        let condition = Condition {
            r#type: "Ready".to_owned(),
            status: status.to_owned(),
            reason: camel_case(state),
            message: message.clone(),
            observed_generation: generation,
            last_transition_time: before
                .map_or_else(|| found.now.to_owned(), |before| before.last_transition_time.clone()),
        };
        Some(Self {
            state: state.to_owned(),
            message,
            lag: lag.map(|lag| format!("{lag:.1} s")),
            lag_seconds: lag,
            backlog: running.and_then(|channel| channel.backlog_transactions),
            holder: running.map(|_| found.holder.to_owned()),
            observed_generation: generation,
            conditions: vec![condition],
        })
    }
}

/// Returns `waiting_for_source` as a reason: `WaitingForSource`.
fn camel_case(state: &str) -> String {
    let word = |word: &str| {
        let mut letters = word.chars();
        letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
    };
    state.split('_').map(word).collect::<Vec<String>>().concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(state: ChannelState) -> ChannelView {
        ChannelView {
            state,
            state_detail: "why".to_owned(),
            lag_seconds: Some(1.26),
            backlog_transactions: Some(5),
            ..ChannelView::default()
        }
    }

    fn found<'a>(channel: Option<&'a ChannelView>, now: &'a str) -> ObservedResource<'a> {
        ObservedResource { holder: "pod-0", generation: 2, problem: None, away: None, channel, now }
    }

    #[test]
    fn the_condition_keeps_the_time_of_its_last_change() {
        let running = view(ChannelState::Running);
        let first = Status::default().next(&found(Some(&running), "one")).expect("a status");
        assert_eq!((first.state.as_str(), first.lag.as_deref()), ("running", Some("1.3 s")));
        assert_eq!((first.backlog, first.holder.as_deref()), (Some(5), Some("pod-0")));
        assert_eq!(first.observed_generation, 2);
        let same = first.next(&found(Some(&running), "two")).expect("a status");
        assert_eq!(same, first, "nothing to write");
        let paused = view(ChannelState::WaitingForTarget);
        let next = first.next(&found(Some(&paused), "three")).expect("a status");
        let condition = &next.conditions[0];
        assert_eq!(
            (condition.status.as_str(), condition.reason.as_str()),
            ("False", "WaitingForTarget")
        );
        assert_eq!(condition.last_transition_time, "three");
    }

    #[test]
    fn a_mistake_keeps_the_generation_that_runs() {
        let running = view(ChannelState::Running);
        let before = Status::default().next(&found(Some(&running), "one")).expect("a status");
        let no = Problem::mistake("no".to_owned());
        let wrong =
            ObservedResource { generation: 3, problem: Some(&no), ..found(Some(&running), "two") };
        let wrong = before.next(&wrong).expect("a status");
        assert_eq!((wrong.state.as_str(), wrong.message.as_str()), ("invalid", "no"));
        assert_eq!(wrong.observed_generation, 2);
        // It runs with the file before.
        assert_eq!(wrong.holder.as_deref(), Some("pod-0"));
    }

    #[test]
    fn a_problem_that_may_pass_leaves_the_channel_its_state() {
        let running = view(ChannelState::Running);
        let before = Status::default().next(&found(Some(&running), "one")).expect("a status");
        let unread = Problem { why: "no".to_owned(), is_mistake: false };
        let with = |channel| ObservedResource {
            generation: 3,
            problem: Some(&unread),
            ..found(channel, "two")
        };
        assert_eq!(before.next(&with(Some(&running))), Some(before), "the generation that runs");
        let none = Status::default().next(&with(None)).expect("a status");
        assert_eq!((none.state.as_str(), none.message.as_str()), ("pending", "no"));
    }

    #[test]
    fn a_standby_leaves_the_status_to_the_pod_that_runs_the_channel() {
        let standby = view(ChannelState::Standby);
        let other = Status { holder: Some("pod-1".to_owned()), ..Status::default() };
        assert_eq!(other.next(&found(Some(&standby), "one")), None);
        assert_eq!(
            other.next(&ObservedResource { away: Some("down"), ..found(None, "one") }),
            None
        );
        let mine = Status { holder: Some("pod-0".to_owned()), ..Status::default() };
        let mine = mine.next(&found(Some(&standby), "one")).expect("a status");
        assert_eq!((mine.state.as_str(), mine.holder.as_deref()), ("standby", None));
        let away = ObservedResource { away: Some("down"), ..found(None, "one") };
        let none = mine.next(&away).expect("a status");
        assert_eq!((none.state.as_str(), none.message.as_str()), ("pending", "down"));
        assert_eq!(none.conditions[0].status, "False");
    }
}
