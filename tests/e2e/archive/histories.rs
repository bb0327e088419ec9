//! Restores from the archive of a source that was set back, and gave the GTIDs that it lost to other transactions.

use csa_tests::{Server, compare};
use rustix::process::{Pid, Signal, kill_process};

use super::alone::{alone, not_restored_alone, restored_alone};
use super::*;
use crate::wait_state;

async fn insert(source: &Server, ids: std::ops::Range<u32>) {
    for id in ids {
        source.exec(&format!("INSERT INTO d.t VALUES ({id})")).await;
    }
}

async fn rows(server: &Server) -> String {
    server.value("SELECT GROUP_CONCAT(id ORDER BY id) FROM d.t").await
}

/// Returns the names of the histories, the oldest first.
fn names(archive: &Path) -> Vec<String> {
    let mark = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).expect("readable");
        let mark: Value = serde_json::from_str(&text).expect("a mark");
        mark["history"].as_str().expect("a name").to_owned()
    };
    files(&archive.join("test/histories")).iter().map(mark).collect()
}

/// The archive of a source that was set back, and the daemon that has written it.
struct SetBack {
    daemon: Daemon,
    _archive: TempDir,
    names: Vec<String>,
    /// The transactions that the source had where it was set back to: one server's, from 1 to a number.
    common: String,
    uuid: String,
    last_common: u64,
}

impl SetBack {
    /// Archives the rows 0 to 2 and 10 to 15, sets the source back to the row 2, and archives 20 to 23 in their place.
    async fn make(source: &Server) -> Self {
        let archive = folder();
        source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
        insert(source, 0..3).await;
        let daemon = alone(source, archive.path()).start();
        archived(&daemon, source).await;
        assert!(daemon.terminate().success());
        let common = source.gtid_executed().await;
        source.stop();
        source.save_data();
        source.restart();
        daemon.start_again();
        insert(source, 10..16).await;
        archived(&daemon, source).await;
        assert!(daemon.terminate().success());
        source.stop();
        source.put_back_data();
        source.restart();
        insert(source, 20..24).await;
        // As the document says: the folder of the channel is removed, and another history begins.
        std::fs::remove_dir_all(daemon.state_dir().join("test")).expect("removed");
        daemon.set("applier.start_from", common.as_str());
        daemon.start_again();
        archived(&daemon, source).await;
        let names = names(archive.path());
        assert_eq!(names.len(), 2, "{}", daemon.log_tail());
        let (uuid, last) = common.rsplit_once(":1-").expect("one interval");
        let (uuid, last_common) = (uuid.to_owned(), last.parse().expect("a number"));
        Self { daemon, _archive: archive, names, common, uuid, last_common }
    }

    /// Returns the transactions of the source up to this many after those that both histories have.
    fn until(&self, more: u64) -> String {
        format!("{}:1-{}", self.uuid, self.last_common + more)
    }

    #[track_caller]
    fn restored(&self, server: &Server, more: &[&str]) {
        restored_alone(&self.daemon, server, more);
    }

    /// The restore is refused, and names both histories.
    #[track_caller]
    fn in_doubt(&self, server: &Server, more: &[&str]) {
        let said = not_restored_alone(&self.daemon, server, more);
        for word in [self.names[0].as_str(), &self.names[1], "--history"] {
            assert!(said.contains(word), "{word}: {said}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn histories_of_a_source_that_was_set_back_are_never_mixed() {
    let source = Server::start("source", &[]);
    let back = SetBack::make(&source).await;
    let [first, second] = &back.names[..] else { unreachable!("two") };

    // A restore of the first one that ends early, and is continued.
    let server = Server::start("first", &[]);
    back.restored(&server, &["--history", first, "--until", &back.until(2)]);
    assert_eq!(rows(&server).await, "0,1,2,10,11");
    back.in_doubt(&server, &[]);
    back.in_doubt(&server, &["--until", &back.until(4)]);
    assert_eq!(rows(&server).await, "0,1,2,10,11");
    back.restored(&server, &["--history", first]);
    assert_eq!(rows(&server).await, "0,1,2,10,11,12,13,14,15");
    back.in_doubt(&server, &[]);

    // Up to the place where they part, there is no doubt; from there on only the newest one has what the source has now.
    let server = Server::start("second", &[]);
    back.in_doubt(&server, &[]);
    back.restored(&server, &["--until", &back.common]);
    assert_eq!(rows(&server).await, "0,1,2");
    back.in_doubt(&server, &["--until", &back.until(2)]);
    back.in_doubt(&server, &["--until", "2100-01-01T00:00:00Z"]);
    back.restored(&server, &[]);
    compare(&source, &server).await;
    back.in_doubt(&server, &[]);
    back.restored(&server, &["--history", second]);
    compare(&source, &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn histories_are_not_exported_together() {
    let source = Server::start("source", &[]);
    let back = SetBack::make(&source).await;
    let place = folder();
    let out = place.path().join("out");
    let path = out.display().to_string();
    let export = ["archive", "export", path.as_str()];
    let said = back.daemon.command(&export);
    assert_eq!(said.code, Some(2), "{said:?}");
    for word in [back.names[0].as_str(), &back.names[1], "--history"] {
        assert!(said.error.contains(word), "{word}: {said:?}");
    }
    assert!(!out.exists(), "nothing is written");
    let newest = &back.names[1];
    back.daemon.commanded(&[&export[..], &["--history", newest]].concat());
    let names: Vec<_> = files(&out)
        .iter()
        .map(|file| file.file_name().expect("a name").to_string_lossy().into_owned())
        .collect();
    assert_eq!(names.first(), Some(&format!("{newest}.00000001")), "{names:?}");
}

/// The target is made again, as the error says, and has the transactions whose GTIDs the archive knows from others.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_new_copy_of_a_source_that_was_set_back_begins_another_history() {
    let (source, target) = Server::pair(&[], &[]);
    let archive = folder();
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let daemon = archiving(&source, &target, archive.path())
        .set("source.user", "admin")
        .set("source.password", "admin_pw")
        .start();
    insert(&source, 0..3).await;
    archived(&daemon, &source).await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    source.stop();
    source.save_data();
    source.restart();
    insert(&source, 10..16).await;
    archived(&daemon, &source).await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    assert!(daemon.terminate().success());
    source.stop();
    source.put_back_data();
    source.restart();
    insert(&source, 20..40).await;
    daemon.start_again();
    wait_state(&daemon, 0, "failed").await;
    let error = daemon.status()["channels"][0]["last_error"]["message"].to_string();
    assert!(error.contains("docs/provisioning.md#copy-again"), "{error}");
    assert_eq!(names(archive.path()).len(), 1);
    daemon.commanded(&["stop", "--receiving"]);
    target.exec("DROP DATABASE d; DELETE FROM csa.checkpoint").await;
    tokio::task::block_in_place(|| daemon.commanded(&["copy", "--channel", "test"]));
    daemon.commanded(&["restart"]);
    insert(&source, 40..45).await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    archived(&daemon, &source).await;
    let names = names(archive.path());
    assert_eq!(names.len(), 2, "{}", daemon.log_tail());
    daemon.commanded(&["archive", "verify"]);
    // The old transactions and then the new ones would be neither of the two.
    let server = Server::start("restored", &[]);
    let said = not_restored(&daemon, &server, &[]);
    assert!(names.iter().all(|name| said.contains(name)), "{said}");
}

fn signal(server: &Server, signal: Signal) {
    let pid = i32::try_from(server.pid()).ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(pid, signal).expect("signalled");
}

/// The last file begins with what the source still has.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_source_that_was_set_back_within_the_last_file_begins_another_history() {
    let source = Server::start("source", &[]);
    let archive = folder();
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let daemon = alone(&source, archive.path()).set("archive.interval", "3s").start();
    archived(&daemon, &source).await;
    assert!(daemon.terminate().success());
    let before_last = source.gtid_executed().await;
    insert(&source, 0..3).await;
    // A snapshot of the disk: a restart would begin another binary log, and with it another file of the archive.
    signal(&source, Signal::STOP);
    tokio::time::sleep(Duration::from_secs(1)).await;
    source.save_data();
    signal(&source, Signal::CONT);
    insert(&source, 10..13).await;
    let indexes = || {
        let all = files(&history(archive.path())).into_iter();
        all.filter(|file| file.extension().is_some_and(|extension| extension == "json")).count()
    };
    let files_before = indexes();
    // All of it comes at once.
    daemon.start_again();
    archived(&daemon, &source).await;
    assert_eq!(indexes(), files_before + 1);
    assert!(daemon.terminate().success());
    source.stop();
    source.put_back_data();
    source.restart();
    insert(&source, 20..30).await;
    // The daemon moves to another host.
    std::fs::remove_dir_all(daemon.state_dir().join("test")).expect("removed");
    daemon.start_again();
    archived(&daemon, &source).await;
    assert_eq!(names(archive.path()).len(), 2, "{}", daemon.log_tail());
    let server = Server::start("restored", &[]);
    restored_alone(&daemon, &server, &["--until", &before_last]);
    restored_alone(&daemon, &server, &[]);
    compare(&source, &server).await;
}
