use std::time::Duration;

use csa_provider::binlog::EventType;
use csa_provider::server::Environment;
use csa_provider::test_util::{event, format_description, query_event};
use csa_relaystore::test_util::relayed_events;
use csa_scheduler::admission::AdmittedTransaction;
use csa_scheduler::changes::RowChanges;
use csa_scheduler::group::GroupCommits;
use csa_scheduler::keys::KeyMap;
use csa_scheduler::sequence::Sequence;
use csa_scheduler::test_util::admitted;

use super::*;
use crate::activity::sessions::Sessions;
use crate::commits::Commits;
use crate::group::commit_turn::{CommitTurn, Sending};
use crate::group::lock_inversion::LockWatch;
use crate::group::worker_session::SharedWorkerState;
use crate::options::ApplierOptions;
use crate::options::{ExecMode, Executor, RowImageColumns};
use crate::server::generation::Generation;
use crate::server::reachability::Reachability;
use crate::server::scripted::{Fate, Scripted};
use crate::server::session::Session;
use crate::status::ApplierStatus;

/// Returns a transaction that changes no row.
pub(crate) fn transaction() -> AdmittedTransaction {
    let events = [query_event("", "BEGIN"), event(EventType::XID, &[0; 8])];
    let changes = Some(RowChanges::default());
    admitted(relayed_events(1, &Arc::new(format_description()), &events), changes)
}

fn group() -> Arc<Group> {
    group_of(transaction())
}

/// Returns a group with this sequence number.
fn numbered(sequence: u64) -> Arc<Group> {
    let mut group = group();
    Arc::get_mut(&mut group).expect("nobody else has it").sequence = Sequence::new(sequence);
    group
}

pub(crate) fn group_of(transaction: AdmittedTransaction) -> Arc<Group> {
    let mut executed_after = GtidSet::new();
    executed_after.add(&transaction.relayed.header.gtid);
    Arc::new(Group {
        sequence: Sequence::new(1),
        commits: GroupCommits::Shared,
        transactions: vec![transaction],
        rows: 0,
        dependency: Sequence::default(),
        late: KeyMap::default(),
        executed_after,
    })
}

/// Returns options with short pauses and without retries.
pub(crate) fn options() -> ApplierOptions {
    let millisecond = Duration::from_millis(1);
    ApplierOptions {
        converging: None,
        row_image: RowImageColumns::Full,
        standby: false,
        channel: "c".to_owned(),
        executor: Executor::Sql,
        statement_gtids: false,
        preserve_commit_order: true,
        exec_mode: ExecMode::Strict,
        transaction_retries: 0,
        connect_retry: millisecond,
        connect_retry_max: millisecond,
        statement_bytes: ApplierOptions::STATEMENT_BYTES,
        chance: Environment::default().chance,
    }
}

/// Applies one group on a scripted target, and checks that it is committed once and counted once.
async fn apply_on(target: &Scripted) -> Commits {
    apply_with(target, options()).await
}

async fn apply_with(target: &Scripted, options: ApplierOptions) -> Commits {
    let environment = Environment::default();
    let commits = Commits::new(Sequence::default(), GtidSet::new());
    let reachability = Reachability::default();
    let status =
        ApplierStatus::new(commits.clone(), reachability.clone(), Executor::Sql, environment.clock);
    let status = Arc::new(status);
    let generation = Generation::default();
    generation.renew().await.begin(Scripted::place());
    let turn = CommitTurn::new(Sequence::default());
    let shared = SharedWorkerState {
        commits: commits.clone(),
        target: reachability.clone(),
        status: Arc::clone(&status),
        turn: turn.clone(),
        sending: Sending::new(Sequence::default()),
        sessions: status.sessions(),
        tables: Arc::default(),
        generation,
    };
    let mut worker =
        Worker::new(WorkerSession::new(0, Scripted::EPOCH, target.target(), options, shared));
    let group = group();
    worker.apply(&group).await.expect("committed");
    assert_eq!(target.state().commits, 1);
    assert_eq!(target.state().executed, group.executed_after.to_string());
    assert_eq!(commits.executed(), group.executed_after);
    assert_eq!(turn.low_water(), group.sequence);
    assert!(!reachability.is_lost(), "it was found again");
    commits
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_counts_and_is_not_repeated() {
    let target = Scripted::losing(&[Fate::AnswerLost]);
    apply_on(&target).await;
    let state = target.state();
    assert_eq!((state.begun, state.connections), (1, 2));
}

#[tokio::test]
async fn a_commit_that_never_arrived_is_repeated() {
    let target = Scripted::losing(&[Fate::Lost, Fate::Lost]);
    apply_on(&target).await;
    let state = target.state();
    assert_eq!((state.begun, state.connections), (3, 3));
}

/// Another node of a Galera cluster may not have it yet when the worker looks.
#[tokio::test]
async fn a_commit_that_takes_effect_late_is_not_repeated() {
    let target = Scripted::losing(&[Fate::Lost, Fate::Overtaken]);
    apply_on(&target).await;
    let state = target.state();
    assert_eq!((state.begun, state.connections), (2, 2));
}

/// The channel failed for a minute at the first of them.
#[tokio::test(start_paused = true)]
async fn a_burst_of_other_transactions_takes_retries_and_fails_no_channel() {
    let target = Scripted::losing(&[Fate::Refused(1637); 3]);
    apply_with(&target, ApplierOptions { transaction_retries: 3, ..options() }).await;
    let state = target.state();
    assert_eq!((state.begun, state.connections), (4, 1));
}

/// Once as a group, once alone, and once more in the order of the source.
#[tokio::test]
async fn a_row_that_is_refused_in_the_order_of_the_merge_is_tried_in_that_of_the_source() {
    for code in [1452, 1062] {
        let target = Scripted::losing(&[Fate::Refused(code), Fate::Refused(code)]);
        apply_on(&target).await;
        let state = target.state();
        assert_eq!((state.begun, state.connections), (3, 1));
    }
}

#[tokio::test]
async fn a_group_that_was_applied_one_by_one_leaves_definitions_in_doubt() {
    for (fate, is_doubted) in [(Fate::Refused(1062), true), (Fate::Lost, false)] {
        let commits = apply_on(&Scripted::losing(&[fate])).await;
        assert_eq!(commits.are_definitions_doubted(), is_doubted, "{fate:?}");
    }
}

#[tokio::test]
async fn a_later_group_is_asked_once_to_yield_to_another() {
    let sessions = Sessions::default();
    let _earlier = sessions.enter(0, &group());
    let later = sessions.enter(1, &numbered(2));
    assert_eq!(sessions.all_yield_to(Sequence::new(1)), 0, "it has nothing on the target");
    later.connected(12);
    assert_eq!(sessions.all_yield_to(Sequence::new(1)), 1);
    assert_eq!(later.yielding.asked().await, Sequence::new(1));
    assert!(sessions.yield_to(Sequence::new(1), &[12]).is_empty(), "it was asked before");
    let again = later.yielding.asked();
    let again = tokio::time::timeout(Duration::from_millis(10), again).await;
    assert!(again.is_err(), "it has yielded already");
}

/// A row that group 2 has inserted is locked without a record of it until group 3 waits for it, which then is shown as
/// its holder.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_shown_under_a_busy_group_is_traced_to_the_one_that_has_it() {
    let target = Scripted::default();
    let of_another_client = vec![(1, 99)];
    target.state().lock_waits.clone_from(&of_another_client);
    target.state().lock_waits_by_transaction = of_another_client;
    let sessions = Sessions::default();
    let enter = |connection: u16, state| {
        let entered = sessions.enter(connection, &numbered(connection.into()));
        entered.connected(connection.into());
        entered.now(state);
        entered
    };
    let _first = enter(1, SessionState::Applying);
    let parked = enter(2, SessionState::WaitingForTurn);
    let busy = enter(3, SessionState::Applying);
    tokio::time::advance(Duration::from_secs(1)).await;
    let mut session = Session::connect(&target.target()).await.expect("connects");
    let mut watch = LockWatch::default();
    let look = watch.look(&mut session, &sessions, None).await;
    assert_eq!(look.expect("answers"), Some(vec![99]));
    let look = watch.look(&mut session, &sessions, None).await;
    assert_eq!(look.expect("answers"), None, "nothing new is looked up so soon");

    target.state().lock_waits = vec![(1, 3), (3, 3)];
    target.state().lock_waits_by_transaction = vec![(1, 3), (3, 2)];
    let look = watch.look(&mut session, &sessions, None).await;
    assert_eq!(look.expect("answers"), Some(vec![3, 2]));
    for group in [parked, busy] {
        assert_eq!(group.yielding.asked().await, Sequence::new(1));
    }
}

#[tokio::test]
async fn nothing_is_looked_up_where_nothing_is_lost() {
    let target = Scripted::default();
    apply_on(&target).await;
    assert_eq!(target.state().connections, 1);
}
