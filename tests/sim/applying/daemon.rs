//! A daemon as far as the applier goes: it takes the channel, reads its history from the checkpoint on and
//! applies it, until it is dropped as a process is killed.

use std::collections::BTreeMap;
use std::sync::Arc;

use csa_applier::{
    Applier, ApplierOptions, ApplierStatus, Claim, CommitObserver, Commits, ControlSession,
    ErrorClass, ExecMode, PreflightError, StartFrom, Target, TargetGtids, Tuning, preflight,
};
use csa_provider::GtidSet;
use csa_provider::link::SystemNetwork;
use csa_scheduler::{
    Admission, AdmittedTransaction, ForeignKey, GroupLimits, KeyClass, KeyPart, KeySource,
    KeySourceError, LowWaterMark, TableId, TableKeys, UniqueKey, UntilGate,
};
use tokio::sync::{mpsc, watch};
use tokio::time::{Duration, sleep};
use tokio_util::sync::CancellationToken;

use super::history::History;
use crate::environment::{VirtualClock, environment};
use crate::target::{Server, TableName};

const CHANNEL: &str = "c";
/// The pause before a daemon tries again to take its channel.
const AGAIN: Duration = Duration::from_secs(1);

/// The settings of a daemon.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) workers: u16,
    pub(super) limits: GroupLimits,
    pub(super) gtids: TargetGtids,
    /// Statements run under their GTIDs.
    pub(super) statement_gtids: bool,
    pub(super) seed: u64,
}

/// The keys of the tables as the target has them now.
#[derive(Debug)]
struct Definitions {
    server: Server,
    ids: BTreeMap<TableName, TableId>,
}

impl Definitions {
    fn id(&mut self, name: &TableName) -> TableId {
        let next = TableId(u32::try_from(self.ids.len()).expect("few") + 1);
        *self.ids.entry(name.clone()).or_insert(next)
    }
}

fn part(column: usize) -> KeyPart {
    KeyPart { column, class: KeyClass::Integer }
}

impl KeySource for Definitions {
    async fn table(
        &mut self,
        schema: &[u8],
        table: &[u8],
    ) -> Result<(TableId, Option<Arc<TableKeys>>), KeySourceError> {
        let text = |name| String::from_utf8_lossy(name).into_owned();
        let name = (text(schema), text(table));
        let server = self.server.clone();
        let keys = server.with_state(|state| {
            let table = state.tables.get(&name)?;
            let keys = [&table.primary].into_iter().chain(&table.unique);
            let unique = keys.map(|columns| UniqueKey {
                parts: columns.iter().map(|&column| part(column)).collect(),
            });
            let references = table.references.iter().map(|reference| ForeignKey {
                parent: self.id(&reference.parent),
                parent_key: Some((0, vec![part(reference.column)])),
            });
            Some(TableKeys {
                columns: table.columns.len(),
                unique: unique.collect(),
                foreign_keys: references.collect(),
                // Nothing refers to a table that refers to another.
                foreign_key_rank: Some(u32::from(!table.references.is_empty())),
                has_relations: !table.references.is_empty()
                    || state.children_of(&name).next().is_some(),
                ..TableKeys::default()
            })
        });
        Ok((self.id(&name), keys.map(Arc::new)))
    }

    async fn trigger_table(&mut self, _: &str, _: &str) -> Result<Option<String>, KeySourceError> {
        Ok(None)
    }

    fn forget(&mut self) {}
}

struct Nobody;

impl CommitObserver for Nobody {
    fn low_water_mark(&mut self, _: LowWaterMark) {}
}

/// Runs until the whole history is applied.
pub(super) async fn run(
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
    let options = ApplierOptions {
        channel: CHANNEL.to_owned(),
        executor: csa_applier::Executor::RowImage,
        statement_gtids: settings.statement_gtids,
        preserve_commit_order: true,
        exec_mode: ExecMode::Strict,
        transaction_retries: 60,
        connect_retry: Duration::from_millis(100),
        connect_retry_max: Duration::from_secs(5),
        statement_bytes: ApplierOptions::STATEMENT_BYTES,
        chance: environment.chance,
    };
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
        feed(server, history, &executed, &commits, sender).await;
        std::future::pending().await
    };
    tokio::select! {
        biased;
        outcome = applier.run(never(), never()) => outcome,
        never = feed => never,
    }
}

async fn open(
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
) {
    let definitions = Definitions { server: server.clone(), ids: BTreeMap::new() };
    let mut admission = Admission::new(definitions);
    let mut statements = commits.statements();
    let mut expected = *statements.borrow();
    for (index, transaction) in history.transactions.iter().enumerate() {
        if executed.contains(&transaction.gtid) {
            continue;
        }
        let admitted = admission.admit(history.relayed(index), None, true).await.expect("admitted");
        if sender.send(admitted).await.is_err() {
            return;
        }
        if transaction.is_definition {
            expected += 1;
            if statements.wait_for(|&count| count >= expected).await.is_err() {
                return;
            }
            admission.definitions_changed();
        }
    }
}
