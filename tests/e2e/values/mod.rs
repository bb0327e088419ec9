//! Values of every type, at their edges and at random: both executors store the source's values.

mod edges;

use csa_tests::{Daemon, Server, compare};
use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use rand::Rng as _;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

use crate::DRAIN;

/// Column, type, and values at its edges.
const COLUMNS: [(&str, &str, &[&str]); 42] = [
    ("ti", "TINYINT", &["-128", "127", "-1"]),
    ("tu", "TINYINT UNSIGNED", &["0", "255"]),
    ("yr", "YEAR", &["0", "1901", "2155"]),
    ("si", "SMALLINT", &["-32768", "32767"]),
    ("mi", "MEDIUMINT", &["-1", "-8388608", "8388607"]),
    ("mu", "MEDIUMINT UNSIGNED", &["16777215", "0"]),
    ("ii", "INT", &["-2147483648", "2147483647"]),
    ("iu", "INT UNSIGNED ZEROFILL", &["4294967295", "0"]),
    ("bi", "BIGINT", &["-9223372036854775808", "9223372036854775807"]),
    ("bu", "BIGINT UNSIGNED", &["18446744073709551615", "9223372036854775808"]),
    ("fl", "FLOAT", &["0.1", "-0e0", "3.4028234e38", "1.4e-45", "16777217", "-1.17549435e-38"]),
    ("fd", "FLOAT(9,3)", &["123456.789", "-0.001", "999999.999", "-1e9"]),
    ("dl", "DOUBLE", &["-0e0", "5e-324", "1.7976931348623157e308", "0.1", "9007199254740993"]),
    (
        "de",
        "DECIMAL(65,30)",
        &[
            "99999999999999999999999999999999999.999999999999999999999999999999",
            "-0.000000000000000000000000000001",
            "0",
        ],
    ),
    ("df", "DECIMAL(10,10)", &["0.9999999999", "-0.0000000001"]),
    ("dn", "DECIMAL(19,0)", &["-9999999999999999999", "1"]),
    ("b1", "BIT(1)", &["b'1'", "b'0'"]),
    ("bt", "BIT(9)", &["b'100000101'", "0"]),
    ("bw", "BIT(64)", &["18446744073709551615", "1"]),
    ("en", "ENUM('a','ü','')", &["'a'", "'ü'", "'no member'", "''", "3"]),
    ("se", "SET('a','b','c','d','e','f','g','h','i')", &["''", "'a,i'", "511"]),
    (
        "da",
        "DATE",
        &["'0000-00-00'", "'9999-12-31'", "'2024-02-00'", "'2023-00-00'", "'2023-02-31'"],
    ),
    ("tm", "TIME", &["'-838:59:59'", "'838:59:59'", "'00:00:00'"]),
    ("t2", "TIME(2)", &["'-00:00:01.25'", "'-00:00:00.01'", "'12:34:56.99'"]),
    ("t6", "TIME(6)", &["'-838:59:58.999999'", "'-00:00:00.000001'"]),
    ("dt", "DATETIME", &["'0000-00-00'", "'9999-12-31 23:59:59'", "'1000-01-01'"]),
    ("d6", "DATETIME(6)", &["'9999-12-31 23:59:59.999999'", "'0001-01-01 00:00:00.000001'"]),
    ("ts", "TIMESTAMP NULL", &["'0000-00-00'", "'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'"]),
    ("t4", "TIMESTAMP(4) NULL", &["'2024-02-29 23:59:59.9999'", "'1970-01-01 00:00:01.0001'"]),
    ("ch", "CHAR(9)", &["''", "'a  '", "'it''s \\\\ \\\"'", "'🚀ü'", "'A'", "'a'"]),
    ("vc", "VARCHAR(99)", &["''", "'a  '", "' '", "'\\0\\n\\r\\Z\\t%_'", "'ünïcödé 🚀'"]),
    ("l1", "VARCHAR(99) CHARACTER SET latin1", &["'straße €'", "'plain'", "x'80818d9f'"]),
    ("u3", "VARCHAR(99) CHARACTER SET utf8mb3", &["'ÿ☃'", "''"]),
    ("u6", "VARCHAR(99) CHARACTER SET utf16", &["'☃🚀'", "'a'"]),
    ("gb", "VARCHAR(99) CHARACTER SET gbk", &["'測試\\\\'", "_gbk x'bf5c'"]),
    ("cp", "CHAR(99) CHARACTER SET cp932", &["'ﾃｽﾄ表'", "_cp932 x'955c'"]),
    ("tx", "TEXT", &["REPEAT('it''s',5000)", "''"]),
    ("bn", "BINARY(6)", &["x'00'", "x'ff0000000000'", "'\\0\\'\\\\'", "x'000000000001'"]),
    ("vb", "VARBINARY(99)", &["x''", "x'00'", "x'5c27005c'", "x'e2'"]),
    ("bl", "LONGBLOB", &["REPEAT(x'00',70000)", "REPEAT(x'275c1a0ae2',2000)", "x''"]),
    (
        "ge",
        "GEOMETRY",
        &[
            "ST_GeomFromText('POINT(1 2)',4326)",
            "ST_GeomFromText('GEOMETRYCOLLECTION(POINT(0 0),LINESTRING(1 1,2 2))')",
        ],
    ),
    ("ve", "VECTOR(2)", &["STRING_TO_VECTOR('[1,-2.5]')", "STRING_TO_VECTOR('[0,1e-30]')"]),
];

/// A document of a row's own columns and more: every type that JSON can hold.
const DOCUMENT: &str = "JSON_ARRAY(ti,bu,CAST(5 AS UNSIGNED),bi,mu,fl,dl,-0e0,1.0e0,1e300,de,df,dn,\
    CAST(1.10 AS DECIMAL(5,2)),bt,bw,b1,en,se,da,tm,t2,t6,dt,d6,ts,t4,yr,ch,vc,l1,bn,vb,LEFT(bl,300),\
    true,false,NULL,JSON_OBJECT('k\\\"\\\\ü',CAST('{\\\"a\\\": [1.5, \\\"\\\\u0001\\\", 12345678901234567890]}' \
    AS JSON),'',JSON_ARRAY()),CAST('\\\"text\\\"' AS JSON),REPEAT('long ',9000))";
const ELEMENTS: usize = 40;

pub(crate) async fn run(conn: &mut Conn, statement: &str) {
    if let Err(error) = conn.query_drop(statement).await {
        let start: String = statement.chars().take(2000).collect();
        panic!("{error}\n{start}");
    }
}

fn hex(random: &mut StdRng, bytes: usize) -> String {
    let digits: String = (0..bytes).map(|_| format!("{:02x}", random.random::<u8>())).collect();
    format!("x'{digits}'")
}

fn digits(random: &mut StdRng, count: usize) -> String {
    (0..count).map(|_| char::from(random.random_range(b'0'..=b'9'))).collect()
}

/// Returns any characters, more often those that need quoting.
fn text(random: &mut StdRng, chars: usize) -> String {
    let mut text = String::new();
    for _ in 0..random.random_range(0..=chars) {
        let c = match random.random_range(0..4) {
            0 => *['\'', '\\', '"', '\0', '\n', '%', ' ', '`', '\u{1a}']
                .choose(random)
                .unwrap_or(&' '),
            1 => char::from(random.random_range(b' '..=b'~')),
            _ => char::from_u32(random.random_range(0x80..0x11000)).unwrap_or('ü'),
        };
        text.push(c);
    }
    let bytes: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("_utf8mb4 x'{bytes}'")
}

/// Returns a value of the column, from anywhere in its range; `None`: one of its edges.
fn anything(column: &str, random: &mut StdRng) -> Option<String> {
    let sign = if random.random() { "-" } else { "" };
    Some(match column {
        "bi" => random.random::<i64>().to_string(),
        "bu" | "bw" => random.random::<u64>().to_string(),
        "fl" => format!("{:e}", f32::from_bits(random.random::<u32>() & 0xbf7f_ffff)),
        "dl" => format!("{:e}", f64::from_bits(random.random::<u64>() & 0xbfef_ffff_ffff_ffff)),
        "de" => format!("{sign}{}.{}", digits(random, 35), digits(random, 30)),
        "df" => format!("{sign}0.{}", digits(random, 10)),
        "dn" => format!("{sign}{}", digits(random, 19)),
        "t6" => format!(
            "'{sign}{}:{}:{}.{}'",
            random.random_range(0..838),
            random.random_range(0..60),
            random.random_range(0..60),
            digits(random, 6)
        ),
        "t2" => format!(
            "'{sign}{}:00:0{}.{}'",
            random.random_range(0..838),
            random.random_range(0..10),
            digits(random, 2)
        ),
        "d6" => format!(
            "'{:04}-{:02}-{:02} 0{}:00:00.{}'",
            random.random_range(1..9999),
            random.random_range(1..13),
            random.random_range(1..29),
            random.random_range(0..10),
            digits(random, 6)
        ),
        "ts" => format!("FROM_UNIXTIME({})", random.random_range(1..i32::MAX)),
        "ch" => text(random, 9),
        "vc" | "l1" | "u3" | "u6" | "gb" | "cp" => text(random, 40),
        "tx" => text(random, 200),
        "bn" => hex(random, 6),
        "vb" => {
            let bytes = random.random_range(0..99);
            hex(random, bytes)
        }
        "bl" => {
            let bytes = random.random_range(0..3000);
            hex(random, bytes)
        }
        _ => return None,
    })
}

fn row(number: usize, random: &mut StdRng) -> String {
    let value = |&(column, _, edges): &(&str, &str, &[&str])| match number {
        0 => "NULL".to_owned(),
        1..20 => edges.get(number % edges.len()).copied().unwrap_or("NULL").to_owned(),
        _ if random.random_bool(0.1) => "NULL".to_owned(),
        _ => anything(column, random)
            .or_else(|| edges.choose(random).map(|edge| (*edge).to_owned()))
            .unwrap_or_default(),
    };
    let values: Vec<String> = COLUMNS.iter().map(value).collect();
    values.join(",")
}

/// New values for some of the columns, each with a comma before it.
fn assignments(random: &mut StdRng) -> String {
    let mut set = String::new();
    for (name, _, edges) in &COLUMNS {
        if random.random_bool(0.3) {
            let edge = edges.choose(random).map(|edge| (*edge).to_owned());
            let value = anything(name, random).or(edge).unwrap_or_default();
            set.push_str(&format!(",{name}={value}"));
        }
    }
    set
}

/// Returns the types of a document's members, which texts don't show.
async fn member_types(server: &Server) -> Vec<String> {
    let members: Vec<String> =
        (0..ELEMENTS).map(|at| format!("IFNULL(JSON_TYPE(j->'$[{at}]'),'-')")).collect();
    let query = format!("SELECT CONCAT_WS(' ',id,{}) FROM v.t ORDER BY id", members.join(","));
    let mut conn = server.conn().await;
    conn.query(query).await.expect("types")
}

/// A number that a committed row had is not given again where the target becomes a source.
#[tokio::test(flavor = "multi_thread")]
async fn numbers_of_rows_that_were_deleted_at_once_are_not_given_again() {
    let (source, images, statements, daemon) = three().await;
    let mut conn = source.conn().await;
    run(&mut conn, "CREATE DATABASE d").await;
    run(&mut conn, "CREATE TABLE d.q (id INT AUTO_INCREMENT PRIMARY KEY, v INT)").await;
    run(&mut conn, "BEGIN; INSERT INTO d.q (v) VALUES (1), (2); DELETE FROM d.q; COMMIT").await;
    for _ in 0..50 {
        run(&mut conn, "INSERT INTO d.q (v) VALUES (1); DELETE FROM d.q").await;
    }
    equal(&source, [&images, &statements], &daemon).await;
    assert!(daemon.terminate().success());
    for server in [&source, &images, &statements] {
        server.exec("INSERT INTO d.q (v) VALUES (3)").await;
        assert_eq!(server.value::<u32>("SELECT id FROM d.q").await, 53, "{}", server.name);
    }
}

/// A source with two targets: row images go to one, statements to the other.
pub(crate) async fn three() -> (Server, Server, Server, Daemon) {
    let (source, images) = Server::pair(&["--binlog-row-event-max-size=1M"], &[]);
    let statements = Server::start("target", &[]);
    let daemon = Daemon::builder(&source, &images)
        .set("applier.executor", "row-image")
        .channel("statements", &source, &statements)
        .set("applier.executor", "sql")
        .start();
    (source, images, statements, daemon)
}

pub(crate) async fn equal(source: &Server, targets: [&Server; 2], daemon: &Daemon) {
    for (channel, target) in ["test", "statements"].into_iter().zip(targets) {
        daemon.wait_channel_drained(channel, source, target, DRAIN).await;
        compare(source, target).await;
    }
    assert_eq!(daemon.status()["channels"][0]["applier"]["executor"], "row-image");
    assert_eq!(daemon.status()["channels"][1]["applier"]["executor"], "sql");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn both_executors_store_every_value_as_it_is() {
    let (source, images, statements, daemon) = three().await;
    let mut random = StdRng::seed_from_u64(1);
    let mut conn = source.conn().await;
    run(&mut conn, "SET sql_mode='ALLOW_INVALID_DATES', time_zone='+00:00'").await;
    let definitions: Vec<String> =
        COLUMNS.iter().map(|(name, definition, _)| format!("{name} {definition}")).collect();
    let columns = definitions.join(",");
    run(&mut conn, "CREATE DATABASE v").await;
    let keyed = format!("CREATE TABLE v.t (id INT PRIMARY KEY AUTO_INCREMENT,{columns},j JSON)");
    run(&mut conn, &keyed).await;
    run(&mut conn, &format!("CREATE TABLE v.bag ({columns},j JSON,n INT)")).await;
    let names: Vec<&str> = COLUMNS.iter().map(|(name, ..)| *name).collect();
    let names = names.join(",");
    for number in 0..60 {
        let values = row(number, &mut random);
        run(&mut conn, &format!("INSERT INTO v.t ({names}) VALUES ({values})")).await;
    }
    run(&mut conn, &format!("UPDATE v.t SET j={DOCUMENT}")).await;
    run(&mut conn, "UPDATE v.t SET j=j->'$[13]' WHERE id=30").await;
    run(&mut conn, "UPDATE v.t SET j=j->'$[25]' WHERE id=31").await;
    run(&mut conn, "UPDATE v.t SET j=j->'$[31]' WHERE id=32").await;
    run(&mut conn, "UPDATE v.t SET j=JSON_ARRAY(CAST(5 AS UNSIGNED),1) WHERE id=33").await;
    let bag = format!("INSERT INTO v.bag ({names},j) SELECT {names},j FROM v.t");
    run(&mut conn, &bag).await;
    // Every row is found by all of its values, again and again; rows differ in values that comparing
    // may call equal.
    for image in ["FULL", "MINIMAL", "NOBLOB"] {
        run(&mut conn, &format!("SET binlog_row_image={image}")).await;
        run(&mut conn, "UPDATE v.bag SET n=IFNULL(n,0)+1").await;
        for number in 20..30 {
            let assignments = assignments(&mut random);
            let set = format!("UPDATE v.t SET id=id{assignments} WHERE id={number}");
            run(&mut conn, &set).await;
        }
    }
    run(&mut conn, "DELETE FROM v.bag WHERE n=3 LIMIT 40").await;
    run(&mut conn, "DELETE FROM v.t WHERE id>55").await;
    equal(&source, [&images, &statements], &daemon).await;
    let types = member_types(&source).await;
    assert!(types.iter().any(|types| types.contains(" TIMESTAMP ") && types.contains(" BLOB ")));
    assert_eq!(member_types(&images).await, types);
    assert_eq!(member_types(&statements).await, types);
}

/// MySQL 9.7 logs cascaded rows; the target's own foreign keys cascade to rows that only it has.
#[tokio::test(flavor = "multi_thread")]
async fn cascades_do_the_same_by_both_executors() {
    let (source, images, statements, daemon) = three().await;
    source.exec("CREATE DATABASE v; CREATE TABLE v.parent (id INT PRIMARY KEY)").await;
    source
        .exec(
            "CREATE TABLE v.child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES v.parent (id) \
             ON DELETE CASCADE ON UPDATE CASCADE)",
        )
        .await;
    source
        .exec("INSERT INTO v.parent VALUES (1),(2); INSERT INTO v.child VALUES (1,1),(2,2)")
        .await;
    equal(&source, [&images, &statements], &daemon).await;
    for target in [&images, &statements] {
        target.exec("INSERT INTO v.child VALUES (11,1),(12,2)").await;
    }
    source.exec("DELETE FROM v.parent WHERE id=1").await;
    source.exec("UPDATE v.parent SET id=3 WHERE id=2").await;
    for (channel, target) in [("test", &images), ("statements", &statements)] {
        daemon.wait_channel_drained(channel, &source, target, DRAIN).await;
        let left: String =
            target.value("SELECT GROUP_CONCAT(id, ':', p ORDER BY id) FROM v.child").await;
        assert_eq!(left, "2:3,12:3", "{channel}");
    }
}
