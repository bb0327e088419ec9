//! Channels that get another name between two starts, whatever their source had executed when they began. The
//! operator does what a refused start names; nothing may be applied a second time, and nothing passed over.

use std::sync::Arc;

use csa_applier::{
    AuditEntry, ChannelClaim, ControlSession, ErrorClass, SharedTables, StartFrom, StartPosition,
    Target, TargetFacts, adopt, preflight,
};
use csa_provider::binlog::GtidSet;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::time::{Duration, sleep, timeout};

use super::daemon::{AGAIN, Settings, apply};
use super::{Mood, TARGET};
use crate::history::{History, SOURCE, TABLES};
use crate::oracle::{self, Oracle};
use crate::seeds::{self, Case};
use crate::target::{NoFaults, Server};

/// A channel under its present name.
struct Channel {
    server: Server,
    target: Target,
    history: Arc<History>,
    settings: Settings,
    /// `start_from`, which stays in the configuration.
    start: StartFrom,
    /// Transactions that the source has executed.
    executed: usize,
    /// Its earlier names.
    names: Vec<String>,
}

impl Channel {
    fn of(case: Case, random: &mut StdRng) -> Self {
        let settings = Settings { statement_gtids: true, ..Settings::of(case.seed, random) };
        let history = History::of(case, settings.kinds());
        let length = history.transactions.len();
        // Another server takes over, now and then before the first has executed anything.
        let promotion = [0, random.random_range(0..=length)][random.random_range(0..2)];
        let history = Arc::new(history.promoted_at(promotion));
        let oracle = Oracle::new(Arc::clone(&history), settings.in_order);
        let server = Server::new(TARGET, 0, NoFaults, oracle);
        server.provision(&TABLES);
        if std::env::var_os("CSA_SIM_TRACE").is_some() {
            server.trace();
        }
        let executed = [0, random.random_range(0..length)][random.random_range(0..2)];
        let start = match random.random_range(0..3) {
            0 => StartFrom::Executed(GtidSet::new()),
            // The tables are those of a source that has executed nothing.
            1 if executed == 0 => StartFrom::Source,
            _ => StartFrom::Target,
        };
        let target = server.target(settings.gtids);
        Self { server, target, history, settings, start, executed, names: Vec::new() }
    }

    fn source(&self) -> GtidSet {
        let transactions = &self.history.transactions[..self.executed];
        transactions.iter().map(|transaction| transaction.gtid.clone()).collect()
    }

    fn check(&self, target: &TargetFacts) -> Result<(), String> {
        let position = StartPosition {
            channel: &self.settings.channel,
            address: "simulated:3306",
            start: &self.start,
            is_copy_unsaid: false,
            gtids: self.settings.gtids,
            source: Some(&self.source()),
            source_uuid: Some(SOURCE),
            target: &target.gtid_executed,
            target_uuids: &target.own_uuids,
            channels: &target.channels,
            // Each name has a relay store of its own.
            relayed: &GtidSet::new(),
            is_relay_kept: false,
        };
        position.check(|_| SharedTables::Table("app.log".to_owned())).map(drop)
    }

    /// Starts a channel as `crates/daemon` does. The operator adopts the earlier name's checkpoint where that is wanted.
    async fn started(&self) -> ControlSession {
        let channel = &self.settings.channel;
        loop {
            let found = preflight(&self.target, channel).await.expect("a target that will do");
            if let Err(why) = self.check(&found) {
                let is_named = |name: &&String| why.contains(&format!("adopt --from {name} "));
                let from = self.names.iter().find(is_named);
                let from = from.unwrap_or_else(|| panic!("refused: {why}"));
                let entry = AuditEntry { channel: channel.clone(), ..AuditEntry::default() };
                adopt(&self.target, from, &entry).await.expect("adopted");
                continue;
            }
            let claim = ChannelClaim {
                identity: "one",
                start: found.checkpoint.is_none().then_some(&self.start),
                source_executed: Some(&self.source()),
                source_uuid: Some(SOURCE),
                filters: "",
                standby: false,
                is_run: true,
            };
            let workers = self.settings.workers;
            match ControlSession::open(&self.target, channel, workers, &claim, true).await {
                Ok(control) => return control,
                Err(error) if error.class() == ErrorClass::Stop => {
                    panic!("{}", error.with_values())
                }
                Err(_) => sleep(AGAIN).await,
            }
        }
    }

    /// Runs until everything that the source executes meanwhile is applied, or the time is over.
    async fn run(&mut self, end: usize, time: Duration) {
        let control = self.started().await;
        self.executed = end;
        let applying = apply(&self.server, &self.history, end, control, &self.settings);
        if let Ok(Err(error)) = timeout(time, Box::pin(applying)).await {
            panic!("stopped: {}", error.with_values());
        }
    }

    /// An earlier version left such a record of a channel that began on a source without transactions.
    fn forget_servers(&self) {
        assert!(self.server.operate("UPDATE csa.channel SET source_uuids=''"));
    }

    fn rename(&mut self) {
        let next = format!("c{}", self.names.len() + 1);
        self.names.push(std::mem::replace(&mut self.settings.channel, next));
    }

    async fn live(&mut self, random: &mut StdRng, mut kills: usize) {
        let all = self.history.transactions.len();
        let begins_empty = self.executed == 0;
        loop {
            let end = match kills {
                0 => all,
                _ => random.random_range(self.executed..=all),
            };
            let time = match kills > 0 && random.random_bool(0.5) {
                true => Duration::from_millis(random.random_range(0..3_000)),
                false => Mood::Calm.patience(),
            };
            Box::pin(self.run(end, time)).await;
            if kills == 0 {
                return;
            }
            kills -= 1;
            let has_applied = self.server.with_state(oracle::applied) > Some(0);
            if begins_empty && has_applied && self.names.is_empty() && random.random_bool(0.5) {
                self.forget_servers();
            }
            if random.random_bool(0.6) {
                self.rename();
            }
            sleep(Duration::from_millis(random.random_range(0..3_000))).await;
        }
    }
}

/// One run, in its own thread's time.
pub(crate) fn run(case: Case) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let mut random = StdRng::seed_from_u64(case.seed ^ 0x0004_ea3e);
        let mut channel = Channel::of(case, &mut random);
        let kills = random.random_range(1..5).min(case.kills);
        let server = channel.server.clone();
        let done = async {
            tokio::select! {
                biased;
                () = server.broken() => panic!("a promise is broken"),
                () = channel.live(&mut random, kills) => {}
            }
        };
        timeout(Mood::Calm.patience(), Box::pin(done)).await.expect("stuck");
        let (applied, contents) =
            server.with_state(|state| (oracle::applied(state), oracle::contents(state)));
        assert_eq!(applied, Some(channel.history.transactions.len()));
        assert_eq!(Some(&contents), channel.history.states.last());
    });
}

#[test]
fn a_renamed_channel_repeats_nothing_and_passes_over_nothing() {
    seeds::each("renamed_channel", 0..200, run);
}
