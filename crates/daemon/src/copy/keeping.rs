//! Signs of life of a copy while something takes its time.

use std::time::Duration;

use csa_applier::CopyClaim;
use csa_provider::seams::unhurried;

use super::error::Result;

/// Time between two signs of life to the target.
pub(super) const PING: Duration = Duration::from_secs(20);

/// Keeps the claim for as long as something takes, such as an index.
pub(super) async fn keeping<T>(
    claim: &mut CopyClaim,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    tokio::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            () = tokio::time::sleep(unhurried(PING)) => claim.ping().await?,
        }
    }
}
