//! A daemon as far as the applier goes: it takes the channel, reads its history from the checkpoint on and
//! applies it, until it is dropped as a process is killed.

use std::sync::Arc;

use csa_applier::{
    Applier, ApplierOptions, ApplierStatus, Claim, CommitObserver, Commits, ControlSession,
    ErrorClass, ExecMode, Executor, PreflightError, RowImageColumns, StartFrom, Target,
    TargetGtids, Tuning, preflight,
};
use csa_provider::link::SystemNetwork;
use csa_provider::{Environment, GtidSet};
use csa_scheduler::{Admission, AdmittedTransaction, GroupLimits, LowWaterMark, UntilGate};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::{mpsc, watch};
use tokio::time::{Duration, sleep};
use tokio_util::sync::CancellationToken;

use crate::definitions::Definitions;
use crate::environment::{VirtualClock, environment};
use crate::history::History;
use crate::target::Server;

pub(crate) const CHANNEL: &str = "c";
/// The pause before a daemon tries again to take its channel.
pub(crate) const AGAIN: Duration = Duration::from_secs(1);

/// The settings of a daemon.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) workers: u16,
    pub(crate) limits: GroupLimits,
    pub(crate) gtids: TargetGtids,
    /// Statements run under their GTIDs.
    pub(crate) statement_gtids: bool,
    /// The source has distributed transactions, which need them.
    pub(crate) has_branches: bool,
    pub(crate) executor: Executor,
    /// Daemons stand by for each other.
    pub(crate) standby: bool,
    /// `preserve_commit_order`.
    pub(crate) in_order: bool,
    /// `commit_window`; more than 1 only where the order need not hold.
    pub(crate) window: u16,
    /// The longest pause between two transactions of the source.
    pub(crate) pause: Duration,
    pub(crate) seed: u64,
}

impl Settings {
    pub(crate) fn of(seed: u64, random: &mut StdRng) -> Self {
        let gtids = match random.random_bool(0.3) {
            true => TargetGtids::Source,
            false => TargetGtids::Own,
        };
        let is_source = gtids == TargetGtids::Source;
        let limits = GroupLimits {
            transactions: if is_source { 1 } else { random.random_range(1..8) },
            rows: random.random_range(1..40),
            ..GroupLimits::default()
        };
        // In the order in which they were always drawn, so that a seed keeps its run.
        let workers = random.random_range(1..6);
        let statement_gtids = is_source || random.random_bool(0.7);
        let in_order = random.random_bool(0.8);
        let mut extra = StdRng::seed_from_u64(seed ^ 0x000e_77a5);
        Self {
            workers,
            limits,
            gtids,
            statement_gtids,
            has_branches: statement_gtids && extra.random_bool(0.3),
            executor: match extra.random_bool(0.25) {
                true => Executor::Sql,
                false => Executor::RowImage,
            },
            standby: false,
            in_order,
            window: if in_order { 1 } else { [1, 3][extra.random_range(0..2)] },
            pause: Duration::from_millis([0, 0, 500][random.random_range(0..3)]),
            seed,
        }
    }
}

struct Nobody;

impl CommitObserver for Nobody {
    fn low_water_mark(&mut self, _: LowWaterMark) {}
}

/// Runs until the whole history is applied.
pub(crate) async fn run(
    server: &Server,
    history: &History,
    identity: &str,
    settings: &Settings,
) -> csa_applier::Result<()> {
    let target = server.target(settings.gtids);
    let control = loop {
        match open(&target, identity, settings).await {
            Ok(control) => break control,
            Err(error) if error.class() == ErrorClass::Stop => return Err(error),
            Err(_) => sleep(AGAIN).await,
        }
    };
    let executed = control.checkpoint().executed.clone();
    let commits = control.commits();
    let (sender, stream) = mpsc::channel(64);
    let clock = Arc::new(VirtualClock::new());
    let environment = environment(clock, SystemNetwork, settings.seed);
    let options = applier_options(settings, &environment);
    let status = ApplierStatus::new(
        commits.clone(),
        control.reachability(),
        options.executor,
        environment.clock,
    );
    let tuning = Tuning { worker_count: settings.workers, paused: false, throttle: None };
    let (_tuning, tuned) = watch::channel(tuning);
    let applier = Applier::new(
        control,
        target,
        options,
        settings.limits,
        UntilGate::default(),
        tuned,
        Arc::new(status),
        stream,
        Nobody,
    );
    let never = CancellationToken::new;
    let feed = async {
        feed(server, history, &executed, &commits, sender, settings).await;
        std::future::pending().await
    };
    tokio::select! {
        biased;
        outcome = applier.run(never(), never()) => outcome,
        never = feed => never,
    }
}

pub(crate) fn applier_options(settings: &Settings, environment: &Environment) -> ApplierOptions {
    ApplierOptions {
        row_image: RowImageColumns::Full,
        standby: settings.standby,
        channel: CHANNEL.to_owned(),
        executor: settings.executor,
        statement_gtids: settings.statement_gtids,
        preserve_commit_order: settings.in_order || settings.window > 1,
        commit_window: settings.window,
        exec_mode: ExecMode::Strict,
        transaction_retries: 60,
        connect_retry: Duration::from_millis(100),
        connect_retry_max: Duration::from_secs(5),
        statement_bytes: ApplierOptions::STATEMENT_BYTES,
        chance: Arc::clone(&environment.chance),
    }
}

pub(crate) async fn open(
    target: &Target,
    identity: &str,
    settings: &Settings,
) -> csa_applier::Result<ControlSession> {
    let found = loop {
        match preflight(target, CHANNEL).await {
            Ok(found) => break found,
            Err(PreflightError::Unreachable(error)) => return Err(error),
            Err(refused) => {
                // The operator waits for it, and starts the channel again.
                let is_read_only = refused.to_string().contains("is read_only");
                assert!(is_read_only, "{refused}");
                sleep(AGAIN).await;
            }
        }
    };
    let start = StartFrom::Executed(GtidSet::new());
    let claim = Claim {
        standby: settings.standby,
        identity,
        start: found.checkpoint.is_none().then_some(&start),
        source_executed: None,
        filters: "",
    };
    ControlSession::open(target, CHANNEL, settings.workers, &claim, settings.statement_gtids).await
}

/// Admits everything after the checkpoint. After a statement it waits until that is executed, as the
/// definitions of what follows depend on it.
async fn feed(
    server: &Server,
    history: &History,
    executed: &GtidSet,
    commits: &Commits,
    sender: mpsc::Sender<AdmittedTransaction>,
    settings: &Settings,
) {
    let mut random = StdRng::seed_from_u64(settings.seed ^ 0xfeed);
    let mut admission = Admission::new(Definitions::of(server));
    let mut statements = commits.statements();
    let mut expected = *statements.borrow();
    for (index, transaction) in history.transactions.iter().enumerate() {
        if executed.contains(&transaction.gtid) {
            continue;
        }
        if !settings.pause.is_zero() {
            sleep(settings.pause.mul_f64(random.random())).await;
        }
        let admitted = admission.admit(history.relayed(index), None, true).await.expect("admitted");
        if sender.send(admitted).await.is_err() {
            return;
        }
        if transaction.is_alone {
            expected += 1;
            if statements.wait_for(|&count| count >= expected).await.is_err() {
                return;
            }
            if transaction.is_definition {
                admission.definitions_changed();
            }
        }
    }
}
