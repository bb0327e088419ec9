//! Moves that are refused, undone or repaired by hand.

use csa_tests::eventually;
use mysql_async::prelude::Queryable as _;

use super::*;

/// Something that changes rows for longer than the move may take.
async fn lag(world: &World) {
    world.daemon.commanded(&["--channel", "up", "pause"]);
    world
        .a
        .exec("INSERT INTO app.w (id, client) VALUES (0, 0); DELETE FROM app.w WHERE id = 0")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_move_that_takes_too_long_is_undone() {
    let folder = tempfile::tempdir().expect("a folder");
    let events = folder.path().join("events");
    let script = format!("echo \"$CSA_EVENT\" >> {}", events.display());
    let world = World::start(None, |builder| {
        let builder = builder.set("move.time_limit", "4s");
        let builder = builder.set("notify.command", vec!["/bin/sh", "-c", &script]);
        builder.set("notify.events", vec!["cut_over", "move_undone"])
    })
    .await;
    let applications = world.applications(16);
    pause(500).await;
    let begun = Instant::now();
    // It is fenced, killed, and continues when the new server can't catch up.
    let _ = world.begin(&["--cut-over"], "wait:before").wait();
    world.daemon.commanded(&["--channel", "up", "stop"]);
    world.a.exec("SET PERSIST super_read_only = OFF; SET PERSIST read_only = OFF").await;
    pause(200).await;
    world.command(&["--cut-over"]).refused(1, &["time_limit", "undone", "as before"]);
    assert_eq!(world.access(&world.a).await, "00");
    pause(500).await;
    let between = [begun, Instant::now()];
    // Nothing was left that a later move would stumble over.
    world.command(&["--cut-over"]).refused(1, &["nothing was touched", "stopped", "up restart"]);
    world.daemon.commanded(&["--channel", "up", "restart"]);
    world.drained().await;
    world.daemon.commanded(&["--channel", "up", "pause"]);
    eventually("it is paused", DRAIN, async || {
        let status = world.daemon.status();
        let mut channels = status["channels"].as_array().into_iter().flatten();
        channels.any(|channel| channel["channel_name"] == "up" && channel["state"] == "paused")
    })
    .await;
    world.command(&["--cut-over"]).refused(1, &["nothing was touched", "paused", "up resume"]);
    world.daemon.commanded(&["--channel", "up", "resume"]);
    world.daemon.commanded(&["--channel", "up", "restart"]);
    world.drained().await;
    world.moved(&["--cut-over"]);
    pause(300).await;
    let written = applications.stop().await;
    println!("undone: without a server for {:?}", written.longest_gap(between));
    world.end(&written).await;
    let sent = std::fs::read_to_string(&events).unwrap_or_default();
    assert_eq!(sent, "move_undone\ncut_over\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_ready_is_refused_before_anything_is_touched() {
    let world = World::start(None, |builder| builder).await;
    let (a, b) = (&world.a, &world.b);
    let untouched = async || {
        assert_eq!((world.access(a).await, world.access(b).await), ("00".into(), "10".into()));
    };
    // The lag.
    lag(&world).await;
    pause(2500).await;
    world.command(&["--cut-over"]).refused(1, &["nothing was touched", "channel up is paused"]);
    world.command(&["--plan"]).refused(1, &["max_lag"]);
    world.daemon.commanded(&["--channel", "up", "resume"]);
    untouched().await;
    world.drained().await;
    let said = world.moved(&["--plan"]);
    for words in
        ["1. fence", "SET PERSIST super_read_only = ON", "6. follow", "nothing was touched"]
    {
        assert!(said.contains(words), "{said}");
    }
    untouched().await;
    // A distributed transaction that is prepared could be committed in spite of any fence.
    a.exec(
        "XA START 'x'; INSERT INTO app.w (id, client) VALUES (7, 7); XA END 'x'; XA PREPARE 'x'",
    )
    .await;
    world.command(&["--cut-over"]).refused(1, &["distributed transactions are prepared", "x"]);
    untouched().await;
    a.exec("XA ROLLBACK 'x'").await;
    // Both servers take writes.
    b.exec("SET PERSIST read_only = OFF").await;
    world.command(&["--cut-over"]).refused(2, &["both servers take writes"]);
    world.command(&["--back"]).refused(2, &["both servers take writes"]);
    b.exec("SET PERSIST read_only = ON").await;
    world.command(&["--undo"]).refused(2, &["no move has begun"]);
    world.command(&["--finish"]).refused(2, &["takes writes of applications"]);
    untouched().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pair_whose_channels_do_not_join_the_same_servers_is_refused() {
    let (a, b) = Server::pair(&[], &[]);
    let other = Server::start("other", &[]);
    clients::prepare(&a, &b).await;
    b.exec("SET PERSIST read_only = ON").await;
    let up = Daemon::builder(&a, &b).set("name", "up").set("move.back", "down");
    let daemon = up.channel("down", &other, &a).start();
    daemon
        .command(&["--channel", "up", "move", "--cut-over"])
        .refused(2, &["move.back", "channel down reads from", "same two servers"]);
    let access = "SELECT CONCAT(@@GLOBAL.read_only, @@GLOBAL.super_read_only)";
    assert_eq!(a.value::<String>(access).await, "00");
    daemon.command(&["--channel", "down", "move", "--cut-over"]).refused(2, &["move.back"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hand_over_that_fails_is_repeated_and_never_undone() {
    let world = World::start(None, |builder| builder).await;
    let applications = world.applications(16);
    std::fs::write(world.folder.path().join("broken"), "").expect("a file");
    pause(300).await;
    world
        .command(&["--cut-over"])
        .refused(1, &["move.hand_over", "takes the writes now", "run the same command again"]);
    assert_eq!(
        (world.access(&world.a).await, world.access(&world.b).await),
        ("11".into(), "00".into())
    );
    world.command(&["--undo"]).refused(1, &["--cut-over"]);
    world.command(&["--back"]).refused(2, &["--cut-over"]);
    std::fs::remove_file(world.folder.path().join("broken")).expect("the file");
    let written = applications.stop().await;
    // Somebody opens the old server by hand: it is closed again, and that is said.
    world.a.exec("SET PERSIST super_read_only = OFF; SET PERSIST read_only = OFF").await;
    let said = world.command(&["--cut-over"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.error.contains("lost its fence while"), "{said:?}");
    assert_eq!(world.access(&world.a).await, "10");
    world.moved(&["--back"]);
    world.end(&written).await;
}

/// Somebody goes back by hand, and forgets that a move has begun.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_journal_opens_no_second_server() {
    let world = World::start(None, |builder| builder).await;
    let (a, b) = (&world.a, &world.b);
    let accesses = async || (world.access(a).await, world.access(b).await);
    let went_back = || ("00".to_owned(), "10".to_owned());
    std::fs::write(world.folder.path().join("broken"), "").expect("a file");
    world.command(&["--cut-over"]).refused(1, &["move.hand_over"]);
    assert_eq!(accesses().await, ("11".to_owned(), "00".to_owned()));
    world.command(&["--prepare", "--no-verify"]).refused(2, &["--cut-over", "--undo"]);
    b.exec("SET PERSIST read_only = ON").await;
    a.exec("SET PERSIST super_read_only = OFF; SET PERSIST read_only = OFF").await;
    world.drained().await;
    std::fs::remove_file(world.folder.path().join("broken")).expect("the file");
    for option in ["--cut-over", "--plan"] {
        world.command(&[option]).refused(2, &["the old one takes writes now", "--undo"]);
        assert_eq!(accesses().await, went_back());
    }
    // It continues once the old one is closed, with all that was written there.
    a.exec("INSERT INTO app.w (id, client) VALUES (1, 1)").await;
    a.exec("SET PERSIST super_read_only = ON").await;
    world.command(&["--cut-over"]).refused(1, &["lost its fence while"]);
    assert_eq!(accesses().await, ("10".to_owned(), "00".to_owned()));
    assert_eq!(b.value::<u64>("SELECT COUNT(*) FROM app.w").await, 1);
    world.moved(&["--back"]);
    // The same once more, and the move is given up.
    std::fs::write(world.folder.path().join("broken"), "").expect("a file");
    world.command(&["--cut-over"]).refused(1, &["move.hand_over"]);
    b.exec("SET PERSIST read_only = ON").await;
    a.exec("SET PERSIST super_read_only = OFF; SET PERSIST read_only = OFF").await;
    let said = world.moved(&["--undo"]);
    assert!(said.contains("takes the writes already") && said.contains("verify"), "{said}");
    assert_eq!(accesses().await, went_back());
    std::fs::remove_file(world.folder.path().join("broken")).expect("the file");
    world.drained().await;
    world.moved(&["--cut-over"]);
}

/// A server that is a copy has the journal of the original, and the state directory may be older than the pair.
#[tokio::test(flavor = "multi_thread")]
async fn a_journal_of_other_servers_is_refused() {
    let world = World::start(None, |builder| builder).await;
    let file = world.daemon.state_dir().join("up/move.json");
    std::fs::write(world.folder.path().join("broken"), "").expect("a file");
    world.command(&["--cut-over"]).refused(1, &["move.hand_over"]);
    let journal = std::fs::read_to_string(&file).expect("a journal");
    let uuid: String = world.b.value("SELECT @@GLOBAL.server_uuid").await;
    let other = "11111111-2222-3333-4444-555555555555";
    let foreign = journal.replace(&uuid, other);
    assert_ne!(journal, foreign);
    std::fs::write(&file, &foreign).expect("written");
    world
        .b
        .exec(&format!("UPDATE csa.move SET journal = REPLACE(journal, '{uuid}', '{other}')"))
        .await;
    let words = ["other servers", other, "rm ", "move.json", "DELETE FROM csa.move"];
    for option in ["--cut-over", "--plan", "--undo", "--prepare", "--finish"] {
        world.command(&[option]).refused(2, &words);
    }
    world.b.exec("DELETE FROM csa.move").await;
    std::fs::write(&file, "{").expect("written");
    world.command(&["--cut-over"]).refused(2, &["can't be read", "move.json"]);
    assert_eq!(world.access(&world.a).await, "11");
    // The right one continues.
    std::fs::write(&file, &journal).expect("written");
    std::fs::remove_file(world.folder.path().join("broken")).expect("the file");
    world.moved(&["--cut-over"]);
}

/// The fence of super_read_only does not stop distributed transactions, so the move ends those that are open.
#[tokio::test(flavor = "multi_thread")]
async fn transactions_that_are_open_at_the_fence_end_there() {
    for version in [None, Some("5.7")] {
        let world = World::start(version, |builder| builder).await;
        let (mut open, mut distributed) = (world.a.conn().await, world.a.conn().await);
        open.query_drop("BEGIN; INSERT INTO app.w (id, client) VALUES (1, 1)")
            .await
            .expect("written");
        distributed
            .query_drop("XA START 'x'; INSERT INTO app.w (id, client) VALUES (2, 2); XA END 'x'")
            .await
            .expect("written");
        world.moved(&["--cut-over"]);
        assert!(open.query_drop("COMMIT").await.is_err());
        assert!(distributed.query_drop("XA PREPARE 'x'").await.is_err());
        assert_eq!(world.a.value::<u64>("SELECT COUNT(*) FROM app.w").await, 0);
        assert_eq!(world.b.value::<u64>("SELECT COUNT(*) FROM app.w").await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_are_locked_where_no_server_may_be_set_to_read_only() {
    let world = World::start(None, |builder| {
        builder.set("move.fence", "lock_accounts").set("move.accounts", vec!["app@%"])
    })
    .await;
    let applications = world.applications(16);
    pause(500).await;
    for option in ["--cut-over", "--back"] {
        world.moved(&[option]);
        pause(500).await;
    }
    let written = applications.stop().await;
    assert!(written.acked.iter().any(|write| write.port == world.b.port));
    world.end(&written).await;
    assert_eq!(
        (world.access(&world.a).await, world.access(&world.b).await),
        ("00".into(), "00".into())
    );
    // What a refusal advises is of this fence.
    let lock = |state| format!("SET SESSION sql_log_bin = 0; ALTER USER app@'%' ACCOUNT {state}");
    world.b.exec(&lock("UNLOCK")).await;
    let both = world.command(&["--cut-over"]);
    both.refused(2, &["both servers take writes", "ALTER USER 'app'@'%' ACCOUNT LOCK"]);
    for server in [&world.a, &world.b] {
        server.exec(&lock("LOCK")).await;
    }
    let neither = world.command(&["--cut-over"]);
    neither.refused(2, &["neither server takes writes", "ALTER USER 'app'@'%' ACCOUNT UNLOCK"]);
    for said in [both, neither] {
        assert!(!said.error.contains("read_only"), "{said:?}");
    }
}

/// A restart of 5.7 keeps locked accounts. The line of an option file would close the server to the channel, too.
#[tokio::test(flavor = "multi_thread")]
async fn locked_accounts_need_no_option_file() {
    let world = World::start(Some("5.7"), |builder| {
        builder.set("move.fence", "lock_accounts").set("move.accounts", vec!["app@%"])
    })
    .await;
    let said = world.moved(&["--plan"]);
    assert!(said.contains("ACCOUNT LOCK") && !said.contains("read_only"), "{said}");
}

/// Without the privilege they would continue at the old server, whose accounts alone are locked.
#[tokio::test(flavor = "multi_thread")]
async fn events_that_nobody_may_switch_off_are_refused() {
    let world = World::start(None, |builder| {
        builder.set("move.fence", "lock_accounts").set("move.accounts", vec!["app@%"])
    })
    .await;
    let (a, b) = (&world.a, &world.b);
    a.exec(
        "SET sql_log_bin = 0; REVOKE SUPER ON *.* FROM csa@'%'; \
         REVOKE SYSTEM_VARIABLES_ADMIN ON *.* FROM csa@'%'",
    )
    .await;
    for option in ["--plan", "--cut-over"] {
        world.command(&[option]).refused(1, &["lacks SYSTEM_VARIABLES_ADMIN", "event_scheduler"]);
    }
    let locked = "SELECT account_locked FROM mysql.user WHERE User = 'app'";
    assert_eq!(a.value::<String>(locked).await, "N", "nothing was touched");
    a.exec("SET GLOBAL event_scheduler = OFF").await;
    world.moved(&["--cut-over"]);
    assert_eq!(b.value::<String>("SELECT @@GLOBAL.event_scheduler").await, "OFF");
    world.drained().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_that_is_stopped_by_a_signal_is_undone() {
    let world = World::start(None, |builder| builder).await;
    let mut lock = world.held_back().await;
    let mut command = world.begin(&["--cut-over"], "");
    eventually("it is fenced", Duration::from_secs(10), async || {
        world.access(&world.a).await == "11"
    })
    .await;
    // Two at once wait for each other.
    world.command(&["--cut-over"]).refused(1, &["another csa-daemon move runs"]);
    let id = command.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().expect("kill").success());
    assert_eq!(command.wait().expect("its end").code(), Some(1));
    assert_eq!(world.access(&world.a).await, "00");
    lock.query_drop("UNLOCK TABLES").await.expect("unlocked");
    world.drained().await;
    world.moved(&["--cut-over"]);
}

/// A program passes on a request, which takes effect later unless another one comes first, and fails or is cut off.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn an_opening_with_an_unknown_outcome_is_taken_back_before_the_undo() {
    let tools = tempfile::tempdir().expect("a folder");
    let (fence, mood, request) =
        (tools.path().join("fence"), tools.path().join("mood"), tools.path().join("request"));
    let sandbox = Path::new(env!("CARGO_MANIFEST_DIR")).join("sandbox/mysql-sandbox");
    let text = format!(
        "#!/bin/sh\nset -e\n\
         sql() {{ '{sandbox}' client mysql --host=$CSA_MOVE_HOST --port=$CSA_MOVE_PORT --user=admin --password=admin_pw \
         --batch --skip-column-names --execute \"$1\" 2>/dev/null; }}\n\
         case \"$CSA_MOVE_ACTION\" in\n\
         later) sleep 8; if [ \"$(cat {request})\" = \"$1\" ]; then sql 'SET PERSIST read_only = OFF'; fi ;;\n\
         state) if [ \"$(sql 'SELECT @@read_only')\" = 1 ]; then echo closed; else echo open; fi ;;\n\
         close) echo none > {request}; sql 'SET PERSIST read_only = ON' ;;\n\
         open) if [ \"$(cat {mood})\" != \"$CSA_MOVE_PORT fails\" ] && [ \"$(cat {mood})\" != \"$CSA_MOVE_PORT hangs\" ]; then\n\
         sql 'SET PERSIST read_only = OFF'; exit 0; fi\n\
         echo $$ > {request}\n\
         CSA_MOVE_ACTION=later setsid \"$0\" $$ > /dev/null 2>&1 < /dev/null &\n\
         case \"$(cat {mood})\" in *hangs) exec sleep 60 ;; *) echo 'the proxy does not answer' >&2; exit 3 ;; esac ;;\n\
         esac\n",
        sandbox = sandbox.display(),
        mood = mood.display(),
        request = request.display()
    );
    std::fs::write(&fence, text).expect("a script");
    std::fs::write(&mood, "well").expect("a file");
    std::fs::set_permissions(&fence, std::fs::Permissions::from_mode(0o755)).expect("a script");
    let world = World::start(None, |builder| {
        builder
            .set("move.fence", "command")
            .set("move.fence_command", vec![fence.display().to_string()])
            .set("move.command_timeout", "4s")
            .set("move.time_limit", "6s")
    })
    .await;
    for now in ["fails", "hangs"] {
        std::fs::write(&mood, format!("{} {now}", world.b.port)).expect("a file");
        world.command(&["--cut-over"]).refused(1, &["undone", "as before"]);
        // A request that is still under way would take effect now.
        pause(9000).await;
        assert_eq!(
            (world.access(&world.a).await, world.access(&world.b).await),
            ("00".into(), "10".into()),
            "{now}"
        );
    }
}

/// A program is the fence: it may be missing, fail, hang or talk nonsense.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_program_of_the_operator_is_the_fence() {
    let tools = tempfile::tempdir().expect("a folder");
    let (fence, mood) = (tools.path().join("fence"), tools.path().join("mood"));
    let sandbox = Path::new(env!("CARGO_MANIFEST_DIR")).join("sandbox/mysql-sandbox");
    let text = format!(
        "#!/bin/sh\nset -e\n\
         sql() {{ '{}' client mysql --host=$CSA_MOVE_HOST --port=$CSA_MOVE_PORT --user=admin --password=admin_pw \
         --batch --skip-column-names --execute \"$1\" 2>/dev/null; }}\n\
         case \"$CSA_MOVE_ACTION $(cat {mood})\" in\n\
         *' hangs') exec sleep 60 ;;\n\
         *' fails') echo 'the proxy does not answer' >&2; exit 3 ;;\n\
         'state nonsense') echo perhaps ;;\n\
         state*) if [ \"$(sql 'SELECT @@read_only')\" = 1 ]; then echo closed; else echo open; fi ;;\n\
         close*) sql 'SET PERSIST read_only = ON' ;;\n\
         open*) sql 'SET PERSIST read_only = OFF' ;;\n\
         esac\n",
        sandbox.display(),
        mood = mood.display()
    );
    std::fs::write(&fence, text).expect("a script");
    let in_mood = |now: &str| std::fs::write(&mood, now).expect("a file");
    in_mood("well");
    let executable = |mode| {
        std::fs::set_permissions(&fence, std::fs::Permissions::from_mode(mode)).expect("a script");
    };
    executable(0o755);
    let world = World::start(None, |builder| {
        builder
            .set("move.fence", "command")
            .set("move.fence_command", vec![fence.display().to_string()])
            .set("move.command_timeout", "2s")
    })
    .await;
    let applications = world.applications(16);
    for (now, words) in [
        ("hangs", "not done within 2 s"),
        ("fails", "the proxy does not answer"),
        ("nonsense", "it printed \"perhaps\""),
    ] {
        in_mood(now);
        world.command(&["--cut-over"]).refused(1, &["move.fence_command", words]);
    }
    in_mood("well");
    executable(0o644);
    let said = world.command(&["--plan"]);
    assert!(said.code != Some(0) && said.error.contains("move.fence_command"), "{said:?}");
    executable(0o755);
    assert_eq!(world.access(&world.a).await, "00");
    pause(300).await;
    for option in ["--cut-over", "--back"] {
        world.moved(&[option]);
        pause(500).await;
    }
    let written = applications.stop().await;
    assert!(written.acked.iter().any(|write| write.port == world.b.port));
    world.end(&written).await;
    assert_eq!(
        (world.access(&world.a).await, world.access(&world.b).await),
        ("00".into(), "10".into())
    );
}
