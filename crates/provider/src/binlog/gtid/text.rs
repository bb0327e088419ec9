//! The text form that `gtid_executed` shows and `GTID_SUBSET` accepts.

use std::fmt;
use std::str::FromStr;

use super::set::Collector;
use super::{Gtid, GtidSet, Interval, InvalidTag, Tag, Uuid};

/// Not a GTID, or not a GTID set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a GTID set: {what}")]
pub struct ParseGtidError {
    text: String,
    what: String,
}

impl ParseGtidError {
    fn new(text: &str, what: impl Into<String>) -> Self {
        Self { text: text.chars().take(80).collect(), what: what.into() }
    }
}

impl fmt::Display for GtidSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut last = None;
        for ((uuid, tag), list) in self.sids() {
            if last == Some(uuid) {
                write!(f, ":{tag}")?;
            } else {
                if last.is_some() {
                    f.write_str(",")?;
                }
                write!(f, "{uuid}")?;
                if !tag.is_empty() {
                    write!(f, ":{tag}")?;
                }
            }
            for interval in list {
                write!(f, ":{}", interval.start)?;
                if interval.end > interval.start {
                    write!(f, "-{}", interval.end)?;
                }
            }
            last = Some(uuid);
        }
        Ok(())
    }
}

/// Intervals that a line of the log shows.
const SHOWN: usize = 100;

impl GtidSet {
    /// Returns the text for a line of the log: of a set with many intervals the first of them, and
    /// the number of the others.
    #[must_use]
    pub fn brief(&self) -> String {
        let more = self.intervals().count().saturating_sub(SHOWN);
        if more == 0 {
            return self.to_string();
        }
        let mut first = Self::new();
        for (&uuid, tag, interval) in self.intervals().take(SHOWN) {
            first.add_interval(uuid, tag, interval);
        }
        format!("{first} and {more} more intervals")
    }
}

impl FromStr for GtidSet {
    type Err = ParseGtidError;

    /// Accepts everything that the server accepts: white space anywhere, any case, intervals in any
    /// order and overlapping, a UUID more than once, empty parts.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut set = Collector::default();
        for part in text.split(',') {
            let part: String = part.chars().filter(|c| !c.is_whitespace()).collect();
            if part.is_empty() {
                continue;
            }
            let mut pieces = part.split(':');
            let uuid = pieces.next().unwrap_or_default();
            let uuid = Uuid::try_parse(uuid)
                .map_err(|_| ParseGtidError::new(text, format!("{uuid:?} is not a UUID")))?;
            let mut tag = Tag::untagged();
            for piece in pieces.filter(|piece| !piece.is_empty()) {
                // No tag begins with a digit. A tag holds for the intervals after it, up to the
                // next tag.
                if piece.starts_with(|c: char| c.is_ascii_digit()) {
                    let interval = interval(piece)
                        .ok_or_else(|| ParseGtidError::new(text, format!("interval {piece:?}")))?;
                    set.add(uuid, &tag, interval);
                } else {
                    tag = Tag::new(piece).map_err(|error: InvalidTag| {
                        ParseGtidError::new(text, error.to_string())
                    })?;
                }
            }
        }
        Ok(set.into_set())
    }
}

/// `n` or `n-m`; `m < n` is an empty interval, as on the server.
fn interval(text: &str) -> Option<Interval> {
    let (start, end) = text.split_once('-').unwrap_or((text, text));
    let start: u64 = start.parse().ok()?;
    let end: u64 = end.parse().ok()?;
    (start > 0 && start < i64::MAX as u64 && end < i64::MAX as u64)
        .then_some(Interval { start, end })
}

impl FromStr for Gtid {
    type Err = ParseGtidError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let set: GtidSet = text.parse()?;
        let mut intervals = set.intervals();
        match (intervals.next(), intervals.next()) {
            (Some((uuid, tag, interval)), None) if interval.start == interval.end => {
                Ok(Self { uuid: *uuid, tag: tag.clone(), gno: interval.start })
            }
            _ => Err(ParseGtidError::new(text, "exactly one GTID is needed")),
        }
    }
}
