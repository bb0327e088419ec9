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
    /// The source has no tables of users, as far as an account that sees all tables can tell.
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
    /// The account lacks something; the text names the change it takes.
    #[error("{0}")]
    Account(String),
    /// The source refuses the session, with this number; the text names the change it takes.
    #[error("{why}")]
    Login { why: String, code: u16, cause: SourceCause },
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
            Self::Login { cause, .. } => *cause,
            Self::Purged(_) => SourceCause::Purged,
            Self::Refused(_) => SourceCause::Setting,
        }
    }

    /// Returns the source's error number, if it sent one.
    #[must_use]
    pub const fn code(&self) -> Option<u16> {
        match self {
            Self::Login { code, .. } => Some(*code),
            _ => None,
        }
    }
}

type Result<T> = std::result::Result<T, PreflightError>;

/// Parse error, unknown system variable, not supported: answers of other products, which may hide
/// their name.
const STRANGE_CODES: [u16; 3] = [1064, 1193, 1235];

const UNLIMITED: &str = "SET SESSION sql_select_limit=18446744073709551615";

/// Checks the source; reads only. Of its addresses the first that serves counts, and warnings name those before it
/// that have to be changed.
///
/// `known` is what the channel has, if that is known: the source must have it too, and all later
/// transactions must still be in its binary logs.
///
/// # Errors
/// [`PreflightError::Unreachable`] if an address may serve later, otherwise one line that names the fix.
pub async fn preflight(options: &SourceOptions, known: Option<&Known>) -> Result<SourceFacts> {
    let mut unfit = Unfit::default();
    let mut candidates = options.candidates();
    while let Some(candidate) = candidates.next() {
        match look(options, &candidate, &mut candidates, known).await {
            Ok(mut facts) => {
                facts.warnings.extend(unfit.warnings(&candidate));
                return Ok(facts);
            }
            Err(error) => {
                // Another member may have these binary logs still.
                if options.group.is_some() && matches!(error, PreflightError::Purged(_)) {
                    candidates.set_aside(&candidate);
                }
                unfit.note(candidate, error);
            }
        }
    }
    Err(unfit.verdict())
}

/// The addresses that don't serve, each with its last error.
#[derive(Debug, Default)]
struct Unfit(Vec<(Address, PreflightError)>);

impl Unfit {
    fn note(&mut self, address: Address, error: PreflightError) {
        self.0.retain(|(noted, _)| *noted != address);
        self.0.push((address, error));
    }

    /// Returns what has to be changed at the other addresses, one line each, where a channel starts from this one.
    fn warnings(&self, (host, port): &Address) -> Vec<String> {
        let refusals = self.0.iter().filter(|(address, error)| {
            (&address.0, address.1) != (host, *port)
                && !matches!(error, PreflightError::Unreachable(_))
        });
        let line = |(_, error): &(_, PreflightError)| {
            format!("{error}; the source at {host}:{port} serves instead")
        };
        refusals.map(line).collect()
    }

    /// Returns the error of a source none of whose addresses serves.
    fn verdict(self) -> PreflightError {
        let texts: Vec<String> = self.0.iter().map(|(_, error)| error.to_string()).collect();
        let text = texts.join("; ");
        let mut errors = self.0.into_iter().map(|(_, error)| error);
        let first = errors.next();
        // A channel with a checkpoint applies what it has, while reception waits for this address.
        let may_serve = |error: &PreflightError| matches!(error, PreflightError::Unreachable(_));
        if first.as_ref().is_none_or(may_serve) || errors.any(|error| may_serve(&error)) {
            return PreflightError::Unreachable(text);
        }
        match first {
            Some(PreflightError::Purged(_)) => PreflightError::Purged(format!("{text}{AFRESH}")),
            Some(PreflightError::Account(_)) => PreflightError::Account(text),
            Some(PreflightError::Login { code, cause, .. }) => {
                PreflightError::Login { why: text, code, cause }
            }
            _ => PreflightError::Refused(text),
        }
    }
}

/// Looks at one address.
async fn look(
    options: &SourceOptions,
    candidate: &Address,
    candidates: &mut Candidates,
    known: Option<&Known>,
) -> Result<SourceFacts> {
    let (host, port) = candidate;
    let mut connection = SourceConnection::connect(options, host, *port)
        .await
        .map_err(|error| login_error(options, &format!("{host}:{port}"), &error))?;
    let facts = inspect(&mut connection, options, (candidate, candidates), known).await;
    connection.quit().await;
    facts
}

fn login_error(options: &SourceOptions, address: &str, error: &ConnectionError) -> PreflightError {
    let refusal = match error {
        ConnectionError::Link(error) => error.refusal(Side::Source, address, &options.user),
        _ => None,
    };
    let cause = match error.cause() {
        SourceCause::Account => SourceCause::Account,
        _ => SourceCause::Setting,
    };
    match (refusal, error.code()) {
        (Some(why), Some(code)) => PreflightError::Login { why, code, cause },
        (Some(why), None) if cause == SourceCause::Account => PreflightError::Account(why),
        (Some(why), None) => PreflightError::Refused(why),
        (None, _) => PreflightError::Unreachable(format!("source {address}: {error}")),
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
            Membership::None => Some("it is not a member of a group".to_owned()),
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
            "source {address} has purged transactions that the target lacks: {missing}"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
