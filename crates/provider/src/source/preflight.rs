//! The requirements for a source, checked before anything is written.

use crate::binlog::gtid::GtidSet;
use crate::server::grants::Grants;
use crate::server::link::{Limits, Side};
use crate::server::product::unsupported_source;
use crate::source::cause::{AFRESH, SourceCause};
use crate::source::connection::{ConnectionError, SourceConnection};
use crate::source::history::{Known, lacks};
use crate::source::options::SourceOptions;

/// The facts found about a source.
#[derive(Debug, Clone)]
pub struct SourceFacts {
    pub version: String,
    pub server_uuid: String,
    pub gtid_executed: GtidSet,
    pub gtid_purged: GtidSet,
    /// Settings that make replication slower or less precise, one line each.
    pub warnings: Vec<String>,
}

/// The reason a channel can't start from this source.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PreflightError {
    /// The source may come back: the channel waits for it.
    #[error("{0}")]
    Unreachable(String),
    /// The source refuses the account; the text names the change it takes.
    #[error("{0}")]
    Account(String),
    /// The source no longer has transactions that the target needs.
    #[error("{0}")]
    Purged(String),
    /// The source has to be changed in another way, which the text names.
    #[error("{0}")]
    Refused(String),
}

impl PreflightError {
    #[must_use]
    pub const fn cause(&self) -> SourceCause {
        match self {
            Self::Unreachable(_) => SourceCause::Unreachable,
            Self::Account(_) => SourceCause::Account,
            Self::Purged(_) => SourceCause::Purged,
            Self::Refused(_) => SourceCause::Setting,
        }
    }
}

type Result<T> = std::result::Result<T, PreflightError>;

/// Parse error, unknown system variable, not supported: answers of other products, which may hide
/// their name.
const STRANGE_CODES: [u16; 3] = [1064, 1193, 1235];

/// Checks the source; reads only.
///
/// `known` is what the channel has, if that is known: the source must have it too, and all later
/// transactions must still be in its binary logs.
///
/// # Errors
/// [`PreflightError::Unreachable`] if it does not answer, otherwise one line that names the fix.
pub async fn preflight(options: &SourceOptions, known: Option<&Known>) -> Result<SourceFacts> {
    let mut last = PreflightError::Unreachable("no address".to_owned());
    for (host, port) in options.addresses() {
        let address = format!("{host}:{port}");
        match SourceConnection::connect(options, host, port).await {
            Ok(mut connection) => {
                let facts = inspect(&mut connection, options, &address, known).await;
                connection.quit().await;
                match facts {
                    Err(error @ PreflightError::Unreachable(_)) => last = error,
                    other => return other,
                }
            }
            Err(error) => last = login_error(options, &address, &error),
        }
        // Only an unreachable source lets the next address have its turn.
        if !matches!(last, PreflightError::Unreachable(_)) {
            break;
        }
    }
    Err(last)
}

fn login_error(options: &SourceOptions, address: &str, error: &ConnectionError) -> PreflightError {
    let refusal = match error {
        ConnectionError::Link(error) => error.refusal(Side::Source, address, &options.user),
        _ => None,
    };
    match refusal {
        Some(why) if error.cause() == SourceCause::Account => PreflightError::Account(why),
        Some(why) => PreflightError::Refused(why),
        None => PreflightError::Unreachable(format!("source {address}: {error}")),
    }
}

async fn inspect(
    connection: &mut SourceConnection,
    options: &SourceOptions,
    address: &str,
    known: Option<&Known>,
) -> Result<SourceFacts> {
    let unreachable =
        |error: ConnectionError| PreflightError::Unreachable(format!("source {address}: {error}"));
    let refuse = |text: String| Err(PreflightError::Refused(text));
    // Asked alone: another product may not know the variables below.
    let said = connection
        .query("SELECT @@version, @@version_comment LIMIT 1", Limits::SETTING)
        .await
        .map_err(unreachable)?;
    let mut said = said.into_iter().flatten().map(Option::unwrap_or_default);
    let (version, comment) = (said.next().unwrap_or_default(), said.next().unwrap_or_default());
    if let Some(why) = unsupported_source(&version, &comment) {
        return refuse(format!("source {address} {why}"));
    }
    let rows = connection
        .query(
            "SELECT @@version, @@server_uuid, @@server_id, @@log_bin, @@gtid_mode, \
             @@binlog_format, @@binlog_row_image, @@GLOBAL.gtid_executed, @@GLOBAL.gtid_purged LIMIT 1",
            Limits::GTIDS,
        )
        .await
        .map_err(|error| match error.code() {
            Some(code) if STRANGE_CODES.contains(&code) => PreflightError::Refused(format!(
                "source {address} reports version {version:?} but lacks what every MySQL since 5.7 \
                 has: {error}; a source must be MySQL 5.7 or newer"
            )),
            _ => unreachable(error),
        })?;
    let row: Vec<String> = rows
        .into_iter()
        .next()
        .unwrap_or_default()
        .into_iter()
        .map(Option::unwrap_or_default)
        .collect();
    let [version, uuid, server_id, log_bin, gtid_mode, format, image, all, purged] = row.as_slice()
    else {
        return Err(PreflightError::Unreachable(format!("source {address}: no server variables")));
    };
    if log_bin != "1" {
        return refuse(format!(
            "source {address} writes no binary log; start it with --log-bin and a server_id"
        ));
    }
    if gtid_mode != "ON" {
        return refuse(format!(
            "source {address} has gtid_mode={gtid_mode}; set enforce_gtid_consistency=ON and \
             gtid_mode=ON there (online: OFF_PERMISSIVE, ON_PERMISSIVE, ON)"
        ));
    }
    if format != "ROW" {
        let lasting = if version.starts_with("5.") { "GLOBAL" } else { "PERSIST" };
        return refuse(format!(
            "source {address} has binlog_format={format}; run there: SET {lasting} binlog_format=ROW"
        ));
    }
    if *server_id == options.server_id.to_string() {
        return refuse(format!(
            "server_id {server_id} is the source's own ({address}); give [channel.source] \
             server_id another value"
        ));
    }
    may_replicate(connection, address).await?;
    let parse = |text: &str| {
        text.parse::<GtidSet>().map_err(|error| {
            PreflightError::Refused(format!("source {address}: GTID set can't be read: {error}"))
        })
    };
    let facts = SourceFacts {
        version: version.clone(),
        server_uuid: uuid.clone(),
        gtid_executed: parse(all)?,
        gtid_purged: parse(purged)?,
        warnings: warnings(address, image),
    };
    if let Some(known) = known {
        let missing = known.lacking(&facts.gtid_executed);
        // If only its own are missing, it ends the dump for that itself, and counts commits that
        // are under way.
        // Not a refusal: a replica that is catching up will have them.
        if missing.of_server(&facts.server_uuid) != missing {
            return Err(PreflightError::Unreachable(format!(
                "source {address} {}",
                lacks(&missing)
            )));
        }
        let missing = facts.gtid_purged.difference(&known.received);
        if !missing.is_empty() {
            return Err(PreflightError::Purged(format!(
                "source {address} has purged transactions that the target lacks: {missing}{AFRESH}"
            )));
        }
    }
    Ok(facts)
}

fn warnings(address: &str, image: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    if image != "FULL" {
        warnings.push(format!(
            "source {address} has binlog_row_image={image}: conflicts are found less exactly, so \
             fewer changes run in parallel; FULL is faster"
        ));
    }
    warnings
}

async fn may_replicate(connection: &mut SourceConnection, address: &str) -> Result<()> {
    let unreachable =
        |error: ConnectionError| PreflightError::Unreachable(format!("source {address}: {error}"));
    let account = connection.setting("SELECT CURRENT_USER()").await.map_err(unreachable)?;
    let grants = connection.query("SHOW GRANTS", Limits::LIST).await.map_err(unreachable)?;
    let lines: Vec<&str> = grants.iter().flatten().flatten().map(String::as_str).collect();
    let grants = Grants::parse(&account, &lines);
    if grants.has_any(&["REPLICATION SLAVE"]) {
        return Ok(());
    }
    let account = grants.account();
    Err(PreflightError::Account(format!(
        "source {address}: {account} may not replicate; run there: \
         GRANT REPLICATION SLAVE ON *.* TO {account}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::link::LinkError;

    fn server(code: u16, message: &str) -> ConnectionError {
        LinkError::Server { code, message: message.to_owned() }.into()
    }

    #[test]
    fn causes_come_from_the_error_and_not_from_what_it_is_about() {
        for (error, cause) in [
            (server(1045, "Access denied for user"), SourceCause::Account),
            (server(3159, "insecure transport"), SourceCause::Protection),
            (LinkError::Tls("no".to_owned()).into(), SourceCause::Protection),
            (LinkError::Closed.into(), SourceCause::Unreachable),
            // Numbers and words of other causes in a message mean nothing.
            (server(1040, "Too many connections, 1236 of them"), SourceCause::Unreachable),
            (ConnectionError::Protocol("purged 1045".to_owned()), SourceCause::Unreachable),
            (server(1236, "the source purged required binary logs"), SourceCause::Purged),
            (server(1236, "Replica has more GTIDs than the source has"), SourceCause::OtherHistory),
            (server(1236, "log event 1:purged:5 exceeds the limit"), SourceCause::Stream),
        ] {
            assert_eq!(error.cause(), cause, "{error}");
        }
        let refused = PreflightError::Refused("error 1045: purged".to_owned());
        assert_eq!(refused.cause(), SourceCause::Setting);
    }
}
