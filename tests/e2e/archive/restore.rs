//! Restores to any transaction and any moment are exact.

use std::os::unix::process::ExitStatusExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use csa_tests::{Compare, Guide, LoadOptions, Server, compare, eventually, prepare};
use mysql_async::prelude::Queryable as _;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::*;

fn busy() -> LoadOptions {
    LoadOptions { rows: 300, tables: 2, clients: 4, rate: Some(150.0), ..LoadOptions::default() }
}

/// The server's own replica, whose applier is stopped.
async fn own_replica(source: &Server) -> Server {
    let replica = Server::start("replica", &[]);
    replica.follow(source).await;
    replica.exec("STOP REPLICA SQL_THREAD").await;
    replica
}

/// Lets the server's own applier continue to the end of a set, and no further.
async fn follow_until(replica: &Server, set: &str) {
    let reached = format!("SELECT GTID_SUBSET('{set}', @@GLOBAL.gtid_executed)");
    if replica.value::<u8>(&reached).await == 1 {
        return;
    }
    replica.exec(&format!("START REPLICA SQL_THREAD UNTIL SQL_AFTER_GTIDS='{set}'")).await;
    eventually("the server's own replica is there", DRAIN, async || {
        replica.value::<u8>(&reached).await == 1
            && replica
                .value::<String>(
                    "SELECT SERVICE_STATE FROM performance_schema.replication_applier_status",
                )
                .await
                == "OFF"
    })
    .await;
}

/// Compares a restored server with the server's own replica at the same place.
async fn equal(restored: &Server, replica: &Server) {
    let compared = Compare::new().ignore_schema("csa").run(replica, restored).await;
    compared.unwrap_or_else(|difference| panic!("{difference}"));
}

/// Returns the transactions that a restored target has, by the words of the command.
fn holds(said: &str) -> &str {
    let line =
        said.lines().find(|line| line.contains(" applied in ")).unwrap_or_else(|| panic!("{said}"));
    line.rsplit_once(" has ").expect("a set").1
}

/// A place to which a server is restored: that of the last transaction before it, and its name in the command.
struct Place {
    end: usize,
    told: Told,
}

enum Told {
    Gtid,
    Moment(u64),
}

/// Returns a moment in the form of `--until`.
async fn moment_text(source: &Server, micros: u64) -> String {
    let text = format!(
        "SELECT DATE_FORMAT(TIMESTAMPADD(MICROSECOND, {micros}, '1970-01-01 00:00:00'), \
         '%Y-%m-%dT%H:%i:%s.%fZ')"
    );
    source.value(&text).await
}

async fn moment_now(source: &Server) -> String {
    source.value("SELECT DATE_FORMAT(UTC_TIMESTAMP(6), '%Y-%m-%dT%H:%i:%s.%fZ')").await
}

/// `CSA_RESTORES` is the number of random transactions, and that of moments (6).
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn random_transactions_and_moments_are_restored_exactly() {
    let count = std::env::var("CSA_RESTORES").map_or(6, |text| text.parse().expect("a number"));
    let seed: u64 = rand::rng().random_range(0..100_000);
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let (source, target) = Server::pair(&[], &[]);
    let (archive, replica) = (folder(), own_replica(&source).await);
    let empty = Server::start("restored", &[]);
    day::prepare(&source).await;
    let first: usize = source.value("SELECT SUBSTRING_INDEX(@@gtid_executed, '-', -1) + 0").await;
    let daemon =
        archiving(&source, &target, archive.path()).set("archive.compression", "zstd").start();
    let is_over = AtomicBool::new(false);
    let pauses: Vec<u64> = (0..count).map(|_| random.random_range(200..1200)).collect();
    let taken = async {
        let mut moments = Vec::new();
        for pause in pauses {
            tokio::time::sleep(Duration::from_millis(pause)).await;
            let now = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))";
            moments.push(source.value::<u64>(now).await);
        }
        is_over.store(true, Ordering::Relaxed);
        moments
    };
    let (mut moments, hours) = tokio::join!(taken, day::write(&source, &is_over, random.random()));
    source.exec("CREATE TABLE sbtest.late (id INT PRIMARY KEY)").await;
    archived(&daemon, &source).await;
    let uuid: String = source.value("SELECT @@server_uuid").await;
    let last: usize = source.value("SELECT SUBSTRING_INDEX(@@gtid_executed, '-', -1) + 0").await;
    let exported = folder();
    daemon.commanded(&["archive", "export", &exported.path().display().to_string()]);
    let commits = commits(&mysqlbinlog(&files(exported.path())));
    assert_eq!(commits.len(), last, "every transaction is in the files");

    // Some moments are those of commits, which come too late for them.
    for moment in moments.iter_mut().step_by(3) {
        *moment = commits[random.random_range(first..last)];
    }
    let mut places: Vec<Place> = (0..count)
        .map(|_| Place { end: random.random_range(first..last), told: Told::Gtid })
        .collect();
    places.extend(moments.into_iter().map(|moment| {
        let end = commits.iter().take_while(|commit| **commit < moment).count();
        Place { end, told: Told::Moment(moment) }
    }));
    places.sort_by_key(|place| place.end);
    for Place { end, told } in places {
        let set = format!("{uuid}:1-{end}");
        follow_until(&replica, &set).await;
        match told {
            // Each restore begins where the one before it ended.
            Told::Gtid => {
                let said = restored(&daemon, &empty, &["--until", &set]);
                assert_eq!(holds(&said), set);
                equal(&empty, &replica).await;
            }
            Told::Moment(moment) => {
                let (server, moment) =
                    (Server::start("moment", &[]), moment_text(&source, moment).await);
                let said = restored(&daemon, &server, &["--until", &moment]);
                assert_eq!(holds(&said), set, "{moment}");
                equal(&server, &replica).await;
            }
        }
    }
    println!("{count} transactions and {count} moments among {last} transactions of {hours:?}");

    // Everything, and the channel continues from there with another target.
    let said = restored(&daemon, &empty, &[]);
    assert!(said.contains("is reached"), "{said}");
    compare(&source, &empty).await;
    assert!(daemon.terminate().success());
    source.exec("INSERT INTO sbtest.late VALUES (7)").await;
    daemon.set("target.port", i64::from(empty.port));
    daemon.start_again();
    daemon.wait_drained(&source, &empty, DRAIN).await;
    compare(&source, &empty).await;
}

/// Returns the time of each commit in a text of mysqlbinlog, in microseconds.
fn commits(text: &str) -> Vec<u64> {
    let stamp = |line: &str| {
        line.strip_prefix("# original_commit_timestamp=")?.split(' ').next()?.parse().ok()
    };
    text.lines().filter_map(stamp).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_restore_that_is_killed_continues_and_binary_logs_serve_too() {
    let (source, target) = Server::pair(&[], &[]);
    let archive = folder();
    let options = LoadOptions { rate: None, ..busy() };
    prepare(&source, &options).await;
    let daemon = archiving(&source, &target, archive.path()).start();
    write_for(&source, &options, Duration::from_secs(3)).await;
    // Rows larger than a request, and a statement between them.
    source.exec("CREATE TABLE sbtest.wide (id INT PRIMARY KEY, b LONGBLOB)").await;
    source.exec("INSERT INTO sbtest.wide SELECT n, REPEAT('x', 3000000) FROM (SELECT 1 n UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6) t").await;
    source.exec("FLUSH BINARY LOGS; UPDATE sbtest.wide SET b = REPEAT('y', 10) WHERE id = 3").await;
    archived(&daemon, &source).await;
    let plan = Server::start("restored", &[]);
    let said = restored(&daemon, &plan, &["--plan"]);
    assert!(said.contains("nothing was applied"), "{said}");
    let schemas = "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name='sbtest'";
    assert_eq!(plan.value::<u8>(schemas).await, 0);

    // Killed in the middle, twice; then the same command again.
    let changed = "SELECT CAST(SUM(VARIABLE_VALUE) AS UNSIGNED) FROM performance_schema.global_status \
                   WHERE VARIABLE_NAME IN ('Innodb_rows_inserted', 'Innodb_rows_updated')";
    let mut killed = 0;
    for _ in 0..2 {
        let before: u64 = plan.value(changed).await;
        let mut running = Command::new(Daemon::executable())
            .arg("--config")
            .arg(daemon.config_path())
            .args(into(&plan))
            .stdout(Stdio::null())
            .spawn()
            .expect("running restore");
        eventually("more rows are restored", DRAIN, async || {
            plan.value::<u64>(changed).await > before + 100
        })
        .await;
        running.kill().expect("kills");
        killed += u8::from(running.wait().expect("its end").signal() == Some(9));
    }
    assert!(killed > 0, "both had ended before");
    restored(&daemon, &plan, &[]);
    compare(&source, &plan).await;
    let said = daemon.commanded(&["archive", "verify"]);
    assert!(said.contains("transactions read"), "{said}");

    // The files of the server itself, with the last one still open.
    let other = Server::start("binlogs", &[]);
    let binlogs = folder();
    copy_binary_logs(&source, binlogs.path()).await;
    let place = binlogs.path().display().to_string();
    restored(&daemon, &other, &["--binlogs", &place]);
    compare(&source, &other).await;

    // What is not there is said before anything is applied.
    let third = Server::start("refused", &[]);
    let uuid: String = source.value("SELECT @@server_uuid").await;
    let said = not_restored(&daemon, &third, &["--until", &format!("{uuid}:999999")]);
    assert!(said.contains("does not have") && said.contains(":999999"), "{said}");
    std::fs::remove_file(&files(binlogs.path())[0]).expect("removed");
    let said = not_restored(&daemon, &third, &["--binlogs", &place]);
    assert!(said.contains("missing before") && said.contains("Restore a backup"), "{said}");
    let said = not_restored(&daemon, &third, &["--archive", "file:///nowhere"]);
    assert!(said.contains("/nowhere"), "{said}");
}

/// Copies the binary logs of a server into a folder, and returns the last of them.
async fn copy_binary_logs(source: &Server, folder: &Path) -> PathBuf {
    let data: String = source.value("SELECT @@datadir").await;
    for file in files(Path::new(&data)) {
        let name = file.file_name().expect("a name").to_string_lossy().into_owned();
        if name.strip_prefix("binlog.").is_some_and(|number| number.parse::<u32>().is_ok()) {
            std::fs::copy(&file, folder.join(&name)).expect("copied");
        }
    }
    files(folder).pop().expect("a binary log")
}

/// The last file has no transaction, or ends within one.
#[tokio::test(flavor = "multi_thread")]
async fn a_recording_is_restored_however_it_ends() {
    let (source, target) = Server::pair(&[], &[]);
    let (archive, logs) = (folder(), folder());
    let daemon = archiving(&source, &target, archive.path()).start();
    let rows =
        async |server: &Server| server.value::<String>("SELECT GROUP_CONCAT(id) FROM d.t").await;
    source
        .exec(
            "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); INSERT INTO d.t VALUES (1)",
        )
        .await;
    archived(&daemon, &source).await;
    let moment = moment_now(&source).await;
    source.exec("DELETE FROM d.t; FLUSH BINARY LOGS").await;
    let last = copy_binary_logs(&source, logs.path()).await;
    let place = logs.path().display().to_string();
    let server = Server::start("moment", &[]);
    restored(&daemon, &server, &["--binlogs", &place, "--until", &moment]);
    assert_eq!(rows(&server).await, "1", "nothing at the moment or later");

    // The source has ended, and its last file has the row of a transaction that it has not committed.
    source.exec("INSERT INTO d.t VALUES (2)").await;
    archived(&daemon, &source).await;
    source.exec("INSERT INTO d.t VALUES (3)").await;
    let mut conn = source.conn().await;
    let events: Vec<(String, u64, String, u64, u64, String)> =
        conn.query("SHOW BINLOG EVENTS IN 'binlog.000002'").await.expect("events");
    let written = events.iter().rfind(|event| event.2 == "Write_rows").expect("rows").4;
    copy_binary_logs(&source, logs.path()).await;
    std::fs::OpenOptions::new()
        .write(true)
        .open(&last)
        .and_then(|file| file.set_len(written))
        .expect("cut");
    let said = restored(&daemon, &server, &["--binlogs", &place]);
    assert!(said.contains("is reached"), "{said}");
    assert_eq!(rows(&server).await, "2");

    // A copy of the archive is not whole.
    archived(&daemon, &source).await;
    let indexes: Vec<_> = files(&history(archive.path()));
    let indexes: Vec<_> =
        indexes.iter().filter(|file| file.extension().is_some_and(|end| end == "json")).collect();
    assert!(indexes.len() > 2, "{indexes:?}");
    std::fs::remove_file(indexes[indexes.len() - 2]).expect("removed");
    let server = Server::start("lacking", &[]);
    let said = not_restored(&daemon, &server, &[]);
    assert!(said.contains("it lacks") && said.contains("A file is missing"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_that_failed_leaves_nothing_to_a_server_that_is_made_again() {
    let (source, target) = Server::pair(&[], &[]);
    let archive = folder();
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let earlier = source.gtid_executed().await;
    source.exec("INSERT INTO d.t VALUES (1); INSERT INTO d.t VALUES (2)").await;
    let daemon = archiving(&source, &target, archive.path()).start();
    archived(&daemon, &source).await;
    let failing = Server::start("failing", &[]);
    restored(&daemon, &failing, &["--until", &earlier]);
    failing.exec("INSERT INTO d.t VALUES (2)").await;
    not_restored(&daemon, &failing, &[]);
    let left = daemon.state_dir().join("restore/test");
    assert!(left.join("relay").exists(), "for the next attempt");
    let again = Server::start("again", &[]);
    let said = restored(&daemon, &again, &["--until", &earlier]);
    assert_eq!(holds(&said), earlier);
    assert_eq!(again.value::<u8>("SELECT COUNT(*) FROM d.t").await, 0);
    assert!(!left.exists(), "it is removed at the end");
    // The first one continues where it was.
    failing.exec("DELETE FROM d.t WHERE id = 2").await;
    restored(&daemon, &failing, &[]);
    compare(&source, &failing).await;
}

/// Its own transactions would get GTIDs of the recording, and the recorded ones would be left out.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_server_with_the_uuid_of_one_in_the_recording_is_refused() {
    let (source, target) = Server::pair(&[], &[]);
    let (archive, binlogs) = (folder(), folder());
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let daemon = archiving(&source, &target, archive.path()).start();
    archived(&daemon, &source).await;
    copy_binary_logs(&source, binlogs.path()).await;
    let server = Server::start("restored", &[]);
    server.take_uuid_of(&source);
    let uuid: String = source.value("SELECT @@server_uuid").await;
    let place = binlogs.path().display().to_string();
    for more in [&["--plan"][..], &[], &["--binlogs", &place]] {
        let said = not_restored(&daemon, &server, more);
        for words in ["same server_uuid", &uuid, "remove auto.cnf"] {
            assert!(said.contains(words), "{words:?} is missing in {said}");
        }
    }
    assert_eq!(server.gtid_executed().await, "", "it was written to");
    server.take_new_uuid();
    restored(&daemon, &server, &[]);
    compare(&source, &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_does_not_wait_for_the_delay_of_its_channel() {
    let (source, target) = Server::pair(&[], &[]);
    let archive = folder();
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let daemon =
        archiving(&source, &target, archive.path()).set("applier.source_delay", "1h").start();
    archived(&daemon, &source).await;
    let server = Server::start("restored", &[]);
    let begun = Instant::now();
    restored(&daemon, &server, &[]);
    assert!(begun.elapsed() < DRAIN, "{:?}", begun.elapsed());
    compare(&source, &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_damaged_is_applied_where_events_have_no_checksum() {
    let (source, target) = Server::pair(&["--binlog-checksum=NONE"], &[]);
    let archive = folder();
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (v VARCHAR(99) PRIMARY KEY)").await;
    let daemon = archiving(&source, &target, archive.path()).start();
    archived(&daemon, &source).await;
    source.exec("INSERT INTO d.t VALUES ('the value that is damaged')").await;
    archived(&daemon, &source).await;
    let value = b"the value that is damaged";
    let find = |bytes: &[u8]| bytes.windows(value.len()).position(|window| window == value);
    let damaged = files(&history(archive.path())).into_iter().find_map(|file| {
        let bytes = std::fs::read(&file).expect("readable");
        find(&bytes).map(|at| (file, bytes, at))
    });
    let (file, whole, at) = damaged.expect("a file with the row");
    let mut bytes = whole.clone();
    bytes[at] ^= 1;
    std::fs::write(&file, bytes).expect("writable");
    let server = Server::start("restored", &[]);
    let said = not_restored(&daemon, &server, &[]);
    assert!(said.contains("SHA-256"), "{said}");
    assert_eq!(server.value::<u8>("SELECT COUNT(*) FROM d.t").await, 0);
    std::fs::write(&file, whole).expect("writable");
    restored(&daemon, &server, &[]);
    compare(&source, &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn account_management_is_restored_or_said_to_be_left_out() {
    let (source, target) = Server::pair(&[], &[]);
    let archive = folder();
    let daemon = archiving(&source, &target, archive.path()).start();
    source.exec("CREATE USER gone IDENTIFIED BY 'a'; CREATE USER stays IDENTIFIED BY 'old'").await;
    source.exec("DROP USER gone; ALTER USER stays IDENTIFIED BY 'new'").await;
    archived(&daemon, &source).await;
    let without = Server::start("without", &[]);
    let said = restored(&daemon, &without, &[]);
    assert!(said.contains("leaving out account management"), "{said}");
    assert!(said.contains("left out: 4 transactions with account management"), "{said}");
    let users = "SELECT COUNT(*) FROM mysql.user WHERE user IN ('gone', 'stays')";
    assert_eq!(without.value::<u8>(users).await, 0);
    let with = Server::start("with", &[]);
    let said = restored(&daemon, &with, &["--accounts"]);
    assert!(!said.contains("account management"), "{said}");
    assert_eq!(with.value::<u8>(users).await, 1);
    mysql_async::Conn::new(with.opts_as("stays", "new")).await.expect("the password of the source");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_removes_only_what_it_has_made() {
    let (source, target) = Server::pair(&[], &[]);
    let (archive, place) = (folder(), folder());
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let daemon = archiving(&source, &target, archive.path()).start();
    archived(&daemon, &source).await;
    let server = Server::start("restored", &[]);
    let of_daemon = daemon.state_dir().display().to_string();
    let identity = || std::fs::read(daemon.state_dir().join("test/replica_uuid"));
    let before = identity().expect("the daemon's");
    let said = not_restored(&daemon, &server, &["--state-dir", &of_daemon]);
    assert!(said.contains(&of_daemon) && said.contains("another --state-dir"), "{said}");
    assert_eq!(identity().expect("still there"), before);
    // The channel's state of another daemon.
    let (own, other) = (place.path().join("own"), place.path().join("other"));
    std::fs::create_dir_all(other.join("test/relay")).expect("created");
    let said = not_restored(&daemon, &server, &["--state-dir", &other.display().to_string()]);
    assert!(said.contains("other/test") && said.contains("another --state-dir"), "{said}");
    assert!(other.join("test/relay").exists());
    restored(&daemon, &server, &["--state-dir", &own.display().to_string()]);
    assert!(own.exists() && !own.join("test").exists(), "{:?}", files(&own));
    compare(&source, &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_document_work() {
    let (source, target) = Server::pair(&[], &[]);
    let (archive, exported, binlogs) = (folder(), folder(), folder());
    source.exec("CREATE DATABASE shop; CREATE TABLE shop.item (id INT PRIMARY KEY)").await;
    source.exec("INSERT INTO shop.item VALUES (1)").await;
    let daemon = archiving(&source, &target, archive.path()).start();
    archived(&daemon, &source).await;
    let server = Server::start("restored", &[]);
    let executed = source.gtid_executed().await;
    let data: String = source.value("SELECT @@datadir").await;
    std::fs::copy(Path::new(&data).join("binlog.000001"), binlogs.path().join("binlog.000001"))
        .expect("copied");
    let out = exported.path().join("out");
    let real = |line: &str| {
        line.replace("--channel shop", "--channel test")
            .replace("127.0.0.1:3308", &format!("127.0.0.1:{}", server.port))
            .replace("8d1c9a32-6a0f-11f0-9c3e-0242ac110002:1-1200", &executed)
            .replace("/backup/binlogs", &binlogs.path().display().to_string())
            .replace("/tmp/binlogs", &out.display().to_string())
    };
    // The keys are those of the reference.
    let table: toml::Table =
        Guide::section("archive.md", "Switch it on").take("toml").parse().expect("TOML");
    assert!(table["channel"]["archive"]["url"].is_str());
    let blocks = [
        Guide::section("archive.md", "See whether it works").take("sh"),
        Guide::section("archive.md", "Keep what backups need").take("sh"),
        Guide::section("archive.md", "Take files out").take("sh"),
    ];
    let mut restore = Guide::section("archive.md", "Restore");
    for block in blocks.into_iter().chain([restore.take("sh"), restore.take("sh")]) {
        for line in block.lines().map(real) {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[0] {
                "csa-daemon" => drop(daemon.commanded(&words[1..])),
                "mysqlbinlog" => drop(mysqlbinlog(&files(&out))),
                other => panic!("{other}: {line}"),
            }
        }
    }
    assert_eq!(server.value::<u8>("SELECT COUNT(*) FROM shop.item").await, 1);
}
