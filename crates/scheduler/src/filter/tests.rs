use csa_provider::test_util::{event, int_image, int_table_map, query_event, rows_event};
use csa_provider::{
    Dialect, EventType, Gtid, QueryCharset, QueryEvent, RawEvent, RowsEvent, SessionContext,
    TableMap, Tag, Uuid,
};
use proptest::prelude::*;

use super::rules::matches;
use super::*;
use crate::test_util::now;

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

/// Rules from `key=name,name`, with the keys of the configuration without `replicate_`.
fn rules(text: &[&str]) -> FilterRules {
    let mut rules = FilterRules { accounts: true, ..FilterRules::default() };
    for rule in text {
        let (key, list) = rule.split_once('=').expect("key=names");
        let list: Vec<&str> = list.split(',').collect();
        match key {
            "do_db" => rules.do_db = names(&list),
            "ignore_db" => rules.ignore_db = names(&list),
            "do_table" => rules.do_table = names(&list),
            "ignore_table" => rules.ignore_table = names(&list),
            "wild_do_table" => rules.wild_do_table = names(&list),
            "wild_ignore_table" => rules.wild_ignore_table = names(&list),
            "rewrite_db" => {
                let pairs = list.iter().map(|pair| pair.split_once('>').expect("from>to"));
                rules.rewrite_db = pairs.map(|(a, b)| (a.to_owned(), b.to_owned())).collect();
            }
            other => panic!("{other}"),
        }
    }
    rules.check().expect("valid rules");
    rules
}

fn filters(text: &[&str]) -> Filters {
    Filters::new(rules(text), false)
}

fn parts(table: &str) -> (&str, &str) {
    table.split_once('.').expect("schema.table")
}

#[test]
fn patterns_match_as_in_mysql() {
    for (pattern, name, expected) in [
        ("a.%", "a.t", true),
        ("a.%", "a.", true),
        ("a.%", "ab.t", false),
        ("a%.%", "ab.t", true),
        ("a_b.t", "axb.t", true),
        ("a_b.t", "ab.t", false),
        (r"a\_b.t", "a_b.t", true),
        (r"a\_b.t", "axb.t", false),
        (r"a\%.t", "a%.t", true),
        (r"a\%.t", "abc.t", false),
        (r"a.b\\", r"a.b\", true),
        // The whole name is one string.
        ("%", "a.t", true),
        ("a%t", "a.b.t", true),
        ("%.t%2", "a.t1x2", true),
        ("%.t%2", "a.t1x2y", false),
        ("ä_.t", "äö.t", true),
        ("A.t", "a.t", false),
        ("", "", true),
        ("", "a", false),
    ] {
        assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
    }
}

/// The obvious implementation, which may take exponential time.
fn matches_simply(pattern: &[char], name: &[char]) -> bool {
    match (pattern, name) {
        ([], name) => name.is_empty(),
        (['%', rest @ ..], name) => {
            (0..=name.len()).any(|taken| matches_simply(rest, &name[taken..]))
        }
        (['\\', c, pattern @ ..], [d, name @ ..]) => c == d && matches_simply(pattern, name),
        (['_', pattern @ ..], [_, name @ ..]) => matches_simply(pattern, name),
        ([c, pattern @ ..], [d, name @ ..]) => c == d && matches_simply(pattern, name),
        (_, []) => false,
    }
}

proptest! {
    #[test]
    fn patterns_match_as_the_obvious_way_says(
        pattern in r"([ab%_.]|\\[ab%_]){0,8}",
        name in "[ab%_.]{0,10}",
    ) {
        let chars = |text: &str| text.chars().collect::<Vec<_>>();
        prop_assert_eq!(
            matches(&pattern, &name),
            matches_simply(&chars(&pattern), &chars(&name))
        );
    }
}

/// The flow charts of the manual's "Evaluation of Database-Level Replication and Binary Logging
/// Options" and "Evaluation of Table-Level Replication Options", branch by branch.
#[test]
fn rules_have_the_manuals_precedence() {
    let cases: &[(&[&str], &str, bool)] = &[
        (&[], "a.t", true),
        (&["do_db=a"], "a.t", true),
        (&["do_db=a"], "b.t", false),
        (&["ignore_db=a"], "a.t", false),
        (&["ignore_db=a"], "b.t", true),
        // With databases to replicate, those to ignore are not used.
        (&["do_db=a", "ignore_db=a"], "a.t", true),
        (&["do_db=a", "ignore_db=b"], "c.t", false),
        (&["do_table=a.t"], "a.t", true),
        (&["do_table=a.t"], "a.u", false),
        (&["ignore_table=a.t"], "a.t", false),
        (&["ignore_table=a.t"], "a.u", true),
        (&["wild_do_table=a.%"], "a.t", true),
        (&["wild_do_table=a.%"], "b.t", false),
        (&["wild_ignore_table=a.%"], "a.t", false),
        (&["wild_ignore_table=a.%"], "b.t", true),
        // do_table, ignore_table, wild_do_table, wild_ignore_table, in this order.
        (&["do_table=a.t", "ignore_table=a.t"], "a.t", true),
        (&["do_table=a.t", "wild_ignore_table=a.%"], "a.t", true),
        (&["ignore_table=a.t", "wild_do_table=a.%"], "a.t", false),
        (&["ignore_table=a.t", "wild_do_table=a.%"], "a.u", true),
        (&["wild_do_table=a.%", "wild_ignore_table=a.t%"], "a.t1", true),
        // A table that no rule names is replicated, unless there is a list of tables to replicate.
        (&["do_table=a.t", "wild_ignore_table=b.%"], "c.t", false),
        (&["wild_do_table=a.%", "ignore_table=b.t"], "c.t", false),
        (&["ignore_table=b.t", "wild_ignore_table=a.%"], "c.t", true),
        // Databases first, then tables.
        (&["do_db=a", "ignore_table=a.t"], "a.t", false),
        (&["do_db=a", "do_table=b.t"], "b.t", false),
        (&["do_db=a", "do_table=a.t"], "a.u", false),
        (&["ignore_db=a", "do_table=a.t"], "a.t", false),
        (&["ignore_db=a", "wild_do_table=b.%"], "b.t", true),
    ];
    for (text, table, expected) in cases {
        let (schema, name) = parts(table);
        assert_eq!(filters(text).table(schema, name).is_some(), *expected, "{text:?} {table}");
    }
}

#[test]
fn rules_see_renamed_schemas_and_own_tables_are_always_left_out() {
    let renaming = filters(&["rewrite_db=a>b,b>c", "do_db=b"]);
    assert_eq!(renaming.table("a", "t").as_deref(), Some("b"));
    assert_eq!(renaming.table("b", "t"), None, "it is c on the target");
    assert_eq!(renaming.schema("b"), "c", "one step only");
    assert_eq!(renaming.schema("A"), "A");
    for filters in [filters(&[]), filters(&["wild_do_table=csa.%"])] {
        assert_eq!(filters.table("csa", "checkpoint"), None);
        assert_eq!(filters.table("csa", "other").as_deref(), Some("csa"));
    }
}

#[test]
fn names_are_folded_where_the_target_does() {
    let text =
        ["rewrite_db=Old>New", "do_db=new,Ä", "ignore_table=New.T", "wild_ignore_table=NEW.X%"];
    let folding = Filters::new(rules(&text), true);
    assert_eq!(folding.table("OLD", "u").as_deref(), Some("New"));
    assert_eq!(folding.table("old", "t"), None);
    assert_eq!(folding.table("old", "xY"), None);
    assert_eq!(folding.table("ä", "t").as_deref(), Some("ä"));
    let exact = Filters::new(rules(&text), false);
    assert_eq!(exact.table("OLD", "u"), None);
    assert_eq!(exact.table("Ä", "t").as_deref(), Some("Ä"));
}

#[test]
fn impossible_rules_are_refused_by_key() {
    let long = "x".repeat(65);
    let refused = |rules: FilterRules| rules.check().expect_err("refused").key;
    let default = FilterRules::default;
    let pair = |from: &str, to: &str| vec![(from.to_owned(), to.to_owned())];
    assert_eq!(refused(FilterRules { do_db: vec![long], ..default() }), "replicate_do_db");
    for name in ["t", ".t", "a."] {
        let rules = FilterRules { ignore_table: names(&[name]), ..default() };
        assert_eq!(refused(rules), "replicate_ignore_table", "{name}");
    }
    for pattern in ["a%", ".t", r"a.\"] {
        let rules = FilterRules { wild_do_table: names(&[pattern]), ..default() };
        assert_eq!(refused(rules), "replicate_wild_do_table", "{pattern}");
    }
    for (from, to) in [("a", "a"), ("a", ""), ("csa", "a"), ("a", "CSA")] {
        let rules = FilterRules { rewrite_db: pair(from, to), ..default() };
        assert_eq!(refused(rules), "replicate_rewrite_db", "{from} {to}");
    }
}

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

/// `+` applied, `-` skipped, `!` refused.
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
        "RENAME TABLE mysql.user TO d.t, d.u TO mysql.user",
        "/*!50003 DROP USER u */",
    ] {
        assert_eq!(sign(&verdict(&cautious, "d", statement)), 'a', "{statement}");
        assert_eq!(sign(&verdict(&open, "d", statement)), '+', "{statement}");
    }
    assert_eq!(sign(&verdict(&cautious, "mysql", "TRUNCATE user")), 'a');
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
        ("CREATE TEMPORARY TABLE t (id INT)", '+'),
        ("ALTER TABLE t ADD v INT", '-'),
        ("ALTER TABLE u ADD rename_me INT, ADD KEY (id), RENAME COLUMN c TO t", '+'),
        ("ALTER TABLE u ADD exchange INT", '+'),
        ("ALTER TABLE t RENAME TO x.t, ADD v INT", '-'),
        ("ALTER TABLE u RENAME AS t", '!'),
        ("ALTER TABLE t RENAME u", '!'),
        ("ALTER TABLE u EXCHANGE PARTITION p WITH TABLE t", '!'),
        ("DROP TABLE IF EXISTS `t` /* generated by server */", '-'),
        ("DROP TABLE `u`,`b`.`t` /* generated by server */", '+'),
        ("DROP TABLE u, t", '!'),
        ("DROP TABLE t, x.u", '-'),
        ("DROP TEMPORARY TABLE IF EXISTS t", '+'),
        ("RENAME TABLE u TO v", '+'),
        ("RENAME TABLE u TO v, t TO w", '!'),
        ("RENAME TABLE t TO x.t", '-'),
        ("RENAME USER u TO v", '+'),
        ("TRUNCATE t", '-'),
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

/// Rows of table `table`: 0 and 1 are kept, 2 and 3 are not.
fn rows(table: u64, value: i32, ends: bool) -> RawEvent {
    let whole = rows_event(EventType::WRITE_ROWS, table, 1, &int_image(&[Some(value)]));
    let mut body = whole.body().to_vec();
    body[6] = u8::from(ends);
    event(EventType::WRITE_ROWS, &body)
}

fn map(table: u64) -> RawEvent {
    int_table_map(table, ["kept", "old", "left", "csa"][table as usize], "checkpoint", 1)
}

fn kept(events: &[RawEvent]) -> Vec<RawEvent> {
    let gtid = Gtid { uuid: Uuid::nil(), tag: Tag::untagged(), gno: 1 };
    let filters = filters(&["rewrite_db=old>renamed", "ignore_db=left"]);
    let events = events.iter().cloned().map(Ok);
    KeptEvents::new(gtid, filters.into(), events).map(|event| event.expect("readable")).collect()
}

/// Schemas of table maps; first value and statement end of rows; types of others.
fn describe(events: &[RawEvent]) -> Vec<String> {
    let text = |event: &RawEvent| match event.event_type() {
        EventType::TABLE_MAP => {
            let map = TableMap::parse(event.body()).expect("well-formed");
            String::from_utf8_lossy(map.schema).into_owned()
        }
        EventType::WRITE_ROWS => {
            let rows = RowsEvent::parse(event.event_type(), event.body());
            let rows = rows.expect("well-formed").expect("plain");
            let ends = if rows.flags & RowsEvent::STATEMENT_END != 0 { "." } else { "" };
            format!("{}{ends}", rows.images[1])
        }
        other => other.name().to_owned(),
    };
    events.iter().map(text).collect()
}

#[test]
fn what_is_left_of_a_statement_ends_it() {
    let begin = query_event("", "BEGIN");
    let events = [
        begin.clone(),
        // Kept and renamed, and the statement ends in a table that is left out.
        map(0),
        map(1),
        map(2),
        rows(0, 10, false),
        rows(1, 11, false),
        rows(2, 12, true),
        // Nothing is kept, though a table is.
        map(0),
        map(3),
        rows(3, 20, true),
        map(1),
        rows(1, 30, true),
    ];
    assert_eq!(
        describe(&kept(&events)),
        ["Query", "kept", "renamed", "10", "11.", "renamed", "30."]
    );
    assert_eq!(describe(&kept(&[map(0), rows(0, 1, true)])), ["kept", "1."]);
}

proptest! {
    /// Kept rows come out whole, once, in order, after a map of their table, and each statement
    /// with kept rows ends once.
    #[test]
    fn keeping_events_loses_nothing(
        statements in prop::collection::vec(prop::collection::vec(0_u64..4, 1..6), 1..8),
    ) {
        let mut events = Vec::new();
        let mut expected = Vec::new();
        let mut number = 0;
        for statement in &statements {
            events.extend((0..4).map(map));
            let mut values = Vec::new();
            for (index, &table) in statement.iter().enumerate() {
                number += 1;
                events.push(rows(table, number, index + 1 == statement.len()));
                if table < 2 {
                    values.push(number.to_string());
                }
            }
            if let Some(last) = values.last_mut() {
                last.push('.');
            }
            expected.extend(values);
        }
        let kept = kept(&events);
        let found = kept.iter().filter(|event| event.event_type().is_rows()).cloned();
        prop_assert_eq!(describe(&found.collect::<Vec<_>>()), expected);
        let mut mapped = Vec::new();
        for event in &kept {
            let id = event.body()[0];
            if event.event_type() == EventType::TABLE_MAP {
                mapped.push(id);
            } else {
                prop_assert!(mapped.contains(&id));
                if event.body()[6] == 1 {
                    mapped.clear();
                }
            }
        }
        prop_assert!(mapped.is_empty(), "maps without rows are left: {:?}", mapped);
    }
}

#[test]
fn a_table_of_the_target_is_written_under_whichever_name_the_source_has_it() {
    for (rules, table, expected) in [
        (&[][..], "a.t", true),
        (&["do_db=a"], "a.t", true),
        (&["do_db=a"], "b.t", false),
        (&["ignore_table=a.t"], "a.t", false),
        (&["rewrite_db=a>b"], "b.t", true),
        // Nothing is written to the schema that was renamed.
        (&["rewrite_db=a>b"], "a.t", false),
        (&["rewrite_db=a>b", "do_table=b.t"], "b.t", true),
        (&["rewrite_db=a>b", "do_table=b.t"], "b.u", false),
    ] {
        let (schema, name) = parts(table);
        assert_eq!(filters(rules).writes(schema, name), expected, "{rules:?} {table}");
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
