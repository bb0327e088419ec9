//! Starts, stops and awaits either applier.

use anyhow::Result;

use super::stage::{Applier, Stage};
use super::{csa, mta};

impl Stage {
    /// Starts one applier and waits until it has applied everything.
    pub(super) async fn catch_up(&self, applier: Applier, mta_workers: u32) -> Result<()> {
        match applier {
            Applier::Mta => mta::start(self, mta_workers).await,
            Applier::Csa => csa::start(self),
        }
        self.wait_applied(applier).await
    }

    /// Waits until everything that the source has executed at the call is executed on the target.
    pub(super) async fn wait_applied(&self, applier: Applier) -> Result<()> {
        match applier {
            Applier::Mta => mta::wait_applied(self).await,
            Applier::Csa => csa::wait_applied(self).await,
        }
    }

    pub(super) async fn stop(&self, applier: Applier) -> Result<()> {
        match applier {
            Applier::Mta => mta::stop(self).await,
            Applier::Csa => csa::stop(self)?,
        }
        Ok(())
    }
}
