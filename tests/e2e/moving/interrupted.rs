//! Moves that another process continues meanwhile, or that begin meanwhile.

use csa_tests::eventually;
use mysql_async::prelude::Queryable as _;

use super::*;

/// The comparison of `--prepare` may take hours, in which somebody moves the applications.
#[tokio::test(flavor = "multi_thread")]
async fn a_move_during_the_comparison_stays_in_the_journal() {
    let world = World::start(None, |builder| builder).await;
    world.a.exec("INSERT INTO app.w (id, client) VALUES (1, 1)").await;
    for server in [&world.a, &world.b] {
        server.exec("SET sql_log_bin=0; GRANT SELECT ON *.* TO repl@'%'").await;
    }
    world.drained().await;
    let mut lock = world.b.conn().await;
    lock.query_drop("LOCK TABLES app.w WRITE").await.expect("locked");
    let mut compares = world.begin(&["--prepare"], "");
    let waits = "SELECT COUNT(*) FROM information_schema.PROCESSLIST \
                 WHERE STATE LIKE 'Waiting for table metadata lock'";
    eventually("it compares", DRAIN, async || world.b.value::<u64>(waits).await > 0).await;
    std::fs::write(world.folder.path().join("broken"), "").expect("a file");
    world.command(&["--cut-over"]).refused(1, &["move.hand_over"]);
    lock.query_drop("UNLOCK TABLES").await.expect("unlocked");
    assert_eq!(compares.wait().expect("its end").code(), Some(2));
    let said = std::fs::read_to_string(world.folder.path().join("said")).expect("a file");
    assert!(said.contains("a cut over has begun") && said.contains("--cut-over"), "{said}");
    std::fs::remove_file(world.folder.path().join("broken")).expect("the file");
    // The move is finished: the applications are handed over, and the old server follows.
    world.moved(&["--cut-over"]);
    let calls = std::fs::read_to_string(world.folder.path().join("calls")).expect("calls");
    assert_eq!(calls, format!("cut-over {}\n", world.b.port));
    assert_eq!(
        (world.access(&world.a).await, world.access(&world.b).await),
        ("10".into(), "00".into())
    );
}

/// A host stands still during the hand-over, until both servers have ended its sessions. Another one finishes the move,
/// and moves the applications back.
#[tokio::test(flavor = "multi_thread")]
async fn a_move_that_another_host_has_continued_ends() {
    let tools = tempfile::tempdir().expect("a folder");
    let (script, calls, held) =
        (tools.path().join("hand-over"), tools.path().join("calls"), tools.path().join("held"));
    let text = format!(
        "#!/bin/sh\necho $CSA_MOVE_PORT >> {calls}\n[ $(wc -l < {calls}) = 1 ] || exit 0\n\
         while [ -e {held} ]; do sleep 0.1; done\nexit 1\n",
        calls = calls.display(),
        held = held.display()
    );
    std::fs::write(&script, text).expect("a script");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("a script");
    std::fs::write(&held, "").expect("a file");
    let world = World::start(None, |builder| {
        builder
            .set("move.hand_over", vec![script.display().to_string()])
            .set("move.command_timeout", "120s")
    })
    .await;
    let called = || std::fs::read_to_string(&calls).unwrap_or_default();
    let mut stands = world.begin(&["--cut-over"], "");
    eventually("it hands over", DRAIN, async || !called().is_empty()).await;
    for server in [&world.a, &world.b] {
        let session: u64 = server.value("SELECT IS_USED_LOCK('csa_move_up')").await;
        server.exec(&format!("KILL {session}")).await;
    }
    // Another host has another file.
    std::fs::remove_file(world.daemon.state_dir().join("up/move.lock")).expect("the file");
    world.moved(&["--cut-over"]);
    world.moved(&["--back"]);
    std::fs::remove_file(&held).expect("the file");
    assert_eq!(stands.wait().expect("its end").code(), Some(1));
    let said = std::fs::read_to_string(world.folder.path().join("said")).expect("a file");
    assert!(said.contains("another process has continued this cut over"), "{said}");
    let (a, b) = (world.a.port, world.b.port);
    assert_eq!(called(), format!("{b}\n{b}\n{a}\n"));
    assert_eq!(
        (world.access(&world.a).await, world.access(&world.b).await),
        ("00".into(), "10".into())
    );
}

/// The process is killed after it has undone the move, and the one that replaces it finds a pair that could move.
#[tokio::test(flavor = "multi_thread")]
async fn a_move_that_was_undone_before_a_kill_is_not_begun_again() {
    let world = World::start(None, |builder| builder.set("move.time_limit", "3s")).await;
    let mut lock = world.held_back().await;
    let mut command = world.begin(&["--cut-over"], "undone:alone");
    let file = world.daemon.state_dir().join("up/move.json");
    eventually("it is undone", DRAIN, async || {
        std::fs::read_to_string(&file).is_ok_and(|journal| journal.contains("\"undone\""))
    })
    .await;
    lock.query_drop("UNLOCK TABLES").await.expect("unlocked");
    assert_eq!(command.wait().expect("its end").code(), Some(1));
    let said = std::fs::read_to_string(world.folder.path().join("said")).expect("a file");
    assert!(said.contains("another process has continued") && said.contains("undone"), "{said}");
    assert_eq!(
        (world.access(&world.a).await, world.access(&world.b).await),
        ("00".into(), "10".into())
    );
    world.drained().await;
    world.moved(&["--cut-over"]);
}
