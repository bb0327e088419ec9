//! Both sessions, and what connects them: GTID positions, throttling, progress.

use std::time::{Duration, Instant};

use csa_provider::binlog::GtidSet;
use csa_provider::seams::Backoff;
use csa_provider::server::Vendor;
use parking_lot::Mutex;

use super::catalogue::{PairedDefinitions, definition};
use super::error::{Result, VerifyError};
use super::event::{Activity, VerifyEvent, VerifyProgress};
use super::executed::{first_interval, source_executed, target_executed};
use super::history;
use super::options::VerifyOptions;
use super::pace::VerifyPace;
use super::ranges::RowKey;
use super::report::TableReport;
use super::resume::{FORM, Resume, RunIdentity};
use super::saving::SAVED;
use super::scope::TablePair;
use super::session::VerifySession;
use super::table_name::TableName;
use crate::observe::gtid_lag::GtidLag;
use csa_provider::server::link::Side;

/// Between two looks at the target's position.
const POLL: Duration = Duration::from_millis(20);
const POLL_MAX: Duration = Duration::from_millis(200);
/// Between two looks at the lag.
const LAG_PROBE: Duration = Duration::from_millis(500);
/// A target that makes no progress for so long may have a reason that the daemon knows.
const STANDING: Duration = Duration::from_secs(1);

pub(super) struct Servers<'a> {
    pub(super) source: VerifySession,
    pub(super) target: VerifySession,
    pub(super) options: &'a VerifyOptions,
    pub(super) progress: VerifyProgress,
    observe: &'a (dyn Fn(VerifyEvent<'_>) + Sync),
    pace: VerifyPace,
    lag: GtidLag,
    probed: Option<Instant>,
    pub(super) resume: &'a Mutex<Resume>,
    /// The time at which the state last had the place of the table that is compared.
    reached: Option<Instant>,
}

impl<'a> Servers<'a> {
    pub(super) async fn connect(
        options: &'a VerifyOptions,
        observe: &'a (dyn Fn(VerifyEvent<'_>) + Sync),
        resume: &'a Mutex<Resume>,
    ) -> Result<Self> {
        // First: it decides which source will do.
        let target = VerifySession::connect(Side::Target, &options.target).await?;
        let source = history::source(options).await?;
        Ok(Self {
            source,
            target,
            options,
            progress: VerifyProgress::default(),
            observe,
            pace: VerifyPace::new(options.max_rate),
            lag: GtidLag::default(),
            probed: None,
            resume,
            reached: None,
        })
    }

    /// Learns which target this is, and takes over what an earlier run found.
    pub(super) async fn resume(&mut self) -> Result<()> {
        let target = match self.target.vendor() {
            Vendor::MariaDb => self.options.target.address(),
            Vendor::MySql | Vendor::MySql57 => {
                let uuid: Vec<String> = self.target.rows("SELECT @@GLOBAL.server_uuid").await?;
                uuid.concat()
            }
        };
        let VerifyOptions { channel, scope, common_columns, max_differences, resume, .. } =
            self.options;
        let identity = RunIdentity {
            form: FORM,
            channel: channel.clone(),
            schemas: scope.schemas.clone(),
            tables: scope.tables.iter().map(TableName::to_string).collect(),
            common_columns: *common_columns,
            max_differences: *max_differences,
            target,
        };
        // All that this run compares is at least as new.
        let executed = target_executed(&mut self.target, channel).await?;
        *self.resume.lock() = Resume::new(identity, &executed, resume.as_ref());
        Ok(())
    }

    /// Returns the result of an earlier run for a table, if it still counts; else the table is begun.
    pub(super) fn begin(&mut self, pair: &TablePair, definition: String) -> Option<TableReport> {
        self.reached = None;
        let VerifyOptions { repair, interruptions_max, .. } = self.options;
        self.resume.lock().begin(pair, definition, *repair, *interruptions_max)
    }

    /// Returns both sides' definitions, asked at the same time.
    pub(super) async fn definitions(&mut self, pair: &TablePair) -> Result<PairedDefinitions> {
        let (source, target) = tokio::join!(
            definition(&mut self.source, &pair.source),
            definition(&mut self.target, &pair.target)
        );
        Ok(PairedDefinitions { source: source?, target: target? })
    }

    /// A table with a key was compared up to a row. The report may be large, so the state has it no more often than it
    /// is saved.
    pub(super) fn reached(
        &mut self,
        after: &RowKey,
        rows: u64,
        suspects: &[RowKey],
        report: &TableReport,
    ) {
        if self.reached.is_some_and(|reached| reached.elapsed() < SAVED) {
            return;
        }
        self.reached = Some(Instant::now());
        self.resume.lock().reached(after.clone(), rows, suspects.to_vec(), report);
    }

    /// An earlier run has compared so many rows of the present table.
    pub(super) fn resumed(&mut self, rows: u64) {
        self.progress.rows = rows;
        (self.observe)(VerifyEvent::Resumed(&self.progress));
    }

    /// Returns the rows of one query on each side, asked at the same time. Both run to their end
    /// even if one fails: a link with an unread answer is unusable.
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
                waiting.check(self.lag.lacking()).await?;
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
        (self.observe)(VerifyEvent::Progress(&self.progress));
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
    target: &mut VerifySession,
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
        stall.check(&lacking).await?;
        tokio::time::sleep(backoff.pause()).await;
    }
}

/// Notices a target that makes no progress.
struct Stall<'a> {
    options: &'a VerifyOptions,
    lacking: GtidSet,
    since: Instant,
    /// The last time the daemon was asked for the reason.
    asked: Option<Instant>,
}

impl<'a> Stall<'a> {
    fn new(options: &'a VerifyOptions) -> Self {
        Self { options, lacking: GtidSet::new(), since: Instant::now(), asked: None }
    }

    /// # Errors
    /// It has made no progress for too long, or can't make any.
    async fn check(&mut self, lacking: &GtidSet) -> Result<()> {
        if *lacking != self.lacking {
            self.lacking = lacking.clone();
            self.since = Instant::now();
            self.asked = None;
            return Ok(());
        }
        if self.asked.unwrap_or(self.since).elapsed() >= STANDING
            && let Some(standing) = self.options.standing.clone()
        {
            let standing = tokio::task::spawn_blocking(move || standing.reason());
            let standing = tokio::time::timeout(STANDING, standing).await;
            self.asked = Some(Instant::now());
            if let Ok(Ok(Some(why))) = standing {
                return Err(VerifyError::Standing {
                    target: self.options.target.address(),
                    lacking: lacking.count(),
                    first: first_interval(lacking),
                    why,
                });
            }
        }
        if self.since.elapsed() >= self.options.catch_up_timeout {
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
