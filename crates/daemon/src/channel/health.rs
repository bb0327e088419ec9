//! The throttle by health of the target (`[channel.throttle_by]`) of a channel that runs.

use std::num::NonZeroU32;
use std::sync::Arc;

use csa_applier::{Target, TargetOptions};
use tokio::task::JoinSet;
use tracing::{Instrument as _, info};

use super::live_settings::Controls;
use super::watch::Watch;
use crate::config::ThrottleBy;
use crate::host::rfc3339;
use crate::observe::view::ThrottleByView;
use crate::throttle::{HealthLimit, HealthLimits, INTERVAL};

/// Holds the rate of a channel to the limits of its settings, for as long as it is not dropped.
#[derive(Debug)]
pub(super) struct Health {
    controls: Controls,
    task: JoinSet<()>,
}

impl Health {
    pub(super) fn keep(target: &Target, controls: &Controls, watch: &Watch) -> Self {
        let mut task = JoinSet::new();
        let kept = keep(TargetOptions::clone(target), controls.clone(), watch.clone());
        task.spawn(kept.in_current_span());
        Self { controls: controls.clone(), task }
    }

    /// Ends it, and waits for a step that another thread is in: it would set a limit after the last one is cleared.
    pub(super) async fn end(mut self) {
        self.task.shutdown().await;
    }
}

impl Drop for Health {
    fn drop(&mut self) {
        self.controls.set_health(None, None);
    }
}

async fn keep(target: TargetOptions, controls: Controls, watch: Watch) {
    let mut settings = controls.subscribe_throttle_by();
    loop {
        let limits = Arc::clone(&settings.borrow_and_update());
        tokio::select! {
            () = hold(&target, &limits, &controls, &watch), if limits.is_set() => {}
            changed = settings.changed() => if changed.is_err() {
                return;
            },
        }
        controls.set_health(None, None);
    }
}

/// Never ends: it is dropped when the settings change.
async fn hold(target: &TargetOptions, limits: &ThrottleBy, controls: &Controls, watch: &Watch) {
    let floor = limits.at_least.unwrap_or(NonZeroU32::MIN);
    let asked = HealthLimit::of_target(target, limits);
    let mut limits = HealthLimits::ask(asked, floor);
    let mut since = None;
    loop {
        tokio::time::sleep(INTERVAL).await;
        let rate = limits.step(watch.applied_rate());
        let limits = limits.views();
        match (rate, &since) {
            (Some(rate), None) => {
                since = Some(rfc3339(watch.clock().now_micros()));
                let why = ThrottleByView::reasons(&limits);
                info!(rate, why, "throttled for the health of the target");
            }
            (None, Some(_)) => {
                since = None;
                info!("no longer throttled for the health of the target");
            }
            _ => {}
        }
        let view = ThrottleByView { rate: rate.map(Into::into), since: since.clone(), limits };
        controls.set_health(rate, Some(view));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;
    use crate::config::Config;
    use crate::config::tests::MINIMAL;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_step_under_way_sets_no_limit_after_the_end() {
        let config = Config::parse(MINIMAL).expect("valid");
        let settings = config.channels.into_iter().next().expect("a channel");
        let controls = Controls::new(&settings);
        let (begins, begun) = oneshot::channel();
        let (mut task, step) = (JoinSet::new(), controls.clone());
        task.spawn(async move {
            begins.send(()).expect("somebody waits");
            // No abort interrupts it.
            std::thread::sleep(Duration::from_millis(100));
            step.set_health(Some(NonZeroU32::MIN), Some(ThrottleByView::default()));
        });
        begun.await.expect("it begins");
        Health { controls: controls.clone(), task }.end().await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(controls.health().is_none() && controls.tuning().throttle.is_none());
    }
}
