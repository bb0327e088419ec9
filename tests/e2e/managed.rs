//! Managed services: accounts with exactly the privileges that the services document, on MySQL. The
//! statements that make the channel's accounts are those of docs/managed.md, run by the service's
//! administrator.

use std::time::Duration;

use csa_tests::{Compare, Compared, Daemon, DaemonBuilder, Guide, Server};
use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use serde_json::Value;

use crate::versions::{end, load, verify};
use crate::{DRAIN, wait_state};

/// Static privileges of an administrator there; all four services have them.
const STATIC: &str = "SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, RELOAD, PROCESS, REFERENCES, INDEX, ALTER, \
     SHOW DATABASES, CREATE TEMPORARY TABLES, LOCK TABLES, EXECUTE, REPLICATION SLAVE, REPLICATION CLIENT, \
     CREATE VIEW, SHOW VIEW, CREATE ROUTINE, ALTER ROUTINE, CREATE USER, EVENT, TRIGGER, CREATE ROLE, DROP ROLE";
/// Password of the accounts in the document.
const PASSWORD: &str = "change me";

/// A service, at a version that the sandbox has.
struct Service {
    profile: &'static str,
    /// The sandbox's version; empty for the newest.
    version: &'static str,
    /// Dynamic privileges of an administrator, which he can grant.
    dynamic: &'static str,
    options: &'static [&'static str],
    /// A definition runs under its GTID, so the daemon may be killed in the middle of one.
    statement_gtids: bool,
    executor: &'static str,
    /// Definers are other accounts.
    sets_definers: bool,
}

const RDS: Service = Service {
    profile: "rds-mysql",
    version: "",
    dynamic: "APPLICATION_PASSWORD_ADMIN, FLUSH_OPTIMIZER_COSTS, FLUSH_PRIVILEGES, FLUSH_STATUS, FLUSH_TABLES, \
         FLUSH_USER_RESOURCES, ROLE_ADMIN, SENSITIVE_VARIABLES_OBSERVER, SESSION_VARIABLES_ADMIN, \
         SET_ANY_DEFINER, SHOW_ROUTINE, XA_RECOVER_ADMIN",
    options: &["--log_bin_trust_function_creators=ON"],
    statement_gtids: true,
    executor: "sql",
    sets_definers: true,
};
const AURORA: Service = Service {
    profile: "aurora-mysql",
    version: "8.0.31",
    dynamic: "APPLICATION_PASSWORD_ADMIN, CONNECTION_ADMIN, ROLE_ADMIN, SESSION_VARIABLES_ADMIN, SET_USER_ID, \
         SHOW_ROUTINE, XA_RECOVER_ADMIN",
    options: &["--log_bin_trust_function_creators=ON"],
    statement_gtids: true,
    executor: "sql",
    sets_definers: true,
};
const CLOUD_SQL: Service = Service {
    profile: "cloud-sql",
    version: "8.0.31",
    dynamic: "APPLICATION_PASSWORD_ADMIN, CONNECTION_ADMIN, ROLE_ADMIN, SET_USER_ID, XA_RECOVER_ADMIN",
    options: &["--log_bin_trust_function_creators=ON"],
    statement_gtids: false,
    executor: "sql",
    sets_definers: true,
};
const AZURE: Service = Service {
    profile: "azure-mysql",
    version: "",
    dynamic: "REPLICATION_APPLIER, ROLE_ADMIN, SESSION_VARIABLES_ADMIN, SHOW_ROUTINE, XA_RECOVER_ADMIN",
    options: &["--log_bin_trust_function_creators=ON", "--sql_generate_invisible_primary_key=ON"],
    statement_gtids: true,
    executor: "row-image",
    sets_definers: false,
};

const SERVICES: [&Service; 4] = [&RDS, &AURORA, &CLOUD_SQL, &AZURE];

/// Returns the tables in schema `mysql` that the service changes and no administrator may write.
fn no_service_tables() -> toml::Value {
    let mut guide = Guide::section("managed.md", "The source");
    let block = guide.rest().into_iter().find(|block| block.info == "toml").expect("TOML");
    let keys: toml::Table = block.text.parse().expect("TOML");
    keys["channel"]["applier"]["replicate_wild_ignore_table"].clone()
}

/// The commands at the beginning, against a channel between servers of a service.
fn check_as_written(daemon: &Daemon) {
    let commands = Guide::section("managed.md", "").take("sh");
    assert_eq!(commands.lines().count(), 2, "{commands}");
    for line in commands.lines() {
        let command = line.split('#').next().unwrap_or_default();
        let mut words = command.split_whitespace();
        assert_eq!(words.next(), Some("csa-daemon"), "{line}");
        let words: Vec<&str> = words.collect();
        let said = tokio::task::block_in_place(|| daemon.command(&words));
        assert_eq!(said.code, Some(0), "{line}: {said:?}");
        assert!(said.out.contains("service"), "{line}: {said:?}");
    }
}

impl Service {
    /// Returns the statements of docs/managed.md for this service and every other.
    fn statements(&self, side: &str) -> String {
        let mut guide = match side {
            "source" => Guide::section("managed.md", "The source"),
            _ => Guide::section("managed.md", "The target"),
        };
        let mut found = String::new();
        for block in guide.rest() {
            match block.info.split(' ').collect::<Vec<_>>()[..] {
                ["sql", who, on] if on == side => {
                    let is_tested = SERVICES.iter().any(|service| service.profile == who);
                    assert!(is_tested || who == "all", "{who} is tested nowhere");
                    if who == "all" || who == self.profile {
                        found += &block.text;
                    }
                }
                // The block shows keys of the channel.
                ["toml"] => {}
                _ => panic!("a block that nobody runs: {block:?}"),
            }
        }
        assert!(!found.is_empty(), "no statements for the {side}");
        found
    }

    fn start(&self, name: &str) -> Server {
        match self.version {
            "" => Server::start(name, self.options),
            version => Server::start_version(name, version, self.options),
        }
    }

    /// Makes the server one of the service: its administrator creates the channel's account, and nobody
    /// else is there but an application.
    async fn take_over(&self, server: &Server, side: &str) {
        let dynamic = self.dynamic;
        server
            .exec(&format!(
                "SET GLOBAL partial_revokes=ON; SET SESSION sql_log_bin=0; \
                 DROP USER repl@'%', csa@'%'; \
                 CREATE USER chief@'%' IDENTIFIED BY 'chief_pw'; \
                 GRANT {STATIC} ON *.* TO chief@'%' WITH GRANT OPTION; \
                 GRANT {dynamic} ON *.* TO chief@'%' WITH GRANT OPTION; \
                 REVOKE INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, REFERENCES, TRIGGER ON mysql.* \
                  FROM chief@'%'; \
                 CREATE USER app@'%' IDENTIFIED BY 'app_pw'; \
                 GRANT ALL PRIVILEGES ON v_7.* TO app@'%'; GRANT XA_RECOVER_ADMIN ON *.* TO app@'%'"
            ))
            .await;
        let mut chief = Conn::new(server.opts_as("chief", "chief_pw")).await.expect("logs in");
        // Accounts of the source are none of the target's.
        let sets_log = chief.query_drop("SET SESSION sql_log_bin=0").await;
        assert_eq!(sets_log.is_ok(), dynamic.contains("SESSION_VARIABLES_ADMIN"), "{sets_log:?}");
        let statements = self.statements(side);
        chief.query_drop(&statements).await.unwrap_or_else(|error| panic!("{error}\n{statements}"));
        let refused = chief.query_drop("SET PERSIST max_connections=200").await;
        assert!(refused.is_err(), "an administrator of {} has too much", self.profile);
    }

    fn channel(&self, source: &Server, target: &Server) -> DaemonBuilder {
        Daemon::builder(source, target)
            .set("source.user", "repl")
            .set("source.password", PASSWORD)
            .set("source.tls", "required")
            .set("target.user", "csa")
            .set("target.password", PASSWORD)
            .set("target.tls", "required")
            .set("applier.replicate_wild_ignore_table", no_service_tables())
    }
}

/// The findings of `check --connect --profile`.
struct Checked(Vec<Value>);

impl Checked {
    fn of(daemon: &Daemon, profile: &str) -> Self {
        let arguments = ["check", "--connect", "--json", "--profile", profile];
        let said = tokio::task::block_in_place(|| daemon.command(&arguments));
        let json: Value =
            serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {said:?}"));
        Self(json["channels"][0]["findings"].as_array().expect("findings").clone())
    }

    #[track_caller]
    fn one(&self, check: &str) -> &Value {
        let found = self.0.iter().find(|finding| finding["check"] == check);
        found.unwrap_or_else(|| panic!("no {check} in {:#?}", self.0))
    }

    /// Expects the level, and the words in the text or the fixes.
    #[track_caller]
    fn says(&self, check: &str, level: &str, words: &[&str]) {
        let finding = self.one(check);
        assert_eq!(finding["level"], level, "{finding:#}");
        let text = format!("{} {}", finding["text"], finding["fixes"]).replace("\\\"", "\"");
        for word in words {
            assert!(text.contains(word), "{word:?} is missing in {finding:#}");
        }
    }

    /// Nothing asks for what nobody may run there.
    fn is_possible(&self) {
        for finding in &self.0 {
            let fixes = finding["fixes"].to_string();
            for refused in ["SET PERSIST", "SET GLOBAL", "SUPER", "SYSTEM_"] {
                assert!(!fixes.contains(refused), "{finding:#}");
            }
        }
    }

    fn errors(&self) -> Vec<&Value> {
        self.0.iter().filter(|finding| finding["level"] == "error").collect()
    }
}

/// Without the privilege for `gtid_next` the statement is run by hand, and skipped.
fn says_how(why: &str, gtid: &str) -> bool {
    let ways = [format!("csa-daemon skip {gtid}"), format!("SET gtid_next='{gtid}'")];
    ways.iter().any(|way| why.contains(way))
}

async fn why_failed(daemon: &Daemon) -> (String, String) {
    wait_state(daemon, 0, "failed").await;
    let error = &daemon.status()["channels"][0]["last_error"];
    let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
    (text("message"), text("transaction"))
}

async fn equal(source: &Server, target: &Server) -> Compared {
    let compared = Compare::contents().ignore_schema("mysql").run(source, target).await;
    compared.unwrap_or_else(|difference| panic!("{difference}"))
}

/// A random load by an application, with the daemon ended in the middle; then all contents are compared.
async fn round_trip(service: &Service, source: &Server, target: &Server, daemon: &Daemon) {
    let seed = 7;
    let schema = "v_7";
    let tables = load::prepare(source, schema, seed, true).await;
    let kinds: &[u32] =
        if service.sets_definers { &load::EVERY_KIND } else { &load::WITHOUT_VIEWS };
    let app = source.opts_as("app", "app_pw");
    let changing = load::write_as(app.clone(), &tables, seed, kinds);
    tokio::join!(changing, end(daemon, Duration::from_millis(700), service.statement_gtids));
    if !service.statement_gtids {
        // All definitions are applied, so a kill can only hit rows.
        daemon.wait_drained(source, target, DRAIN).await;
    }
    let rows = load::write_as(app, &tables, seed, &[]);
    tokio::join!(rows, end(daemon, Duration::from_millis(400), true));
    // The service's own tables change all the time.
    source.exec("UPDATE mysql.heartbeat SET at = at + 1").await;
    daemon.wait_drained(source, target, DRAIN).await;
    let compared = equal(source, target).await;
    assert!(compared.rows > 100, "{compared:?}");
    verify(daemon, false);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn every_service_is_a_source_and_a_target() {
    for service in SERVICES {
        let started = std::time::Instant::now();
        replicates(service).await;
        println!("{}: equal, {:.1} s", service.profile, started.elapsed().as_secs_f32());
    }
}

async fn replicates(service: &Service) {
    let profile = service.profile;
    let (source, target) = Server::both(|| service.start("source"), || service.start("target"));
    service.take_over(&source, "source").await;
    service.take_over(&target, "target").await;
    source.exec("CREATE TABLE mysql.heartbeat (at INT PRIMARY KEY); INSERT INTO mysql.heartbeat VALUES (1)").await;
    let daemon = service.channel(&source, &target).build();
    let checked = Checked::of(&daemon, profile);
    assert!(checked.errors().is_empty(), "{profile}: {:#?}", checked.0);
    checked.is_possible();
    if profile == RDS.profile {
        check_as_written(&daemon);
    }
    for check in ["source.service", "target.service", "source.service_tables", "channel.start"] {
        checked.says(check, "ok", &[]);
    }
    let rows = if service.executor == "sql" {
        "grants REPLICATION_APPLIER to nobody"
    } else {
        "row images"
    };
    checked.says("target.executor", "ok", &[rows]);
    checked.says("target.account_privileges", "ok", &[]);
    daemon.start_again();
    round_trip(service, &source, &target, &daemon).await;
    let view = &daemon.status()["channels"][0];
    assert_eq!(view["applier"]["executor"], service.executor, "{profile}");

    // A definer that the account may not set.
    let named = if service.sets_definers { "root@localhost" } else { "app@'%'" };
    source.exec(&format!("CREATE DEFINER={named} VIEW v_7.foreign_view AS SELECT 1 AS one")).await;
    let (why, gtid) = why_failed(&daemon).await;
    assert!(why.contains("1227") && says_how(&why, &gtid), "{profile}: {why}");
    target.exec("CREATE VIEW v_7.foreign_view AS SELECT 1 AS one").await;
    daemon.commanded(&["skip", &gtid]);
    source
        .exec(
            "INSERT INTO mysql.heartbeat VALUES (100); CREATE TABLE v_7.after (id INT PRIMARY KEY)",
        )
        .await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    equal(&source, &target).await;

    distributed(service, &source, &target, &daemon).await;
}

/// XA is applied where a definition can have its GTID, and refused by name elsewhere.
async fn distributed(service: &Service, source: &Server, target: &Server, daemon: &Daemon) {
    source
        .exec(
            "XA START 'x'; INSERT INTO v_7.after VALUES (1); XA END 'x'; XA PREPARE 'x'; XA COMMIT 'x'",
        )
        .await;
    if !service.statement_gtids {
        let (why, _) = why_failed(daemon).await;
        assert!(why.contains("distributed transactions (XA) need a target"), "{why}");
        return;
    }
    daemon.wait_drained(source, target, DRAIN).await;
    equal(source, target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_service_refuses_has_a_fix_that_works_there() {
    let (source, target) = Server::both(|| RDS.start("source"), || RDS.start("target"));
    RDS.take_over(&source, "source").await;
    RDS.take_over(&target, "target").await;
    let with = |key: &str, value: &str| RDS.channel(&source, &target).set(key, value);
    for (key, value, does_without) in [
        ("applier.executor", "row-image", "executor = \"sql\""),
        ("applier.target_gtids", "mirror", "target_gtids = \"own\""),
    ] {
        let daemon = with(key, value).build();
        let checked = Checked::of(&daemon, "rds-mysql");
        let fix = format!("[channel.applier] {does_without}");
        checked.says("target.privileges", "error", &[&fix, "to nobody"]);
        checked.is_possible();
        // The start names it too.
        let why = daemon.start_refused().await;
        assert!(why.contains(does_without), "{why}");
    }

    // RDS keeps binary logs by a rule of its own.
    source
        .exec(
            "SET SESSION sql_log_bin=0; CREATE TABLE mysql.rds_configuration (name VARCHAR(100) PRIMARY KEY, \
             value VARCHAR(100), description VARCHAR(300)); \
             INSERT INTO mysql.rds_configuration VALUES ('binlog retention hours', NULL, '')",
        )
        .await;
    let channel = || RDS.channel(&source, &target).build();
    let procedure = "CALL mysql.rds_set_configuration('binlog retention hours', 168)";
    let retention = |words: &[&str], level: &str| {
        Checked::of(&channel(), "rds-mysql").says("source.binlog_retention", level, words);
    };
    retention(&["can't read", procedure], "warning");
    source.exec("SET SESSION sql_log_bin=0; GRANT SELECT ON mysql.* TO repl@'%'").await;
    retention(&["is NULL", procedure], "warning");
    source.exec("SET SESSION sql_log_bin=0; UPDATE mysql.rds_configuration SET value='168'").await;
    retention(&["168 hours"], "ok");

    // Settings are changed in the parameter group.
    target.exec("SET GLOBAL log_bin_trust_function_creators=OFF").await;
    source.exec("SET GLOBAL binlog_row_image=MINIMAL").await;
    let checked = Checked::of(&channel(), "rds-mysql");
    let group = "in the DB parameter group of the instance: ";
    let trust = format!("{group}log_bin_trust_function_creators = ON");
    checked.says("target.log_bin_trust_function_creators", "warning", &[&trust]);
    let image = format!("{group}binlog_row_image = FULL");
    checked.says("source.binlog_row_image", "warning", &[&image]);
    checked.is_possible();
    source.exec("SET GLOBAL binlog_row_image=FULL").await;
    target.exec("SET GLOBAL log_bin_trust_function_creators=ON").await;

    // The service's own tables stop a channel that does not leave them out.
    let daemon = RDS.channel(&source, &target).unset("applier.replicate_wild_ignore_table").start();
    let ignore = "replicate_wild_ignore_table = [\"mysql.%\"]";
    Checked::of(&daemon, "rds-mysql").says("source.service_tables", "warning", &[ignore]);
    source.exec("CREATE TABLE mysql.rds_heartbeat2 (id INT PRIMARY KEY, value BIGINT)").await;
    let (why, gtid) = why_failed(&daemon).await;
    let denied = why.contains("1142") && why.contains("rds_heartbeat2");
    assert!(denied && says_how(&why, &gtid), "{why}");
    daemon.set("applier.replicate_wild_ignore_table", no_service_tables());
    daemon.kill9();
    daemon.start_again();
    source
        .exec(
            "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); INSERT INTO d.t VALUES (1)",
        )
        .await;
    source.exec("INSERT INTO mysql.rds_heartbeat2 VALUES (1, 2)").await;
    // The service's own sessions log some of these as statements.
    source
        .exec(
            "SET SESSION binlog_format=STATEMENT; INSERT INTO mysql.rds_heartbeat2 VALUES (1, 3) ON DUPLICATE KEY \
             UPDATE value=3; DELETE FROM mysql.rds_heartbeat2 WHERE value=3",
        )
        .await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    equal(&source, &target).await;
    assert_eq!(target.value::<u64>("SELECT COUNT(*) FROM d.t").await, 1);

    // A server of one's own is not taken for one of the service.
    let own = Daemon::builder(&source, &target)
        .set("source.user", "repl")
        .set("source.password", PASSWORD);
    let own = own.set("target.user", "admin").set("target.password", "admin_pw").build();
    let checked = Checked::of(&own, "rds-mysql");
    checked.says(
        "target.service",
        "warning",
        &["SUPER", "which Amazon RDS for MySQL grants to nobody"],
    );
    let unknown =
        tokio::task::block_in_place(|| own.command(&["check", "--connect", "--profile", "rds"]));
    unknown.refused(2, &["known are rds-mysql, aurora-mysql, cloud-sql, azure-mysql"]);
}
