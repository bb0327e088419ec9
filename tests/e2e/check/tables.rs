//! The findings about the tables of both sides.

use csa_tests::{Daemon, Server};

use super::{FIT, TRUST, check, check_tables};

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_both_sides() {
    let (source, target) = Server::pair(&[], &FIT);
    let both = "CREATE DATABASE d; USE d; \
        CREATE TABLE same (id INT PRIMARY KEY, s VARCHAR(9), UNIQUE (s)); \
        CREATE TABLE keyless (a INT, UNIQUE (a)); \
        CREATE TABLE a (id INT PRIMARY KEY, b INT, KEY (b)); \
        CREATE TABLE b (id INT PRIMARY KEY, a INT, \
          FOREIGN KEY (a) REFERENCES a (id) ON DELETE CASCADE); \
        CREATE DATABASE off; CREATE TABLE off.keyless (a INT)";
    source.exec(both).await;
    source
        .exec(
            "USE d; CREATE TABLE widened (id INT PRIMARY KEY, v INT, w INT); \
             CREATE TABLE keyed (id INT PRIMARY KEY, u INT, UNIQUE (u)); \
             CREATE TABLE plain (id INT PRIMARY KEY); CREATE TABLE off.missing (id INT PRIMARY KEY)",
        )
        .await;
    let many: String =
        (0..12).map(|n| format!("CREATE TABLE d.m{n:02} (id INT PRIMARY KEY);")).collect();
    source.exec(&many).await;
    target.exec(both).await;
    target
        .exec(
            "USE d; CREATE TABLE widened (id INT PRIMARY KEY, v BIGINT, x INT); \
             CREATE TABLE keyed (id INT PRIMARY KEY, u INT, UNIQUE again (id, u)); \
             CREATE TABLE plain (id INT PRIMARY KEY) ENGINE=MyISAM; \
             CREATE TRIGGER fires BEFORE INSERT ON same FOR EACH ROW SET NEW.s = 'x'; \
             CREATE TABLE only_there (a INT) ENGINE=MyISAM",
        )
        .await;
    let here = || {
        Daemon::builder(&source, &target)
            .set("applier.start_from", "source")
            .set("applier.replicate_ignore_db", vec!["off"])
            // The sandbox's account may change the target's accounts.
            .set("applier.replicate_accounts", true)
    };
    let found = check_tables(here());
    found.says("tables.missing", "error", &["12 tables are not", "d.m00", "d.m09", "stops"]);
    let missing = found.of("tables.missing");
    assert_eq!(
        (missing["names"].as_array().map(Vec::len), &missing["names_total"]),
        (Some(10), &12.into())
    );
    assert!(!missing.to_string().contains("d.m10") && !missing.to_string().contains("off."));
    let widened = "d.widened (column v is int on the source, bigint on the target; column w is only \
                   on the source; column x is only on the target)";
    found.says("tables.columns", "warning", &["1 table has", widened]);
    let keys = "d.keyed ((id, u) only there; (u) only on the source)";
    found.says("tables.unique_keys", "warning", &["1 table has", keys]);
    let engine = found.says("tables.engines", "warning", &["d.plain (MyISAM)", "applied alone"]);
    found.says("tables.primary_key", "warning", &["1 table has", "\"names\":[\"d.keyless\"]"]);
    found.is_fine(&["tables.triggers", "tables.cascade_cycles", "tables.visible"]);
    found.is_fine(&["tables.missed_cascades"]);
    found.is_fine(&["tables.collations", "tables.schemas", "target.lower_case_table_names"]);
    assert!(found.of("tables.cascades")["text"].to_string().contains("1 foreign key"));

    target.exec("ALTER DATABASE d COLLATE latin1_bin").await;
    let schema = "d (latin1_bin instead of utf8mb4_0900_ai_ci)";
    let fix = "ALTER DATABASE `d` COLLATE utf8mb4_0900_ai_ci";
    check_tables(here()).says("tables.schemas", "warning", &["1 schema has", schema, fix]);
    target.exec(fix).await;

    let by_sql = check_tables(here().set("applier.executor", "sql"));
    let trigger = by_sql.says("tables.triggers", "warning", &["fires of d.same", "1 trigger"]);

    // With a renamed schema, and with one table only.
    let renamed = here()
        .set("applier.replicate_rewrite_db", "d = \"copy\"".parse::<toml::Table>().expect("TOML"));
    check_tables(renamed).says("tables.missing", "error", &["d.a -> copy.a"]);
    let part = check_tables(here().set("applier.replicate_do_table", vec!["d.same"]));
    assert_eq!((part.errors(), part.at("warning")), (vec![], vec![]), "{:#?}", part.findings);

    target.exec(&many).await;
    target.exec(&engine).await;
    target.exec(&trigger).await;
    for statement in [
        "ALTER TABLE d.widened MODIFY v INT, CHANGE x w INT",
        "ALTER TABLE d.keyed DROP KEY again, ADD UNIQUE other_name (u)",
        "ALTER TABLE d.keyless MODIFY a INT NOT NULL",
    ] {
        target.exec(statement).await;
    }
    source.exec("ALTER TABLE d.keyless MODIFY a INT NOT NULL").await;
    let circle = "ALTER TABLE d.a ADD FOREIGN KEY (b) REFERENCES d.b (id) ON UPDATE CASCADE";
    source.exec(circle).await;
    let found = check_tables(here().set("applier.executor", "sql"));
    assert_eq!(found.errors(), [""; 0], "{:#?}", found.findings);
    assert_eq!(found.at("warning"), ["tables.cascade_cycles"], "{:#?}", found.findings);
    found.says("tables.cascade_cycles", "warning", &["[\"d.a\",\"d.b\"]", "1032"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mariadb_target_is_looked_at_as_what_it_is() {
    let source = Server::start("source", &[]);
    let target = Server::start_mariadb("target", &[TRUST]);
    let table = "CREATE DATABASE d; \
        CREATE TABLE d.t (id INT PRIMARY KEY, j JSON, s VARCHAR(9) COLLATE utf8mb4_bin)";
    source.exec(table).await;
    let here = || Daemon::builder(&source, &target).set("applier.start_from", "source");
    check_tables(here()).says("tables.missing", "error", &["d.t"]);
    target.exec(table).await;
    let found = check_tables(here());
    assert_eq!(found.errors(), [""; 0], "{:#?}", found.findings);
    // MariaDB's default packet is a quarter of MySQL's.
    let warnings = ["target.version", "target.max_allowed_packet"];
    assert_eq!(found.at("warning"), warnings, "{:#?}", found.findings);
    found.is_fine(&["target.privileges", "tables.columns", "tables.unique_keys", "channel.start"]);
    let fix = found.says("target.max_allowed_packet", "warning", &["permits larger ones"]);
    target.exec(&fix).await;
    check(here()).is_fine(&["target.max_allowed_packet"]);
    let refused = check(here().set("applier.executor", "row-image"));
    refused.says("target.options", "error", &["MariaDB", "\\\"auto\\\""]);
}
