//! Collations that `collation_map` puts in the place of the source's.

use crate::options::TargetOptions;
use crate::ownership::preflight::{PreflightError, Result};
use crate::server::session::Session;

/// Unknown collation, and one of another character set.
const NO_SUCH: [u16; 2] = [1273, 1253];

/// # Errors
/// Names one that the target does not have: every definition with it would stop the channel.
pub(super) async fn check(session: &mut Session, target: &TargetOptions) -> Result<()> {
    for (charset, collation) in target.collation_map.on_target() {
        let query = format!("SELECT CONVERT('' USING {charset}) COLLATE {collation}");
        match session.rows::<String>(&query).await {
            Ok(_) => {}
            Err(error) if error.code().is_some_and(|code| NO_SUCH.contains(&code)) => {
                return Err(PreflightError::Refused(format!(
                    "applier.collation_map: target {} has no collation {collation} of {charset} ({}); \
                     SHOW COLLATION there lists those that it has",
                    target.address(),
                    error.server_text()
                )));
            }
            Err(error) => return Err(PreflightError::Unreachable(error)),
        }
    }
    Ok(())
}
