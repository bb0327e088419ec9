use csa_provider::binlog::QueryCharset;

use super::*;

fn context() -> SessionContext {
    SessionContext {
        invoker: Some(("o`wner".to_owned(), "host".to_owned())),
        charset: Some(QueryCharset { client: 255, connection: 255, server: 255 }),
        ..SessionContext::default()
    }
}

fn changed(text: &str) -> String {
    let text = on_replica(text.as_bytes(), &context()).expect("the account is known");
    text.map_or_else(String::new, |text| String::from_utf8(text).expect("UTF-8"))
}

#[test]
fn events_are_left_in_place_but_not_carried_out() {
    for (text, expected) in [
        (
            "CREATE DEFINER=`a`@`%` EVENT e ON SCHEDULE EVERY 1 DAY DO DELETE FROM t",
            "CREATE DEFINER=`a`@`%` EVENT e ON SCHEDULE EVERY 1 DAY <off>DO DELETE FROM t",
        ),
        (
            "create definer=a@10.0.0.1 event if not exists `do`.`enable` on schedule at now() + \
             interval (1) day on completion not preserve enable comment 'do it' do enable",
            "create definer=a@10.0.0.1 event if not exists `do`.`enable` on schedule at now() + \
             interval (1) day on completion not preserve <off> comment 'do it' do enable",
        ),
        (
            "CREATE EVENT e ON SCHEDULE EVERY '1:1' DAY_HOUR STARTS f(' DO ') /* DO */ -- DO\n \
             DISABLE ON SLAVE DO SELECT 1",
            "CREATE EVENT e ON SCHEDULE EVERY '1:1' DAY_HOUR STARTS f(' DO ') /* DO */ -- DO\n \
             <off> DO SELECT 1",
        ),
        (
            "/* c */ ALTER EVENT e DISABLE COMMENT 'x'",
            "/* c */ ALTER DEFINER=`o``wner`@`host` EVENT e <off> COMMENT 'x'",
        ),
        (
            "ALTER DEFINER = CURRENT_USER ( ) EVENT a.b RENAME TO c.do",
            "ALTER DEFINER = `o``wner`@`host` EVENT a.b RENAME TO c.do<off>",
        ),
        ("ALTER DEFINER=event EVENT e;", "ALTER DEFINER=event EVENT e<off>;"),
        ("ALTER DEFINER=`a`@`b`EVENT e", "ALTER DEFINER=`a`@`b`EVENT e<off>"),
    ] {
        let off = String::from_utf8_lossy(DISABLED);
        assert_eq!(changed(text), expected.replace("<off>", &off), "{text}");
    }
}

#[test]
fn events_in_version_comments_are_left_in_place_too() {
    let inside = String::from_utf8_lossy(DISABLED_INSIDE);
    let before = "ALTER DEFINER=`o``wner`@`host`";
    for (text, expected) in [
        ("/*!50106 ALTER EVENT e ENABLE */", format!("/*!50106 {before} EVENT e {inside} */")),
        ("/*!50106 ALTER EVENT e*/", format!("/*!50106 {before} EVENT e{inside}*/")),
        (
            "/*!50106 ALTER*/ EVENT e",
            format!("/*!50106 {before}*/ EVENT e{}", String::from_utf8_lossy(DISABLED)),
        ),
    ] {
        assert_eq!(changed(text), expected);
    }
}

#[test]
fn the_account_is_the_one_that_ran_it_on_the_source() {
    for (text, expected) in [
        ("DROP USER CURRENT_USER()", "DROP USER `o``wner`@`host`"),
        ("grant r to current_user, x", "grant r to `o``wner`@`host`, x"),
        ("REVOKE r FROM CURRENT_USER/**/( )", "REVOKE r FROM `o``wner`@`host`"),
        ("RENAME USER 'a' TO current_user()", "RENAME USER 'a' TO `o``wner`@`host`"),
        ("ALTER USER CURRENT_USER() DEFAULT ROLE r", "ALTER USER `o``wner`@`host` DEFAULT ROLE r"),
    ] {
        assert_eq!(changed(text), expected);
    }
    let unknown = on_replica(b"DROP USER CURRENT_USER()", &SessionContext::default());
    assert!(unknown.expect_err("nobody").contains("CURRENT_USER"));
}

#[test]
fn other_statements_are_left_alone() {
    for text in [
        "CREATE DEFINER=`a`@`b` PROCEDURE event() SELECT CURRENT_USER()",
        "CREATE DEFINER=`a`@`b` TRIGGER t BEFORE INSERT ON x FOR EACH ROW SET @a=CURRENT_USER()",
        "CREATE VIEW event AS SELECT CURRENT_USER() u",
        "GRANT SELECT ON `current_user`.* TO 'current_user'@'current_user'",
        "GRANT SELECT ON d.current_user TO a@current_user",
        "DROP EVENT e",
        "GRANT SELECT ON d.current_user TO a@current_user -- CURRENT_USER()",
        "GRANT SELECT ON d.t TO a /* CURRENT_USER() */",
        "ALTER TABLE event ENABLE KEYS",
        "ALTER",
        "",
        "'",
        "CREATE TABLE t (a INT) COMMENT '",
    ] {
        assert_eq!(changed(text), "", "{text}");
    }
    // The end of these matters.
    for text in ["CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO SELECT '", "DROP USER a /* "] {
        assert!(on_replica(text.as_bytes(), &context()).is_err(), "{text}");
    }
}

#[test]
fn quotes_end_where_the_session_says() {
    let mut session = context();
    session.sql_mode = Some(1 << 20);
    let text = br"CREATE EVENT e ON SCHEDULE EVERY '\' DAY DO SELECT ''";
    let found = on_replica(text, &session).expect("known").expect("an event");
    assert!(found.windows(10).any(|part| part == b"DAY  DISAB"), "{}", found.escape_ascii());
    // The second byte of a character in sjis may be a backtick or a backslash.
    session = context();
    session.charset = Some(QueryCharset { client: 13, connection: 13, server: 255 });
    let text = b"CREATE EVENT `\x83\x60` ON SCHEDULE EVERY 1 DAY COMMENT '\x83\x5c' DO SELECT ''";
    let found = on_replica(text, &session).expect("known").expect("an event");
    assert!(found.windows(14).any(|part| part == b"DAY  DISABLE /"), "{}", found.escape_ascii());
}
