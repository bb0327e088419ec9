//! Logs in to a server, before any session is set up.

use csa_provider::server::link::{Link, LinkError, Side};

use crate::error::{Error, Result};
use crate::options::TargetOptions;
use crate::server::search;

/// Logs in to a server and sets nothing up; errors and the keys they name call it `side`.
///
/// # Errors
/// [`Error::Target`] or [`Error::Timeout`], and [`Error::Unfit`] if no server can be the target now.
pub async fn connect(server: &TargetOptions, side: Side) -> Result<Link> {
    search::settle(server).await?;
    Link::connect(&server.link(side)).await.map_err(|source| {
        let address = server.address();
        match source {
            LinkError::Timeout(after) => Error::Timeout { address, seconds: after.as_secs() },
            source => Error::Target { address, source },
        }
    })
}
