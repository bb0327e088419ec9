//! The pace of a copy: the rate that its settings and the health of both servers permit, and pauses.

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use csa_applier::TargetOptions;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::info;

use crate::observe::view::ThrottleByView;
use crate::throttle::{HealthLimit, HealthLimits, INTERVAL};

/// Rows per second that a copy may always make: a limit slows it down and can't stop it, whoever causes the load.
const FLOOR: NonZeroU32 = NonZeroU32::new(5_000).unwrap();
/// A lane that waits looks this often whether more is permitted.
const LOOK: Duration = Duration::from_millis(100);

/// The pace that all lanes of a copy share.
#[derive(Debug)]
pub(crate) struct Pace {
    configured: Option<NonZeroU32>,
    is_paused: watch::Sender<bool>,
    /// The rows that lanes have read.
    rows: AtomicU64,
    inner: Mutex<PaceState>,
}

#[derive(Debug, Default)]
struct PaceState {
    health: Option<NonZeroU32>,
    /// The limits that are exceeded, in words.
    why: String,
    /// The time until which what was read is enough.
    due: Option<Instant>,
    /// Seconds that small queries took on the source before the copy.
    usual: Option<f64>,
}

impl Pace {
    /// Permits so many rows per second; 0 for any number.
    pub(crate) fn new(rows_per_second: u32) -> Self {
        Self {
            configured: NonZeroU32::new(rows_per_second),
            is_paused: watch::Sender::new(false),
            rows: AtomicU64::new(0),
            inner: Mutex::default(),
        }
    }

    /// Pauses the lanes before their next chunks, or lets them continue.
    pub(crate) fn set_paused(&self, is_paused: bool) {
        self.is_paused.send_replace(is_paused);
    }

    pub(super) fn is_paused(&self) -> bool {
        *self.is_paused.borrow()
    }

    /// Waits until the next chunk is due; `rows` is the size of the last one.
    pub(super) async fn turn(&self, rows: u64) {
        let due = self.count(rows);
        let _ = self.is_paused.subscribe().wait_for(|is_paused| !is_paused).await;
        let Some(due) = due else { return };
        // The rate may rise meanwhile.
        while self.rate().is_some() && Instant::now() < due {
            tokio::time::sleep_until(due.min(Instant::now() + LOOK)).await;
        }
    }

    fn rate(&self) -> Option<NonZeroU32> {
        self.configured.into_iter().chain(self.inner.lock().health).min()
    }

    /// Returns true if the next chunk is due.
    pub(crate) fn is_rested(&self) -> bool {
        self.rate().is_none() || self.inner.lock().due.is_none_or(|due| due <= Instant::now())
    }

    /// Counts rows that were read, and returns when the next chunk is due. Pauses are not made up for.
    pub(super) fn count(&self, rows: u64) -> Option<Instant> {
        self.rows.fetch_add(rows, Ordering::Relaxed);
        let (rate, now) = (self.rate(), Instant::now());
        let mut inner = self.inner.lock();
        inner.due = rate.map(|rate| {
            let takes = Duration::from_secs_f64(rows as f64 / f64::from(rate.get()));
            inner.due.map_or(now, |due| due.max(now)) + takes
        });
        inner.due
    }

    /// Returns what holds the copy back, in words.
    pub(super) fn held(&self) -> Option<String> {
        if self.is_paused() {
            return Some("paused".to_owned());
        }
        let rate = self.rate()?;
        let inner = self.inner.lock();
        Some(match inner.health == Some(rate) {
            true => format!("held to {rate} rows/s: {}", inner.why),
            false => format!("held to {rate} rows/s by rows_per_second"),
        })
    }

    /// Notes how quickly the source answers before the copy.
    pub(super) async fn look_at(&self, source: &TargetOptions, permitted: Duration) {
        if permitted > Duration::ZERO && self.inner.lock().usual.is_none() {
            let usual = HealthLimit::usual_answer_time(source).await;
            self.inner.lock().usual = usual;
        }
    }

    /// Returns the seconds in which the source answered before the copy, if they were noted.
    pub(super) fn usual(&self) -> Option<f64> {
        self.inner.lock().usual
    }

    /// Holds the lanes to these limits, for as long as it is polled.
    pub(super) async fn hold(&self, limits: Vec<HealthLimit>) -> Infallible {
        if limits.is_empty() {
            return std::future::pending().await;
        }
        let mut limits = HealthLimits::ask(limits, FLOOR);
        let mut before = self.rows.load(Ordering::Relaxed);
        loop {
            tokio::time::sleep(INTERVAL).await;
            let rows = self.rows.load(Ordering::Relaxed);
            let copied = rows.saturating_sub(before) as f64 / INTERVAL.as_secs_f64();
            before = rows;
            let rate = limits.step(copied);
            let why = ThrottleByView::reasons(&limits.views());
            let mut inner = self.inner.lock();
            match (inner.health, rate) {
                (None, Some(rate)) => info!(rate, why, "the copy is throttled"),
                (Some(_), None) => info!("the copy is no longer throttled"),
                _ => {}
            }
            (inner.health, inner.why) = (rate, why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn lanes_share_the_rate_and_pauses_are_not_made_up_for() {
        let pace = Pace::new(1000);
        let begun = Instant::now();
        tokio::join!(pace.turn(500), pace.turn(500), pace.turn(1000));
        assert_eq!(begun.elapsed(), 2 * SECOND);
        tokio::time::sleep(60 * SECOND).await;
        let begun = Instant::now();
        pace.turn(1000).await;
        assert_eq!(begun.elapsed(), SECOND);
        assert_eq!(pace.held().unwrap(), "held to 1000 rows/s by rows_per_second");
        let begun = Instant::now();
        let any = Pace::new(0);
        any.turn(1 << 40).await;
        assert_eq!((begun.elapsed(), any.held()), (Duration::ZERO, None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_lasts_until_it_ends_and_health_counts() {
        let pace = Pace::new(0);
        pace.set_paused(true);
        let begun = Instant::now();
        let resumes = async {
            tokio::time::sleep(10 * SECOND).await;
            assert_eq!(pace.held().unwrap(), "paused");
            pace.set_paused(false);
        };
        tokio::join!(pace.turn(1), resumes);
        assert_eq!(begun.elapsed(), 10 * SECOND);
        pace.inner.lock().health = NonZeroU32::new(10);
        let begun = Instant::now();
        let recovers = async {
            tokio::time::sleep(3 * SECOND).await;
            pace.inner.lock().health = None;
        };
        tokio::join!(pace.turn(1000), recovers);
        assert!(begun.elapsed() < 4 * SECOND, "{:?}", begun.elapsed());
    }
}
