//! Verify while rows change, the target lags or dies.

use super::*;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn lag_is_waited_for_and_never_a_difference() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec(TABLES).await;
    source.exec(ROWS).await;
    source.exec("CREATE TABLE d.goes (id INT PRIMARY KEY); INSERT INTO d.goes VALUES (1)").await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    daemon.kill9();
    source
        .exec(
            "USE d; UPDATE t SET s = 'new' WHERE id % 2 = 0; DELETE FROM t WHERE id = 11; \
             INSERT INTO t (id) VALUES (901), (2000); DELETE FROM bag WHERE a = 1 LIMIT 1; \
             INSERT INTO bag VALUES (7, 'c'); UPDATE names SET name = 'zz' WHERE name = 'c'; \
             DROP TABLE goes; CREATE TABLE comes (id INT PRIMARY KEY); \
             INSERT INTO comes VALUES (1); ALTER TABLE by_bytes ADD COLUMN later INT DEFAULT 4",
        )
        .await;
    // Nobody applies it: the output says so, and it is no difference.
    let stalled = verify(&daemon, &["--catch-up-timeout", "2s"]);
    stalled.assert_code(2);
    let error = stalled.json["error"].as_str().expect("an error");
    assert!(error.contains("is channel test running"), "{error}");
    assert!(error.starts_with("comparing d."), "{error}");
    assert_eq!(stalled.differences(), BTreeSet::new());
    for table in ["d.by_bytes", "d.comes", "d.goes", "d.names"] {
        let stalled = verify(&daemon, &["--table", table, "--catch-up-timeout", "1s"]);
        stalled.assert_code(2);
        assert!(stalled.json["error"].to_string().contains(table), "{:#}", stalled.json);
    }

    let late = tokio::task::block_in_place(|| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_secs(3));
                daemon.start_again();
            });
            verify(&daemon, &[])
        })
    });
    late.assert_code(0);
    let names: Vec<&str> =
        late.tables().iter().filter_map(|table| table["table"].as_str()).collect();
    assert!(names.contains(&"d.comes") && !names.contains(&"d.goes"), "{names:?}");
}

/// Rows that were compared before a column came say nothing about its values.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_column_that_comes_midway_is_compared_in_all_rows() {
    let (source, target) = rounds::servers(4_000).await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let (mut on_source, mut on_target) = (source.conn().await, target.conn().await);
    let change = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let column = "ALTER TABLE d.t ADD COLUMN later INT DEFAULT 1";
        on_source.query_drop(column).await.expect("alters");
        on_target.query_drop("SET sql_log_bin = 0").await.expect("unlogged");
        let begun = Instant::now();
        while on_target.query_drop("UPDATE d.t SET later = 2 WHERE id = 7").await.is_err() {
            assert!(begun.elapsed() < DRAIN, "the target has no such column");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    // 4,000 rows take 8 seconds.
    let found = verify(&daemon, &["--max-rate", "500", "--chunk-rows", "100"]);
    change.await.expect("changes the table");
    found.assert_code(1);
    assert_eq!(found.differences(), BTreeSet::from(["d.t id=7 differs later".to_owned()]));
    assert_eq!(found.table("d.t")["rows"], 4_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_dies_midway_ends_the_comparison() {
    let (source, target) = Server::pair(&[], &[]);
    let options = LoadOptions { rows: 3_000, ..load_options() };
    prepare(&source, &options).await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let started = Instant::now();
    let (dead, alive) = tokio::task::block_in_place(|| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_secs(3));
                target.kill9();
            });
            // 12,000 rows would take 12 seconds.
            let dead = verify(&daemon, &["--max-rate", "1000", "--chunk-rows", "100"]);
            (dead, started.elapsed())
        })
    });
    dead.assert_code(2);
    assert!(alive >= Duration::from_secs(2) && alive < Duration::from_secs(10), "{alive:?}");
    let error = dead.json["error"].as_str().expect("an error");
    assert!(error.contains("comparing sbtest.sbtest"), "{error}");
    assert!(error.contains(&format!("target 127.0.0.1:{}: ", target.port)), "{error}");
    assert!(!error.contains('\n'), "{error}");
    assert_eq!(dead.json["outcome"], Value::Null);
    // The tables finished before are reported.
    assert_eq!(dead.table("sbtest.account")["outcome"], "equal");
    tokio::task::block_in_place(|| target.restart());
    daemon.wait_drained(&source, &target, DRAIN).await;
    verify(&daemon, &[]).assert_code(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_keeps_to_its_rate_and_lets_the_target_catch_up() {
    let (source, target) = Server::pair(&[], &[]);
    prepare(&source, &load_options()).await;
    source.exec("CREATE DATABASE other").await;
    source.exec("CREATE TABLE other.t (id INT PRIMARY KEY)").await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let timed = |arguments: &[&str]| {
        let started = Instant::now();
        (verify(&daemon, arguments), started.elapsed())
    };
    let table = ["--table", "sbtest.sbtest1", "--chunk-rows", "50"];
    let (quick, time) = timed(&table);
    quick.assert_code(0);
    assert!(time < Duration::from_secs(2), "{time:?}");
    let (slow, time) = timed(&[&table[..], &["--max-rate", "400"]].concat());
    slow.assert_code(0);
    assert!(time > Duration::from_millis(2_400) && time < Duration::from_secs(5), "{time:?}");

    // The source is ahead, but not in the tables compared.
    let mut blocker = target.conn().await;
    blocker.query_drop("LOCK TABLES other.t READ").await.expect("locks");
    source.exec("INSERT INTO other.t VALUES (1)").await;
    let lagging = [&table[..], &["--max-lag", "1s", "--catch-up-timeout", "2s"]].concat();
    verify(&daemon, &table).assert_code(0);
    let waiting = verify(&daemon, &lagging);
    waiting.assert_code(2);
    assert!(waiting.json["error"].to_string().contains("no progress"), "{:#}", waiting.json);
    blocker.query_drop("UNLOCK TABLES").await.expect("unlocks");
    daemon.wait_drained(&source, &target, DRAIN).await;
    verify(&daemon, &lagging).assert_code(0);
}

/// A replica that is late would show right rows as different, and so would another server.
#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_lacks_what_the_target_has_is_not_compared_with() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let late = Server::start("late", &[]);
    late.follow(&source).await;
    let executed = source.gtid_executed().await;
    eventually("the replica follows", DRAIN, async || late.gtid_executed().await == executed).await;
    late.exec("STOP REPLICA").await;
    source.exec("INSERT INTO d.t VALUES (1), (2)").await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;

    // It is passed over for one that has everything.
    let second = format!("a = [{{ host = \"127.0.0.1\", port = {} }}]", source.port);
    let second = second.parse::<toml::Table>().expect("TOML")["a"].clone();
    daemon.set("source.port", i64::from(late.port));
    daemon.set("source.failover", second);
    daemon.write_config();
    verify(&daemon, &[]).assert_code(0);

    // Without one it is named, and so are all that are down.
    source.kill9();
    let refused = verify(&daemon, &[]);
    refused.assert_code(2);
    let error = refused.json["error"].as_str().expect("an error");
    for words in [
        format!("source 127.0.0.1:{}: it lacks 1 transaction that", late.port),
        format!("source 127.0.0.1:{}", source.port),
    ] {
        assert!(error.contains(&words), "{error}");
    }
    assert_eq!(refused.differences(), BTreeSet::new());

    // Once it has caught up it will do.
    source.restart();
    late.exec("START REPLICA").await;
    let executed = source.gtid_executed().await;
    eventually("the replica follows", DRAIN, async || late.gtid_executed().await == executed).await;
    source.kill9();
    verify(&daemon, &[]).assert_code(0);

    // Another server, with the same tables.
    let stranger = Server::start("stranger", &[]);
    stranger.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    daemon.set("source.port", i64::from(stranger.port));
    daemon.set("source.failover", Vec::<toml::Value>::new());
    daemon.write_config();
    let refused = verify(&daemon, &[]);
    refused.assert_code(2);
    assert!(
        refused.json["error"].to_string().contains("it is another server"),
        "{:#}",
        refused.json
    );
}

/// Modes in which the target's own `gtid_executed` shows its progress, or commits come out of order.
#[tokio::test(flavor = "multi_thread")]
async fn positions_are_known_in_every_mode() {
    let (source, target) = Server::pair(&[], &[]);
    prepare(&source, &load_options()).await;
    let load = Load::start(&source, &load_options());
    let modes: [&[(&str, toml::Value)]; 2] = [
        &[("applier.commit", "one-to-one".into()), ("applier.target_gtids", "source".into())],
        &[("applier.preserve_commit_order", false.into())],
    ];
    for settings in modes {
        let mut builder = Daemon::builder(&source, &target);
        for (key, value) in settings {
            builder = builder.set(key, value.clone());
        }
        let daemon = builder.start();
        daemon.wait_drained(&source, &target, DRAIN).await;
        verify(&daemon, &[]).assert_code(0);
        target.exec("INSERT INTO sbtest.account VALUES (-1, 0)").await;
        let found = verify(&daemon, &[]);
        found.assert_code(1);
        let extra = "sbtest.account id=-1 only_on_target".to_owned();
        assert_eq!(found.differences(), BTreeSet::from([extra]));
        target.exec("DELETE FROM sbtest.account WHERE id = -1").await;
        assert!(daemon.terminate().success(), "{}", daemon.log_tail());
    }
    load.stop().await;
}

/// Updates row 1 back and forth and counts row 2 up, continuously; reports how often at the end.
struct HotRows {
    stop: Arc<AtomicBool>,
    tasks: JoinSet<u64>,
}

impl HotRows {
    fn start(source: &Server) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for (id, set) in [(1, "n = 1 - n"), (2, "n = n + 1")] {
            let (stop, opts) = (Arc::clone(&stop), source.opts());
            tasks.spawn(async move {
                let mut conn = mysql_async::Conn::new(opts).await.expect("connects");
                let mut updates = 0;
                while !stop.load(Ordering::Relaxed) {
                    let statement = format!("UPDATE d.t SET {set} WHERE id = {id}");
                    conn.query_drop(statement).await.expect("updates");
                    updates += 1;
                }
                updates
            });
        }
        Self { stop, tasks }
    }

    async fn stop(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let mut updates = 0;
        while let Some(ended) = self.tasks.join_next().await {
            updates += ended.expect("a client");
        }
        updates
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn rows_that_change_all_the_time_are_equal_or_unstable_but_not_different() {
    // With full row images the source would repair the difference.
    // Each commit on the target takes a while: it never holds the source's latest value.
    let (source, target) =
        Server::pair(&["--binlog-row-image=MINIMAL"], &["--binlog-group-commit-sync-delay=150000"]);
    source
        .exec(
            "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, n INT, v INT); \
             INSERT INTO d.t VALUES (1, 0, 0), (2, 0, 0), (3, 0, 0)",
        )
        .await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let hot = HotRows::start(&source);
    let mut unlogged = source.conn().await;
    unlogged.query_drop("SET sql_log_bin = 0").await.expect("unlogged");
    unlogged.query_drop("UPDATE d.t SET v = 5 WHERE id = 3").await.expect("updates");
    for _ in 0..2 {
        let found = verify(&daemon, &[]);
        found.assert_code(1);
        assert_eq!(found.differences(), BTreeSet::from(["d.t id=3 differs v".to_owned()]));
        assert_eq!(found.table("d.t")["unstable"], json!([]));
    }
    // A row that changes and differs at once can't be told from a late one.
    unlogged.query_drop("UPDATE d.t SET v = 0 WHERE id = 3").await.expect("updates");
    unlogged.query_drop("UPDATE d.t SET v = 5 WHERE id = 2").await.expect("updates");
    let found = verify(&daemon, &[]);
    found.assert_code(2);
    assert_eq!(found.differences(), BTreeSet::new());
    assert_eq!(found.table("d.t")["unstable"], json!(["id=2"]));
    assert!(found.stderr.contains("kept changing"), "{}", found.stderr);

    let updates = hot.stop().await;
    assert!(updates > 500, "{updates} updates are no load");
    daemon.wait_drained(&source, &target, DRAIN).await;
    let found = verify(&daemon, &[]);
    found.assert_code(1);
    assert_eq!(found.differences(), BTreeSet::from(["d.t id=2 differs v".to_owned()]));
}
