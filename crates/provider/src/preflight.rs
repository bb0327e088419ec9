//! What must be true of a source before anything is written.

use crate::cause::{AFRESH, SourceCause};
use crate::connection::{ConnectionError, SourceConnection};
use crate::gtid::GtidSet;
use crate::history::{Known, lacks};
use crate::link::{Limits, Side};
use crate::options::SourceOptions;
use crate::product::unsupported_source;

/// What was found.
#[derive(Debug, Clone)]
pub struct SourceFacts {
    pub version: String,
    pub server_uuid: String,
    pub gtid_executed: GtidSet,
    pub gtid_purged: GtidSet,
    /// Things that will work less well, one line each.
    pub warnings: Vec<String>,
}

/// Why a channel can't start from this source.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PreflightError {
    /// It may come back: worth waiting for.
    #[error("{0}")]
    Unreachable(String),
    /// It refuses the account; the text says what to change.
    #[error("{0}")]
    Account(String),
    /// It no longer has what the target needs.
    #[error("{0}")]
    Purged(String),
    /// It has to be changed otherwise; the text says how.
    #[error("{0}")]
    Refused(String),
}

type Result<T> = std::result::Result<T, PreflightError>;

/// Parse error, unknown system variable, not supported: of other products, which may not say their
/// name.
const STRANGE_CODES: [u16; 3] = [1064, 1193, 1235];

/// Checks the source; reads only.
///
/// `known` is what the channel has, where it can be told: the source must have that too, and still hold
/// all the rest.
///
/// # Errors
/// [`PreflightError::Unreachable`] when it does not answer, one line that names the fix otherwise.
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
    let said = connection
        .query("SELECT @@version, @@version_comment", Limits::SETTING)
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
             @@binlog_format, @@binlog_row_image, @@GLOBAL.gtid_executed, @@GLOBAL.gtid_purged",
            Limits::GTIDS,
        )
        .await
        .map_err(|error| match error.code() {
            Some(code) if STRANGE_CODES.contains(&code) => PreflightError::Refused(format!(
                "source {address} calls itself {version:?} and does not know what every MySQL since \
                 8.0 knows: {error}; a source must be MySQL 8.0 or newer"
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
        return refuse(format!(
            "source {address} has binlog_format={format}; run there: SET PERSIST binlog_format=ROW"
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
        // Its own it will speak of itself, when the dump begins.
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
            "source {address} has binlog_row_image={image}: fewer changes can be told apart, so \
             fewer run side by side; FULL is faster"
        ));
    }
    warnings
}

async fn may_replicate(connection: &mut SourceConnection, address: &str) -> Result<()> {
    let unreachable =
        |error: ConnectionError| PreflightError::Unreachable(format!("source {address}: {error}"));
    let account = connection.setting("SELECT CURRENT_USER()").await.map_err(unreachable)?;
    let grants = connection.query("SHOW GRANTS", Limits::LIST).await.map_err(unreachable)?;
    let granted = grants.iter().flatten().flatten().any(|line| {
        line.split_once(" ON *.* TO ").is_some_and(|(privileges, _)| {
            privileges.contains("REPLICATION SLAVE") || privileges.contains("ALL PRIVILEGES")
        })
    });
    if granted {
        return Ok(());
    }
    let account = match account.rsplit_once('@') {
        Some((user, host)) => format!("'{user}'@'{host}'"),
        None => account,
    };
    Err(PreflightError::Account(format!(
        "source {address}: {account} may not replicate; run there: \
         GRANT REPLICATION SLAVE ON *.* TO {account}"
    )))
}
