use std::collections::VecDeque;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use csa_applier::{Linked, TargetLink};
use csa_provider::binlog::{EventType, RawEvent};
use csa_provider::server::link::{Limits, LinkError};
use csa_provider::test_util::{format_description, int_image, int_table_map, rows_event};
use tokio::time::Instant;

use super::*;

const TABLES: [&str; 4] = [
    "CREATE DATABASE IF NOT EXISTS app",
    "CREATE TABLE app.t (id INT PRIMARY KEY, code INT, UNIQUE KEY (code))",
    "CREATE TABLE app.child (id INT PRIMARY KEY, parent INT, FOREIGN KEY (parent) REFERENCES app.t (id))",
    "INSERT INTO app.t VALUES (1,10),(2,20)",
];

/// Counts the commits that were visible.
#[derive(Debug, Clone, Default)]
struct Commits(Arc<Mutex<usize>>);

impl Observer for Commits {
    fn committed(&mut self, _: &State) {
        *self.0.lock() += 1;
    }
}

/// Decides about the packets and statements with these beginnings, once each.
#[derive(Debug, Default)]
struct Script {
    requests: VecDeque<(&'static str, Transit)>,
    statements: VecDeque<(&'static str, Run)>,
    answers: VecDeque<(&'static str, Transit)>,
}

fn take<T: Default>(script: &mut VecDeque<(&'static str, T)>, text: &str) -> T {
    match script.front() {
        Some((beginning, _)) if text.starts_with(beginning) => {
            script.pop_front().map(|(_, fate)| fate).unwrap_or_default()
        }
        _ => T::default(),
    }
}

impl Faults for Script {
    fn request(&mut self, packet: &str) -> Transit {
        take(&mut self.requests, packet)
    }

    fn statement(&mut self, statement: &str) -> Run {
        take(&mut self.statements, statement)
    }

    fn answer(&mut self, packet: &str) -> Transit {
        take(&mut self.answers, packet)
    }
}

fn server(faults: impl Faults + 'static) -> Server {
    losing(faults, 0)
}

fn losing(faults: impl Faults + 'static, may_lose: usize) -> Server {
    let server = Server::new(Uuid::from_bytes([7; 16]), may_lose, faults, Commits::default());
    server.provision(&TABLES);
    server
}

struct Client(Box<dyn TargetLink>);

impl Client {
    async fn of(server: &Server) -> Self {
        Self(server.open().await.expect("a session"))
    }

    /// Rows of each statement, or the error's number (0 for a lost link).
    async fn run(&mut self, packet: &str) -> Result<Vec<u64>, u16> {
        let outcome = match self.0.begin(packet.as_bytes()).await {
            Ok(()) => self.0.answers(Limits::LIST, 0).await,
            Err(error) => Err(error),
        };
        let answers = outcome.map_err(|error| error.code().unwrap_or_default())?;
        Ok(answers.into_iter().map(|answer| answer.rows).collect())
    }

    async fn ask(&mut self, query: &str) -> Vec<Vec<String>> {
        let rows: Linked<Vec<csa_provider::server::link::Row>> =
            self.0.query(query, Limits::LIST).await;
        let texts = |row: csa_provider::server::link::Row| {
            let values = row.unwrap().into_iter();
            values.map(|value| value.as_sql(true).trim_matches('\'').to_owned()).collect()
        };
        rows.expect("an answer").into_iter().map(texts).collect()
    }
}

/// Runs a packet in a task of its own.
fn spawn(
    mut client: Client,
    packet: &'static str,
) -> tokio::task::JoinHandle<(Client, Result<Vec<u64>, u16>)> {
    tokio::spawn(async move {
        let outcome = client.run(packet).await;
        (client, outcome)
    })
}

fn ids(server: &Server, table: &str) -> Vec<i64> {
    server.with_state(|state| {
        let rows = state.rows_of("app")[table].keys();
        rows.map(|key| match key[0] {
            Value::Number(id) => id,
            _ => panic!("an id"),
        })
        .collect()
    })
}

fn codes(server: &Server) -> Vec<Value> {
    server
        .with_state(|state| state.rows_of("app")["t"].values().map(|row| row[1].clone()).collect())
}

#[tokio::test(start_paused = true)]
async fn others_see_a_transaction_once_it_is_committed() {
    let server = server(NoFaults);
    let (mut one, mut two) = (Client::of(&server).await, Client::of(&server).await);
    let count = "SELECT COUNT(*) FROM app.t";
    assert_eq!(one.run("BEGIN;INSERT INTO app.t VALUES (3,30)").await, Ok(vec![0, 1]));
    assert_eq!(
        (one.ask(count).await, two.ask(count).await),
        (vec![vec!["3".into()]], vec![vec!["2".into()]])
    );
    assert_eq!(
        one.run("SAVEPOINT s;DELETE FROM app.t WHERE id=1;ROLLBACK TO SAVEPOINT s;COMMIT").await,
        Ok(vec![0, 1, 0, 0])
    );
    assert_eq!(ids(&server, "t"), [1, 2, 3]);
    // On its own a statement is a transaction; a failed one leaves nothing, and ends its packet.
    assert_eq!(
        two.run("INSERT INTO app.t VALUES (4,40),(1,0);DELETE FROM app.t WHERE id=1").await,
        Err(1062)
    );
    assert_eq!(two.run("INSERT INTO app.t VALUES (5,10)").await, Err(1062));
    assert_eq!(ids(&server, "t"), [1, 2, 3]);
    drop(one);
    assert_eq!(two.run("BEGIN;DELETE FROM app.t WHERE id=3").await, Ok(vec![0, 1]));
    drop(two);
    tokio::task::yield_now().await;
    assert_eq!(ids(&server, "t"), [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_changed_row_makes_others_wait_until_the_commit_or_too_long() {
    let server = server(NoFaults);
    let (mut one, mut two) = (Client::of(&server).await, Client::of(&server).await);
    one.run("BEGIN;UPDATE app.t SET code=11 WHERE id=1").await.expect("no wait");
    two.run("SET SESSION innodb_lock_wait_timeout=10;BEGIN;UPDATE app.t SET code=21 WHERE id=2")
        .await
        .expect("another row");
    let began = Instant::now();
    assert_eq!(two.run("UPDATE app.t SET code=12 WHERE id=1").await, Err(1205));
    assert_eq!(began.elapsed().as_secs(), 10);
    let waiting = spawn(two, "UPDATE app.t SET code=12 WHERE id=1;COMMIT");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(one.ask("SELECT DISTINCT r.PROCESSLIST_ID, b.PROCESSLIST_ID FROM x").await.len(), 1);
    one.run("COMMIT").await.expect("committed");
    let (_, outcome) = waiting.await.expect("no panic");
    assert_eq!(outcome, Ok(vec![1, 0]));
    assert_eq!(
        codes(&server),
        [Value::Number(12), Value::Number(21)],
        "a timeout undoes one statement only"
    );
}

#[tokio::test(start_paused = true)]
async fn a_unique_value_is_waited_for_though_the_rows_differ() {
    let server = server(NoFaults);
    let (mut one, two) = (Client::of(&server).await, Client::of(&server).await);
    one.run("BEGIN;UPDATE app.t SET code=99 WHERE id=1").await.expect("no wait");
    let waiting = spawn(two, "INSERT INTO app.t VALUES (3,10)");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!waiting.is_finished(), "10 may come back");
    one.run("COMMIT").await.expect("committed");
    assert_eq!(waiting.await.expect("no panic").1, Ok(vec![1]));
}

#[tokio::test(start_paused = true)]
async fn a_deadlock_rolls_back_the_one_that_changed_least() {
    let server = server(NoFaults);
    let (mut one, mut two) = (Client::of(&server).await, Client::of(&server).await);
    one.run("BEGIN;UPDATE app.t SET code=11 WHERE id=1;INSERT INTO app.t VALUES (3,30)")
        .await
        .expect("no wait");
    two.run("BEGIN;UPDATE app.t SET code=21 WHERE id=2").await.expect("no wait");
    let waiting = spawn(two, "UPDATE app.t SET code=12 WHERE id=1");
    tokio::task::yield_now().await;
    assert_eq!(one.run("UPDATE app.t SET code=22 WHERE id=2;COMMIT").await, Ok(vec![1, 0]));
    assert_eq!(waiting.await.expect("no panic").1, Err(1213));
    assert_eq!(codes(&server), [11, 22, 30].map(Value::Number));
}

#[tokio::test(start_paused = true)]
async fn parents_and_children_hold_each_other() {
    let server = server(NoFaults);
    let (mut one, mut two) = (Client::of(&server).await, Client::of(&server).await);
    assert_eq!(one.run("INSERT INTO app.child VALUES (1,9)").await, Err(1452));
    one.run("BEGIN;INSERT INTO app.child VALUES (1,1)").await.expect("a parent");
    two.run("INSERT INTO app.child VALUES (2,1)").await.expect("the lock on the parent is shared");
    let waiting = spawn(two, "DELETE FROM app.t WHERE id=1");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!waiting.is_finished(), "it has a child that is not committed");
    one.run("COMMIT").await.expect("committed");
    assert_eq!(waiting.await.expect("no panic").1, Err(1451));
    one.run("INSERT INTO app.child VALUES (3,NULL)").await.expect("no parent");
}

#[tokio::test(start_paused = true)]
async fn a_definition_waits_for_those_who_use_the_table_and_commits_at_once() {
    let server = server(NoFaults);
    let (mut one, two) = (Client::of(&server).await, Client::of(&server).await);
    one.run("BEGIN;UPDATE app.t SET code=11 WHERE id=1").await.expect("no wait");
    let waiting = spawn(two, "ALTER TABLE app.t ADD COLUMN more INT NOT NULL DEFAULT 5");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!waiting.is_finished(), "the table is in use");
    one.run("ROLLBACK").await.expect("rolled back");
    let (mut two, outcome) = waiting.await.expect("no panic");
    assert_eq!(outcome, Ok(vec![0]));
    assert_eq!(two.ask("SELECT more FROM app.t WHERE id=2").await, [["5"]]);
}

#[tokio::test(start_paused = true)]
async fn the_answer_to_a_commit_is_lost_after_it_or_with_it() {
    let lost = Transit::Cut(Duration::from_secs(3));
    for (requests, answers, kept) in [
        (VecDeque::from([("COMMIT", lost)]), VecDeque::new(), false),
        (VecDeque::new(), VecDeque::from([("COMMIT", lost)]), true),
    ] {
        let server = server(Script { requests, answers, ..Script::default() });
        let (mut one, mut two) = (Client::of(&server).await, Client::of(&server).await);
        one.run("BEGIN;INSERT INTO app.t VALUES (3,30)").await.expect("sent");
        assert_eq!(one.run("COMMIT").await, Err(0));
        let began = Instant::now();
        let seen = two.run("UPDATE app.t SET code=31 WHERE id=3").await;
        assert_eq!(seen, Ok(vec![u64::from(kept)]), "the session holds its row until it ends");
        assert_eq!(began.elapsed().as_secs(), if kept { 0 } else { 3 });
    }
}

#[tokio::test(start_paused = true)]
async fn a_link_can_die_without_a_word() {
    let requests = VecDeque::from([("DO", Transit::Vanish(Duration::from_secs(3600)))]);
    let server = server(Script { requests, ..Script::default() });
    let (mut one, mut two) = (Client::of(&server).await, Client::of(&server).await);
    let silent = tokio::time::timeout(Duration::from_secs(60), one.run("DO 1"));
    assert!(silent.await.is_err(), "no answer, no error");
    let id = one.0.id();
    let process = format!(
        "SELECT HOST, COMMAND, CAST(TIME AS SIGNED), COALESCE(STATE, '') \
         FROM information_schema.PROCESSLIST WHERE ID={id}"
    );
    assert_eq!(two.ask(&process).await, [["client:1", "Sleep", "60", ""]]);
    assert_eq!(two.run(&format!("KILL {id}")).await, Ok(vec![0]));
    tokio::task::yield_now().await;
    assert_eq!(two.run(&format!("KILL {id}")).await, Err(1094));
}

#[tokio::test(start_paused = true)]
async fn a_crash_takes_back_what_the_disk_had_not() {
    for (may_lose, left) in [(0, vec![1, 2, 3, 4]), (1, vec![1, 2, 3])] {
        let server = losing(NoFaults, may_lose);
        let mut one = Client::of(&server).await;
        for packet in [
            "INSERT INTO app.t VALUES (3,30)",
            "INSERT INTO app.t VALUES (4,40)",
            "BEGIN;INSERT INTO app.t VALUES (5,50)",
        ] {
            one.run(packet).await.expect("done");
        }
        server.crash(Crash { down: Duration::from_secs(2), loses: 9 });
        assert_eq!(one.run("COMMIT").await, Err(0));
        assert!(matches!(server.open().await, Err(LinkError::Io(_))), "it starts");
        tokio::time::sleep(Duration::from_secs(2)).await;
        Client::of(&server).await.run("DO 1").await.expect("it is back");
        assert_eq!(ids(&server, "t"), left);
    }
}

#[tokio::test(start_paused = true)]
async fn a_named_lock_ends_with_its_session() {
    let server = server(NoFaults);
    let (mut one, mut two) = (Client::of(&server).await, Client::of(&server).await);
    let get = "SELECT COALESCE(GET_LOCK('csa:C', 2), 0), COALESCE(IS_USED_LOCK('csa:c'), 0)";
    let [first, second] = [one.0.id(), two.0.id()].map(|id| id.to_string());
    assert_eq!(one.ask(get).await, [["1", &first]]);
    let began = Instant::now();
    assert_eq!(two.ask(get).await, [["0", &first]]);
    assert_eq!(began.elapsed().as_secs(), 2);
    one.run("SET SESSION wait_timeout=1").await.expect("set");
    assert_eq!(two.ask(get).await, [["1", &second]], "it was idle for too long");
}

#[tokio::test(start_paused = true)]
async fn a_gtid_is_used_once() {
    let server = server(NoFaults);
    let mut one = Client::of(&server).await;
    let gtid = format!("{}:9", Uuid::from_bytes([9; 16]));
    let next = format!("SET SESSION gtid_next=_utf8mb4'{gtid}'");
    let executed = format!("SELECT GTID_SUBSET('{gtid}', @@GLOBAL.gtid_executed)");
    for expected in [vec![1, 2, 3], vec![1, 2, 3]] {
        one.run(&format!("{next};BEGIN;INSERT INTO app.t VALUES (3,30);COMMIT"))
            .await
            .expect("once");
        assert_eq!(ids(&server, "t"), expected);
        assert_eq!(one.ask(&executed).await, [["1"]]);
    }
    assert_eq!(one.run("BEGIN").await, Err(1837));
    assert_eq!(one.run("SET SESSION gtid_next=_utf8mb4'AUTOMATIC';BEGIN").await, Ok(vec![0, 0]));
}

/// Returns a BINLOG statement with these events.
fn binlog(events: &[RawEvent]) -> String {
    let mut bytes = Vec::new();
    events.iter().for_each(|event| event.write_without_checksum(&mut bytes));
    format!("BINLOG '{}'", STANDARD.encode(bytes))
}

#[tokio::test(start_paused = true)]
async fn row_images_are_applied_by_primary_key() {
    let server = server(NoFaults);
    let mut one = Client::of(&server).await;
    let map = || int_table_map(5, "app", "t", 2);
    let image = |id, code| int_image(&[Some(id), Some(code)]);
    let insert = rows_event(EventType::WRITE_ROWS, 5, 2, &image(3, 30));
    assert_eq!(one.run(&binlog(&[map(), insert.clone()])).await, Err(1609));
    let format = STANDARD.encode(format_description().for_binlog_statement());
    one.run(&format!("BINLOG '{format}'")).await.expect("a format");
    // The before image's other columns don't matter.
    let update = rows_event(EventType::UPDATE_ROWS, 5, 2, &[image(1, 77), image(1, 11)].concat());
    let delete = rows_event(EventType::DELETE_ROWS, 5, 2, &image(2, 0));
    let all = binlog(&[map(), insert.clone(), update, delete.clone()]);
    assert_eq!(one.run(&format!("BEGIN;{all}")).await, Ok(vec![0, 0]));
    assert_eq!(codes(&server), [10, 20].map(Value::Number));
    one.run("COMMIT").await.expect("committed");
    assert_eq!(codes(&server), [11, 30].map(Value::Number));
    assert_eq!(one.run(&binlog(&[map(), delete])).await, Err(1032));
    assert_eq!(one.run(&binlog(&[map(), insert])).await, Err(1062));
}

/// MySQL 8.0.15, 8.0.31 and 9.7.4 do so.
#[tokio::test(start_paused = true)]
async fn rows_that_change_nothing_leave_the_gtid_unused_unless_a_commit_follows() {
    let server = server(NoFaults);
    let (mut one, mut two) = (Client::of(&server).await, Client::of(&server).await);
    let format = STANDARD.encode(format_description().for_binlog_statement());
    one.run(&format!("BINLOG '{format}'")).await.expect("a format");
    let update = |code| {
        let rows = [int_image(&[Some(1), Some(10)]), int_image(&[Some(1), Some(code)])].concat();
        binlog(&[int_table_map(5, "app", "t", 2), rows_event(EventType::UPDATE_ROWS, 5, 2, &rows)])
    };
    let gtid = |number| format!("{}:{number}", Uuid::from_bytes([9; 16]));
    let next = |number| format!("SET SESSION gtid_next=_utf8mb4'{}'", gtid(number));
    let executed =
        |number| format!("SELECT GTID_SUBSET('{}', @@GLOBAL.gtid_executed)", gtid(number));
    const AUTOMATIC: &str = "SET SESSION gtid_next=_utf8mb4'AUTOMATIC'";
    let owned = "SELECT @@GLOBAL.gtid_owned";
    one.run(&format!("{};{}", next(1), update(10))).await.expect("nothing changed");
    let id = one.0.id();
    assert_eq!(two.ask(owned).await, [[format!("{}#{id}", gtid(1))]]);
    // Its row is free.
    assert_eq!(two.run("UPDATE app.t SET code=10 WHERE id=1").await, Ok(vec![1]));
    one.run("ROLLBACK").await.expect("given up");
    for set in [AUTOMATIC.to_owned(), next(2)] {
        one.run(&format!("{};{}", next(1), update(10))).await.expect("nothing changed");
        assert_eq!(one.run(&set).await, Err(1790));
        assert_eq!(two.ask(owned).await, [[""]]);
        assert_eq!(two.ask(&executed(1)).await, [["0"]]);
    }
    for packet in [next(1), format!("BEGIN;{}", update(10)), format!("COMMIT;{AUTOMATIC}")] {
        one.run(&packet).await.expect("used");
    }
    assert_eq!(two.ask(&executed(1)).await, [["1"]]);
    for (number, code) in [(1, 77), (2, 12)] {
        one.run(&format!("{};{}", next(number), update(code))).await.expect("passed over, or used");
        one.run(AUTOMATIC).await.expect("nothing is owned");
    }
    assert_eq!(codes(&server), [12, 20].map(Value::Number));
}

#[tokio::test(start_paused = true)]
async fn statements_fail_and_writes_are_refused_as_the_world_says() {
    let statements = VecDeque::from([
        ("UPDATE", Run::Fail(1213)),
        ("UPDATE", Run::ReadOnly(Duration::from_secs(5))),
        ("DO 1", Run::Slow(Duration::from_secs(7))),
    ]);
    let server = server(Script { statements, ..Script::default() });
    let mut one = Client::of(&server).await;
    let update = "UPDATE app.t SET code=11 WHERE id=1";
    assert_eq!(
        one.run(&format!("BEGIN;INSERT INTO app.t VALUES (3,30);{update}")).await,
        Err(1213)
    );
    assert_eq!(one.run("COMMIT").await, Ok(vec![0]), "nothing is left to commit");
    assert_eq!(one.run(update).await, Err(1290));
    one.run("DO 1").await.expect("slow");
    assert_eq!(one.run(update).await, Ok(vec![1]));
    assert_eq!(ids(&server, "t"), [1, 2]);
}
