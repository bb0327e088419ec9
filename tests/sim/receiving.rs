//! Reception on a simulated source and disk: the provider and the relay store, while daemons are killed, the
//! machine loses power and links fail. A reader of the store must find the source's log: each transaction
//! once, whole, in order.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use csa_provider::link::TlsOptions;
use csa_provider::test_util::{event, gtid_event, query_event};
use csa_provider::{
    EventType, Gtid, GtidSet, Provider, RawEvent, SourceOptions, SourceStatus, Tag, TlsMode, Uuid,
};
use csa_relaystore::{Error, MemoryFs, RelayStore, RelayStoreOptions, SyncPolicy};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::environment::{VirtualClock, environment};
use crate::seeds;
use crate::source::{LinkFaults, Source, Transit};

const SOURCE: Uuid = Uuid::from_bytes([0x5e; 16]);
/// Longer than all faults of a run together: what takes longer is stuck.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug)]
struct Chaos {
    random: StdRng,
    /// Faults left; without an end no run would reach its own.
    left: u32,
    rate: f64,
    has_damaged: bool,
}

impl Chaos {
    fn transit(&mut self) -> Transit {
        if self.left == 0 || !self.random.random_bool(self.rate) {
            return Transit::Arrive;
        }
        self.left -= 1;
        match self.random.random_range(0..4) {
            0 => Transit::Late(Duration::from_millis(self.random.random_range(0..40_000))),
            1 => Transit::Vanish,
            // Once: what arrives damaged twice is damaged on the source, and ends reception.
            2 if !std::mem::replace(&mut self.has_damaged, true) => Transit::Damage,
            _ => Transit::Cut,
        }
    }
}

impl LinkFaults for Chaos {
    fn connect(&mut self) -> Transit {
        self.transit()
    }

    fn packet(&mut self) -> Transit {
        self.transit()
    }
}

struct World {
    random: StdRng,
    history: Vec<(Gtid, Vec<RawEvent>)>,
    disk: MemoryFs,
    options: RelayStoreOptions,
    /// Transactions that the target has.
    applied: usize,
    /// Kills and power failures to come.
    ends: u32,
    /// The daemon's, which end with it.
    tasks: JoinSet<()>,
}

impl World {
    fn of(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let length = random.random_range(1..60);
        let history = (1..=length).map(|number| transaction(number, &mut random)).collect();
        let disk = MemoryFs::new(seed);
        let sync = match random.random_range(0..3) {
            0 => SyncPolicy::Transaction,
            1 => SyncPolicy::Os,
            _ => SyncPolicy::Interval(Duration::from_millis(random.random_range(1..2_000))),
        };
        let options = RelayStoreOptions {
            directory: PathBuf::from("/relay"),
            segment_size: random.random_range(500..8_000),
            space_limit: [0, 20_000][random.random_range(0..2)],
            min_free_disk: 0,
            sync,
            tail_bytes: random.random_range(0..4_000),
            frame_bytes: random.random_range(100..2_000),
            files: Arc::new(disk.clone()),
        };
        let ends = random.random_range(0..6);
        Self { random, history, disk, options, applied: 0, ends, tasks: JoinSet::new() }
    }

    fn executed(&self) -> GtidSet {
        self.history[..self.applied].iter().map(|(gtid, _)| gtid.clone()).collect()
    }

    /// One life of a daemon; `Err` if the store asks for another.
    async fn life(&mut self, source: &Source, seed: u64) -> Result<(), Error> {
        let (store, _) = RelayStore::open(self.options.clone(), &self.executed())?;
        let (inlet, writer) = store.inlet_and_writer();
        self.tasks.spawn(writer.run());
        let options = options(source, seed);
        let status = Arc::<SourceStatus>::default();
        let provider = Provider::new(options, status);
        self.tasks.spawn(async move {
            if let Err(end) = provider.run(inlet, CancellationToken::new()).await {
                panic!("reception ended: {end}");
            }
        });
        let mut reader = store.reader(self.executed());
        reader.set_inline_limit([200, u64::MAX][self.random.random_range(0..2)]);
        let mut last = None;
        while let Some((gtid, events)) = self.history.get(self.applied) {
            let relayed = tokio::select! {
                biased;
                relayed = reader.next(Duration::from_secs(60)) => relayed?,
                Some(ended) = self.tasks.join_next() => {
                    ended.expect("no panic");
                    continue;
                }
            };
            let Some(relayed) = relayed else {
                // Nothing else is released as late as the last: it may be what the store has no room for.
                last.into_iter().for_each(|end| store.release(end));
                continue;
            };
            assert_eq!(&relayed.header.gtid, gtid, "after {} transactions", self.applied);
            let found: Result<Vec<_>, _> = relayed.events().collect();
            let found: Vec<_> = found?.iter().map(|event| event.bytes().to_vec()).collect();
            let expected: Vec<_> = events.iter().map(|event| event.bytes().to_vec()).collect();
            assert!(found == expected, "{gtid} differs");
            self.applied += 1;
            last = Some(relayed.end);
            if self.random.random_bool(0.5) {
                store.release(relayed.end);
            }
            if self.random.random_bool(0.2) {
                sleep(Duration::from_millis(self.random.random_range(0..3_000))).await;
            }
        }
        Ok(())
    }

    async fn run(&mut self, source: &Source, seed: u64) {
        while self.applied < self.history.len() {
            let length = match self.ends {
                0 => PATIENCE,
                _ => Duration::from_millis(self.random.random_range(0..20_000)),
            };
            let life = timeout(length, self.life(source, seed)).await;
            self.tasks.shutdown().await;
            match life {
                Ok(Ok(())) => {}
                Ok(Err(Error::Damaged { transaction, .. })) => {
                    RelayStore::discard_from(&self.options, transaction).expect("cut");
                }
                Ok(Err(error)) => panic!("{error}"),
                Err(_) => {
                    assert!(self.ends > 0, "stuck after {} transactions", self.applied);
                    self.ends -= 1;
                    if self.random.random_bool(0.5) {
                        self.disk.crash(self.random.random());
                    }
                    if self.random.random_bool(0.2) {
                        source.restart();
                    }
                }
            }
        }
    }
}

fn options(source: &Source, seed: u64) -> SourceOptions {
    SourceOptions {
        host: "simulated".to_owned(),
        port: 3306,
        user: "csa".to_owned(),
        password: String::new().into(),
        server_id: 7,
        replica_uuid: Uuid::from_bytes([0xda; 16]),
        tls: TlsOptions { mode: TlsMode::Disabled, ..TlsOptions::default() },
        heartbeat_interval: Duration::from_secs(2),
        connect_timeout: Duration::from_secs(10),
        connect_retry: Duration::from_millis(100),
        connect_retry_max: Duration::from_secs(5),
        failover: Vec::new(),
        environment: environment(source.clock(), source.clone(), seed),
    }
}

fn transaction(number: u64, random: &mut StdRng) -> (Gtid, Vec<RawEvent>) {
    let gtid = Gtid { uuid: SOURCE, tag: Tag::untagged(), gno: number };
    let mut events = vec![gtid_event(&gtid, number), query_event("app", "BEGIN")];
    for _ in 0..random.random_range(0..5) {
        let body = vec![number as u8; random.random_range(0..900)];
        events.push(event(EventType::ROWS_QUERY, &body));
    }
    events.push(event(EventType::XID, &number.to_le_bytes()));
    (gtid, events)
}

fn run(seed: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let mut world = World::of(seed);
        let mut random = StdRng::seed_from_u64(seed ^ 0x00c0_ffee);
        let rate = [0.0, 0.002, 0.02][random.random_range(0..3)];
        let left = random.random_range(0..20);
        let chaos = Chaos { random, left, rate, has_damaged: false };
        let source = Source::new(SOURCE, Arc::new(VirtualClock::new()), chaos);
        let client = {
            let (source, history) = (source.clone(), world.history.clone());
            let mut random = StdRng::seed_from_u64(!seed);
            async move {
                for (gtid, events) in history {
                    source.commit(&gtid, &events);
                    if random.random_bool(0.3) {
                        sleep(Duration::from_millis(random.random_range(0..2_000))).await;
                    }
                }
            }
        };
        tokio::join!(client, world.run(&source, seed));
    });
}

#[test]
fn whatever_dies_the_store_has_the_sources_log() {
    seeds::each("receiving", 0..500, run);
}
