//! The GTID positions of both sides.

use csa_provider::binlog::GtidSet;
use csa_provider::server::Vendor;
use csa_provider::server::link::NO_TABLE;
use csa_provider::sql_text::quote;

use super::error::Result;
use super::session::VerifySession;

/// Returns the source's `gtid_executed`.
pub(crate) async fn source_executed(source: &mut VerifySession) -> Result<GtidSet> {
    let texts: Vec<String> = source.rows("SELECT @@GLOBAL.gtid_executed").await?;
    set(source, &texts)
}

/// The target's part of it: the channel's checkpoint, and the target's own `gtid_executed`, which
/// has what was there before the channel and what commits under the source's GTIDs.
pub(super) async fn target_executed(target: &mut VerifySession, channel: &str) -> Result<GtidSet> {
    // Neither states too much, so their union does not, although they are read one after the other.
    let mut texts: Vec<String> = match target.vendor() {
        Vendor::MySql | Vendor::MySql57 => target.rows("SELECT @@GLOBAL.gtid_executed").await?,
        Vendor::MariaDb => Vec::new(),
    };
    let query =
        format!("SELECT gtid_executed FROM csa.checkpoint WHERE channel={}", quote(channel));
    match target.rows::<String>(&query).await {
        Ok(rows) => texts.extend(rows),
        // The channel has no checkpoint yet.
        Err(error) if error.code().is_some_and(|code| NO_TABLE.contains(&code)) => {}
        Err(error) => return Err(error),
    }
    set(target, &texts)
}

fn set(session: &VerifySession, texts: &[String]) -> Result<GtidSet> {
    let mut all = GtidSet::new();
    for text in texts {
        let one: GtidSet =
            text.parse().map_err(|error| session.refused(&format!("gtid_executed: {error}")))?;
        all.union(&one);
    }
    Ok(all)
}

/// Returns the beginning of a set, which may be long.
pub(super) fn first_interval(set: &GtidSet) -> String {
    let Some((uuid, tag, interval)) = set.intervals().next() else { return String::new() };
    let mut first = GtidSet::new();
    first.add_interval(*uuid, tag, interval);
    first.to_string()
}
