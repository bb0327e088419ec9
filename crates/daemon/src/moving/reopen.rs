//! Opens the new server again that was opened, or may have been, and was closed since.

use std::time::Duration;

use tokio::time::Instant;

use super::decide::ServerAccess;
use super::mover::{MoveStop, Mover, PATIENCE, Taken};
use crate::config::FenceMeans;

const POLL: Duration = Duration::from_millis(100);

impl Mover<'_> {
    /// Opens the new server if it is closed, once it has everything of the old one. That one may have taken writes
    /// meanwhile, if somebody had opened it by hand and has closed it again.
    pub(super) async fn reopen(&mut self) -> Taken {
        let (from, to) = (self.from.address(), self.to.address());
        if self.fence.access(&mut self.to).await? == ServerAccess::Open {
            return Ok(());
        }
        self.let_channels_write().await?;
        let name = self.forward().name.clone();
        let until = Instant::now() + PATIENCE;
        let mut is_restarted = false;
        loop {
            if self.fence.access(&mut self.from).await? == ServerAccess::Open {
                return Err(MoveStop::Again(format!("{from} takes writes")));
            }
            let executed = self.from.executed().await?;
            let lacking = executed.difference(&self.to.applied(&name).await?);
            if lacking.is_empty() {
                break;
            }
            if self.stop.is_cancelled() || Instant::now() > until {
                return Err(MoveStop::End(format!(
                    "{to} was closed after it was opened, and lacks {} of {from}, so neither takes writes; see \
                     csa-daemon status --channel {name}, and run the same command again",
                    lacking.brief()
                )));
            }
            // It may wait long before it tries the server again.
            is_restarted = is_restarted || self.daemon.command(&name, "restart").is_ok();
            tokio::time::sleep(POLL).await;
        }
        self.daemon.tell(&format!("{to} has been closed since it was opened; it is opened again"));
        self.fence.set(&mut self.to, ServerAccess::Open).await?;
        Ok(())
    }

    /// Waits once more until the new server has everything, where it has restarted and may have been open before:
    /// the old one may have been open meanwhile, too.
    pub(super) async fn wait_again(&mut self) -> Taken {
        if self.fence.access(&mut self.from).await? == ServerAccess::Following {
            self.fence.set(&mut self.from, ServerAccess::Closed).await?;
        }
        self.let_channels_write().await?;
        self.wait().await
    }

    /// Lets the channel bring to the new server what that one lacks.
    async fn let_channels_write(&mut self) -> Taken {
        // Other fences never stop channels.
        if self.pair.settings.fence == FenceMeans::ReadOnly
            && self.fence.access(&mut self.to).await? == ServerAccess::Closed
        {
            self.fence.set(&mut self.to, ServerAccess::Following).await?;
        }
        Ok(())
    }
}
