//! `restore`: a recording of a source's stream is applied to a target, up to an end, and exactly.

mod folder;

use std::sync::Arc;
use std::time::{Duration, Instant};

use csa_applier::same_server;
use csa_provider::binlog::GtidSet;
use csa_provider::source::RecordingError;
use csa_relaystore::disk::{Error, RelayStoreOptions};
use csa_scheduler::until::Until;
use tokio_util::sync::CancellationToken;

use crate::archive::replay::{Extent, FoundRecording, Goal, RecordedPlace, RecordedUpTo};
use crate::channel::Supervisor;
use crate::config::{ChannelSettings, DurationValue};
use crate::host::{self, Failure, micros_of};
use crate::observe::view::{ChannelState, ChannelView};

use folder::RestoreFolder;

/// Time between two looks at the channel.
const LOOK: Duration = Duration::from_millis(200);

/// The end that an operator wants.
#[derive(Debug, Clone)]
pub(crate) enum Wanted {
    /// Everything in the recording.
    Everything,
    /// Transactions committed before this moment, in microseconds since the epoch.
    BeforeTime(u64),
    /// Up to and including these transactions.
    After(GtidSet),
    /// Up to the first of these transactions.
    Before(GtidSet),
}

impl Wanted {
    const fn goal(&self) -> Goal<'_> {
        match self {
            Self::Everything => Goal::Everything,
            Self::BeforeTime(_) => Goal::Moment,
            Self::After(set) | Self::Before(set) => Goal::Gtids(set),
        }
    }
}

/// A restore that is known to be possible.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) settings: ChannelSettings,
    folder: RestoreFolder,
    /// The target's transactions.
    pub(crate) executed: GtidSet,
    pub(crate) extent: Extent,
    /// The recording ends before the moment that is wanted.
    pub(crate) is_short: bool,
    /// The history that was chosen among several of the archive.
    pub(crate) one_of_several: Option<String>,
}

/// The end of a restore.
#[derive(Debug)]
pub(crate) struct Restored {
    pub(crate) view: ChannelView,
    pub(crate) elapsed: Duration,
    /// The end is reached; otherwise it was stopped before.
    pub(crate) is_whole: bool,
}

/// Looks at the target and the recording, and decides where the channel of `settings` stops. Writes nothing.
///
/// # Errors
/// The target refuses a channel, or the recording lacks what is needed.
pub(crate) async fn plan(
    mut settings: ChannelSettings,
    place: RecordedPlace,
    wanted: Wanted,
) -> Result<Planned, Failure> {
    let folder = RestoreFolder::at(settings.directory()).map_err(Failure::Input)?;
    let target = csa_applier::preflight(&settings.target, &settings.name)
        .await
        .map_err(|error| Failure::Input(error.to_string()))?;
    let of_checkpoint = target.executed(settings.target.gtids);
    let executed = of_checkpoint.unwrap_or_else(|| target.gtid_executed.clone());
    let input = |error: String| Failure::Input(error);
    let failure = |error| match error {
        RecordingError::Away(why) => Failure::Runtime(why),
        error => Failure::Input(error.to_string()),
    };
    let found = place.find(&executed, wanted.goal()).await.map_err(failure)?;
    let FoundRecording { source, one_of_several } = found;
    let mut stream = source.open().map_err(|error| input(error.to_string()))?;
    let extent = stream.extent(&executed).await.map_err(failure)?;
    // The recording may have what another channel has brought from the target to the source.
    let missing = extent.end.difference(&executed).difference(&target.gtid_executed);
    if let Some(server) = target.server_uuid.filter(|uuid| missing.has_uuid(uuid)) {
        return Err(input(same_server(server).join("; ")));
    }
    let name = source.name();
    let (until, is_short) = until(&name, wanted, &executed, &extent).map_err(input)?;
    // Names the recording where a channel names its source, and is never connected to.
    settings.source.host = name;
    settings.recorded = Some(RecordedUpTo { source, end: extent.end.clone() });
    settings.until = Some(until);
    leave_to_channel(&mut settings);
    Ok(Planned { settings, folder, executed, extent, is_short, one_of_several })
}

/// Takes away what has a sense only while the channel follows its source, and would fail or slow a restore.
fn leave_to_channel(settings: &mut ChannelSettings) {
    settings.source.failover = Vec::new();
    settings.source.semi_sync = false;
    settings.archive = None;
    settings.relay.archived = false;
    settings.copies_first = false;
    settings.is_start_unsaid = false;
    settings.start_from = csa_applier::StartFrom::Target;
    settings.applier.standby = false;
    settings.declared.source_delay = DurationValue(Duration::ZERO);
    settings.declared.throttle = 0;
    settings.throttle_by = Arc::default();
}

/// Returns the end of the channel, and whether the recording ends before the moment that is wanted.
fn until(
    name: &str,
    wanted: Wanted,
    executed: &GtidSet,
    extent: &Extent,
) -> Result<(Until, bool), String> {
    let mut known = extent.end.clone();
    known.union(executed);
    let gap = extent.gap.as_ref();
    let mut reached = gap.map_or_else(|| known.clone(), |gap| gap.reached.clone());
    reached.union(executed);
    let lacks = |set: &GtidSet| {
        let missing = set.difference(&reached);
        (!missing.is_empty()).then(|| {
            let missing = missing.brief();
            if let Some(gap) = gap {
                return format!(
                    "{name} can't be applied up to {missing}: it lacks {}. Give an end within {}, or restore a backup \
                     that was made after the gap, and begin from there",
                    gap.missing.brief(),
                    reached.brief()
                );
            }
            format!(
                "{name} does not have {missing}; it ends with {}{}",
                extent.end.brief(),
                match extent.last_committed.as_str() {
                    "" => String::new(),
                    time => format!(", committed at {time}"),
                }
            )
        })
    };
    match wanted {
        Wanted::Everything => Ok((Until::AfterGtids(known), false)),
        Wanted::BeforeTime(time) => {
            let is_short = micros_of(&extent.last_committed).is_some_and(|last| last < time);
            Ok((Until::BeforeTimeWithin(time, known), is_short))
        }
        Wanted::After(set) => match lacks(&set) {
            Some(why) => Err(why),
            None => Ok((Until::AfterGtids(set), false)),
        },
        Wanted::Before(set) => {
            let there = set.intersection(executed);
            if !there.is_empty() {
                return Err(format!("the target already has {}", there.brief()));
            }
            match lacks(&set) {
                Some(why) => Err(why),
                None => Ok((Until::BeforeGtids(set), false)),
            }
        }
    }
}

/// Applies the recording until the end, `stop`, or a failure; `kill` gives up what still runs then. `show` sees the
/// channel a few times a second.
///
/// # Errors
/// The cause of a failure; everything before it is committed, and the same command continues there.
pub(crate) async fn restore(
    planned: Planned,
    stop: CancellationToken,
    kill: CancellationToken,
    mut show: impl FnMut(&ChannelView),
) -> Result<Restored, Failure> {
    let begun = Instant::now();
    let Planned { settings, folder, .. } = planned;
    let wrong = |error| Failure::Runtime(format!("{}: {error}", settings.directory().display()));
    folder.begin().map_err(wrong)?;
    empty_relay_store(&settings.relay).await?;
    let channel = Arc::new(Supervisor::new(settings, stop.clone(), kill));
    channel.start().await;
    let error = watched(&channel, &stop, &mut show).await;
    stop.cancel();
    let finished = channel.finish().await;
    // Only now: a stop and the end look alike while the channel runs.
    let (view, is_whole) = (channel.view(), channel.has_stopped_at_end());
    if let (false, Some(error)) = (is_whole, error) {
        return Err(Failure::Runtime(error));
    }
    finished.map_err(Failure::Runtime)?;
    if is_whole {
        // Nothing in it is needed again. All is applied, also if it can't be removed.
        drop(folder.remove());
    }
    Ok(Restored { view, elapsed: begun.elapsed(), is_whole })
}

/// Shows the channel until it has ended or failed, or until `stop`; returns its last error then.
async fn watched(
    channel: &Supervisor,
    stop: &CancellationToken,
    show: &mut impl FnMut(&ChannelView),
) -> Option<String> {
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(LOOK) => {}
        }
        channel.sample();
        let view = channel.view();
        show(&view);
        // A channel would try again in a minute; whoever restores wants to know at once.
        if matches!(view.state, ChannelState::Stopped | ChannelState::Failed) {
            break;
        }
    }
    channel.view().last_error.map(|error| error.message)
}

/// Empties the relay store of an earlier attempt. Its target may have been restored to less since, or its recording was
/// another one, which gives the same GTIDs to other transactions. The target says how far it is, and the recording can
/// be read again.
async fn empty_relay_store(options: &RelayStoreOptions) -> Result<(), Failure> {
    host::empty_relay_store(options).await.map_err(|error| match error {
        Error::Locked { .. } => Failure::Runtime(format!(
            "{error}: another restore of the channel runs; wait for its end, or give another --state-dir"
        )),
        error => Failure::Runtime(format!("the relay store can't be emptied: {error}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::replay::RecordedGap;
    use crate::config::Config;
    use crate::config::tests::MINIMAL;

    fn set(intervals: &str) -> GtidSet {
        format!("07070707-0707-0707-0707-070707070707:{intervals}").parse().expect("a set")
    }

    #[test]
    fn nothing_of_the_channel_holds_a_restore_back() {
        let text = format!(
            "{MINIMAL}[channel.applier]\nsource_delay = \"1h\"\nthrottle = 5\n\
             [channel.throttle_by]\nthreads_running = 3\n"
        );
        let mut settings = Config::parse(&text).expect("valid").channels.remove(0);
        leave_to_channel(&mut settings);
        assert_eq!(settings.declared.source_delay, DurationValue(Duration::ZERO));
        assert_eq!(settings.declared.throttle, 0);
        assert!(!settings.throttle_by.is_set());
    }

    #[test]
    fn ends_in_a_gap_or_after_it_are_refused() {
        let gap = RecordedGap { reached: set("1-10"), missing: set("11-15") };
        let extent = Extent { end: set("1-20"), gap: Some(gap), ..Extent::default() };
        let decide = |wanted| until("file:///a", wanted, &set("1-5"), &extent);
        assert!(decide(Wanted::After(set("1-10"))).is_ok());
        assert!(decide(Wanted::Before(set("10"))).is_ok());
        for end in ["10-11", "15", "16", "1-20", "21"] {
            for wanted in
                [Wanted::After(set(end)), Wanted::Before(set(end).difference(&set("1-5")))]
            {
                let said = decide(wanted).expect_err("not reached");
                assert!(said.contains("lacks") && said.contains(":11-15"), "{end}: {said}");
            }
        }
        // What is there is applied, and the channel fails at the gap.
        assert_eq!(decide(Wanted::Everything), Ok((Until::AfterGtids(set("1-20")), false)));
    }

    #[test]
    fn ends_beyond_the_recording_are_refused_or_said() {
        let extent = Extent {
            end: set("1-20"),
            last_committed: "2026-11-26T08:00:00Z".to_owned(),
            ..Extent::default()
        };
        let has = set("1-10");
        let at = |text: &str| Wanted::BeforeTime(micros_of(text).expect("a time"));
        let decide = |wanted| until("file:///a", wanted, &has, &extent);
        assert_eq!(decide(Wanted::Everything), Ok((Until::AfterGtids(set("1-20")), false)));
        for (time, is_short) in [("07:59:00", false), ("08:01:00", true)] {
            let (until, short) = decide(at(&format!("2026-11-26T{time}Z"))).expect("a time");
            assert_eq!(short, is_short);
            // The clock may have been set back before the last commit.
            assert!(matches!(until, Until::BeforeTimeWithin(_, all) if all == set("1-20")));
        }
        assert!(decide(Wanted::After(set("15"))).is_ok());
        let beyond = decide(Wanted::After(set("19-21"))).expect_err("beyond");
        assert!(beyond.contains(":21") && beyond.contains("08:00:00"), "{beyond}");
        assert!(decide(Wanted::Before(set("15"))).is_ok());
        let applied = decide(Wanted::Before(set("10-15"))).expect_err("applied");
        assert!(applied.contains("already has"), "{applied}");
    }
}
