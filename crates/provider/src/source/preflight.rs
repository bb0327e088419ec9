//! The requirements for a source, checked before anything is written.

use crate::binlog::gtid::GtidSet;
use crate::server::group::{Address, Candidates, Membership};
use crate::server::link::{Limits, Side};
use crate::server::{Place, ServerFacts, unsupported_source};
use crate::source::cause::{AFRESH, SourceCause};
use crate::source::connection::{ConnectionError, SourceConnection};
use crate::source::history::{Known, lacks};
use crate::source::options::SourceOptions;
use crate::source::requirements::{PRIVILEGES, requirements};

/// The facts found about a source.
#[derive(Debug, Clone)]
pub struct SourceFacts {
    pub version: String,
    pub server_uuid: String,
    pub gtid_executed: GtidSet,
    pub gtid_purged: GtidSet,
    /// The source holds nobody's tables, as far as an account that sees all of them can tell.
    pub is_without_tables: bool,
    /// Names of schemas and tables are the same in any case; `None` if that is not known.
    pub folds_case: Option<bool>,
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

const UNLIMITED: &str = "SET SESSION sql_select_limit=18446744073709551615";

/// Checks the source; reads only.
///
/// `known` is what the channel has, if that is known: the source must have it too, and all later
/// transactions must still be in its binary logs.
///
/// # Errors
/// [`PreflightError::Unreachable`] if it does not answer, otherwise one line that names the fix.
pub async fn preflight(options: &SourceOptions, known: Option<&Known>) -> Result<SourceFacts> {
    let mut last = PreflightError::Unreachable("no address".to_owned());
    let mut candidates = options.candidates();
    while let Some(candidate) = candidates.next() {
        let (host, port) = &candidate;
        let address = format!("{host}:{port}");
        match SourceConnection::connect(options, host, *port).await {
            Ok(mut connection) => {
                let among = (&candidate, &mut candidates);
                let facts = inspect(&mut connection, options, among, known).await;
                connection.quit().await;
                match facts {
                    Err(error @ PreflightError::Unreachable(_)) => last = error,
                    // Another member may have these binary logs still.
                    Err(error @ PreflightError::Purged(_))
                        if options.group.is_some() && candidates.set_aside(&candidate) =>
                    {
                        last = error;
                        continue;
                    }
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
    (candidate, candidates): (&Address, &mut Candidates),
    known: Option<&Known>,
) -> Result<SourceFacts> {
    let address = &format!("{}:{}", candidate.0, candidate.1);
    let unreachable =
        |error: ConnectionError| PreflightError::Unreachable(format!("source {address}: {error}"));
    // Asked alone: another product may not know what is asked below.
    let said = connection
        .query("SELECT @@version, @@version_comment LIMIT 1", Limits::SETTING)
        .await
        .map_err(unreachable)?;
    let mut said = said.into_iter().flatten().map(Option::unwrap_or_default);
    let (version, comment) = (said.next().unwrap_or_default(), said.next().unwrap_or_default());
    if let Some(why) = unsupported_source(&version, &comment) {
        return Err(PreflightError::Refused(format!("source {address} {why}")));
    }
    let read = async {
        // A server's setting would cut the list of variables.
        connection.query(UNLIMITED, Limits::SETTING).await?;
        ServerFacts::read(connection).await
    };
    let server = read.await.map_err(|error| match error.code() {
        Some(code) if STRANGE_CODES.contains(&code) => PreflightError::Refused(format!(
            "source {address} reports version {version:?} but lacks what every MySQL since 5.7 \
             has: {error}; a source must be MySQL 5.7 or newer"
        )),
        _ => unreachable(error),
    })?;
    if let Some(group) = &options.group {
        let why = match &server.group {
            Membership::Known(view) => group.admit(view, candidate, candidates).err(),
            Membership::None => Some("it is no member of a group".to_owned()),
            // A requirement.
            Membership::Hidden => None,
        };
        if let Some(why) = why {
            return Err(PreflightError::Unreachable(format!("source {address}: {why}")));
        }
    }
    let found = requirements(&server, options.server_id, options.group.is_some());
    let warnings = server.judged(Place::Source, &format!("source {address}"), found).map_err(
        |(check, why)| match check {
            PRIVILEGES => PreflightError::Account(why),
            _ => PreflightError::Refused(why),
        },
    )?;
    let sees_all = server.grants.has_any(&["SELECT"]);
    let facts = SourceFacts {
        version,
        server_uuid: server.text("server_uuid").to_owned(),
        is_without_tables: sees_all && is_without_tables(connection).await.map_err(unreachable)?,
        folds_case: Some(server.folds_case()),
        warnings,
        gtid_executed: server.gtid_executed,
        gtid_purged: server.gtid_purged,
    };
    if let Some(known) = known {
        has_the_rest(&facts, address, known)?;
    }
    Ok(facts)
}

async fn is_without_tables(
    connection: &mut SourceConnection,
) -> std::result::Result<bool, ConnectionError> {
    let query = "SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA NOT IN \
                 ('mysql', 'sys', 'information_schema', 'performance_schema', 'csa') LIMIT 1";
    Ok(connection.query(query, Limits::SETTING).await?.is_empty())
}

/// Checks that the source has what the channel has, and everything after it.
fn has_the_rest(facts: &SourceFacts, address: &str, known: &Known) -> Result<()> {
    let missing = known.lacking(&facts.gtid_executed);
    // If only its own are missing, it ends the dump for that itself, and counts commits that
    // are under way.
    // Not a refusal: a replica that is catching up will have them.
    if missing.of_server(&facts.server_uuid) != missing {
        return Err(PreflightError::Unreachable(format!("source {address} {}", lacks(&missing))));
    }
    let missing = facts.gtid_purged.difference(&known.received);
    if !missing.is_empty() {
        return Err(PreflightError::Purged(format!(
            "source {address} has purged transactions that the target lacks: {missing}{AFRESH}"
        )));
    }
    Ok(())
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
            (ConnectionError::Lacks(GtidSet::new()), SourceCause::OtherHistory),
            (server(1236, "log event 1:purged:5 exceeds the limit"), SourceCause::Stream),
        ] {
            assert_eq!(error.cause(), cause, "{error}");
        }
        let refused = PreflightError::Refused("error 1045: purged".to_owned());
        assert_eq!(refused.cause(), SourceCause::Setting);
    }
}
