use std::sync::Arc;

use parking_lot::Mutex;

use crate::observe::view::CopyView;

use super::*;

fn seen(name: &str, state: ChannelState, detail: &str, taken: bool) -> ManagedChannel {
    let view = ChannelView {
        channel_name: name.to_owned(),
        state,
        state_detail: detail.to_owned(),
        ..ChannelView::default()
    };
    ManagedChannel { view, taken }
}

fn running(name: &str, lag: Option<f64>, backlog: u64) -> ManagedChannel {
    let mut seen = seen(name, ChannelState::Running, "", true);
    seen.view.lag_seconds = lag;
    seen.view.backlog_transactions = Some(backlog);
    seen
}

#[test]
fn ready_needs_every_channel_taken_or_failed_and_one_taken() {
    let starting = seen("a", ChannelState::Starting, "", false);
    let waiting = seen("a", ChannelState::WaitingForTarget, "", false);
    let failed = seen("a", ChannelState::Failed, "", false);
    let standby = seen("b", ChannelState::Standby, "another daemon has it", false);
    assert!(is_ready(std::slice::from_ref(&standby), false));
    assert!(is_ready(&[standby.clone(), failed.clone()], false));
    assert!(!is_ready(&[standby.clone(), starting.clone()], false));
    assert!(is_ready(std::slice::from_ref(&failed), true), "others of the fleet have channels");
    assert!(!is_ready(&[failed.clone(), starting.clone()], true));
    // Taken, and the source went away since.
    let deserted = seen("a", ChannelState::WaitingForSource, "", true);
    let good = running("b", None, 0);
    let mut copying = starting.clone();
    copying.view.copy = Some(CopyView::default());
    let no_archive = seen("a", ChannelState::WaitingForArchive, "", false);
    for (channels, ready) in [
        (vec![], true),
        (vec![starting.clone()], false),
        (vec![waiting.clone()], false),
        (vec![failed.clone()], false),
        (vec![good.clone()], true),
        (vec![deserted.clone()], true),
        (vec![starting, good.clone()], false),
        (vec![waiting, good.clone()], false),
        (vec![failed, good.clone()], true),
        (vec![deserted, good.clone()], true),
        (vec![copying.clone()], true),
        (vec![copying, good.clone()], true),
        (vec![no_archive, good], false),
    ] {
        assert_eq!(is_ready(&channels, false), ready, "{channels:?}");
    }
}

#[test]
fn the_status_says_first_what_does_not_run() {
    assert_eq!(
        status(&[running("orders", Some(0.04), 3)]),
        "orders running, lag 0.0 s, backlog 3 transactions"
    );
    let channels = [
        running("a", Some(1.26), 3),
        seen("b", ChannelState::WaitingForTarget, "no route\nREADY=1", true),
        running("c", Some(0.5), 4),
    ];
    assert_eq!(
        status(&channels),
        "b waiting for target: no route READY=1; 2 channels running, lag 1.3 s, backlog 7 transactions"
    );
    let unknown = [running("a", Some(1.0), 0), running("b", None, 0)];
    assert_eq!(status(&unknown), "2 channels running, lag unknown, backlog 0 transactions");
    let failed: Vec<ManagedChannel> = (0..6)
        .map(|number| seen(&format!("c{number}"), ChannelState::Failed, "why", false))
        .collect();
    assert_eq!(
        status(&failed),
        "c0 failed: why; c1 failed: why; c2 failed: why; c3 failed: why; 2 more do not run"
    );
}

/// All notifications, in a list.
struct Told {
    states: Arc<Mutex<Vec<String>>>,
    open: CancellationToken,
    stop: CancellationToken,
    kill: CancellationToken,
}

impl Told {
    fn start<L>(look: L) -> Self
    where
        L: Fn() -> Vec<ManagedChannel> + Clone + Send + Sync + 'static,
    {
        let states: Arc<Mutex<Vec<String>>> = Arc::default();
        let (open, stop, kill) =
            <(CancellationToken, CancellationToken, CancellationToken)>::default();
        let reached = Milestones {
            open: open.clone(),
            stop: stop.clone(),
            kill: kill.clone(),
            in_fleet: false,
        };
        let list = Arc::clone(&states);
        let send = move |told: &[NotifyState<'_>]| {
            list.lock().extend(told.iter().map(ToString::to_string));
        };
        tokio::spawn(tell(look, send, Duration::from_millis(5), reached));
        Self { states, open, stop, kill }
    }

    fn count(&self, state: &str) -> usize {
        self.states.lock().iter().filter(|told| *told == state).count()
    }

    async fn until(&self, state: &str, times: usize) {
        for _ in 0..1000 {
            if self.count(state) >= times {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{state} not told {times} times: {:?}", self.states.lock());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_sign_of_life_while_a_channel_or_the_blocking_threads_are_stuck() {
    let lock = Arc::new(Mutex::new(()));
    let shared = Arc::clone(&lock);
    let told = Told::start(move || {
        let _held = shared.lock();
        vec![running("a", None, 0)]
    });
    told.until("WATCHDOG=1", 3).await;
    assert_eq!(told.count("READY=1"), 0, "the admin port is closed");
    told.open.cancel();
    let before = {
        let _stuck = lock.lock();
        // What was under way before the lock was taken may still come.
        std::thread::sleep(Duration::from_millis(50));
        let before = told.count("WATCHDOG=1");
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(told.count("WATCHDOG=1"), before);
        before
    };
    told.until("WATCHDOG=1", before + 3).await;
    assert_eq!(told.count("READY=1"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_waits_and_a_stop_that_drains_ask_for_more_time() {
    let extend = format!("EXTEND_TIMEOUT_USEC={}", MORE_TIME.as_micros());
    let channel = Arc::new(Mutex::new(seen("a", ChannelState::Failed, "", false)));
    let shared = Arc::clone(&channel);
    let told = Told::start(move || vec![shared.lock().clone()]);
    told.until(&extend, 3).await;
    told.open.cancel();
    let more = async || {
        let alive = told.count("WATCHDOG=1");
        told.until("WATCHDOG=1", alive + 3).await;
    };
    more().await;
    let before = told.count(&extend);
    more().await;
    assert_eq!(told.count(&extend), before, "nothing begins");
    channel.lock().view.state = ChannelState::WaitingForTarget;
    told.until(&extend, before + 3).await;
    channel.lock().view.state = ChannelState::Starting;
    let before = told.count(&extend);
    told.until(&extend, before + 3).await;
    assert_eq!(told.count("READY=1"), 0);
    *channel.lock() = running("a", None, 0);
    told.until("READY=1", 1).await;
    let at_ready = told.count(&extend);
    let alive = told.count("WATCHDOG=1");
    told.until("WATCHDOG=1", alive + 3).await;
    assert_eq!(told.count(&extend), at_ready);
    told.stop.cancel();
    told.until(&extend, at_ready + 3).await;
    assert_eq!(told.count("READY=1"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_hangs_asks_for_no_more_time() {
    let extend = format!("EXTEND_TIMEOUT_USEC={}", MORE_TIME.as_micros());
    let told = Told::start(|| vec![running("a", None, 0)]);
    told.stop.cancel();
    tokio::time::sleep(LAST_STEPS * 2).await;
    let draining = told.count(&extend);
    told.kill.cancel();
    tokio::time::sleep(LAST_STEPS * 2).await;
    let last = told.count(&extend);
    assert!(last > draining, "the last steps may take time");
    tokio::time::sleep(LAST_STEPS).await;
    assert_eq!(told.count(&extend), last);
}
