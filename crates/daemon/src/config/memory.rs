//! The memory of all channels together. Each has a limit of its own, and nothing else bounds their sum.

use csa_relaystore::disk::RelayStoreOptions;

use super::settings::{ChannelSettings, event_memory_limit};

/// Bytes that the process takes in addition to what its channels hold.
const PROCESS: u64 = 100 << 20;

/// Returns a warning if the channels may take more than is `available`.
pub(super) fn warning(channels: &[ChannelSettings], available: Option<u64>) -> Option<String> {
    let of_channel = |channel: &ChannelSettings| {
        let events = match channel.archives_only() {
            true => 0,
            false => event_memory_limit(channel.declared.event_memory_limit).0,
        };
        events.saturating_add(RelayStoreOptions::TAIL_BYTES as u64)
    };
    let wanted = channels.iter().map(of_channel).fold(PROCESS, u64::saturating_add);
    let available = available.filter(|&available| wanted > available)?;
    Some(format!(
        "all channels together may take {} MiB of memory (event_memory_limit of each, and what has just been received), and \
         {} MiB are available now; lower event_memory_limit, for all channels in [defaults.applier]",
        wanted >> 20,
        available >> 20
    ))
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::super::tests::MINIMAL;
    use super::*;

    #[test]
    fn the_sum_of_all_channels_counts() {
        let config = Config::parse(MINIMAL).expect("no errors");
        let one = (256 + 16 + 100) << 20;
        assert_eq!(warning(&config.channels, Some(one)), None);
        assert_eq!(warning(&config.channels, None), None, "it is not known");
        let said = warning(&config.channels, Some(one - 1)).expect("too little");
        assert!(said.contains("372 MiB") && said.contains("371 MiB"), "{said}");
        let config =
            Config::parse(&format!("{MINIMAL}[channel.applier]\nevent_memory_limit = \"1GiB\"\n"));
        let channels = config.expect("no errors").channels;
        let said = warning(&channels, Some(one)).expect("too little");
        assert!(said.contains("1140 MiB") && said.contains("[defaults.applier]"), "{said}");
    }
}
