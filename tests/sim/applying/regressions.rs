//! Bugs that runs with faults have found, each as the shortest way to it. A fault is known by the words of a statement, so
//! each test requires that its faults came.

use std::sync::atomic::{AtomicUsize, Ordering};

use csa_applier::{ChannelClaim, Connector as _, ControlSession, StartFrom, TargetGtids};
use csa_provider::binlog::GtidSet;
use csa_provider::server::link::Limits;
use csa_scheduler::group::GroupLimits;
use parking_lot::Mutex;

use super::daemon::Settings;
use super::*;
use crate::target::{Crash, Faults, Observer, Run, State, Transit};

/// The number of links that were cut.
#[derive(Debug, Clone, Default)]
struct Cuts(Arc<AtomicUsize>);

impl Cuts {
    fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn number(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Cuts the answer to the COMMIT that ends a statement without a GTID.
#[derive(Debug, Clone, Default)]
struct CutAfterStatements {
    is_ending: bool,
    cuts: Cuts,
}

impl Faults for CutAfterStatements {
    fn request(&mut self, packet: &str) -> Transit {
        self.is_ending |= packet.starts_with("DELETE FROM csa.statement");
        Transit::Arrive
    }

    fn answer(&mut self, packet: &str) -> Transit {
        if packet != "COMMIT" || !std::mem::take(&mut self.is_ending) {
            return Transit::Arrive;
        }
        self.cuts.add();
        Transit::Cut(Duration::ZERO)
    }
}

/// It was executed a second time: its entry in `csa.statement` was gone with the COMMIT.
#[tokio::test(start_paused = true)]
async fn a_statement_is_not_repeated_after_the_answer_to_its_last_commit_is_lost() {
    let world = world_of_definitions();
    let oracle = Oracle::new(Arc::clone(&world.history), true);
    let faults = CutAfterStatements::default();
    let server = Server::new(TARGET, 0, faults.clone(), oracle);
    server.provision(&TABLES);
    daemon::run(&server, &world.history, "one", &world.statements_by(false))
        .await
        .expect("applied");
    let applied = server.with_state(oracle::applied);
    assert_eq!(applied, Some(world.history.transactions.len()));
    assert!(faults.cuts.number() > 0, "nothing was cut");
}

/// Beginnings of statements that come one after the other, each with the error with which the server refuses it.
type Refusals = &'static [(&'static [&'static str], Option<u16>)];

/// The refusals that are still to come.
#[derive(Debug, Clone)]
struct RefusedInTurn(Arc<Mutex<Refusals>>);

impl RefusedInTurn {
    fn new(refusals: Refusals) -> Self {
        Self(Arc::new(Mutex::new(refusals)))
    }

    #[track_caller]
    fn assert_came(&self) {
        let left = *self.0.lock();
        assert!(left.is_empty(), "these never came: {left:?}");
    }
}

impl Faults for RefusedInTurn {
    fn statement(&mut self, statement: &str) -> Run {
        let mut left = self.0.lock();
        let refusals: Refusals = *left;
        let Some(((beginnings, code), rest)) = refusals.split_first() else { return Run::Normally };
        if !beginnings.iter().any(|beginning| statement.starts_with(beginning)) {
            return Run::Normally;
        }
        *left = rest;
        code.map_or(Run::Normally, Run::Fail)
    }
}

/// Those of the history.
const DEFINITION: &[&str] = &["CREATE TABLE extra", "DROP TABLE extra", "ALTER TABLE log"];
const CHECKPOINT: &[&str] = &["UPDATE csa.checkpoint"];
const ENTRY: &[&str] = &["DELETE FROM csa.statement"];
const COMMIT: &[&str] = &["COMMIT"];

/// Returns the error of a channel whose first definition has ended with one on the source, and without one here.
async fn told_of_the_source(statement_gtids: bool, faults: impl Faults + 'static) -> String {
    let world = world_of_definitions();
    let history = Arc::new(History::of(world.case, world.settings.kinds()).with_error(1051));
    let server = Server::new(TARGET, 0, faults, Oracle::new(Arc::clone(&history), true));
    server.provision(&TABLES);
    let settings = world.statements_by(statement_gtids);
    let outcome = daemon::run(&server, &history, "one", &settings).await;
    outcome.expect_err("the contents may differ").to_string()
}

/// The attempt that wrote the checkpoint did not know how the statement had ended, and the channel went on.
#[tokio::test(start_paused = true)]
async fn an_error_that_only_the_source_had_is_told_by_a_later_attempt_too() {
    let locked = RefusedInTurn::new(&[(DEFINITION, None), (CHECKPOINT, Some(1205))]);
    let deadlock = RefusedInTurn::new(&[(DEFINITION, None), (CHECKPOINT, Some(1213))]);
    let entry_locked = RefusedInTurn::new(&[(DEFINITION, None), (ENTRY, Some(1205))]);
    let cut = CutAfterStatements::default();
    for said in [
        told_of_the_source(true, NoFaults).await,
        told_of_the_source(true, locked.clone()).await,
        told_of_the_source(true, deadlock.clone()).await,
        told_of_the_source(false, cut.clone()).await,
        told_of_the_source(false, entry_locked.clone()).await,
    ] {
        assert!(said.contains("ended with error 1051 on the source"), "{said}");
    }
    for refused in [locked, deadlock, entry_locked] {
        refused.assert_came();
    }
    assert!(cut.cuts.number() > 0, "nothing was cut");
}

/// The next attempt found the entry in `csa.statement`, and asked whether the statement had taken effect.
#[tokio::test(start_paused = true)]
async fn a_lock_or_a_shortage_beside_a_statement_leaves_no_doubt_about_its_effect() {
    for refused in [
        &[(DEFINITION, None), (CHECKPOINT, Some(1205))],
        &[(DEFINITION, None), (CHECKPOINT, Some(1213))],
        // A stop may end the first wait.
        &[(DEFINITION, None), (CHECKPOINT, Some(1317))],
        &[(DEFINITION, None), (ENTRY, Some(1205))],
        &[(DEFINITION, None), (COMMIT, Some(1213))],
        // No undo slot, or no room on the disk, for a while.
        &[(DEFINITION, None), (CHECKPOINT, Some(1637))],
        &[(DEFINITION, None), (COMMIT, Some(1021))],
        // It has no effect, and its entry is still to be removed.
        &[(DEFINITION, Some(1205)), (ENTRY, Some(1205))],
        &[(DEFINITION, Some(1213)), (ENTRY, Some(1213))],
        &[(DEFINITION, Some(1213)), (ENTRY, Some(1637))],
        &[(DEFINITION, Some(1637)), (ENTRY, Some(1637))],
        &[(DEFINITION, Some(1637)), (DEFINITION, None)],
    ] {
        let world = world_of_definitions();
        let oracle = Oracle::new(Arc::clone(&world.history), true);
        let faults = RefusedInTurn::new(refused);
        let server = Server::new(TARGET, 0, faults.clone(), oracle);
        server.provision(&TABLES);
        let settings = world.statements_by(false);
        let applied = daemon::run(&server, &world.history, "one", &settings).await;
        applied.unwrap_or_else(|error| panic!("{refused:?}: {error}"));
        let applied = server.with_state(oracle::applied);
        assert_eq!(applied, Some(world.history.transactions.len()), "{refused:?}");
        faults.assert_came();
    }
}

/// Cuts each statement off before it is sent, and lets its next attempt pass.
#[derive(Debug, Clone, Default)]
struct CutBeforeStatements {
    announced: u32,
    is_cut: bool,
    cuts: Cuts,
}

impl CutBeforeStatements {
    /// Returns true at one of three places, in turn: the answer to the entry, a request and an answer before the
    /// statement.
    fn cuts_here(&mut self, packet: &str, is_request: bool) -> bool {
        let (beginning, at_request) = match self.announced / 2 % 3 {
            0 => ("INSERT INTO csa.statement", false),
            1 => ("USE ", true),
            _ => ("SET SESSION lock_wait_timeout", false),
        };
        let is_first = self.announced % 2 == 1 && !self.is_cut;
        let cuts = is_first && is_request == at_request && packet.starts_with(beginning);
        if cuts {
            self.is_cut = true;
            self.cuts.add();
        }
        cuts
    }
}

impl Faults for CutBeforeStatements {
    fn request(&mut self, packet: &str) -> Transit {
        if packet.starts_with("INSERT INTO csa.statement") {
            self.announced += 1;
            self.is_cut = false;
        }
        match self.cuts_here(packet, true) {
            true => Transit::Cut(Duration::ZERO),
            false => Transit::Arrive,
        }
    }

    fn answer(&mut self, packet: &str) -> Transit {
        match self.cuts_here(packet, false) {
            true => Transit::Cut(Duration::ZERO),
            false => Transit::Arrive,
        }
    }
}

/// The channel stopped and asked whether it took effect, although it had not been sent.
#[tokio::test(start_paused = true)]
async fn a_statement_that_was_not_sent_is_not_in_doubt() {
    let world = world_of_definitions();
    let oracle = Oracle::new(Arc::clone(&world.history), true);
    let faults = CutBeforeStatements::default();
    let server = Server::new(TARGET, 0, faults.clone(), oracle);
    server.provision(&TABLES);
    let settings = world.statements_by(false);
    daemon::run(&server, &world.history, "one", &settings).await.expect("applied");
    let applied = server.with_state(oracle::applied);
    assert_eq!(applied, Some(world.history.transactions.len()));
    assert!(faults.cuts.number() >= 3, "it was not cut at each place");
}

/// Returns a world with some definitions, and nothing that needs GTIDs on the target.
fn world_of_definitions() -> World {
    let fits = |world: &World| definitions(&world.history) > 3 && !world.settings.has_branches;
    let mut worlds = (0..).map(|seed| World::new(Case::of(seed), Mood::Calm));
    worlds.find(fits).expect("one")
}

impl World {
    /// Returns its settings on a target where statements run under their GTIDs or not.
    fn statements_by(&self, statement_gtids: bool) -> Settings {
        let gtids = TargetGtids::Own;
        Settings { gtids, statement_gtids, in_order: true, ..self.settings.clone() }
    }
}

fn definitions(history: &History) -> usize {
    history.transactions.iter().filter(|transaction| transaction.is_definition()).count()
}

struct Nobody;

impl Observer for Nobody {
    fn committed(&mut self, _: &State) {}
}

/// A session of an earlier daemon, whose client is gone, owned a GTID for which the channel then waited. No
/// worker of the present one had its number, and the target did not notice for hours.
#[tokio::test(start_paused = true)]
async fn a_gtid_that_a_session_left_behind_owns_is_freed() {
    let begins_with_rows = |world: &World| {
        let first = world.history.transactions.get(..4);
        !world.settings.has_branches && first.is_some_and(|of| !of.iter().any(|one| one.is_alone))
    };
    let mut worlds = (0..).map(|seed| World::new(Case::of(seed), Mood::Calm));
    let world = worlds.find(begins_with_rows).expect("one");
    let settings = Settings {
        gtids: TargetGtids::Source,
        statement_gtids: true,
        limits: GroupLimits { transactions: 1, ..world.settings.limits },
        workers: 1,
        ..world.settings.clone()
    };
    // Also one in the middle of a series.
    for (lock, is_ended, place) in
        [("csa-worker:4:c", true, 0), ("csa-worker:4:other", false, 0), ("csa-worker:4:c", true, 3)]
    {
        let owned = &world.history.transactions[place].gtid;
        let oracle = Oracle::new(Arc::clone(&world.history), true);
        let server = Server::new(TARGET, 0, NoFaults, oracle);
        server.provision(&TABLES);
        let target = server.target(TargetGtids::Source);
        // An earlier daemon had five workers.
        let earlier = Settings { workers: 5, ..settings.clone() };
        daemon::open(&target, "one", &earlier).await.expect("taken").close().await;
        let mut left = server.connect(&target).await.expect("a session");
        for statement in [
            &format!("SELECT COALESCE(GET_LOCK('{lock}', 0), 0)"),
            &format!("SET SESSION gtid_next='{owned}'"),
            "BEGIN",
        ] {
            left.query(statement, Limits::LIST).await.expect("executed");
        }
        let applying = daemon::run(&server, &world.history, "one", &settings);
        let outcome = timeout(Duration::from_secs(60), applying).await;
        assert_eq!(outcome.is_ok(), is_ended, "{lock}");
        assert_eq!(left.query("DO 1", Limits::LIST).await.is_err(), is_ended, "{lock}");
    }
}

/// Both had epoch 1, so the first took up its work where the second had the channel.
#[tokio::test(start_paused = true)]
async fn an_epoch_that_a_crash_took_back_is_not_given_to_another_daemon() {
    let server = Server::new(TARGET, 100, NoFaults, Nobody);
    let start = StartFrom::Executed(GtidSet::new());
    let target = server.target(TargetGtids::Own);
    let open = async |identity| {
        let claim = ChannelClaim {
            identity,
            start: Some(&start),
            source_executed: None,
            source_uuid: None,
            filters: "",
            standby: false,
            is_run: true,
        };
        let control = ControlSession::open(&target, "c", 1, &claim, true).await;
        control.expect("taken").checkpoint().epoch
    };
    let one = open("one").await;
    server.crash(Crash { down: Duration::from_secs(1), loses: 100 });
    sleep(Duration::from_secs(1)).await;
    let two = open("two").await;
    assert_ne!(one, two);
}
