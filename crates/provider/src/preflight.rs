//! What must be true of a source before anything is written.

use crate::connection::{ConnectionError, SourceConnection};
use crate::gtid::GtidSet;
use crate::options::SourceOptions;

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
    /// It has to be changed; the text says how.
    #[error("{0}")]
    Refused(String),
}

type Result<T> = std::result::Result<T, PreflightError>;

/// Access denied, host not allowed, plugin of the user not there, password expired, account locked.
const LOGIN_CODES: [u16; 9] = [1044, 1045, 1130, 1227, 1251, 1524, 1698, 1862, 3118];
/// The source takes encrypted connections only.
const TLS_CODE: u16 = 3159;

/// Checks the source; reads only.
///
/// `executed` is what the target has, where it is known: the source must still hold all the rest.
///
/// # Errors
/// [`PreflightError::Unreachable`] when it does not answer, [`PreflightError::Refused`] with one
/// line that names the fix otherwise.
pub async fn preflight(options: &SourceOptions, executed: Option<&GtidSet>) -> Result<SourceFacts> {
    let mut last = PreflightError::Unreachable("no address".to_owned());
    for (host, port) in options.addresses() {
        let address = format!("{host}:{port}");
        match SourceConnection::connect(options, host, port).await {
            Ok(mut connection) => {
                let facts = inspect(&mut connection, options, &address, executed).await;
                connection.quit().await;
                return facts;
            }
            Err(error) => last = login_error(options, &address, &error),
        }
        if matches!(last, PreflightError::Refused(_)) {
            break;
        }
    }
    Err(last)
}

fn login_error(options: &SourceOptions, address: &str, error: &ConnectionError) -> PreflightError {
    match error.code() {
        Some(code) if LOGIN_CODES.contains(&code) => PreflightError::Refused(format!(
            "source {address} refused user '{}': {error} (check [channel.source] user and password)",
            options.user
        )),
        Some(TLS_CODE) => PreflightError::Refused(format!(
            "source {address}: {error} (set [channel.source] tls to \"required\")"
        )),
        _ => match error {
            ConnectionError::Tls(_) | ConnectionError::Login(_) => {
                PreflightError::Refused(format!("source {address}: {error}"))
            }
            _ => PreflightError::Unreachable(format!("source {address}: {error}")),
        },
    }
}

async fn inspect(
    connection: &mut SourceConnection,
    options: &SourceOptions,
    address: &str,
    executed: Option<&GtidSet>,
) -> Result<SourceFacts> {
    let unreachable =
        |error: ConnectionError| PreflightError::Unreachable(format!("source {address}: {error}"));
    let refuse = |text: String| Err(PreflightError::Refused(text));
    let version = connection.query("SELECT @@version").await.map_err(unreachable)?;
    let version = version.into_iter().flatten().flatten().next().unwrap_or_default();
    if version.contains("MariaDB") {
        return refuse(format!(
            "source {address} is MariaDB {version}, whose binary log and GTIDs are of another kind; \
             a source must be MySQL 8.0 or newer"
        ));
    }
    let rows = connection
        .query(
            "SELECT @@version, @@server_uuid, @@server_id, @@log_bin, @@gtid_mode, \
             @@binlog_format, @@binlog_row_image, @@GLOBAL.gtid_executed, @@GLOBAL.gtid_purged",
        )
        .await
        .map_err(unreachable)?;
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
    if let Some(executed) = executed {
        let missing = facts.gtid_purged.difference(executed);
        if !missing.is_empty() {
            return refuse(format!(
                "source {address} has purged transactions that the target lacks: {missing}; \
                 provision the target again (clone or dump) and start from its gtid_executed"
            ));
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
    let account = connection.value("SELECT CURRENT_USER()").await.map_err(unreachable)?;
    let grants = connection.query("SHOW GRANTS").await.map_err(unreachable)?;
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
    Err(PreflightError::Refused(format!(
        "source {address}: {account} may not replicate; run there: \
         GRANT REPLICATION SLAVE ON *.* TO {account}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::fake_source::options;

    fn said(code: u16, message: &str) -> PreflightError {
        let error = ConnectionError::Server { code, message: message.to_owned() };
        login_error(&options(), "source:3306", &error)
    }

    #[test]
    fn what_only_a_change_can_cure_is_refused() {
        for (code, message) in [
            (1045, "Access denied for user"),
            (1524, "Plugin 'mysql_native_password' is not loaded"),
            (1862, "Your password has expired"),
            (3118, "Access denied: Account is locked"),
            (3159, "Connections using insecure transport are prohibited"),
        ] {
            let error = said(code, message);
            assert!(matches!(error, PreflightError::Refused(_)), "{error}");
            let text = error.to_string();
            for word in ["source:3306", &code.to_string(), message, "[channel.source]"] {
                assert!(text.contains(word), "{word:?} is missing in {text}");
            }
        }
    }

    #[test]
    fn what_passes_by_itself_is_waited_for() {
        for (code, message) in [(1040, "Too many connections"), (1053, "Server shutdown")] {
            let error = said(code, message);
            assert!(matches!(error, PreflightError::Unreachable(_)), "{error}");
        }
        let gone = ConnectionError::Io(std::io::ErrorKind::UnexpectedEof.into());
        let error = login_error(&options(), "source:3306", &gone);
        assert!(matches!(error, PreflightError::Unreachable(_)), "{error}");
    }
}
