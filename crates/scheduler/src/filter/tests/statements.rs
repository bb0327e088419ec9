//! Verdicts on statements.

use csa_provider::binlog::{QueryCharset, QueryEvent, SessionContext};
use csa_provider::sql_text::Dialect;
use proptest::prelude::*;

use super::*;

const UTF8MB4: QueryCharset = QueryCharset { client: 255, connection: 255, server: 255 };

fn verdict_in(
    filters: &Filters,
    context: &SessionContext,
    database: &str,
    statement: &[u8],
) -> StatementVerdict {
    // The body of a query event, whose status variables the context stands for.
    let mut body = vec![0; 8];
    body.push(u8::try_from(database.len()).expect("short"));
    body.extend_from_slice(&[0; 4]);
    body.extend_from_slice(database.as_bytes());
    body.push(0);
    body.extend_from_slice(statement);
    let query = QueryEvent::parse(&body).expect("well-formed");
    let trigger_table =
        async |_: &str, name: &str| Ok(name.strip_prefix("on_").map(ToOwned::to_owned));
    now(filters.statement(&query, Dialect::of(context), trigger_table)).expect("answers")
}

fn verdict(filters: &Filters, database: &str, statement: &str) -> StatementVerdict {
    let context = SessionContext { charset: Some(UTF8MB4), ..SessionContext::default() };
    verdict_in(filters, &context, database, statement.as_bytes())
}

/// Returns `+` applied, `-` skipped, `!` refused.
fn sign(verdict: &StatementVerdict) -> char {
    match verdict {
        StatementVerdict::Apply => '+',
        StatementVerdict::Skip => '-',
        StatementVerdict::LeaveOutAccounts => 'a',
        StatementVerdict::LeaveOutOwn => 'c',
        StatementVerdict::Refuse(_) => '!',
    }
}

/// A source must not decide who may log in to the target.
#[test]
fn account_management_is_left_out_unless_asked_for() {
    let cautious = Filters::default();
    let open = filters(&[]);
    for statement in [
        "CREATE USER u IDENTIFIED BY 'x'",
        "create /* who */ user if not exists u",
        "ALTER USER root@localhost IDENTIFIED BY 'x'",
        "DROP USER IF EXISTS a, b",
        "RENAME USER a TO b",
        "CREATE ROLE r",
        "DROP ROLE r",
        "GRANT ALL ON *.* TO u",
        "GRANT r TO u",
        "GRANT SELECT (a) ON d.t TO u",
        "REVOKE ALL PRIVILEGES, GRANT OPTION FROM u",
        "SET PASSWORD FOR u = 'x'",
        "SET DEFAULT ROLE r TO u",
        "ALTER TABLE mysql.user COMMENT 'x'",
        "TRUNCATE TABLE `mysql`.`db`",
        "DROP TABLE mysql.host, mysql.proxy_priv",
        "OPTIMIZE TABLE mysql.db, mysql.engine_cost",
        "/*!50003 DROP USER u */",
    ] {
        assert_eq!(sign(&verdict(&cautious, "d", statement)), 'a', "{statement}");
        assert_eq!(sign(&verdict(&open, "d", statement)), '+', "{statement}");
    }
    assert_eq!(sign(&verdict(&cautious, "mysql", "TRUNCATE user")), 'a');
    // The other tables would differ from then on.
    for statement in
        ["DROP TABLE d.t, mysql.host", "RENAME TABLE mysql.user TO d.t, d.u TO mysql.user"]
    {
        assert_eq!(sign(&verdict(&cautious, "d", statement)), '!', "{statement}");
        assert_eq!(sign(&verdict(&open, "d", statement)), '+', "{statement}");
    }
    for statement in [
        "CREATE TABLE user (id INT)",
        "CREATE TABLE mysql.mine (id INT)",
        "CREATE VIEW role AS SELECT 1",
        "CREATE DEFINER=`u`@`%` PROCEDURE p() GRANT r TO u",
        "ALTER TABLE t COMMENT 'GRANT ALL ON *.* TO u'",
        "SET @a = 1",
        "CREATE SERVER s FOREIGN DATA WRAPPER mysql OPTIONS (USER 'u')",
        "FROBNICATE",
    ] {
        assert_eq!(sign(&verdict(&cautious, "d", statement)), '+', "{statement}");
    }
    // The rules decide as before about everything else.
    let named = FilterRules { accounts: false, ..rules(&["do_db=d"]) };
    let named = Filters::new(named, false);
    assert_eq!(sign(&verdict(&named, "other", "CREATE TABLE t (a INT)")), '-');
    assert_eq!(sign(&verdict(&named, "other", "DROP USER u")), 'a');
    // A character set with only its ASCII part readable.
    let gbk = QueryCharset { client: 28, connection: 28, server: 255 };
    let context = SessionContext { charset: Some(gbk), ..SessionContext::default() };
    let name = b"CREATE USER '\xc3\xfb\\'@'%'";
    assert_eq!(sign(&verdict_in(&cautious, &context, "d", name)), 'a');
    let name = b"CREATE DEFINER=`\xc3\xfb`@`%` PROCEDURE p() SELECT 1";
    assert_eq!(sign(&verdict_in(&cautious, &context, "d", name)), '+');
    // Rows.
    assert_eq!(cautious.table("mysql", "user"), None);
    assert_eq!(cautious.table("mysql", "global_grants"), None);
    assert!(open.table("mysql", "user").is_some());
    for (schema, table) in [("mysql", "time_zone"), ("d", "user")] {
        assert!(cautious.table(schema, table).is_some(), "{schema}.{table}");
    }
}

/// Rows of the grant tables count only then. Where they are left out, there is nothing to read again.
#[test]
fn privileges_are_read_again_where_accounts_are_replicated() {
    let cautious = Filters::default();
    for statement in ["FLUSH PRIVILEGES", "flush /* x */ status, privileges"] {
        assert_eq!(sign(&verdict(&cautious, "d", statement)), '-', "{statement}");
        for (rules, expected) in [
            (&[][..], '+'),
            (&["do_table=d.t"], '-'),
            (&["wild_do_table=mysql.%"], '+'),
            (&["wild_ignore_table=mysql.%"], '-'),
        ] {
            let found = sign(&verdict(&filters(rules), "d", statement));
            assert_eq!(found, expected, "{rules:?} {statement}");
        }
    }
    for statement in ["FLUSH TABLES", "FLUSH TABLES privileges", "FLUSH STATUS"] {
        assert_eq!(sign(&verdict(&filters(&[]), "d", statement)), '-', "{statement}");
    }
}

/// A key of another server is none of the target's, and the target may have no keyring.
#[test]
fn another_key_of_the_source_is_left_out() {
    for rules in [&[][..], &["do_db=d"], &["ignore_table=d.t"], &["rewrite_db=d>z"]] {
        for (statement, expected) in [
            ("ALTER INSTANCE ROTATE INNODB MASTER KEY", '-'),
            ("alter /* c */ instance rotate innodb master key", '-'),
            ("ALTER TABLE instance ADD a INT", '+'),
        ] {
            let found = sign(&verdict(&filters(rules), "d", statement));
            assert_eq!(found, expected, "{rules:?} {statement}");
        }
    }
}

#[test]
fn database_rules_look_at_the_default_database() {
    for (rule, database, statement, expected) in [
        ("do_db=a", "a", "CREATE TABLE t (id INT)", '+'),
        ("do_db=a", "b", "CREATE TABLE a.t (id INT)", '-'),
        ("do_db=a", "a", "CREATE TABLE b.t (id INT)", '+'),
        ("do_db=a", "a", "CREATE DATABASE a", '+'),
        ("do_db=a", "b", "DROP DATABASE b", '-'),
        ("ignore_db=b", "b", "CREATE TABLE a.t (id INT)", '-'),
        ("ignore_db=b", "a", "FROBNICATE", '+'),
        ("ignore_db=b", "", "CREATE USER u", '+'),
        ("do_db=a", "", "CREATE USER u", '-'),
    ] {
        let verdict = verdict(&filters(&[rule]), database, statement);
        assert_eq!(sign(&verdict), expected, "{rule} {database} {statement}: {verdict:?}");
    }
}

#[test]
fn table_rules_look_at_the_tables_of_a_statement() {
    let rules = filters(&["ignore_table=a.t", "wild_ignore_table=x.%"]);
    for (statement, expected) in [
        ("CREATE TABLE t (id INT)", '-'),
        ("CREATE TABLE u (id INT) COMMENT 'x.y'", '+'),
        ("create table if not exists `a`.`t` (id INT)", '-'),
        ("CREATE TABLE b.t LIKE a.t", '+'),
        ("CREATE TEMPORARY TABLE t (id INT)", '-'),
        ("ALTER TABLE t ADD v INT", '-'),
        ("ALTER TABLE u ADD rename_me INT, ADD KEY (id), RENAME COLUMN c TO t", '+'),
        ("ALTER TABLE u ADD exchange INT", '+'),
        ("ALTER TABLE t RENAME TO x.t, ADD v INT", '-'),
        ("ALTER TABLE u ADD $a$ INT, RENAME TO x.t, ADD KEY ($a$)", '!'),
        ("ALTER TABLE u RENAME AS t", '!'),
        ("ALTER TABLE t RENAME u", '!'),
        ("ALTER TABLE u EXCHANGE PARTITION p WITH TABLE t", '!'),
        ("DROP TABLE IF EXISTS `t` /* generated by server */", '-'),
        ("DROP TABLE `u`,`b`.`t` /* generated by server */", '+'),
        ("DROP TABLE u, t", '!'),
        ("DROP TABLE t, x.u", '-'),
        ("DROP TEMPORARY TABLE IF EXISTS t", '-'),
        ("RENAME TABLE u TO v", '+'),
        ("RENAME TABLE u TO v, t TO w", '!'),
        ("RENAME TABLE t TO x.t", '-'),
        ("RENAME USER u TO v", '+'),
        ("TRUNCATE t", '-'),
        ("DELETE FROM `a`.`t`", '-'),
        ("DELETE FROM `a`.`u`", '+'),
        ("TRUNCATE TABLE u", '+'),
        ("CREATE UNIQUE INDEX t ON u (id)", '+'),
        ("CREATE INDEX i ON t (id)", '-'),
        ("DROP INDEX i ON x.y", '-'),
        (
            "CREATE OR REPLACE ALGORITHM=MERGE DEFINER=`root`@`table` SQL SECURITY DEFINER VIEW t AS SELECT 1",
            '-',
        ),
        ("CREATE ALGORITHM=UNDEFINED DEFINER=CURRENT_USER() VIEW v AS SELECT * FROM t", '+'),
        ("DROP VIEW v, t", '!'),
        ("ALTER VIEW t AS SELECT 2", '-'),
        ("CREATE DEFINER=`root`@`%` TRIGGER x.g BEFORE INSERT ON x.t FOR EACH ROW SET @a=1", '-'),
        ("CREATE TRIGGER t BEFORE INSERT ON u FOR EACH ROW INSERT INTO t VALUES (1)", '+'),
        ("DROP TRIGGER on_t", '-'),
        ("DROP TRIGGER IF EXISTS on_u", '+'),
        ("DROP TRIGGER gone", '-'),
        ("CREATE PROCEDURE t() DROP TABLE t", '+'),
        ("DROP FUNCTION IF EXISTS x.f", '+'),
        ("CREATE EVENT t ON SCHEDULE EVERY 1 DAY DO DROP TABLE t", '+'),
        ("CREATE SPATIAL REFERENCE SYSTEM 1 NAME 'n' DEFINITION 'd'", '+'),
        ("ANALYZE NO_WRITE_TO_BINLOG TABLE u, t", '!'),
        ("OPTIMIZE TABLES t", '-'),
        ("FLUSH TABLES t", '-'),
        ("FLUSH PRIVILEGES", '+'),
        ("FLUSH TABLES privileges", '-'),
        ("/* x */ flush local status", '-'),
        ("GRANT SELECT (t), INSERT ON `a`.`t` TO `u`@`%`", '-'),
        ("GRANT SELECT ON TABLE u TO `u`@`%`", '+'),
        ("GRANT SELECT ON x.* TO `u`@`%`", '+'),
        ("GRANT ALL ON *.* TO `u`@`%`", '+'),
        ("REVOKE EXECUTE ON PROCEDURE x.p FROM `u`@`%`", '-'),
        ("GRANT `r` TO `u`@`%`", '+'),
        ("GRANT PROXY ON 'a'@'b' TO 'c'@'d'", '+'),
        ("CREATE USER 't'@'x.y' IDENTIFIED WITH 'p' AS 'DROP TABLE t'", '+'),
        ("SET PASSWORD FOR 'a'@'b'='x'", '+'),
        ("/*!80000 DROP TABLE t */", '-'),
        ("/* DROP TABLE u */ DROP -- u\n TABLE # u\n t", '-'),
        ("CACHE INDEX t IN c", '!'),
        ("CREATE SOMETHING NEW t", '!'),
        ("DROP TABLE `t", '!'),
        ("DROP TABLE", '!'),
    ] {
        let verdict = verdict(&rules, "a", statement);
        assert_eq!(sign(&verdict), expected, "{statement}: {verdict:?}");
    }
}

/// They would stand before real tables of these names.
#[test]
fn temporary_tables_are_left_out_whatever_the_rules_say() {
    for rules in [FilterRules::default(), rules(&["ignore_table=a.t"]), rules(&["do_db=a"])] {
        let filters = Filters::new(rules, false);
        for (statement, expected) in [
            ("CREATE TEMPORARY TABLE u (id INT)", '-'),
            ("create /* c */ temporary table if not exists a.u LIKE a.v", '-'),
            ("CREATE TEMPORARY TABLE csa.checkpoint (id INT)", '-'),
            ("DROP TEMPORARY TABLE IF EXISTS `u`,`v` /* generated by server */", '-'),
            // MySQL writes it where a session ends.
            ("DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `u`", '-'),
            ("CREATE TABLE u (temporary INT COMMENT 'TEMPORARY TABLE')", '+'),
            ("CREATE TABLE `TEMPORARY` (id INT)", '+'),
            ("DROP TABLE u /* TEMPORARY */", '+'),
            ("CREATE DEFINER=`temporary`@`%` PROCEDURE p() CREATE TEMPORARY TABLE u (id INT)", '+'),
        ] {
            let found = sign(&verdict(&filters, "a", statement));
            assert_eq!(found, expected, "{filters:?} {statement}");
        }
    }
}

#[test]
fn schemas_are_judged_by_wild_rules() {
    for (rule, name, expected) in [
        ("wild_do_table=a.%", "a", '+'),
        ("wild_do_table=a.%", "b", '-'),
        ("wild_do_table=a.t%", "a", '-'),
        ("wild_ignore_table=a.%", "a", '-'),
        ("wild_ignore_table=a.t%", "a", '+'),
        ("do_table=a.t", "b", '+'),
        ("ignore_table=a.t", "a", '+'),
    ] {
        for verb in ["CREATE DATABASE IF NOT EXISTS", "DROP SCHEMA", "ALTER DATABASE"] {
            let statement = format!("{verb} {name} /* x */");
            let verdict = verdict(&filters(&[rule]), name, &statement);
            assert_eq!(sign(&verdict), expected, "{rule} {statement}");
        }
    }
    // Database rules decide alone.
    let both = filters(&["do_db=a", "wild_do_table=b.%"]);
    assert_eq!(verdict(&both, "a", "CREATE DATABASE a"), StatementVerdict::Apply);
}

#[test]
fn accounts_are_changes_of_schema_mysql() {
    for (rule, expected) in [
        ("do_table=a.t", '-'),
        ("wild_do_table=a.%", '-'),
        ("wild_do_table=mysql.%", '+'),
        ("wild_ignore_table=mysql.%", '-'),
        ("ignore_table=mysql.user", '-'),
        ("do_table=mysql.db", '+'),
        ("ignore_table=a.t", '+'),
    ] {
        for statement in ["CREATE USER u", "DROP ROLE r", "GRANT ALL ON *.* TO u", "ALTER USER u"] {
            let verdict = verdict(&filters(&[rule]), "a", statement);
            assert_eq!(sign(&verdict), expected, "{rule} {statement}");
        }
    }
}

#[test]
fn statements_that_name_a_renamed_schema_are_refused() {
    let renaming = filters(&["rewrite_db=a>b,Ü>c"]);
    for (database, statement, expected) in [
        ("a", "CREATE TABLE t (id INT)", '+'),
        ("a", "CREATE TABLE b.t (id INT)", '+'),
        ("z", "CREATE TABLE a.t (id INT)", '!'),
        ("z", "CREATE TABLE `a` . t (id INT)", '!'),
        ("z", "CREATE TABLE Ü.t (id INT)", '!'),
        ("a", "CREATE DATABASE a", '!'),
        ("a", "ALTER DATABASE CHARACTER SET utf8mb4", '+'),
        ("z", "CREATE VIEW v AS SELECT 1 FROM a.t", '!'),
        ("z", "GRANT SELECT ON `a`.* TO u", '!'),
        ("z", "CREATE TABLE t (c INT COMMENT 'a.t') -- a.t", '+'),
        ("z", "CREATE TABLE t (`a` INT, b.x INT)", '+'),
        ("z", "CREATE TABLE A.t (id INT)", '+'),
        ("z", "CREATE DEFINER=root@a.b VIEW v AS SELECT 1", '+'),
    ] {
        let verdict = verdict(&renaming, database, statement);
        assert_eq!(sign(&verdict), expected, "{statement}: {verdict:?}");
    }
    let both = filters(&["rewrite_db=a>b", "do_db=b"]);
    assert_eq!(sign(&verdict(&both, "a", "DROP TABLE t")), '+');
    assert_eq!(sign(&verdict(&both, "z", "DROP TABLE a.t")), '-');
    // Escaped as a pattern.
    let escaped = filters(&["rewrite_db=a_b>c"]);
    assert_eq!(sign(&verdict(&escaped, "z", r"GRANT SELECT ON `a\_b`.* TO u")), '!');
}

/// A restarted source writes them for its MEMORY tables.
#[test]
fn statements_that_empty_a_table_of_a_renamed_schema_get_its_new_name() {
    let renaming = filters(&["rewrite_db=a>b`c"]);
    let text = |statement: &str| {
        let text = renaming.emptying(statement.as_bytes(), Dialect::default());
        text.map(|text| String::from_utf8(text).expect("UTF-8"))
    };
    for (statement, expected) in [
        ("DELETE FROM `a`.`t`", Some("DELETE FROM `b``c`.`t`")),
        ("TRUNCATE TABLE a.t", Some("TRUNCATE TABLE `b``c`.t")),
        ("TRUNCATE TABLE z.t", None),
        ("TRUNCATE TABLE t", None),
        ("DROP TABLE a.t", None),
    ] {
        assert_eq!(text(statement).as_deref(), expected, "{statement}");
    }
    for (rules, statement, expected) in [
        (&["rewrite_db=a>b"][..], "TRUNCATE TABLE a.t", '+'),
        (&["rewrite_db=a>b"], "DELETE FROM `a`.`t`", '+'),
        (&["rewrite_db=a>b", "ignore_table=b.t"], "TRUNCATE TABLE a.t", '-'),
        (&["rewrite_db=a>b", "ignore_table=a.t"], "TRUNCATE TABLE a.t", '+'),
        (&["rewrite_db=a>b"], "TRUNCATE TABLE a.t /* and others */, z.t", '!'),
    ] {
        let found = sign(&verdict(&filters(rules), "z", statement));
        assert_eq!(found, expected, "{rules:?} {statement}");
    }
}

#[test]
fn quotes_are_read_by_sql_mode_and_character_set() {
    let rules = filters(&["ignore_table=a.t,a.ß"]);
    let context = |sql_mode, client| SessionContext {
        sql_mode: Some(sql_mode),
        charset: Some(QueryCharset { client, ..UTF8MB4 }),
        ..SessionContext::default()
    };
    let ansi_quotes = 4;
    let no_escapes = 1 << 20;
    for (context, statement, expected) in [
        (context(0, 255), &b"DROP TABLE \"t\""[..], '!'),
        (context(ansi_quotes, 255), b"DROP TABLE \"a\".\"t\"", '-'),
        (context(0, 255), b"CREATE TABLE u (c INT COMMENT 'it''s \\' (', d INT)", '+'),
        (context(no_escapes, 255), b"ALTER TABLE u COMMENT '\\' RENAME t", '!'),
        (context(0, 255), b"ALTER TABLE u COMMENT '\\' RENAME t'", '+'),
        (context(0, 255), "DROP TABLE ß".as_bytes(), '-'),
        // latin1: the name can't be compared, unless it is ASCII.
        (context(0, 8), b"DROP TABLE \xdf", '!'),
        (context(0, 8), b"DROP TABLE t /* \xdf */", '-'),
        // sjis: the second byte of a character may be a backquote or a backslash.
        (context(0, 13), b"ALTER TABLE u COMMENT '\x83\\'", '+'),
        (context(0, 13), b"DROP TABLE `\x83`, t`", '!'),
        (context(0, 8), b"ALTER TABLE u COMMENT '\x83\\'", '!'),
        (context(0, 13), b"DROP TABLE t", '-'),
    ] {
        let verdict = verdict_in(&rules, &context, "a", statement);
        let text = String::from_utf8_lossy(statement);
        assert_eq!(sign(&verdict), expected, "{text}: {verdict:?}");
    }
}

/// The source has the names in lower case; these are as a client wrote them.
#[test]
fn statements_are_refused_where_only_the_source_folds_names_and_that_matters() {
    for (rule, database, statement, expected) in [
        ("do_table=shop.orders", "shop", "TRUNCATE TABLE Orders", '!'),
        ("do_table=shop.orders", "shop", "TRUNCATE TABLE orders", '+'),
        ("do_table=shop.orders", "shop", "TRUNCATE TABLE Other", '-'),
        ("do_table=shop.Orders", "shop", "TRUNCATE TABLE Orders", '!'),
        ("ignore_table=shop.orders", "shop", "ALTER TABLE SHOP.orders ADD v INT", '!'),
        ("ignore_table=shop.orders", "shop", "ALTER TABLE Others ADD v INT", '+'),
        ("wild_do_table=shop.%", "shop", "DROP TABLE Shop.orders", '!'),
        ("do_db=shop", "Shop", "DROP TABLE t", '!'),
        ("rewrite_db=shop>new", "z", "CREATE TABLE Shop.t (id INT)", '!'),
        ("rewrite_db=shop>new", "Shop", "CREATE TABLE t (id INT)", '!'),
        ("rewrite_db=shop>new", "z", "TRUNCATE TABLE Shop.t", '!'),
        ("rewrite_db=shop>new", "z", "TRUNCATE TABLE shop.t", '+'),
        ("rewrite_db=shop>new", "shop", "CREATE TABLE T (id INT)", '+'),
        ("do_table=shop.t", "shop", "DROP TRIGGER SHOP.on_t", '!'),
        ("do_table=shop.t", "shop", "DROP TRIGGER on_u", '-'),
        ("ignore_table=shop.t", "shop", "FROBNICATE", '!'),
        ("ignore_table=shop.t", "shop", "CREATE TEMPORARY TABLE T (id INT)", '-'),
    ] {
        let judged = |filters: &Filters| verdict(filters, database, statement);
        let found = judged(&filters(&[rule]).of_source(true));
        assert_eq!(sign(&found), expected, "{rule} {database} {statement}: {found:?}");
        let exact = filters(&[rule]);
        assert_eq!(judged(&exact.clone().of_source(false)), judged(&exact), "{statement}");
        let both = Filters::new(rules(&[rule]), true);
        assert_eq!(judged(&both.clone().of_source(true)), judged(&both), "{statement}");
    }
    let refused = verdict(&filters(&["do_table=d.t"]).of_source(true), "d", "DROP TABLE T");
    let StatementVerdict::Refuse(why) = refused else { panic!("{refused:?}") };
    assert!(why.contains("lower_case_table_names") && why.contains("write names"), "{why}");
}

proptest! {
    /// No statement causes a panic.
    #[test]
    fn any_bytes_get_a_verdict(statement in prop::collection::vec(any::<u8>(), 0..60)) {
        let all = filters(&["rewrite_db=a>b", "wild_do_table=a.%"]);
        verdict_in(&all, &SessionContext::default(), "a", &statement);
    }

    #[test]
    fn any_words_get_a_verdict(words in prop::collection::vec(
        prop::sample::select(vec![
            "CREATE", "ALTER", "DROP", "RENAME", "TABLE", "VIEW", "TRIGGER", "ON", "TO", "GRANT",
            "IF", "EXISTS", "a", ".", ",", "`t`", "'x'", "(", ")", "=", "@", "*", "EXCHANGE",
            "PARTITION", "WITH", "DATABASE",
        ]), 0..12))
    {
        let all = filters(&["rewrite_db=a>b", "wild_do_table=a.%"]);
        verdict(&all, "a", &words.join(" "));
    }
}

#[test]
fn the_source_does_not_touch_the_targets_bookkeeping() {
    let every = [filters(&[]), filters(&["do_db=d,csa"]), filters(&["wild_do_table=csa.%"])];
    for (database, statement, expected) in [
        ("", "DROP SCHEMA csa", 'c'),
        ("csa", "drop database if exists `csa`", 'c'),
        ("csa", "CREATE DATABASE IF NOT EXISTS csa DEFAULT CHARACTER SET utf8mb4", 'c'),
        ("csa", "ALTER DATABASE READ ONLY = 1", 'c'),
        ("", "CREATE TABLE IF NOT EXISTS csa.checkpoint (channel INT)", 'c'),
        ("csa", "CREATE TABLE channel (channel INT)", 'c'),
        ("d", "ALTER TABLE csa . `checkpoint` ADD c INT", 'c'),
        ("d", "TRUNCATE csa.audit", 'c'),
        ("d", "DROP TABLE csa.checkpoint, csa.audit, csa.statement", 'c'),
        ("d", "CREATE INDEX i ON csa.audit (at)", 'c'),
        ("d", "CREATE TRIGGER d.t BEFORE INSERT ON csa.audit FOR EACH ROW SET @a=1", 'c'),
        // A trigger of theirs was left out, and one of this name on the target is its own.
        ("csa", "DROP TRIGGER gone", 'c'),
        ("d", "DROP TRIGGER IF EXISTS csa.gone", 'c'),
        ("d", "DROP TRIGGER csa.on_audit", 'c'),
        ("csa", "DROP TRIGGER on_other", '+'),
        ("d", "DROP TABLE d.t, csa.audit", '!'),
        ("d", "RENAME TABLE csa.audit TO d.audit", '!'),
        ("csa", "WHO KNOWS what", '!'),
        // Other tables in the schema, and statements that only read.
        ("csa", "CREATE TABLE csa.other (id INT)", '+'),
        ("csa", "CREATE VIEW csa.v AS SELECT * FROM csa.audit", '+'),
        ("csa", "CREATE TABLE other (c INT COMMENT 'as in csa.checkpoint')", '+'),
        ("csa", "CREATE PROCEDURE p() SELECT 1", '+'),
    ] {
        for filters in &every {
            let found = sign(&verdict(filters, database, statement));
            assert_eq!(found, expected, "{filters:?} {database} {statement}");
        }
    }
    let folding = Filters::new(rules(&[]), true);
    assert_eq!(sign(&verdict(&folding, "", "DROP SCHEMA CSA")), 'c');
    assert_eq!(folding.table("CSA", "Checkpoint"), None);
    // Another schema if names are case-sensitive.
    assert_eq!(sign(&verdict(&filters(&[]), "", "DROP SCHEMA CSA")), '+');
    assert_eq!(sign(&verdict(&filters(&[]), "d", "DROP TABLE csant.t")), '+');
}
