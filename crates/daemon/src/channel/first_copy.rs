//! The copy with which a channel without a checkpoint begins (`start_from = "copy"`), and the end of one that was
//! read in chunks.

use csa_applier::Converging;
use csa_provider::server::link::{LinkError, Side};
use csa_provider::source::PreflightError;
use tracing::{info, warn};

use super::error::ChannelError;
use super::watch::Watch;
use crate::config::ChannelSettings;
use crate::copy::{self, CopyError, CopyOptions, CopyStep, CopySummary};
use crate::verify::{Replicated, VerifyError, source_servers};

/// Makes the target a copy of the source, with the channel's first checkpoint. May be dropped anywhere: the next
/// copy begins again.
pub(super) async fn make(settings: &ChannelSettings, watch: &Watch) -> Result<(), ChannelError> {
    let options = CopyOptions {
        channel: settings.name.clone(),
        sources: source_servers(&settings.source),
        target: settings.target.clone(),
        lanes: CopyOptions::LANES,
        snapshot_bytes: CopyOptions::SNAPSHOT_BYTES,
    };
    let selection = Replicated::new(&settings.filters);
    let copied = copy::copy(&options, &selection, &|progress| watch.copying(progress)).await;
    let CopySummary { tables, rows, elapsed, not_made, .. } = copied.map_err(channel_error)?;
    for refused in not_made {
        warn!(channel = settings.name, "not copied: {refused}");
    }
    info!(channel = settings.name, tables, rows, ?elapsed, "all rows are copied");
    Ok(())
}

/// Adds what tables in chunks lack, once the channel has applied what changed while they were read.
pub(super) async fn complete(
    settings: &ChannelSettings,
    watch: &Watch,
    converging: &Converging,
) -> Result<(), ChannelError> {
    watch.copy_step(CopyStep::Keys);
    let completed = copy::complete(&settings.target, &settings.name, converging).await;
    completed.map_err(channel_error)?;
    info!(channel = settings.name, "the target is a copy of the source");
    Ok(())
}

/// Tells a server that went away, or changed a table, from one that refuses: the channel tries the first again soon.
fn channel_error(error: CopyError) -> ChannelError {
    let is_answer = |source: &LinkError| matches!(source, LinkError::Server { .. });
    match error {
        CopyError::Claim(error) => ChannelError::Applier(error),
        CopyError::Written { address, source, .. } if !is_answer(&source) => {
            ChannelError::Applier(csa_applier::Error::Target { address, source })
        }
        CopyError::Asked(VerifyError::Server { server, source })
            if !is_answer(&source) && server.starts_with(&Side::Source.to_string()) =>
        {
            ChannelError::Source(PreflightError::Unreachable(format!("{server}: {source}")))
        }
        // The next copy has the new definition.
        CopyError::Asked(error) if error.is_definition_change() => {
            ChannelError::Source(PreflightError::Unreachable(error.to_string()))
        }
        CopyError::Changed(why) => ChannelError::Source(PreflightError::Unreachable(why)),
        other => ChannelError::Refused(other.to_string()),
    }
}
