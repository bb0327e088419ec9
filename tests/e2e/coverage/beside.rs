//! Targets beside a replica of MySQL's own that follows the same source: where tables or rows differ from the
//! source's, the channel ends with the same rows as the replica.

use csa_tests::{Daemon, Server};

use super::run;
use crate::verify::verify;
use crate::{DRAIN, wait_state};

/// Settings of a channel.
type Mode = &'static [(&'static str, &'static str)];

const IMAGES: Mode = &[("executor", "row-image")];
const STATEMENTS: Mode = &[("executor", "sql")];
const ONE_TO_ONE: Mode = &[("commit", "one-to-one"), ("target_gtids", "source")];
const MIRROR: Mode = &[("target_gtids", "mirror")];

/// A source, a replica, and a target for each mode. The tests write in schema `c`.
struct Beside {
    source: Server,
    replica: Server,
    targets: Vec<Server>,
    daemon: Daemon,
}

/// Returns the name of a mode's channel.
fn name(mode: usize) -> String {
    format!("mode{mode}")
}

impl Beside {
    async fn start(modes: &[Mode]) -> Self {
        let (source, replica, targets) = std::thread::scope(|scope| {
            let start = |name| scope.spawn(move || Server::start(name, &[]));
            let (source, replica) = (start("source"), start("replica"));
            let targets: Vec<_> = modes.iter().map(|_| start("target")).collect();
            let targets = targets.into_iter().map(|target| target.join().expect("starts"));
            let targets: Vec<Server> = targets.map(Server::borrowed).collect();
            let (source, replica) = (source.join(), replica.join());
            let both = (source.expect("starts").borrowed(), replica.expect("starts").borrowed());
            (both.0, both.1, targets)
        });
        let mut builder = Daemon::builder(&source, &targets[0]).set("name", name(0));
        for (number, (mode, target)) in modes.iter().zip(&targets).enumerate() {
            if number > 0 {
                builder = builder.channel(&name(number), &source, target);
            }
            for (key, value) in *mode {
                builder = builder.set(&format!("applier.{key}"), *value);
            }
        }
        replica.follow(&source).await;
        let daemon = builder.start();
        source.exec("CREATE DATABASE c").await;
        Self { source, replica, targets, daemon }
    }

    /// Runs statements on the source, in one session.
    async fn run<S: AsRef<str>>(&self, statements: impl IntoIterator<Item = S>) {
        run(&self.source, statements).await;
    }

    /// Runs statements that are not logged on the replica and the targets.
    async fn run_locally(&self, statements: &[&str]) {
        self.arrived().await;
        for server in self.targets.iter().chain([&self.replica]) {
            run(server, ["SET sql_log_bin=0"].iter().chain(statements)).await;
        }
    }

    /// Runs statements on the source while the daemon is down, so that they share groups.
    async fn run_as_backlog<S: AsRef<str>>(&self, statements: impl IntoIterator<Item = S>) {
        self.daemon.kill9();
        self.run(statements).await;
        self.daemon.start_again();
    }

    /// Waits until the replica and all targets have everything.
    async fn arrived(&self) {
        let wanted = self.source.gtid_executed().await;
        let wait = format!("SELECT WAIT_FOR_EXECUTED_GTID_SET('{wanted}', 60)");
        let late: u64 = self.replica.value(&wait).await;
        let why = "SELECT GROUP_CONCAT(LAST_ERROR_MESSAGE) FROM \
            performance_schema.replication_applier_status_by_worker WHERE LAST_ERROR_NUMBER <> 0";
        assert_eq!(late, 0, "{:?}", self.replica.value::<Option<String>>(why).await);
        for (number, target) in self.targets.iter().enumerate() {
            self.daemon.wait_channel_drained(&name(number), &self.source, target, DRAIN).await;
        }
    }

    /// Returns the answers of the replica and the targets, which are the same.
    async fn same(&self, query: &str, what: &str) -> String {
        self.same_but_for(None, query, what).await
    }

    async fn same_but_for(&self, left_out: Option<usize>, query: &str, what: &str) -> String {
        self.arrived().await;
        let expected: Option<String> = self.replica.value(query).await;
        for (number, target) in self.targets.iter().enumerate() {
            if left_out == Some(number) {
                continue;
            }
            let found: Option<String> = target.value(query).await;
            assert_eq!(found, expected, "{what}: mode {number} and the replica");
        }
        expected.unwrap_or_default()
    }
}

/// The server sets such columns in every UPDATE or INSERT of a client that does not name them. The numbers of
/// AUTO_INCREMENT follow the order of execution, which is not that of the commits.
#[tokio::test(flavor = "multi_thread")]
async fn columns_that_only_the_target_has_are_as_on_a_replica() {
    let beside = Beside::start(&[IMAGES, STATEMENTS]).await;
    beside
        .run([
            "CREATE TABLE t (id INT PRIMARY KEY, a INT, y YEAR, s TEXT)",
            "CREATE TABLE keyless (a INT, b INT)",
            "INSERT INTO t VALUES (1,1,0,'a'),(2,2,2000,'b'),(3,3,NULL,NULL)",
            "INSERT INTO keyless VALUES (1,1),(1,1),(2,2)",
        ])
        .await;
    let more = "ADD seen TIMESTAMP NULL DEFAULT '2001-01-01' ON UPDATE CURRENT_TIMESTAMP, \
        ADD at DATETIME(6) NOT NULL DEFAULT '2002-02-02' ON UPDATE CURRENT_TIMESTAMP(6), \
        ADD twice INT AS (a*2) STORED, ADD n INT NOT NULL DEFAULT 7, \
        ADD made TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)";
    beside
        .run_locally(&[
            &format!("ALTER TABLE t {more}, ADD number INT NOT NULL AUTO_INCREMENT UNIQUE"),
            &format!("ALTER TABLE keyless {more}"),
            "UPDATE t SET n=id, made='2003-03-03', seen=seen, at=at",
            "UPDATE keyless SET n=a, made='2003-03-03', seen=seen, at=at",
        ])
        .await;
    let today: String = beside.source.value("SELECT CAST(CURDATE() AS CHAR)").await;
    for image in ["FULL", "MINIMAL", "NOBLOB"] {
        beside
            .run_as_backlog([
                format!("SET binlog_row_image={image}, timestamp=1000000000").as_str(),
                "UPDATE t SET a=a+1",
                "UPDATE t SET y=0, s='c' WHERE id=2",
                "UPDATE t SET id=id+10 WHERE id=3",
                "UPDATE t SET id=3 WHERE id=13",
                "UPDATE keyless SET b=b+1 WHERE a=1 LIMIT 1",
                "UPDATE keyless SET a=a+1 WHERE a>1",
                "INSERT INTO t (id,a) VALUES (0,5)",
                "REPLACE INTO t (id,a) VALUES (1,8)",
                "SET timestamp=1100000000",
                "INSERT INTO t (id,a) VALUES (4,5)",
                "INSERT INTO keyless VALUES (9,9)",
                "DELETE FROM keyless WHERE a=9",
                "INSERT INTO keyless VALUES (9,9)",
                "SET timestamp=DEFAULT",
                "UPDATE t SET a=6 WHERE id=0",
            ])
            .await;
        for rows in [
            "SELECT GROUP_CONCAT(CONCAT_WS(',',id,a,y,s,seen,at,twice,n,made,number>0) ORDER BY id) FROM c.t",
            "SELECT GROUP_CONCAT(CONCAT_WS(',',a,b,seen,at,twice,n,made) ORDER BY a,b,n) FROM c.keyless",
        ] {
            let found = beside.same(rows, image).await;
            assert!(!found.contains(&today), "{image}: {found}");
        }
        beside.run(["DELETE FROM t WHERE id IN (0,4)", "DELETE FROM keyless WHERE a=9"]).await;
    }
}

/// The replica passes over changes of rows that a table does not keep, and logs them for replicas of its
/// own. A client can't have them logged.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn changes_of_rows_that_a_table_does_not_keep_are_refused_by_name() {
    let modes = [IMAGES, STATEMENTS, ONE_TO_ONE, MIRROR];
    let beside = Beside::start(&modes).await;
    beside
        .run([
            "CREATE TABLE hole (id INT PRIMARY KEY, v INT)",
            "CREATE TABLE hidden (id INT, v INT)",
            "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        ])
        .await;
    beside
        .run_locally(&["ALTER TABLE hole ENGINE=BLACKHOLE", "ALTER TABLE hidden ENGINE=BLACKHOLE"])
        .await;
    let rows = "SELECT GROUP_CONCAT(id,'=',v ORDER BY id) FROM c.t";
    beside
        .run([
            "BEGIN",
            "INSERT INTO t VALUES (1,1),(2,2)",
            "INSERT INTO hole VALUES (1,1),(2,2)",
            "COMMIT",
            "INSERT INTO hidden VALUES (1,1),(2,2)",
        ])
        .await;
    assert_eq!(beside.same(rows, "inserts").await, "1=1,2=2");
    // With a table that keeps rows, in a distributed transaction, and without a key.
    let steps: [&[&str]; 3] = [
        &["BEGIN", "UPDATE t SET v=3 WHERE id=1", "UPDATE hole SET v=3", "COMMIT"],
        &[
            "XA START 'x'",
            "DELETE FROM hole WHERE id=1",
            "XA END 'x'",
            "XA PREPARE 'x'",
            "XA COMMIT 'x'",
        ],
        &["DELETE FROM hidden WHERE id=1"],
    ];
    for statements in steps {
        beside.run(statements).await;
        let table = if statements.len() == 1 { "hidden" } else { "hole" };
        for (number, target) in beside.targets.iter().enumerate() {
            wait_state(&beside.daemon, number, "failed").await;
            let error = &beside.daemon.status()["channels"][number]["last_error"];
            let why = error["message"].as_str().unwrap_or_default();
            for words in [
                "error 1031",
                &format!("c.{table} is BLACKHOLE on the target"),
                &format!("replicate_ignore_table = [\"c.{table}\"]"),
                &format!("ALTER TABLE `c`.`{table}` ENGINE=InnoDB"),
            ] {
                assert!(why.contains(words), "mode {number}, {statements:?}: {words} in {why}");
            }
            // Both of the ways that it names, in turn.
            let engine =
                |engine| format!("SET sql_log_bin=0; ALTER TABLE c.{table} ENGINE={engine}");
            target.exec(&engine("InnoDB")).await;
            let copy = format!("SET sql_log_bin=0; INSERT INTO c.{table} VALUES (1,1),(2,2)");
            target.exec(&copy).await;
            beside.daemon.commanded(&["restart", "--channel", &name(number)]);
            beside.daemon.wait_channel_drained(&name(number), &beside.source, target, DRAIN).await;
            target.exec(&engine("BLACKHOLE")).await;
            beside.daemon.commanded(&["restart", "--channel", &name(number)]);
        }
        assert_eq!(beside.same(rows, "updates").await, "1=3,2=2");
    }
    let gtids = "SELECT @@GLOBAL.gtid_executed";
    let expected: String = beside.source.value(gtids).await;
    assert_eq!(beside.targets[2].value::<String>(gtids).await, expected);

    // The last channel leaves the tables out.
    let last = modes.len() - 1;
    beside.daemon.kill9();
    beside.daemon.set("applier.replicate_ignore_table", vec!["c.hole", "c.hidden"]);
    beside.daemon.start_again();
    beside.run(["UPDATE hole SET v=9", "DELETE FROM hidden", "UPDATE t SET v=9 WHERE id=2"]).await;
    let target = &beside.targets[last];
    beside.daemon.wait_channel_drained(&name(last), &beside.source, target, DRAIN).await;
    assert_eq!(target.value::<String>(rows).await, "1=3,2=9");
}

/// Columns that a change leaves as they are: a replica that gets full images sets them to the source's
/// values, and so does every mode but `row_image = "minimal"`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn values_that_drifted_become_the_sources_where_a_replica_makes_them_so() {
    const FULL: (&str, &str) = ("row_image", "full");
    let modes: [Mode; 5] = [
        &[FULL],
        &[FULL, ("commit", "one-to-one"), ("target_gtids", "source")],
        &[FULL, ("target_gtids", "mirror")],
        STATEMENTS,
        IMAGES,
    ];
    let beside = Beside::start(&modes).await;
    beside
        .run([
            "CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, s TEXT, j JSON, u INT UNIQUE)",
            "INSERT INTO t SELECT n, 1, 1, 'one', '{\"a\": 1, \"b\": 1}', n FROM \
             (WITH RECURSIVE s AS (SELECT 1 n UNION ALL SELECT n+1 FROM s WHERE n<9) SELECT n FROM s) q",
        ])
        .await;
    let drift = "UPDATE t SET b=99, s='drift', j=JSON_SET(j, '$.b', 99)";
    // Images that are not full already are not made smaller.
    let last = beside.targets.len() - 1;
    let minimal = Some(last);
    let differs = "SELECT GROUP_CONCAT(id ORDER BY id) FROM c.t WHERE b=99";
    let rows =
        "SELECT GROUP_CONCAT(CONCAT_WS(',',id,a,b,s,j,u) ORDER BY id SEPARATOR ' ') FROM c.t";
    for image in ["FULL", "NOBLOB", "MINIMAL"] {
        for options in ["", "PARTIAL_JSON"] {
            let leaves_out = image == "FULL" && options.is_empty();
            beside.run_locally(&[drift]).await;
            let set = format!("SET binlog_row_image={image}, binlog_row_value_options='{options}'");
            let changes = [
                set.as_str(),
                "UPDATE t SET a=a+1 WHERE id=1",
                // Undone, alone and across transactions.
                "BEGIN",
                "UPDATE t SET a=5 WHERE id=2",
                "UPDATE t SET a=1 WHERE id=2",
                "COMMIT",
                "UPDATE t SET a=7 WHERE id=3",
                "UPDATE t SET a=1 WHERE id=3",
                "UPDATE t SET j=JSON_SET(j, '$.a', j->'$.a'+1) WHERE id=4",
                "UPDATE t SET u=u+100 WHERE id=5",
                "UPDATE t SET u=u-100 WHERE id=5",
                "DELETE FROM t WHERE id=6",
                "INSERT INTO t VALUES (6,2,1,'one','{}',6)",
                "REPLACE INTO t VALUES (7,2,1,'one','{}',7)",
                "UPDATE t SET s=CONCAT(s, '+') WHERE id=8",
                "UPDATE t SET id=id+10 WHERE id=9",
                "UPDATE t SET id=id-10 WHERE id=19",
            ];
            beside.run_as_backlog(changes).await;
            let what = format!("{image} {options}");
            beside.same_but_for(minimal.filter(|_| leaves_out), rows, &what).await;
            // One after the other, too.
            beside.run_locally(&[drift]).await;
            beside.run([set.as_str(), "UPDATE t SET a=a+1"]).await;
            beside.same_but_for(minimal.filter(|_| leaves_out), rows, &what).await;
            let healed: Option<String> = beside.replica.value(differs).await;
            assert_eq!(healed.is_none(), image != "MINIMAL", "{what}: {healed:?}");
            let kept: Option<String> = beside.targets[last].value(differs).await;
            assert_eq!(kept.is_none(), image != "MINIMAL" && !leaves_out, "{what}: {kept:?}");
        }
    }
    // The comparison finds columns that were never changed.
    beside.run_locally(&[drift]).await;
    beside.run(["SET binlog_row_image=FULL", "UPDATE t SET a=a+1"]).await;
    let found = verify(&beside.daemon, &["--channel", &name(last)]);
    found.assert_code(1);
    let differences = found.differences();
    assert!(differences.contains("c.t id=1 differs b,s,j"), "{differences:?}");
    assert_eq!(differences.len(), 9, "{differences:?}");
    // An operator who chooses full images has the rows healed by the source's next changes.
    beside.daemon.kill9();
    beside.daemon.set("applier.row_image", "full");
    beside.daemon.start_again();
    beside.run(["SET binlog_row_image=FULL", "UPDATE t SET a=a+1"]).await;
    beside.same(rows, "full at last").await;
    verify(&beside.daemon, &["--channel", &name(last)]).assert_code(0);
}
