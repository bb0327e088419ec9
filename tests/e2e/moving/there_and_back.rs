//! Moves there and back, under load.

use csa_tests::eventually;

use super::*;

const CLIENTS: u64 = 64;

/// Moves under load until the clients write on the other server.
async fn go(world: &World, option: &str, act: impl AsyncFnOnce()) -> Moved {
    let begun = Instant::now();
    let both = [&world.a, &world.b];
    let [from, to] = if option == "--cut-over" { both } else { [both[1], both[0]] };
    pause(200).await;
    is_written_on(from).await;
    act().await;
    pause(300).await;
    is_written_on(to).await;
    Moved { from: from.port, to: to.port, between: [begun, Instant::now()] }
}

/// Waits until a client has written on the only server that takes writes.
async fn is_written_on(server: &Server) {
    let count = "SELECT COUNT(*) FROM app.w";
    let before: u64 = server.value(count).await;
    eventually("a client writes", DRAIN, async || server.value::<u64>(count).await > before).await;
}

/// Moves there and back, and returns the times without a server.
async fn there_and_back(version: Option<&str>) {
    let world = World::start(version, |builder| builder).await;
    // Rows before the move, of which the tail is compared.
    let applications = world.applications(CLIENTS);
    let mut moves = Vec::new();
    for option in ["--cut-over", "--back", "--cut-over"] {
        pause(300).await;
        moves.push(
            go(&world, option, async || {
                let said = world.moved(&[option]);
                assert!(said.contains("are equal"), "{said}");
            })
            .await,
        );
        let now = (world.access(&world.a).await, world.access(&world.b).await);
        let expected = if option == "--back" { ("00", "10") } else { ("10", "00") };
        assert_eq!((now.0.as_str(), now.1.as_str()), expected, "{option}");
    }
    let written = applications.stop().await;
    assert!(written.acked.len() > 200, "{}", written.acked.len());
    let gaps: Vec<Duration> = moves.iter().map(|moved| moved.judge(&written, GAP)).collect();
    println!("{version:?}: {} writes, without a server for {gaps:?}", written.acked.len());
    world.end(&written).await;
    // Each step is in the journal of the server that was moved to.
    let steps = "SELECT COUNT(*) FROM csa.audit WHERE action LIKE 'move%open done'";
    assert_eq!(world.b.value::<u64>(steps).await, 2);
    assert_eq!(world.a.value::<u64>(steps).await, 1);
    let events = "SELECT @@GLOBAL.event_scheduler";
    assert_eq!(
        world.b.value::<String>(events).await,
        if version == Some("5.7") { "OFF" } else { "ON" }
    );
    let said = world.moved(&["--cut-over"]);
    assert!(said.contains("already"), "{said}");
    let said = world.moved(&["--finish"]);
    assert!(said.contains("what remains"), "{said}");
    assert_eq!(world.access(&world.a).await, "11");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn applications_move_there_and_back() {
    there_and_back(None).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn applications_move_from_5_7_and_back() {
    there_and_back(Some("5.7")).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn applications_move_from_8_0_and_back() {
    there_and_back(Some("8.0.31")).await;
}

/// The digest of no rows has another length on each server.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_became_empty_is_compared_between_two_versions() {
    let world = World::start(Some("8.0.31"), |builder| builder).await;
    world
        .a
        .exec(
            "CREATE TABLE app.emptied (id INT PRIMARY KEY, s VARCHAR(60)); \
             INSERT INTO app.emptied VALUES (1, 'x'); DELETE FROM app.emptied",
        )
        .await;
    world.drained().await;
    // Rows of the new server alone, more than are compared of a table.
    world
        .b
        .exec(
            "SET sql_log_bin = 0, cte_max_recursion_depth = 2000; INSERT INTO app.emptied \
             WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500) SELECT i, 'y' FROM n",
        )
        .await;
    world.command(&["--cut-over"]).refused(1, &["the last rows of app.emptied differ"]);
    world.b.exec("SET sql_log_bin = 0; DELETE FROM app.emptied").await;
    let said = world.moved(&["--cut-over"]);
    assert!(said.contains("are equal"), "{said}");
}

/// An event of somebody who may write to a read-only server would run on both servers, if it was due in between.
#[tokio::test(flavor = "multi_thread")]
async fn events_end_before_the_fence_of_the_old_server_is_lowered() {
    let world = World::start(None, |builder| builder).await;
    world.a.exec("SET GLOBAL general_log = ON").await;
    world.moved(&["--cut-over"]);
    world.a.exec("SET GLOBAL general_log = OFF").await;
    let file: String = world.a.value("SELECT @@GLOBAL.general_log_file").await;
    let log = std::fs::read(world.a.data_directory().join(file)).expect("the general log");
    let log = String::from_utf8_lossy(&log);
    let at = |statement: &str| {
        log.find(statement).unwrap_or_else(|| panic!("{statement} is missing in {log}"))
    };
    let closed = at("super_read_only = ON");
    let events = at("event_scheduler = OFF");
    let lowered = at("super_read_only = OFF");
    assert!(closed < events && events < lowered, "{log}");
}

const STEPS: [&str; 6] = ["fence", "wait", "compare", "open", "hand_over", "follow"];

/// The command is killed before and after the effect of each step, and run again.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_move_that_is_killed_at_any_step_continues() {
    let world = World::start(None, |builder| builder).await;
    let applications = world.applications(24);
    let mut moves = Vec::new();
    let mut option = "--cut-over";
    for step in STEPS {
        for place in ["before", "after", "after:alone"] {
            let kill = format!("{step}:{place}");
            moves.push((
                kill.clone(),
                go(&world, option, async || {
                    let status = world.begin(&[option], &kill).wait().expect("its end");
                    // A guard that is left starts another process, which continues.
                    let code = (place == "after:alone").then_some(0);
                    assert_eq!(status.code(), code, "{kill}");
                    // Whoever runs it next has another host's state directory.
                    if place == "after" {
                        let _ = std::fs::remove_file(world.daemon.state_dir().join("up/move.json"));
                    }
                    world.moved(&[option]);
                })
                .await,
            ));
            option = if option == "--cut-over" { "--back" } else { "--cut-over" };
        }
    }
    let written = applications.stop().await;
    for (kill, moved) in &moves {
        println!("{kill}: without a server for {:?}", moved.judge(&written, GAP));
    }
    world.end(&written).await;
}

/// The things that die, or stand still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    Command(&'static str, &'static str),
    Daemon,
    Source,
    Target,
}

/// The daemon or a server dies while the command runs, which ends in a move or in an undo.
async fn with_fault(world: &World, option: &str, fault: Fault, after: Duration) {
    if let Fault::Command(step, place) = fault {
        let _ = world.begin(&[option], &format!("{step}:{place}")).wait();
    } else {
        let mut command = world.begin(&[option], "");
        tokio::time::sleep(after).await;
        let (from, to) = match option {
            "--cut-over" => (&world.a, &world.b),
            _ => (&world.b, &world.a),
        };
        match fault {
            Fault::Daemon => {
                world.daemon.kill9();
                world.daemon.start_again();
            }
            Fault::Source | Fault::Target => {
                let server = if fault == Fault::Source { from } else { to };
                server.kill9();
                server.restart();
            }
            Fault::None | Fault::Command(..) => {}
        }
        let _ = command.wait();
    }
    // Again until it is done, as an operator does.
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let said = world.command(&[option]);
        if said.code == Some(0) {
            return;
        }
        let before = std::fs::read_to_string(world.folder.path().join("said")).unwrap_or_default();
        assert!(
            Instant::now() < until,
            "{fault:?} after {after:?}: {said:?}\n{before}\n{}",
            world.daemon.log_tail()
        );
        pause(300).await;
    }
}

async fn many(world: &World, rounds: u64, clients: u64, fault: impl Fn(u64) -> (Fault, Duration)) {
    let applications = world.applications(clients);
    let mut moves = Vec::new();
    for round in 0..rounds {
        for option in ["--cut-over", "--back"] {
            let (fault, after) = fault(2 * round + u64::from(option == "--back"));
            let moved =
                go(world, option, async || with_fault(world, option, fault, after).await).await;
            moves.push((fault, after, moved));
        }
    }
    let written = applications.stop().await;
    let mut quick = Vec::new();
    for (fault, after, moved) in &moves {
        // A server that restarts takes its own time.
        let is_server = matches!(fault, Fault::Source | Fault::Target);
        let gap = moved.judge(&written, if is_server { Duration::from_secs(40) } else { GAP });
        println!("{fault:?} after {after:?}: without a server for {gap:?}");
        if !is_server {
            quick.push(gap);
        }
    }
    quick.sort();
    let (count, unknown) = (written.acked.len(), written.unknown.len());
    println!(
        "{} moves, {count} writes, {unknown} without an answer, without a server: median {:?}, most {:?}",
        moves.len(),
        quick.get(quick.len() / 2),
        quick.last()
    );
    world.end(&written).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_move_survives_the_end_of_daemon_and_servers() {
    let world = World::start(None, |builder| builder).await;
    many(&world, 2, 24, |number| {
        let faults = [Fault::Daemon, Fault::Source, Fault::Target, Fault::Daemon];
        (faults[number as usize % faults.len()], Duration::from_millis(60 + 40 * number))
    })
    .await;
}

/// There and back once, or `CSA_MOVES` times, under 64 clients, each with another fault.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn many_moves_with_faults_lose_nothing() {
    let rounds = std::env::var("CSA_MOVES").map_or(1, |rounds| rounds.parse().expect("a number"));
    let version = std::env::var("CSA_MOVES_FROM").ok();
    let world = World::start(version.as_deref(), |builder| builder).await;
    many(&world, rounds, CLIENTS, |number| {
        let after = Duration::from_millis(20 + number * 37 % 400);
        let step = STEPS[number as usize / 5 % STEPS.len()];
        let fault = match number % 5 {
            0 => Fault::Command(step, "before"),
            1 => Fault::Daemon,
            2 => Fault::Command(step, "after"),
            3 if version.as_deref() != Some("5.7") => {
                if number % 2 == 0 {
                    Fault::Source
                } else {
                    Fault::Target
                }
            }
            _ => Fault::None,
        };
        (fault, after)
    })
    .await;
}
