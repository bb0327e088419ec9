//! Statements as clients write them, and the sessions that write them.

use csa_provider::binlog::{QueryCharset, SessionContext};
use csa_provider::sql_text::{Dialect, Lexer, Statement, Token, TokenKind};
use csa_tests::{Daemon, Server, compare};
use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};

use crate::{DRAIN, wait_state};

/// Statements whose tokens have single spaces between them, `~` for a space inside of one.
const CORPUS: [&str; 24] = [
    "CREATE TABLE `a``b` ( x INT NOT NULL COMMENT 'it''s~\"/*~x' , `y~z` VARCHAR ( 20 ) ) ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS d . `START` ( `TRANSACTION` INT ) COMMENT = ')~START~TRANSACTION' ROW_FORMAT = DYNAMIC",
    "CREATE TABLE $a ( b$c INT , _d INT , 1e INT , ünï INT ) START TRANSACTION",
    "CREATE TABLE d . p ( id INT ) PARTITION BY RANGE ( id ) ( PARTITION `start` VALUES LESS THAN ( 5 ) , PARTITION q VALUES LESS THAN MAXVALUE )",
    "ALTER TABLE d . s ADD COLUMN c INT DEFAULT 5 , RENAME TO d.other",
    "ALTER TABLE s COMMENT 'a\\'b' , ALGORITHM = COPY",
    "ALTER TABLE s COMMENT \"a\\\"b''\" , RENAME INDEX i TO j",
    "DROP TABLE IF EXISTS `d` . `s` , other , d.third",
    "RENAME TABLE d.s TO d.t , d . u TO d . `v~w`",
    "TRUNCATE TABLE s",
    "CREATE INDEX `i` ON d.s ( b , id )",
    "DROP INDEX i ON s",
    "CREATE DEFINER = `a`@`%` EVENT e ON SCHEDULE EVERY 1 DAY COMMENT 'DO' DO DELETE FROM s",
    "CREATE DEFINER = a@localhost TRIGGER t BEFORE INSERT ON s FOR EACH ROW SET @x := NEW . id",
    "CREATE ALGORITHM = MERGE DEFINER = CURRENT_USER ( ) SQL SECURITY INVOKER VIEW v AS SELECT id FROM s",
    "CREATE FUNCTION f ( n INT ) RETURNS INT LANGUAGE JAVASCRIPT AS $$~return~\"it's\"~$$",
    "CREATE FUNCTION f ( n INT ) RETURNS INT LANGUAGE JAVASCRIPT AS $t1$~$$~$t1~'~$t1$",
    "GRANT SELECT , INSERT ( id ) ON d.s TO 'u'@'h' , w@10.0.0.1",
    "SELECT N'a' AS x , x'61' AS y , b'1' AS z , _latin1'q' COLLATE latin1_bin , @@global.max_connections",
    "SELECT id - - 1 , id / 2 * 3 , a . id ->> '$.x' FROM s AS a WHERE id <=> 5",
    "INSERT INTO d.s ( id , b ) VALUES ( 1 , 'a;b#c--~d' )",
    "ANALYZE TABLE s , d . s2",
    "CREATE DATABASE IF NOT EXISTS `new~db` CHARACTER SET latin1",
    "DROP TABLE `a``b` ;",
];
/// Text that the server ignores.
const COMMENTS: [&str; 20] = [
    " ",
    "\n",
    "\t",
    "\r\n",
    "\u{b}",
    "\u{c}",
    "/**/",
    "/* it's \" ` */",
    "/* /* */",
    "/***/",
    "/*/*/",
    "-- it's\n",
    "--\n",
    "--\t`\n",
    "--\u{1}\n",
    "# \"\n",
    "/* 99999 x */",
    "/*M!100100 x */",
    "/*! */",
    "/*!50110 */",
];
/// Keywords under their names in digests.
const ALIASES: [(&str, &str); 4] = [
    ("INT", "INTEGER"),
    ("VARCHAR", "VARCHARACTER"),
    ("DAY", "SQL_TSI_DAY"),
    ("DATABASE", "SCHEMA"),
];

/// Returns the statement with comments of every kind between its tokens, some of them inside a version comment.
fn commented(statement: &str, random: &mut StdRng) -> String {
    let tokens: Vec<String> = statement.split(' ').map(|token| token.replace('~', " ")).collect();
    let opens = random.random_range(0..tokens.len());
    let closes = random.random_range(opens..tokens.len());
    let version = *["/*!", "/*!50110 ", "/*!080026\n", "/*!80013\t"].choose(random).expect("some");
    let is_special = random.random_bool(0.5);
    let mut text = String::new();
    for (at, token) in tokens.iter().enumerate() {
        for _ in 0..random.random_range(1..4) {
            // Version comments do not nest.
            let comment = COMMENTS.choose(random).expect("some");
            let nests = is_special && (opens..=closes).contains(&at) && comment.starts_with("/*!");
            text.push_str(if nests { " " } else { comment });
        }
        if is_special && at == opens {
            text.push_str(version);
        }
        text.push_str(token);
        // Together with the next character it would end, or begin, a comment.
        text.push_str(if token == "*" || token == "/" { " " } else { "" });
        if is_special && at == closes {
            text.push_str("*/");
        }
    }
    text.push_str(["", "--", "-- ;", "#", " /* */", "\n"].choose(random).expect("some"));
    text
}

fn tokens(text: &[u8], dialect: Dialect) -> Vec<Token<'_>> {
    let tokens = Lexer::new(text, dialect).map(|token| token.expect("it ends"));
    tokens.filter(|token| !token.is_symbol(b';')).collect()
}

/// Words and names of a digest; names both in quotes and without.
fn words_of_digest(digest: &str) -> Vec<String> {
    let parts = digest.split(' ').map(|part| part.trim_matches(['(', ')', ',', ';', '@']));
    let words = parts.filter(|part| part.contains(|c: char| c.is_alphabetic() || c == '`'));
    words.map(str::to_owned).collect()
}

/// Comparable to [`words_of_digest`]: numbers, strings and hosts are question marks there.
fn words_of_tokens(tokens: &[Token<'_>], dialect: Dialect) -> Vec<String> {
    let words = tokens.iter().filter_map(|token| match token.kind {
        TokenKind::Word if token.text.iter().all(u8::is_ascii_digit) => None,
        // An introducer.
        TokenKind::Word if token.text == b"_latin1" => Some("_charset".to_owned()),
        TokenKind::Word => Some(String::from_utf8_lossy(token.text).into_owned()),
        TokenKind::Member | TokenKind::QuotedName => {
            Some(format!("`{}`", dialect.name(token).expect("UTF-8")))
        }
        TokenKind::Text if token.text.starts_with(b"$") => Some("unknown".to_owned()),
        _ => None,
    });
    words.flat_map(|word| word.split(' ').map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// A keyword is any of its names; a name without quotes has some in a digest.
fn is_same(word: &str, of_digest: &str) -> bool {
    let known =
        ALIASES.iter().any(|(one, other)| word.eq_ignore_ascii_case(one) && of_digest == *other);
    known || word.eq_ignore_ascii_case(of_digest) || format!("`{word}`") == of_digest
}

/// With any comments between them, a statement has the tokens that the server's own parser finds.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn the_servers_parser_finds_the_same_tokens() {
    let server = Server::start("parser", &[]);
    server.exec("CREATE DATABASE d").await;
    let mut conn = server.conn().await;
    conn.query_drop("USE d").await.expect("the schema is there");
    let mut random = StdRng::seed_from_u64(9);
    let dialect = Dialect::default();
    let mut different = Vec::new();
    for statement in CORPUS {
        let plain = statement.replace('~', " ");
        let expected = digest(&mut conn, &plain).await;
        let kind = Statement::classify(plain.as_bytes(), dialect);
        let plain_tokens: Vec<_> = tokens(plain.as_bytes(), dialect)
            .iter()
            .map(|token| (token.kind, token.text.to_vec()))
            .collect();
        let own = words_of_tokens(&tokens(plain.as_bytes(), dialect), dialect);
        let theirs = words_of_digest(&expected);
        let same = own.len() == theirs.len()
            && own.iter().zip(&theirs).all(|(own, theirs)| is_same(own, theirs));
        if !same {
            different.push(format!("{plain}\n{own:?}\n{theirs:?}"));
        }
        for _ in 0..40 {
            let text = commented(statement, &mut random);
            let found = digest(&mut conn, &text).await;
            assert_eq!(found, expected, "no comment to the server: {text:?}");
            let found: Vec<_> = tokens(text.as_bytes(), dialect)
                .iter()
                .map(|token| (token.kind, token.text.to_vec()))
                .collect();
            assert_eq!(found, plain_tokens, "{text:?}");
            assert_eq!(Statement::classify(text.as_bytes(), dialect), kind, "{text:?}");
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
    character_sets(&server).await;
}

async fn digest(conn: &mut Conn, text: &str) -> String {
    let digest = conn.exec_first::<String, _, _>("SELECT STATEMENT_DIGEST_TEXT(?)", (text,)).await;
    digest.unwrap_or_else(|error| panic!("{error}\n{text:?}")).expect("a row")
}

const PAIRS: [&str; 9] =
    ["big5", "gbk", "gb18030", "sjis", "cp932", "euckr", "ujis", "eucjpms", "gb2312"];

/// In every character set of clients: pairs of bytes whose second looks like a quote, a backslash or a
/// brace, half characters, and single bytes that may be white space.
async fn character_sets(server: &Server) {
    let mut conn = server.conn().await;
    conn.query_drop("USE d").await.expect("the schema is there");
    let charsets: Vec<(String, u16)> = conn
        .query(
            "SELECT character_set_name, id FROM information_schema.collations WHERE is_default='Yes' \
             AND character_set_name NOT IN ('ucs2','utf16','utf16le','utf32')",
        )
        .await
        .expect("a list");
    assert!(charsets.len() > 30, "{charsets:?}");
    let mut agreed = 0;
    for (charset, number) in charsets {
        let charsets = Some(QueryCharset { client: number, connection: number, server: number });
        let dialect =
            Dialect::of(&SessionContext { charset: charsets, ..SessionContext::default() });
        conn.query_drop(format!("SET NAMES {charset}")).await.expect("a character set of clients");
        // In the other sets a byte is a character, or no byte of one looks like another character.
        let has_pairs = PAIRS.contains(&charset.as_str());
        for lead in 0x80..=0xff_u8 {
            let mut texts = vec![
                b"SELECT 1 AS a[b], 2".to_vec(),
                [b"SELECT 5", &[lead][..], b"+ 1, 2"].concat(),
                [b"SELECT 5 --", &[lead][..], b", 2\n"].concat(),
            ];
            let seconds = [b'\\', b'`', b'\'', b'"', b'|', b'a', b'0', 0x80, 0xff];
            for second in seconds.into_iter().filter(|_| has_pairs || lead % 16 == 3) {
                // One column or two, depending on where the first string or name ends.
                let pair = &[lead, second][..];
                texts.push([b"SELECT '", pair, b"', ' '"].concat());
                texts.push([b"SELECT '\\", pair, b"', ' '"].concat());
                texts.push([b"SELECT 1 AS `", pair, b"`, 2 AS `x`"].concat());
                texts.push([b"SELECT 1 AS ", pair, b", 2"].concat());
                texts.push([b"SELECT '", pair, &[lead, b'0'], b"', ' '"].concat());
            }
            for text in texts {
                agreed += u32::from(agree(&mut conn, &text, dialect, &charset).await);
            }
        }
    }
    println!("{agreed} statements in all character sets");
    assert!(agreed > 10_000, "{agreed}");
}

/// Returns `false` if the server refuses the statement. One that it executes has one column more
/// than there are commas between its tokens.
async fn agree(conn: &mut Conn, text: &[u8], dialect: Dialect, charset: &str) -> bool {
    let Ok(result) = conn.query_iter(text).await else { return false };
    let columns = result.columns_ref().len();
    result.drop_result().await.expect("rows");
    let tokens: Result<Vec<_>, _> = Lexer::new(text, dialect).collect();
    let commas = tokens.map(|tokens| tokens.iter().filter(|token| token.is_symbol(b',')).count());
    assert_eq!(commas, Ok(columns - 1), "{charset}: {}", text.escape_ascii());
    true
}

/// Comments where clients put them, names and strings in every kind of character set.
const AS_CLIENTS_WRITE: [&[u8]; 28] = [
    b"--\n-- Table structure for table `t`\n--\n\nCREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20)) \
      -- START TRANSACTION",
    b"--\t\nINSERT INTO t VALUES (1,'a'),(2,'b') #",
    b"/*!50110 CREATE*/ TABLE /*!080026 IF NOT EXISTS */ `a``b` (x INT /* ) START TRANSACTION */, \
      y INT COMMENT ') START TRANSACTION') /*!50100 COMMENT='START TRANSACTION' */",
    b"#\nALTER/**/TABLE/***/t/* /* */COMMENT='-- not a comment'--\n",
    b"CREATE TABLE left_out (a INT) --",
    b"/*/*/ALTER TABLE left_out ADD b INT COMMENT 'it''s', RENAME /* */ TO left_over",
    b"INSERT INTO left_over VALUES (1,1)",
    b"DROP TABLE IF EXISTS -- x\n left_over /* t */",
    b"CREATE TABLE later (a INT) /*!99999 START TRANSACTION /* b */ , */ COMMENT 'x'",
    b"CREATE TABLE $dollar (a$b INT)",
    b"CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO SELECT 1",
    b"/*!50106 ALTER EVENT e ENABLE */ --",
    b"SET NAMES gbk",
    b"CREATE TABLE g1 (a INT COMMENT '\x81\\', b INT COMMENT '\x81`, ') -- \x81\\",
    b"SET NAMES sjis",
    b"CREATE TABLE j1 (a INT COMMENT '\x83\\', b INT COMMENT '\\\\\x83`')",
    b"SET NAMES latin1",
    b"CREATE\xa0TABLE\xa0n1 (a INT)--\xa0START TRANSACTION",
    b"SET NAMES utf8mb4",
    b"SET sql_mode='ANSI_QUOTES,NO_BACKSLASH_ESCAPES'",
    b"CREATE TABLE \"quo\"\"ted\" (\"a`b\" VARCHAR(10) DEFAULT '\\' COMMENT '\\') --\t'",
    b"BEGIN",
    b"SAVEPOINT \"a`b\"\"c\"",
    b"INSERT INTO t VALUES (4,'x')",
    b"ROLLBACK TO \"a`b\"\"c\"",
    b"INSERT INTO t VALUES (3,'c')",
    b"COMMIT",
    b"SET sql_mode=DEFAULT",
];

/// CREATE TABLE … SELECT with every option of a table; the server writes START TRANSACTION before them.
const WITH_ROWS: [&[u8]; 14] = [
    b"CREATE TABLE r1 ENGINE=InnoDB COMMENT='it''s (START TRANSACTION' AS SELECT * FROM t",
    b"CREATE TABLE r2 (PRIMARY KEY (id)) AUTO_INCREMENT=7 AVG_ROW_LENGTH=100 CHECKSUM=1 DELAY_KEY_WRITE=1 \
      INSERT_METHOD=NO MAX_ROWS=100 MIN_ROWS=1 PACK_KEYS=0 ROW_FORMAT=DYNAMIC STATS_AUTO_RECALC=0 \
      STATS_PERSISTENT=1 STATS_SAMPLE_PAGES=10 CHARACTER SET latin1 COLLATE latin1_bin CONNECTION='x' \
      ENCRYPTION='N' AUTOEXTEND_SIZE=4M ENGINE=InnoDB SELECT id, v FROM t",
    b"CREATE TABLE r3 (PRIMARY KEY (id)) ROW_FORMAT=COMPRESSED, KEY_BLOCK_SIZE=8 SELECT id, v FROM t",
    b"CREATE TABLE r4 (PRIMARY KEY (id)) ENGINE=InnoDB PARTITION BY HASH(id) PARTITIONS 2 SELECT id FROM t",
    b"CREATE TABLE r5 (id INT) COMMENT 'x' PARTITION BY RANGE (id) SUBPARTITION BY HASH (id) SUBPARTITIONS 2 \
      (PARTITION `start` VALUES LESS THAN (2) COMMENT='START TRANSACTION', \
      PARTITION p1 VALUES LESS THAN MAXVALUE) SELECT id FROM t",
    b"CREATE TABLE r6 (id INT PRIMARY KEY) TABLESPACE innodb_system SELECT id FROM t",
    b"CREATE TABLE r7 TABLESPACE=innodb_file_per_table, COMPRESSION='NONE' AS SELECT id, v AS \"(\" FROM t",
    // A client may write it too, wherever an option may stand.
    b"CREATE TABLE r8 (a INT) ENGINE=InnoDB, START/* */TRANSACTION , COMMENT 'x' # y",
    b"COMMIT",
    b"CREATE TABLE r9 (a INT) start -- x\n transaction",
    b"COMMIT",
    // Logged in UTF-8 all the same.
    b"SET NAMES gbk",
    b"CREATE TABLE `\xb1\xed` COMMENT='\xb1\xed\x81\\' SELECT id AS `\xc1\xd0` FROM t",
    b"SET NAMES utf8mb4",
];

/// Statements of a session with that collation. `$` is the character set.
const IN_WIDE_CHARACTERS: [&str; 16] = [
    "SET collation_connection=$_general_ci",
    "CREATE TABLE $_t (a VARCHAR(20) DEFAULT 'ä' COMMENT 'ß', b INT)",
    "INSERT INTO $_t VALUES ('x', 1), (DEFAULT, 2)",
    "ALTER TABLE $_t ADD c CHAR(5) DEFAULT 'ł' COMMENT 'START TRANSACTION'",
    "CREATE VIEW $_v AS SELECT 'ö' AS x, a FROM $_t",
    "CREATE PROCEDURE $_p() SELECT 'ü'",
    "CREATE EVENT $_e ON SCHEDULE EVERY '1' DAY COMMENT 'é' DO SELECT 'é'",
    "DROP TABLE IF EXISTS nothing_of_$",
    "BEGIN",
    "UPDATE $_t SET a='ž' WHERE b=2",
    "COMMIT",
    "XA START 'xa_$'",
    "INSERT INTO $_t (a, b) VALUES ('ñ', 3)",
    "XA END 'xa_$'",
    "XA PREPARE 'xa_$'",
    "XA COMMIT 'xa_$'",
];
const WIDE: [&str; 4] = ["ucs2", "utf16", "utf16le", "utf32"];

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn statements_of_every_client_and_session() {
    let (source, target) = Server::pair(&[], &[]);
    let daemon = Daemon::builder(&source, &target)
        .set("applier.replicate_wild_ignore_table", vec!["s_.left%"])
        .start();
    let modes = [
        ("row-image", "grouped", "own"),
        ("sql", "grouped", "own"),
        ("row-image", "grouped", "mirror"),
        ("row-image", "one-to-one", "source"),
    ];
    for (number, (executor, commit, gtids)) in modes.into_iter().enumerate() {
        if number > 0 {
            assert!(daemon.terminate().success(), "{}", daemon.log_tail());
            daemon.set("applier.executor", executor);
            daemon.set("applier.commit", commit);
            daemon.set("applier.target_gtids", gtids);
            daemon.start_again();
        }
        let mut conn = source.conn().await;
        let mut statements: Vec<Vec<u8>> =
            [format!("CREATE DATABASE s{number}"), format!("USE s{number}")]
                .map(String::into_bytes)
                .into();
        statements.extend(AS_CLIENTS_WRITE.map(<[u8]>::to_vec));
        if executor == "row-image" {
            statements.extend(WITH_ROWS.map(<[u8]>::to_vec));
        }
        for charset in WIDE {
            let with_rows = format!(
                "CREATE TABLE {charset}_r (s VARCHAR(9) COLLATE utf8mb4_bin) ENGINE=InnoDB SELECT 'ż' AS s, a FROM {charset}_t"
            );
            statements
                .extend(IN_WIDE_CHARACTERS.map(|text| text.replace('$', charset).into_bytes()));
            statements.extend((executor == "row-image").then(|| with_rows.into_bytes()));
        }
        for statement in statements {
            let text = String::from_utf8_lossy(&statement).into_owned();
            conn.query_drop(statement).await.unwrap_or_else(|error| panic!("{error}\n{text}"));
        }
        conn.disconnect().await.expect("disconnects");
        daemon.wait_drained(&source, &target, DRAIN).await;
        let left: u64 = target
            .value("SELECT COUNT(*) FROM information_schema.tables WHERE table_name LIKE 'left%'")
            .await;
        assert_eq!(left, 0, "{executor} {gtids}");
        // The mirror catches up within a second.
        tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    }
    let compared = compare(&source, &target).await;
    assert!(compared.tables >= 4 * 11 + 3 * 14 && compared.rows >= 4 * 15 + 3 * 30, "{compared:?}");
}

/// On the session that runs all definitions a temporary table would stand before the real one of its name.
#[tokio::test(flavor = "multi_thread")]
async fn temporary_tables_of_statement_sessions_do_not_reach_the_target() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    source.exec("INSERT INTO d.t VALUES (1)").await;
    let daemon = Daemon::builder(&source, &target).start();
    let mut conn = source.conn().await;
    for statement in
        ["SET SESSION binlog_format=STATEMENT", "CREATE TEMPORARY TABLE d.t (other INT)"]
    {
        conn.query_drop(statement).await.expect("allowed");
    }
    source.exec("ALTER TABLE d.t ADD v INT; INSERT INTO d.t VALUES (2,2)").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    // It empties the temporary table only, and the target has none.
    conn.query_drop("TRUNCATE TABLE d.t").await.expect("allowed");
    wait_state(&daemon, 0, "failed").await;
    let error = daemon.status()["channels"][0]["last_error"].clone();
    assert!(error["message"].to_string().contains("temporary"), "{error}");
    daemon.commanded(&["skip", error["transaction"].as_str().expect("named")]);
    if daemon.status()["channels"][0]["state"] == "failed" {
        daemon.commanded(&["restart"]);
    }
    conn.disconnect().await.expect("disconnects");
    source.exec("INSERT INTO d.t VALUES (3,3)").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    assert_eq!(target.value::<u64>("SELECT COUNT(*) FROM d.t").await, 3);
    compare(&source, &target).await;
}
