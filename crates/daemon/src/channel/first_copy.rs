//! The copy with which a channel without a checkpoint begins (`start_from = "copy"`).

use tracing::info;

use super::error::ChannelError;
use super::watch::Watch;
use crate::config::ChannelSettings;
use crate::copy::{CopyOptions, CopySummary, copy};
use crate::verify::{Replicated, source_servers};

/// Makes the target a copy of the source, with the channel's first checkpoint. May be dropped anywhere: the next
/// copy begins again.
pub(super) async fn make(settings: &ChannelSettings, watch: &Watch) -> Result<(), ChannelError> {
    let options = CopyOptions {
        channel: settings.name.clone(),
        sources: source_servers(&settings.source),
        target: settings.target.clone(),
        lanes: CopyOptions::LANES,
    };
    let selection = Replicated::new(&settings.filters);
    let copied = copy(&options, &selection, &|progress| watch.copying(progress)).await;
    let CopySummary { tables, rows, elapsed, .. } =
        copied.map_err(|error| ChannelError::Refused(error.to_string()))?;
    info!(channel = settings.name, tables, rows, ?elapsed, "the target is a copy of the source");
    Ok(())
}
