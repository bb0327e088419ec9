//! The choice of the source: the first server that has everything that the target has of the channel.
//! Compared with any other, rows that are right would differ.

use std::time::Duration;

use csa_provider::binlog::GtidSet;
use csa_provider::source::Known;

use super::error::{Result, VerifyError};
use super::executed::{first_interval, source_executed};
use super::options::VerifyOptions;
use super::session::{VerifySession, connect_error};
use crate::host::counted;
use csa_provider::server::link::Side;

/// A source shows a transaction in `gtid_executed` a moment after its replicas may have it.
const LOOKS: u32 = 10;
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// Connects to the first source that answers and lacks nothing.
///
/// # Errors
/// One line with the reason for each address.
pub(super) async fn source(options: &VerifyOptions) -> Result<VerifySession> {
    let target = csa_applier::Target::from(options.target.clone());
    let known = csa_applier::known_of(&target, &options.channel)
        .await
        .map_err(|error| connect_error(Side::Target, &options.target, error))?;
    let mut refused: Option<VerifyError> = None;
    for server in &options.source {
        let checked = match VerifySession::connect(Side::Source, server).await {
            Ok(session) => check(session, &known).await,
            Err(error) => Err(error),
        };
        match checked {
            Ok(session) => return Ok(session),
            Err(error) => refused = Some(after(refused, error)),
        }
    }
    let none = || VerifyError::Refused("no address of the source is known".to_owned());
    Err(refused.unwrap_or_else(none))
}

/// The reasons in one line; one alone keeps its kind.
fn after(before: Option<VerifyError>, error: VerifyError) -> VerifyError {
    match before {
        None => error,
        Some(before) => VerifyError::Refused(format!("{before}; {error}")),
    }
}

async fn check(mut session: VerifySession, known: &Known) -> Result<VerifySession> {
    let mut lacking = GtidSet::new();
    for look in 0..LOOKS {
        if look > 0 {
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
        lacking = known.lacking(&source_executed(&mut session).await?);
        if lacking.is_empty() {
            return Ok(session);
        }
    }
    let refused = session.refused(&format!(
        "it lacks {} that the target has executed, from {} on: it is another server, was \
         restored to an earlier state, or is a replica that is catching up; compare with the server \
         that the channel follows (csa-daemon status), or wait until it has them",
        counted(lacking.count(), "transaction"),
        first_interval(&lacking)
    ));
    session.close().await;
    Err(refused)
}
