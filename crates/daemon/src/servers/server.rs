//! One server as the checks see it.

use csa_provider::seams::{Clock as _, SystemClock};
use csa_provider::server::ServerFacts;

use super::account_limits::AccountLimits;
use super::check_session::{CheckSession, QueryError};

/// The facts about one server, and about the way to it.
#[derive(Debug, Default)]
pub(super) struct CheckedServer {
    pub(super) address: String,
    pub(super) facts: ServerFacts,
    pub(super) limits: AccountLimits,
    /// Empty: the link is not encrypted.
    pub(super) cipher: String,
    /// The server knows time zones by name.
    pub(super) has_time_zones: bool,
    pub(super) clock: Clock,
}

/// A server's clock against this host's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Clock {
    /// Microseconds by which it is ahead of this host's.
    pub(super) ahead: i64,
    /// Half of the time that the question took, which is the largest possible error.
    pub(super) uncertain: i64,
}

impl CheckedServer {
    pub(super) async fn read(session: &mut CheckSession) -> Result<Self, QueryError> {
        let clock = clock(session).await?;
        let facts = ServerFacts::read(session).await?;
        let cipher = session.rows("SHOW SESSION STATUS LIKE 'Ssl_cipher'").await?;
        let cipher = cipher.into_iter().flatten().flatten().nth(1);
        let zones = "SELECT CONVERT_TZ('2020-01-01 00:00:00', 'UTC', 'Europe/Berlin') IS NOT NULL";
        Ok(Self {
            address: session.address().to_owned(),
            facts,
            limits: AccountLimits::read(session).await,
            cipher: cipher.unwrap_or_default(),
            has_time_zones: session.value(zones).await?.as_deref() == Some("1"),
            clock,
        })
    }
}

async fn clock(session: &mut CheckSession) -> Result<Clock, QueryError> {
    let asked = now_micros();
    // UTC, which no time zone or daylight saving time affects.
    let query = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
    let theirs = session.value(query).await?.and_then(|text| text.parse::<i64>().ok());
    let answered = now_micros();
    let uncertain = (answered - asked) / 2;
    let ahead = theirs.map_or(0, |theirs| theirs - (asked + uncertain));
    Ok(Clock { ahead, uncertain })
}

fn now_micros() -> i64 {
    i64::try_from(SystemClock.now_micros()).unwrap_or(i64::MAX)
}
