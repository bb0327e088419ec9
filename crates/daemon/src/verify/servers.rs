//! Both sessions, and what connects them: GTID positions, throttling, progress.

use std::time::{Duration, Instant};

use csa_provider::{Backoff, GtidSet};

use super::executed::{first_interval, source_executed, target_executed};
use super::history;
use super::pace::Pace;
use super::session::Session;
use super::{Activity, Event, Progress, Result, Side, VerifyError, VerifyOptions};
use crate::gtid_lag::GtidLag;

/// Between two looks at the target's position.
const POLL: Duration = Duration::from_millis(20);
const POLL_MAX: Duration = Duration::from_millis(200);
/// Between two looks at the lag.
const LAG_PROBE: Duration = Duration::from_millis(500);
pub(super) struct Servers<'a> {
    pub(super) source: Session,
    pub(super) target: Session,
    pub(super) options: &'a VerifyOptions,
    pub(super) progress: Progress,
    observe: &'a (dyn Fn(Event<'_>) + Sync),
    pace: Pace,
    lag: GtidLag,
    probed: Option<Instant>,
}

impl<'a> Servers<'a> {
    pub(super) async fn connect(
        options: &'a VerifyOptions,
        observe: &'a (dyn Fn(Event<'_>) + Sync),
    ) -> Result<Self> {
        // First: it decides which source will do.
        let target = Session::connect(Side::Target, &options.target).await?;
        let source = history::source(options).await?;
        Ok(Self {
            source,
            target,
            options,
            progress: Progress::default(),
            observe,
            pace: Pace::new(options.max_rate),
            lag: GtidLag::default(),
            probed: None,
        })
    }

    /// Rows of one query on each side, asked at the same time. Both run to their end even if one
    /// fails: a link with an unread answer is unusable.
    pub(super) async fn values(
        &mut self,
        on_source: &str,
        on_target: &str,
    ) -> Result<(Vec<Vec<String>>, Vec<Vec<String>>)> {
        let (source, target) =
            tokio::join!(self.source.values(on_source), self.target.values(on_target));
        Ok((source?, target?))
    }

    /// Waits until the target has everything that the source has executed at this moment.
    pub(super) async fn catch_up(&mut self) -> Result<()> {
        let wanted = source_executed(&mut self.source).await?;
        pass(&mut self.target, self.options, &wanted).await
    }

    /// To be called after reading `rows` rows since `started`: keeps to the rate, and lets the
    /// target catch up while it lags too much.
    pub(super) async fn throttle(&mut self, rows: u64, started: Instant) -> Result<()> {
        let pause = self.pace.pause(rows, started, Instant::now());
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        let Some(max) = self.options.max_lag else { return Ok(()) };
        let Some(probed) = self.probed else {
            // The age of what the target lacks is known only after it was seen to arrive.
            self.tell(Activity::WaitingForLag);
            self.catch_up().await?;
            self.probed = Some(Instant::now());
            self.tell(Activity::Comparing);
            return Ok(());
        };
        if probed.elapsed() >= LAG_PROBE && self.lag().await? > max {
            self.tell(Activity::WaitingForLag);
            let mut waiting = Stall::new(self.options);
            while self.lag().await? > max {
                waiting.check(self.lag.lacking())?;
                tokio::time::sleep(POLL_MAX).await;
            }
            self.tell(Activity::Comparing);
        }
        Ok(())
    }

    async fn lag(&mut self) -> Result<Duration> {
        let executed = source_executed(&mut self.source).await?;
        self.lag.source_at(Instant::now(), executed);
        let executed = target_executed(&mut self.target, &self.options.channel).await?;
        self.lag.target_at(&executed);
        self.probed = Some(Instant::now());
        Ok(self.lag.get(Instant::now()))
    }

    pub(super) fn tell(&mut self, activity: Activity) {
        self.progress.activity = activity;
        (self.observe)(Event::Progress(&self.progress));
    }

    pub(super) async fn close(self) {
        tokio::join!(self.source.close(), self.target.close());
    }
}

/// Waits until the target has executed everything in `wanted`.
///
/// # Errors
/// [`VerifyError::Stalled`] when it makes no progress for `catch_up_timeout`.
pub(super) async fn pass(
    target: &mut Session,
    options: &VerifyOptions,
    wanted: &GtidSet,
) -> Result<()> {
    let mut stall = Stall::new(options);
    let mut backoff = Backoff::new(POLL / 4, POLL_MAX);
    loop {
        let executed = target_executed(target, &options.channel).await?;
        let lacking = wanted.difference(&executed);
        if lacking.is_empty() {
            return Ok(());
        }
        stall.check(&lacking)?;
        tokio::time::sleep(backoff.pause()).await;
    }
}

/// Notices a target that makes no progress.
struct Stall<'a> {
    options: &'a VerifyOptions,
    lacking: GtidSet,
    since: Instant,
}

impl<'a> Stall<'a> {
    fn new(options: &'a VerifyOptions) -> Self {
        Self { options, lacking: GtidSet::new(), since: Instant::now() }
    }

    fn check(&mut self, lacking: &GtidSet) -> Result<()> {
        if *lacking != self.lacking {
            self.lacking = lacking.clone();
            self.since = Instant::now();
        } else if self.since.elapsed() >= self.options.catch_up_timeout {
            return Err(VerifyError::Stalled {
                target: self.options.target.address(),
                channel: self.options.channel.clone(),
                seconds: self.options.catch_up_timeout.as_secs(),
                lacking: lacking.count(),
                first: first_interval(lacking),
            });
        }
        Ok(())
    }
}
