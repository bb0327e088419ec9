//! A channel that waits while another daemon has it.

use std::time::Duration;

use csa_applier::Standby;
use tracing::info;

use super::error::ChannelError;
use super::identity::Taking;
use super::lifetime::Channel;

/// Time between two looks at the channel's lock, and so part of the time of a takeover.
const LOOK: Duration = Duration::from_secs(1);

impl Channel {
    /// Waits while another daemon holds the channel on the target; receives nothing meanwhile, as that
    /// one does. May be dropped anywhere.
    pub(super) async fn stand_by(&self, taking: &mut Taking) -> Result<(), ChannelError> {
        let (target, channel) = (&self.settings.target, self.name());
        let mut standby = Standby::open(target, channel, taking.identity.name()).await?;
        let mut is_waiting = false;
        while let Some(holder) = standby.holder().await? {
            if !is_waiting {
                is_waiting = true;
                // It is old by the time the channel is free.
                drop(self.kept.take(&self.settings, taking));
                self.reception.end().await;
                info!(holder, "standing by: another daemon has the channel");
            }
            self.watch.standing_by(&format!("another daemon has the channel ({holder})"));
            // A first copy that is interrupted has none, and is continued from here.
            taking.was_held = taking.was_held || standby.has_checkpoint().await?;
            tokio::time::sleep(LOOK).await;
        }
        standby.close().await;
        if is_waiting {
            info!("no daemon has the channel any more, taking it over");
        }
        Ok(())
    }
}
