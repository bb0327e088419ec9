//! The copy with which a channel without a checkpoint begins (`start_from = "copy"`), and the end of one that was
//! read in chunks.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use csa_applier::{Converging, ErrorClass, Pending};
use csa_provider::binlog::GtidSet;
use csa_provider::seams::Backoff;
use csa_provider::server::link::Side;
use csa_provider::source::{
    Foreign, PreflightError, ReceptionEnd, SourceCause, SourceFacts, preflight,
};
use tokio::sync::watch;
use tracing::{info, warn};

use super::error::ChannelError;
use super::live_settings::Controls;
use super::reception::{Received, Reception};
use super::rounds::forget_comparisons;
use super::watch::Watch;
use crate::config::ChannelSettings;
use crate::copy::{
    self, CopyError, CopyObserver, CopyOptions, CopyProgress, CopyStep, CopySummary, Pace,
};
use crate::verify::{Replicated, Scope, VerifyError};

/// The first pause before reception is tried again that could not begin, or lacks what is purged.
const AGAIN: Duration = Duration::from_secs(10);
/// The longest one: each attempt closes the store, from which the archive is filled.
const AGAIN_MAX: Duration = Duration::from_secs(300);

/// Makes the target a copy of the source, with the channel's first checkpoint, and receives meanwhile what follows
/// it: the source may purge that. May be dropped anywhere: the next copy continues, or begins again. Returns true if
/// the copy is whole.
pub(super) async fn make(
    settings: &Arc<ChannelSettings>,
    watch: &Watch,
    controls: &Controls,
    reception: &Reception,
) -> Result<bool, ChannelError> {
    // A command may have set another end.
    let options = CopyOptions { until: controls.until().get(), ..CopyOptions::of(settings) };
    let selection = Replicated::new(&settings.filters);
    let (begin, begun) = watch::channel(None);
    let observer = Observer { watch, reception, begin };
    let copied = tokio::select! {
        copied = copy::copy(&options, &selection, &observer) => copied,
        never = receive(settings, reception, begun) => match never {},
        never = pauses(controls, &options.pace) => match never {},
    };
    let CopySummary { tables, rows, elapsed, not_made, until, .. } =
        copied.map_err(channel_error)?;
    for refused in not_made {
        warn!("not copied: {refused}");
    }
    forget_comparisons(settings.directory());
    info!(tables, rows, ?elapsed, "all rows are copied");
    Ok(until.is_none())
}

/// Lets `pause` and `resume` count for the copy, too.
async fn pauses(controls: &Controls, pace: &Pace) -> Infallible {
    let mut tuning = controls.subscribe();
    loop {
        pace.set_paused(tuning.borrow_and_update().paused);
        if tuning.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// Shows a copy, and tells where it begins.
struct Observer<'a> {
    watch: &'a Watch,
    reception: &'a Reception,
    begin: watch::Sender<Option<GtidSet>>,
}

impl CopyObserver for Observer<'_> {
    fn progress(&self, progress: &CopyProgress) {
        self.watch.copying(progress);
    }

    fn ends_reception(&self) -> Pending<'_, ()> {
        Box::pin(self.reception.end())
    }

    fn begins_after(&self, executed: &GtidSet) {
        self.begin.send_replace(Some(executed.clone()));
    }
}

/// Receives what follows the copy's begin, once it is known.
async fn receive(
    settings: &Arc<ChannelSettings>,
    reception: &Reception,
    mut begun: watch::Receiver<Option<GtidSet>>,
) -> Infallible {
    let mut received: Option<Received> = None;
    let mut pauses = Backoff::new(AGAIN, AGAIN_MAX);
    loop {
        let has_begun = begun.borrow().is_some();
        let returned = async {
            match received.take() {
                Some(received) => {
                    may_begin_again(received, settings, &mut pauses).await;
                    info!("reception begins again");
                }
                None if has_begun => tokio::time::sleep(pauses.pause()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = begun.changed() => if changed.is_err() { return std::future::pending().await },
            () = returned => {}
        }
        let executed = begun.borrow_and_update().clone().unwrap_or_default();
        match attach(settings, reception, &executed).await {
            Ok(attached) => received = Some(attached),
            Err(error) => warn!(%error, "nothing is received while the source is copied"),
        }
    }
}

/// Returns once reception that has ended can be tried again.
async fn may_begin_again(
    received: Received,
    settings: &Arc<ChannelSettings>,
    pauses: &mut Backoff,
) {
    let mut end = received.end.clone();
    let is_purged = |end: &ReceptionEnd| end.error.cause() == SourceCause::Purged;
    let is_purged =
        end.wait_for(Option::is_some).await.is_ok_and(|end| end.as_ref().is_some_and(is_purged));
    if settings.archive.is_none() || !is_purged {
        return received.returns(Arc::clone(settings)).await;
    }
    // Only the archive may lack it, and the source never serves it again: `attach` passes over it.
    drop(received);
    tokio::time::sleep(pauses.pause()).await;
}

/// Receives what follows `executed`, and what the archive lacks of it: the copy has emptied the relay store.
async fn attach(
    settings: &Arc<ChannelSettings>,
    reception: &Reception,
    executed: &GtidSet,
) -> Result<Received, ChannelError> {
    let source = match &settings.archive {
        // The source may have purged something since the start.
        Some(_) => {
            let facts = preflight(&settings.source, None).await?;
            Some(SourceFacts { gtid_executed: executed.clone(), ..facts })
        }
        None => None,
    };
    // Nothing on the target came from elsewhere: the copy begins after what its source has.
    reception.attach(settings, executed, source.as_ref(), Foreign::default()).await
}

/// Adds what tables in chunks lack, once the channel has applied what changed while they were read. Returns false if
/// another daemon has done so.
pub(super) async fn complete(
    settings: &ChannelSettings,
    watch: &Watch,
    converging: &Converging,
) -> Result<bool, ChannelError> {
    watch.copy_step(CopyStep::Keys);
    let completed = copy::complete(&settings.target, &settings.name, converging).await;
    let is_whole = completed.map_err(channel_error)?;
    if is_whole {
        info!("the target is a copy of the source");
    }
    Ok(is_whole)
}

/// Makes the tables that a copy dropped before it was interrupted.
pub(super) async fn make_missing(
    settings: &ChannelSettings,
    converging: &Converging,
) -> Result<(), ChannelError> {
    let made = copy::make_missing(&settings.target, &settings.name, converging).await;
    made.map_err(channel_error)?;
    warn!("a copy was interrupted after it had dropped tables: they are made again, and empty");
    Ok(())
}

/// Returns the tables of a copy that has converged, which are to be compared.
pub(super) fn copied_tables(
    settings: &ChannelSettings,
    converging: &Converging,
) -> Result<Scope, ChannelError> {
    copy::copied_tables(&settings.name, converging).map_err(channel_error)
}

/// Tells a server that is away, or changed a table, from one that refuses: the channel tries the first again soon.
fn channel_error(error: CopyError) -> ChannelError {
    match error {
        CopyError::Claim(error) => ChannelError::Applier(error),
        CopyError::Written { address, source, .. }
        | CopyError::Asked(VerifyError::Server { side: Side::Target, address, source })
            if !ErrorClass::of(&source).is_failure() =>
        {
            ChannelError::Applier(csa_applier::Error::Target { address, source })
        }
        CopyError::Asked(
            ref asked @ VerifyError::Server { side: Side::Source, ref source, .. },
        ) if !ErrorClass::of(source).is_failure() => {
            ChannelError::Source(PreflightError::Unreachable(asked.to_string()))
        }
        // The next copy has the new definition.
        CopyError::Asked(error) if error.is_definition_change() => {
            ChannelError::Source(PreflightError::Unreachable(error.to_string()))
        }
        CopyError::Changed(why) | CopyError::Prepared(why) => {
            ChannelError::Source(PreflightError::Unreachable(why))
        }
        other => match other.code() {
            Some(code) => ChannelError::Answered { why: other.to_string(), code },
            None => ChannelError::Refused(other.to_string()),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::time::Duration;

    use csa_provider::server::link::LinkError;
    use csa_provider::source;
    use tokio::time::Instant;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::channel::error::Absent;
    use crate::config::Config;
    use crate::config::tests::in_folder;

    #[tokio::test]
    async fn reception_for_an_archive_waits_for_all_but_what_the_source_has_purged() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let text = in_folder(folder.path(), 1);
        let url = format!("file://{}", folder.path().display());
        let text = format!("{text}[channel.archive]\nurl = {url:?}\n");
        let settings = Arc::new(Config::parse(&text).expect("valid").channels.remove(0));
        let watch = Watch::new(&settings, Controls::new(&settings));
        let reception = Reception::new(watch, settings.directory(), CancellationToken::new());
        let attached = reception.attach(&settings, &GtidSet::new(), None, Foreign::default()).await;
        let received = attached.expect("opened");
        reception.end().await;
        tokio::time::pause();
        let mut pauses = Backoff::new(AGAIN, AGAIN_MAX);
        for (cause, expected) in [
            (SourceCause::Purged, Some(10)),
            (SourceCause::Purged, Some(20)),
            (SourceCause::Stream, None),
        ] {
            let error = Arc::new(source::Error::Refused {
                address: "s:1".to_owned(),
                at: "the start".to_owned(),
                message: "refused".to_owned(),
                cause,
            });
            let (_ended, end) = watch::channel(Some(ReceptionEnd { error, gtid: None }));
            let mut received = received.clone();
            received.end = end;
            let begun = Instant::now();
            let again = may_begin_again(received, &settings, &mut pauses);
            let again = tokio::time::timeout(3 * AGAIN, again).await;
            assert_eq!(again.ok().map(|()| begun.elapsed().as_secs()), expected, "{cause:?}");
        }
    }

    #[test]
    fn a_server_that_goes_away_during_a_copy_is_waited_for() {
        let reset = || LinkError::from(std::io::Error::from(ErrorKind::ConnectionReset));
        let answer =
            |code| move || LinkError::Server { code, message: "the server's words".to_owned() };
        let errors: [(&dyn Fn() -> LinkError, bool); 5] = [
            (&reset, true),
            (&|| LinkError::Closed, true),
            (&|| LinkError::Timeout(Duration::from_secs(10)), true),
            // It shuts down.
            (&answer(1053), true),
            // Its storage engine fails.
            (&answer(1030), false),
        ];
        for (source, passes) in errors {
            let address = || "db:3306".to_owned();
            for (side, server) in [(Side::Source, Absent::Source), (Side::Target, Absent::Target)] {
                let asked = VerifyError::Server { side, address: address(), source: source() };
                let error = channel_error(CopyError::Asked(asked));
                assert!(error.to_string().contains(&format!("{side} db:3306")), "{error}");
                assert_eq!(error.absent(), passes.then_some(server), "{error}");
            }
            let what = "INSERT".to_owned();
            let written = CopyError::Written { address: address(), what, source: source() };
            assert_eq!(channel_error(written).absent(), passes.then_some(Absent::Target));
        }
    }
}
