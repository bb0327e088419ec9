//! The rate that limits on the health of servers leave to whoever writes or reads there: each limit is asked for in
//! turn, once a second, and a [`governor`] makes the rate of the answers.

mod governor;
mod measure;
mod question;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use csa_applier::{Route, TargetOptions};
use csa_provider::server::link::Side;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{Instrument as _, info, warn};

use crate::config::ThrottleBy;
use crate::observe::gtid_lag::GtidLag;
use crate::observe::view::LimitView;
use governor::{Governor, Pressure};
use measure::{Measure, MeasureKind};
use question::{AskedServer, HealthQuestion};

/// Between two decisions, and between an answer and the next question.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);
/// The pause after a question that was not answered.
const RETRY: Duration = Duration::from_secs(5);

/// A limit, and the question that shows whether it is kept.
#[derive(Debug)]
pub(crate) struct HealthLimit {
    kind: MeasureKind,
    limit: f64,
    question: HealthQuestion,
}

impl HealthLimit {
    /// Returns the limits of `[channel.throttle_by]`.
    pub(crate) fn of_target(target: &TargetOptions, limits: &ThrottleBy) -> Vec<Self> {
        let server = || AskedServer::new(Side::Target, target.clone());
        let mut found = Vec::new();
        if let Some(limit) = limits.threads_running {
            let question = HealthQuestion::Threads { target: server() };
            found.push(Self {
                kind: MeasureKind::ThreadsRunning,
                limit: f64::from(limit),
                question,
            });
        }
        for (limit, (host, port)) in limits
            .replica_lag
            .iter()
            .flat_map(|(limit, replicas)| replicas.iter().map(move |replica| (limit, replica)))
        {
            let options = TargetOptions {
                host: host.clone(),
                port: *port,
                socket: None,
                route: Route::default(),
                ..target.clone()
            };
            let replica = Box::new(AskedServer::new(Side::Target, options));
            let lag = GtidLag::default();
            let question = HealthQuestion::Lag { target: Box::new(server()), replica, lag };
            found.push(Self {
                kind: MeasureKind::ReplicaLag,
                limit: limit.as_secs_f64(),
                question,
            });
        }
        if let Some((text, limit)) = &limits.query {
            let question = HealthQuestion::Query { target: server(), text: text.clone() };
            found.push(Self { kind: MeasureKind::Query, limit: *limit, question });
        }
        found
    }

    /// Returns the milliseconds that small queries take on a source; `None` if it does not answer.
    pub(crate) async fn usual_answer_time(source: &TargetOptions) -> Option<f64> {
        AskedServer::new(Side::Source, source.clone()).answer_time().await.ok()
    }

    /// Returns the limit on the time of small queries on a source: the usual milliseconds, and as much longer as
    /// permitted.
    pub(crate) fn of_source(source: &TargetOptions, usual: f64, permitted: Duration) -> Self {
        let source = AskedServer::new(Side::Source, source.clone());
        let limit = usual + permitted.as_secs_f64() * 1e3;
        Self {
            kind: MeasureKind::AnswerTime,
            limit,
            question: HealthQuestion::AnswerTime { source },
        }
    }
}

/// The limits that hold, for as long as they are not dropped.
#[derive(Debug)]
pub(crate) struct HealthLimits {
    measures: Vec<Arc<Mutex<Measure>>>,
    governor: Governor,
    floor: NonZeroU32,
    _asking: JoinSet<()>,
}

impl HealthLimits {
    /// Begins to ask; the rate never falls below `floor`.
    pub(crate) fn ask(limits: Vec<HealthLimit>, floor: NonZeroU32) -> Self {
        let mut asking = JoinSet::new();
        let mut measures = Vec::new();
        for HealthLimit { kind, limit, question } in limits {
            let server = question.server().address();
            let measure = Measure::new(kind, server, limit, Instant::now());
            let measure = Arc::new(Mutex::new(measure));
            measures.push(Arc::clone(&measure));
            asking.spawn(ask(measure, question).in_current_span());
        }
        Self { measures, governor: Governor::default(), floor, _asking: asking }
    }

    /// Returns the rate for the next second, `None` for any; to be called once in an [`INTERVAL`] with the rate of
    /// the last one.
    pub(crate) fn step(&mut self, rate: f64) -> Option<NonZeroU32> {
        let now = Instant::now();
        let verdict = self
            .measures
            .iter()
            .map(|measure| measure.lock().look(now))
            .fold(Pressure::Calm, Pressure::and);
        self.governor.step(verdict, self.floor, rate)
    }

    /// Returns the limits with their last values.
    pub(crate) fn views(&self) -> Vec<LimitView> {
        let now = Instant::now();
        self.measures.iter().map(|measure| measure.lock().view(now)).collect()
    }
}

/// Asks until it is dropped.
async fn ask(measure: Arc<Mutex<Measure>>, mut question: HealthQuestion) {
    loop {
        let answer = question.ask().await;
        let now = Instant::now();
        let name = measure.lock().name();
        let pause = match answer {
            Ok(value) => {
                if measure.lock().answered(value, now) {
                    info!("the limit {name} is answered again");
                }
                INTERVAL
            }
            Err(why) => {
                if measure.lock().failed(why.clone()) {
                    warn!(
                        "the limit {name} is not answered: {why}; without an answer for {} s it no longer counts",
                        measure::FORGOTTEN.as_secs()
                    );
                }
                RETRY
            }
        };
        tokio::time::sleep(pause).await;
    }
}
