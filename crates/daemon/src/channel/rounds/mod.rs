//! Compares both servers of a channel from time to time, at a gentle rate (`[channel.verify]`). A round is a comparison
//! of all tables; between two rounds only tables that differ are looked at again. A round that is interrupted, by
//! whatever, continues where it was.

mod kept;
mod plan;
mod result;
pub(super) mod status;

use std::convert::Infallible;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use csa_provider::seams::{Backoff, unhurried};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tracing::{Instrument as _, debug, error, info, warn};

use super::supervisor::Supervisor;
use crate::config::{ChannelSettings, VerifyEvery};
use crate::host::{blocking, now_micros};
use crate::observe::view::ChannelView;
use crate::verify::{
    Outcome, Replicated, Saved, Scope, TableName, VerifyError, VerifyEvent, VerifyOptions,
    VerifyReport, source_servers, verify,
};
pub(crate) use kept::forget_comparisons;
use kept::{Kept, KeptRound, is_removed};
use plan::{NextRound, is_elsewhere, is_replaced, next, refusal};
use status::RoundsStatus;

/// Between two looks at the channel.
const LOOK: Duration = Duration::from_secs(1);
/// Rows wait while the target lags by more; beyond [`plan::LAG_MAX`] the round is interrupted.
const LAG: Duration = Duration::from_secs(10);
/// Looks in a row that find a reason to interrupt: sessions are not opened again for each wait for a lock.
const REASONS: u32 = 5;
/// A table is left out after so many interruptions without success, or the round would never end.
const INTERRUPTIONS_MAX: u32 = 3;
const PAUSE: Duration = Duration::from_secs(30);
const PAUSE_MAX: Duration = Duration::from_secs(600);

/// The end of an attempt.
enum Ended {
    Compared(Result<VerifyReport, VerifyError>),
    Interrupted(String),
}

impl Supervisor {
    /// Compares both servers from time to time, as the settings say. Never ends; may be dropped anywhere. `permits` bound
    /// the comparisons of the daemon.
    pub(crate) async fn keep_compared(&self, permits: &Semaphore) {
        let kept = again(self.rounds(), move || keep(self, permits));
        match kept.instrument(self.span()).await {}
    }
}

/// Does the work again whenever it panics, after a pause. In a task of its own it would end later than this one, if this
/// one is aborted.
async fn again<F: Future<Output = Infallible>>(
    status: &RoundsStatus,
    work: impl Fn() -> F,
) -> Infallible {
    let mut backoff = Backoff::new(unhurried(PAUSE), unhurried(PAUSE_MAX));
    loop {
        let mut working = pin!(work());
        let panicked = poll_fn(|context| {
            let polled = catch_unwind(AssertUnwindSafe(|| working.as_mut().poll(context)));
            match polled {
                Ok(poll) => poll.map(|never| match never {}),
                Err(_) => Poll::Ready(()),
            }
        });
        panicked.await;
        let why = "the comparison panicked";
        status.failed(why);
        error!("source and target are not compared: {why}; trying again");
        tokio::time::sleep(backoff.pause()).await;
    }
}

async fn keep(channel: &Supervisor, permits: &Semaphore) -> Infallible {
    let status = channel.rounds();
    let mut known: Option<Kept> = None;
    let mut backoff = Backoff::new(unhurried(PAUSE), unhurried(PAUSE_MAX));
    let mut tries_again = Instant::now();
    loop {
        tokio::time::sleep(LOOK).await;
        let rule = channel.controls().verify_every();
        if !rule.is_on() {
            known = None;
            status.off();
            continue;
        }
        let settings = channel.started_with();
        let kept = match &mut known {
            Some(kept) => kept,
            None => {
                let directory = settings.directory().to_owned();
                let read = blocking(move || Kept::read(&directory)).await.unwrap_or_default();
                status.set_last(&settings.name, read.last.as_ref());
                known.insert(read)
            }
        };
        status.on(&rule);
        if forget_outdated(kept, &channel.view(), settings.directory()).await {
            status.set_last(&settings.name, None);
        }
        if Instant::now() < tries_again {
            continue;
        }
        let tables = match next(kept, rule.every, now_micros()) {
            NextRound::Round(tables) => tables,
            NextRound::At(micros) => {
                status.waiting(micros);
                continue;
            }
        };
        if let Some(why) = refusal(&channel.view(), &rule, now_micros(), false) {
            status.held(&why);
            continue;
        }
        let Ok(_permit) = permits.try_acquire() else {
            status.held("other channels of the daemon are compared");
            continue;
        };
        let failures = status.failures();
        match round(channel, &settings, kept, tables, &rule).await {
            Ok(()) => {
                if failures > 0 {
                    info!(failures, "the comparison continues");
                }
                status.succeeded();
                backoff.restart();
            }
            Err(why) => {
                match status.failed(&why) {
                    1 => warn!(error = %why, "source and target are not compared; trying again"),
                    _ => debug!(error = %why, "source and target are not compared; trying again"),
                }
                tries_again = Instant::now() + backoff.pause();
            }
        }
    }
}

/// Drops what says nothing about the target as it is now: a copy was made since, or another daemon has had the channel.
/// Returns true if something was dropped.
async fn forget_outdated(kept: &mut Kept, view: &ChannelView, directory: &Path) -> bool {
    let knows = kept.round.is_some() || kept.last.is_some();
    let is_outdated = knows && (is_replaced(view) || is_elsewhere(view));
    if is_outdated {
        *kept = Kept::default();
        write(kept, directory).await;
    } else if is_gone(kept, directory).await {
        info!("another copy was made: all tables are compared again");
        *kept = Kept::default();
        return true;
    }
    is_outdated
}

/// Begins or continues a round. Returns `Ok` at its end, and where it was interrupted.
async fn round(
    channel: &Supervisor,
    settings: &ChannelSettings,
    kept: &mut Kept,
    tables: Vec<String>,
    rule: &VerifyEvery,
) -> Result<(), String> {
    let status = channel.rounds();
    let begun = kept.round.as_ref().map_or_else(now_micros, |round| round.begun_at);
    let saved = kept.round.as_ref().and_then(|round| round.saved.clone());
    let options = options(settings, &tables, rule, saved)?;
    status.comparing(begun);
    let newest: Mutex<Option<Saved>> = Mutex::new(None);
    let observe = |event: VerifyEvent<'_>| take_note(event, status, &newest);
    let directory = settings.directory().to_owned();
    let selection = Replicated::new(&settings.filters);
    let mut ended = None;
    {
        let compared = verify(&options, &selection, &observe);
        let interrupted = interrupted(channel);
        tokio::pin!(compared, interrupted);
        while ended.is_none() {
            tokio::select! {
                report = &mut compared => ended = Some(Ended::Compared(report)),
                why = &mut interrupted => ended = Some(Ended::Interrupted(why)),
                () = tokio::time::sleep(LOOK) => {}
            }
            let Some(saved) = newest.lock().take() else { continue };
            kept.round = Some(KeptRound::new(begun, &tables, Some(saved)));
            write(kept, &directory).await;
        }
    }
    // A comparison that is dropped says what it has compared since.
    let last = newest.lock().take();
    if let Some(saved) = last {
        kept.round = Some(KeptRound::new(begun, &tables, Some(saved)));
        write(kept, &directory).await;
    }
    match ended {
        Some(Ended::Compared(Ok(report))) => {
            kept.finish(&settings.name, &report, &tables, begun);
            write(kept, &directory).await;
            status.set_last(&settings.name, kept.last.as_ref());
            let last = status.text();
            match report.outcome() {
                Outcome::Different => warn!("{last}"),
                Outcome::Equal | Outcome::Unstable => info!("{last}"),
            }
            Ok(())
        }
        Some(Ended::Compared(Err(error))) => {
            kept.round.get_or_insert_with(|| KeptRound::new(begun, &tables, None));
            Err(error.to_string())
        }
        Some(Ended::Interrupted(why)) => {
            kept.round.get_or_insert_with(|| KeptRound::new(begun, &tables, None));
            status.held(&why);
            Ok(())
        }
        None => Ok(()),
    }
}

/// Shows the progress, logs what differs or is left out, and keeps the newest state.
fn take_note(event: VerifyEvent<'_>, status: &RoundsStatus, newest: &Mutex<Option<Saved>>) {
    match event {
        VerifyEvent::Saved(saved) => *newest.lock() = Some(saved.clone()),
        VerifyEvent::Progress(progress) | VerifyEvent::Resumed(progress) => {
            status.progress(progress)
        }
        VerifyEvent::Table(table) if !table.compared_before => {
            if table.outcome == Outcome::Different {
                error!("the target differs from the source in {}", table.table);
            } else if let Some(why) = &table.left_out {
                info!("{} is not compared in full: {why}", table.table);
            }
        }
        VerifyEvent::Table(_) => {}
    }
}

fn options(
    settings: &ChannelSettings,
    tables: &[String],
    rule: &VerifyEvery,
    saved: Option<Saved>,
) -> Result<VerifyOptions, String> {
    let tables = tables.iter().map(|table| table.parse::<TableName>());
    let tables: Vec<TableName> = tables.collect::<Result<_, _>>()?;
    let source = source_servers(&settings.source);
    let options = VerifyOptions::new(&settings.name, source, (*settings.target).clone());
    // Several chunks in a second, and not one with a long pause after it.
    let chunk_rows = rule.rows_per_second.map_or(options.chunk_rows, |rate| rate.div_ceil(4));
    Ok(VerifyOptions {
        scope: Scope { schemas: Vec::new(), tables, may_be_dropped: true },
        chunk_rows: chunk_rows.min(options.chunk_rows),
        max_rate: rule.rows_per_second,
        max_lag: Some(LAG),
        resume: saved,
        interruptions_max: Some(INTERRUPTIONS_MAX),
        ..options
    })
}

/// Waits for a reason to interrupt a round.
async fn interrupted(channel: &Supervisor) -> String {
    let begun_with = channel.controls().verify_every();
    let mut reasons = 0;
    loop {
        tokio::time::sleep(LOOK).await;
        let rule = channel.controls().verify_every();
        if rule != begun_with {
            return "its settings have changed".to_owned();
        }
        match refusal(&channel.view(), &rule, now_micros(), true) {
            Some(why) if reasons + 1 == REASONS => return why,
            Some(_) => reasons += 1,
            None => reasons = 0,
        }
    }
}

async fn write(kept: &mut Kept, directory: &Path) {
    let (mut own, directory) = (kept.clone(), directory.to_owned());
    let written = blocking(move || {
        own.write(&directory);
        own
    });
    // A failure costs what was compared since the last one that succeeded.
    if let Ok(own) = written.await {
        *kept = own;
    }
}

async fn is_gone(kept: &Kept, directory: &Path) -> bool {
    let directory = directory.to_owned();
    kept.is_on_disk && blocking(move || is_removed(&directory)).await.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::result::LastRound;
    use super::*;
    use crate::observe::view::ChannelState;

    async fn panics(begun: &AtomicU32) -> Infallible {
        begun.fetch_add(1, Ordering::Relaxed);
        panic!("a bug")
    }

    #[tokio::test(start_paused = true)]
    async fn a_comparison_that_panics_is_tried_again_ever_later() {
        let (status, begun) = (RoundsStatus::default(), AtomicU32::new(0));
        let hour = Duration::from_secs(3600);
        let ended = tokio::time::timeout(hour, again(&status, || panics(&begun))).await;
        assert!(ended.is_err(), "it never ends");
        // After pauses of 30, 60, 120, 240 and 480 s, and then of 600 s.
        assert_eq!((begun.into_inner(), status.failures()), (10, 10));
        let detail = status.view().expect("shown").detail;
        assert!(detail.contains("panicked"), "{detail}");
    }

    #[tokio::test]
    async fn a_result_ends_once_another_daemon_has_the_channel() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut kept = Kept { last: Some(LastRound::default()), ..Kept::default() };
        kept.write(folder.path());
        let standby = ChannelView { state: ChannelState::Standby, ..ChannelView::default() };
        let joining = ChannelView { is_joining: true, ..standby.clone() };
        let running = ChannelView { state: ChannelState::Running, ..ChannelView::default() };
        for view in [joining, running] {
            assert!(!forget_outdated(&mut kept, &view, folder.path()).await, "{view:?}");
        }
        assert!(forget_outdated(&mut kept, &standby, folder.path()).await);
        assert!(kept.last.is_none() && Kept::read(folder.path()).last.is_none());
        assert!(!forget_outdated(&mut kept, &standby, folder.path()).await, "no news");
        kept.round = Some(KeptRound::new(1, &[], None));
        assert!(forget_outdated(&mut kept, &standby, folder.path()).await, "a round, too");
    }
}
