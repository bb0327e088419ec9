//! The corners of what a MySQL source can write in row format, one by one.

mod beside;
mod bookkeeping;
mod definitions;
mod engines;
mod half_written;
mod history;
mod keys;
mod sessions;
mod stream;
mod targets;
mod types;

use csa_tests::{Compared, Daemon, DaemonBuilder, Server, compare};
use mysql_async::prelude::Queryable as _;

use crate::{DRAIN, EXECUTORS};

/// A source, a target, and a daemon between them. The tests write in schema `c`.
struct Pair {
    source: Server,
    target: Server,
    daemon: Daemon,
}

impl Pair {
    async fn start(source: &[&str], target: &[&str]) -> Self {
        Self::start_with(EXECUTORS[0], source, target).await
    }

    /// Starts them with these keys of the channel set.
    async fn start_set(keys: &[(&str, toml::Value)]) -> Self {
        let (source, target) = Server::pair(&[], &[]);
        let builder = Daemon::builder(&source, &target);
        let set = |builder: DaemonBuilder, (key, value): &(&str, toml::Value)| {
            builder.set(key, value.clone())
        };
        let daemon = keys.iter().fold(builder, set).start();
        source.exec("CREATE DATABASE c").await;
        Self { source, target, daemon }
    }

    async fn start_with(executor: &str, source: &[&str], target: &[&str]) -> Self {
        let (source, target) = Server::pair(source, target);
        let daemon = Daemon::builder(&source, &target).set("applier.executor", executor).start();
        source.exec("CREATE DATABASE c").await;
        Self { source, target, daemon }
    }

    /// Runs statements on the source, in one session.
    async fn run<S: AsRef<str>>(&self, statements: impl IntoIterator<Item = S>) {
        run(&self.source, statements).await;
    }

    /// Expects that everything has arrived, nothing else is there, and no group met rows of another.
    async fn equal(&self) -> Compared {
        self.daemon.wait_drained(&self.source, &self.target, DRAIN).await;
        let compared = compare(&self.source, &self.target).await;
        assert_eq!(self.daemon.status()["channels"][0]["state"], "running");
        let repaired = self.daemon.log().contains("applying its transactions one by one");
        assert!(!repaired, "a group met rows of another\n{}", self.daemon.log_tail());
        compared
    }

    /// Runs the statements while the daemon is down, so that they share groups.
    async fn run_as_backlog<S: AsRef<str>>(&self, statements: impl IntoIterator<Item = S>) {
        self.daemon.wait_drained(&self.source, &self.target, DRAIN).await;
        self.daemon.kill9();
        self.run(statements).await;
        self.daemon.start_again();
    }
}

/// Runs statements in one session in schema `c`.
async fn run<S: AsRef<str>>(server: &Server, statements: impl IntoIterator<Item = S>) {
    let mut conn = server.conn().await;
    conn.query_drop("USE c").await.expect("the schema is there");
    for statement in statements {
        let statement = statement.as_ref();
        let outcome = conn.query_drop(statement).await;
        let shown: String = statement.chars().take(300).collect();
        outcome.unwrap_or_else(|error| panic!("on {}: {error}\n{shown}", server.name));
    }
    conn.disconnect().await.expect("disconnects");
}

/// docs/coverage.md must not name a test that was removed or renamed.
#[test]
fn every_test_that_the_documentation_names_exists() {
    fn sources(directory: &std::path::Path, all: &mut String) {
        for entry in std::fs::read_dir(directory).expect("the tests' sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                sources(&path, all);
            } else {
                all.push_str(&std::fs::read_to_string(&path).expect("a source file"));
            }
        }
    }
    let mut all = String::new();
    sources(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e"), &mut all);
    let table = include_str!("../../../docs/coverage.md");
    let rows = table.lines().filter(|line| line.starts_with("| ")).skip(2);
    let named = rows.filter_map(|row| row.split('|').nth_back(1)).flat_map(|tests| {
        tests.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()
    });
    let mut count = 0;
    for test in named {
        assert!(all.contains(&format!("fn {test}()")), "docs/coverage.md names {test}");
        count += 1;
    }
    assert!(count > 50, "{count}");
}
