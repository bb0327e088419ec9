//! The throttle by health (`[channel.throttle_by]`): each limit is asked for in turn, once a second, and a
//! [`governor`] makes the rate of the answers.

mod governor;
mod measure;
mod question;

use std::sync::Arc;
use std::time::Duration;

use crate::observe::gtid_lag::GtidLag;
use csa_applier::{Target, TargetOptions};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{info, warn};

use super::live_settings::Controls;
use super::watch::Watch;
use crate::config::ThrottleBy;
use crate::host::rfc3339;
use crate::observe::view::ThrottleByView;
use governor::{Governor, Pressure};
use measure::{Kind, Measure};
use question::{AskedServer, HealthQuestion};

/// Between two decisions, and between an answer and the next question.
const INTERVAL: Duration = Duration::from_secs(1);
/// The pause after a question that was not answered.
const RETRY: Duration = Duration::from_secs(5);

/// Holds the rate of a channel to the limits of its settings, for as long as it is not dropped.
#[derive(Debug)]
pub(super) struct Health {
    controls: Controls,
    _task: JoinSet<()>,
}

impl Health {
    pub(super) fn keep(target: &Target, controls: &Controls, watch: &Watch) -> Self {
        let mut task = JoinSet::new();
        let kept = keep(TargetOptions::clone(target), controls.clone(), watch.clone());
        task.spawn(kept);
        Self { controls: controls.clone(), _task: task }
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
    let mut asking = JoinSet::new();
    let mut measures = Vec::new();
    for (kind, limit, question) in questions(target, limits) {
        let server = match &question {
            HealthQuestion::Lag { replica, .. } => replica.address(),
            HealthQuestion::Threads { target } | HealthQuestion::Query { target, .. } => {
                target.address()
            }
        };
        let measure = Measure::new(kind, server, limit, Instant::now());
        let measure = Arc::new(Mutex::new(measure));
        measures.push(Arc::clone(&measure));
        asking.spawn(ask(watch.name().to_owned(), measure, question));
    }
    let floor = limits.at_least.unwrap_or(std::num::NonZeroU32::MIN);
    let mut governor = Governor::default();
    let mut since = None;
    loop {
        tokio::time::sleep(INTERVAL).await;
        let now = Instant::now();
        let verdict = measures
            .iter()
            .map(|measure| measure.lock().look(now))
            .fold(Pressure::Calm, Pressure::and);
        let rate = governor.step(verdict, floor, watch.applied_rate());
        let limits: Vec<_> = measures.iter().map(|measure| measure.lock().view(now)).collect();
        let channel = watch.name();
        match (rate, &since) {
            (Some(rate), None) => {
                since = Some(rfc3339(watch.clock().now_micros()));
                let why = ThrottleByView::reasons(&limits);
                info!(channel, rate, why, "throttled for the health of the target");
            }
            (None, Some(_)) => {
                since = None;
                info!(channel, "no longer throttled for the health of the target");
            }
            _ => {}
        }
        let view = ThrottleByView { rate: rate.map(Into::into), since: since.clone(), limits };
        controls.set_health(rate, Some(view));
    }
}

fn questions(target: &TargetOptions, limits: &ThrottleBy) -> Vec<(Kind, f64, HealthQuestion)> {
    let server = || AskedServer::new(target.clone());
    let mut questions = Vec::new();
    if let Some(limit) = limits.threads_running {
        let question = HealthQuestion::Threads { target: server() };
        questions.push((Kind::ThreadsRunning, f64::from(limit), question));
    }
    for (limit, (host, port)) in limits
        .replica_lag
        .iter()
        .flat_map(|(limit, replicas)| replicas.iter().map(move |replica| (limit, replica)))
    {
        let options =
            TargetOptions { host: host.clone(), port: *port, socket: None, ..target.clone() };
        let (replica, lag) = (Box::new(AskedServer::new(options)), GtidLag::default());
        let question = HealthQuestion::Lag { target: Box::new(server()), replica, lag };
        questions.push((Kind::ReplicaLag, limit.as_secs_f64(), question));
    }
    if let Some((text, limit)) = &limits.query {
        let question = HealthQuestion::Query { target: server(), text: text.clone() };
        questions.push((Kind::Query, *limit, question));
    }
    questions
}

/// Asks until it is dropped.
async fn ask(channel: String, measure: Arc<Mutex<Measure>>, mut question: HealthQuestion) {
    loop {
        let answer = question.ask().await;
        let now = Instant::now();
        let name = measure.lock().name();
        let pause = match answer {
            Ok(value) => {
                if measure.lock().answered(value, now) {
                    info!(channel, "throttle_by: {name} is answered again");
                }
                INTERVAL
            }
            Err(why) => {
                if measure.lock().failed(why.clone()) {
                    warn!(
                        channel,
                        "throttle_by: {name} is not answered: {why}; without an answer for {} s it no \
                         longer counts",
                        measure::FORGOTTEN.as_secs()
                    );
                }
                RETRY
            }
        };
        tokio::time::sleep(pause).await;
    }
}
