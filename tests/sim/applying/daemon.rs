//! A daemon as far as the applier goes: it takes the channel, reads its history from the checkpoint on and
//! applies it, until it is dropped as a process is killed.

use std::sync::Arc;

use csa_applier::{
    Applier, ApplierOptions, ApplierStatus, ChannelClaim, CommitObserver, Commits, ControlSession,
    ExecMode, Executor, PreflightError, RowImageColumns, StartFrom, Target, TargetFacts,
    TargetGtids, Tuning, preflight,
};
use csa_provider::binlog::GtidSet;
use csa_provider::server::Environment;
use csa_provider::server::link::SystemNetwork;
use csa_scheduler::admission::{Admission, AdmittedTransaction};
use csa_scheduler::group::GroupLimits;
use csa_scheduler::low_water::LowWaterMark;
use csa_scheduler::until::UntilGate;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::{mpsc, watch};
use tokio::time::{Duration, sleep};
use tokio_util::sync::CancellationToken;

use crate::definitions::Definitions;
use crate::environment::{VirtualClock, environment};
use crate::history::{History, Kinds, Transaction};
use crate::target::Server;

pub(crate) const CHANNEL: &str = "c";
/// The pause before a daemon tries again to take its channel.
pub(crate) const AGAIN: Duration = Duration::from_secs(1);

/// The settings of a daemon.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) channel: String,
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
    /// Rows get other keys.
    pub(crate) moves: bool,
    /// `preserve_commit_order`.
    pub(crate) in_order: bool,
    /// The longest pause between two transactions of the source.
    pub(crate) pause: Duration,
    pub(crate) seed: u64,
}

impl Settings {
    /// Returns the kinds of transactions that make a difference with these settings.
    pub(crate) fn kinds(&self) -> Kinds {
        let undone = self.gtids == TargetGtids::Source;
        Kinds { branches: self.has_branches, undone, moves: self.moves }
    }

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
            channel: CHANNEL.to_owned(),
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
            moves: false,
            in_order,
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
            Err(error) if error.class().is_failure() => return Err(error),
            Err(_) => sleep(AGAIN).await,
        }
    };
    let all = history.transactions.len();
    Box::pin(apply(server, history, all, control, settings)).await
}

/// Applies the first `end` transactions of the history, as far as they come after the checkpoint.
pub(super) async fn apply(
    server: &Server,
    history: &History,
    end: usize,
    control: ControlSession,
    settings: &Settings,
) -> csa_applier::Result<()> {
    let target = server.target(settings.gtids);
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
        let transactions = &history.transactions[..end];
        feed(server, (history, transactions), &executed, &commits, sender, settings).await;
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
        converging: None,
        row_image: RowImageColumns::Full,
        standby: settings.standby,
        channel: settings.channel.clone(),
        executor: settings.executor,
        statement_gtids: settings.statement_gtids,
        preserve_commit_order: settings.in_order,
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
    let found = look_at(target).await?;
    claim(target, identity, settings, &found).await
}

/// Looks at the target before a start.
pub(crate) async fn look_at(target: &Target) -> csa_applier::Result<TargetFacts> {
    loop {
        match preflight(target, CHANNEL).await {
            Ok(found) => return Ok(found),
            Err(PreflightError::Unreachable(error)) => return Err(error),
            Err(refused) => {
                // The operator waits for it, and starts the channel again; errors of the model name themselves.
                let why = refused.to_string();
                let passing = ["read_only", "refused", "injected"];
                let is_passing = passing.iter().any(|word| why.contains(word));
                assert!(is_passing, "{refused}");
                sleep(AGAIN).await;
            }
        }
    }
}

/// Takes the channel of a target that was looked at.
pub(crate) async fn claim(
    target: &Target,
    identity: &str,
    settings: &Settings,
    found: &TargetFacts,
) -> csa_applier::Result<ControlSession> {
    let start = StartFrom::Executed(GtidSet::new());
    let claim = ChannelClaim {
        standby: settings.standby,
        is_run: true,
        identity,
        start: found.checkpoint.is_none().then_some(&start),
        source_executed: None,
        source_uuid: None,
        filters: "",
    };
    ControlSession::open(target, CHANNEL, settings.workers, &claim, settings.statement_gtids).await
}

/// Admits everything after the checkpoint. After a statement it waits until that is executed, as the
/// definitions of what follows depend on it.
async fn feed(
    server: &Server,
    (history, transactions): (&History, &[Transaction]),
    executed: &GtidSet,
    commits: &Commits,
    sender: mpsc::Sender<AdmittedTransaction>,
    settings: &Settings,
) {
    let mut random = StdRng::seed_from_u64(settings.seed ^ 0xfeed);
    let mut admission = Admission::new(Definitions::of(server));
    let mut statements = commits.statements();
    let mut expected = *statements.borrow();
    for (index, transaction) in transactions.iter().enumerate() {
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
            if transaction.is_definition() {
                admission.definitions_changed();
            }
        }
    }
}
