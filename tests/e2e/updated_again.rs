//! Rows that one statement updates more than once, which the source logs in one event.

use csa_tests::{Daemon, Server, compare};
use mysql_async::Conn;

use crate::DRAIN;
use crate::roundtrip::replica::Replica;
use crate::values::{equal, run, three};
use crate::versions::Version;

/// Types that the server keeps outside of a row, and one that it doesn't, with three values of the same length.
const TYPES: [Type; 6] = [
    ("TEXT", ["'abc'", "'def'", "'ghi'"]),
    ("BLOB", ["x'000102'", "x'5c2700'", "x'ffffff'"]),
    ("JSON", [DOCUMENT, "JSON_SET(y.b,'$.a',22)", "JSON_SET(y.b,'$.a',33)"]),
    ("GEOMETRY", ["POINT(0,0)", "POINT(1,0)", "ST_GeomFromText('POINT(7 1)',4326)"]),
    ("VECTOR(1)", ["x'00000000'", "x'0000803f'", "x'00000040'"]),
    ("VARCHAR(9)", ["'abc'", "'def'", "'ghi'"]),
];
/// Long, so that a change of it is logged as a change.
const DOCUMENT: &str = "JSON_OBJECT('a',11,'b',REPEAT('b',99))";

/// A type, and three values.
type Type = (&'static str, [&'static str; 3]);

const KEYS: [&str; 4] = ["", ", KEY (k)", ", UNIQUE (k)", ", PRIMARY KEY (k)"];

const FULL_IMAGES: [&str; 2] = [
    "binlog_row_image=FULL, binlog_row_value_options=''",
    "binlog_row_image=FULL, binlog_row_value_options=PARTIAL_JSON",
];
const OTHER_IMAGES: [&str; 2] = ["binlog_row_image=MINIMAL", "binlog_row_image=NOBLOB"];

/// Moves in an index that is not unique. The server looks for the value between before any row has it, and in the second
/// table when no row has it any more.
const MOVES: [(&str, &str); 2] = [
    ("(5, 0)", "UPDATE v.m SET k=3 WHERE k=5; UPDATE v.m SET k=7 WHERE k=3"),
    (
        "(3, 0), (8, 0)",
        "UPDATE v.m SET k=5 WHERE k=3; UPDATE v.m SET k=7 WHERE k=5; UPDATE v.m SET k=9 WHERE k=8",
    ),
];

/// MySQL's own replicas lose some of these updates, and stop at others, where they find the rows by a hash.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn rows_that_a_statement_updates_twice_arrive() {
    let (source, images, statements, daemon) = three().await;
    // It gets them from the target's binary log.
    let downstream = Replica(Server::start("downstream", &[]));
    downstream.0.follow(&images).await;
    let mut conn = source.conn().await;
    run(&mut conn, "CREATE DATABASE v").await;
    create(&mut conn, &TYPES).await;
    for image in FULL_IMAGES {
        update(&mut conn, &TYPES, image).await;
    }
    move_in_index(&mut conn).await;
    // A row of a table with a primary key comes between two updates of one without.
    for statement in [
        "CREATE TABLE v.p (id INT PRIMARY KEY, u INT UNIQUE); CREATE TABLE v.n (k INT UNIQUE, b BLOB)",
        "INSERT INTO v.p VALUES (1, 1); INSERT INTO v.n VALUES (1, 'aa')",
        "BEGIN; UPDATE v.p SET u=2 WHERE id=1; UPDATE v.n SET b='bb' WHERE k=1; INSERT INTO v.p VALUES (9, 1); \
         UPDATE v.n SET b='cc' WHERE k=1; COMMIT",
    ] {
        run(&mut conn, statement).await;
    }
    equal(&source, [&images, &statements], &daemon).await;
    downstream.wait(&images.gtid_executed().await, DRAIN).await.expect("it follows");
    compare(&source, &downstream.0).await;
    drop(downstream);
    // The target logs in one event what the source logged in several.
    for image in OTHER_IMAGES {
        update(&mut conn, &TYPES, image).await;
    }
    equal(&source, [&images, &statements], &daemon).await;
}

/// A row has no key between two updates: nothing but its values says that both are of one row.
#[tokio::test(flavor = "multi_thread")]
async fn rows_with_a_key_that_is_null_for_a_while_arrive() {
    let (source, images, statements, daemon) = three().await;
    // It gets them from the target's binary log.
    let downstream = Replica(Server::start("downstream", &[]));
    downstream.0.follow(&images).await;
    let mut conn = source.conn().await;
    // The server looks for NULL first, and finds the other row.
    for statement in [
        "CREATE DATABASE v; CREATE TABLE v.u (k INT UNIQUE, b TEXT)",
        "INSERT INTO v.u VALUES (5, 'aaa'), (NULL, 'zzz')",
        "BEGIN; UPDATE v.u SET k=NULL, b='bbb' WHERE k=5; UPDATE v.u SET k=6, b='ccc' WHERE b='bbb'; COMMIT",
    ] {
        run(&mut conn, statement).await;
    }
    equal(&source, [&images, &statements], &daemon).await;
    // They share a group.
    daemon.kill9();
    for set in ["k=NULL, b='ddd' WHERE k=6", "k=7, b='eee' WHERE b='ddd'"] {
        run(&mut conn, &format!("UPDATE v.u SET {set}")).await;
    }
    daemon.start_again();
    equal(&source, [&images, &statements], &daemon).await;
    downstream.wait(&images.gtid_executed().await, DRAIN).await.expect("it follows");
    compare(&source, &downstream.0).await;
}

/// 8.0 finds rows by a hash only where an option says so.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn rows_that_a_statement_updates_twice_arrive_on_an_older_server() {
    let types: Vec<Type> = TYPES.into_iter().filter(|(kind, _)| !kind.starts_with("VEC")).collect();
    let search = "--slave-rows-search-algorithms=INDEX_SCAN,HASH_SCAN";
    let source = Version::V8031.start("source", &[]);
    let target = Version::V8031.start("target", &[search]);
    let daemon = Daemon::builder(&source, &target).set("applier.executor", "row-image").start();
    let mut conn = source.conn().await;
    run(&mut conn, "CREATE DATABASE v").await;
    create(&mut conn, &types).await;
    for image in [FULL_IMAGES[0], FULL_IMAGES[1], OTHER_IMAGES[0]] {
        update(&mut conn, &types, image).await;
    }
    move_in_index(&mut conn).await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

/// Returns the number, type, key and values of each table.
fn tables(types: &[Type]) -> impl Iterator<Item = (usize, &Type, &'static str)> {
    types
        .iter()
        .flat_map(|kind| KEYS.map(|key| (kind, key)))
        .enumerate()
        .map(|(number, (kind, key))| (number, kind, key))
}

async fn create(conn: &mut Conn, types: &[Type]) {
    for (table, (kind, [first, second, third]), key) in tables(types) {
        run(conn, &format!("CREATE TABLE v.t{table} (k INT, a INT, b {kind}{key})")).await;
        run(conn, &format!("INSERT INTO v.t{table} VALUES (1,1,{first}),(2,2,{first})")).await;
        if !key.contains("PRIMARY") {
            run(conn, &format!("INSERT INTO v.t{table} VALUES (NULL,3,{first})")).await;
        }
        // Changes the large value, and the other one, several times; then it is what it was, and changes again.
        let updates = [
            &format!("b={second}"),
            &format!("b={third}"),
            "a=a+1",
            "a=a-1",
            &format!("b={second}, a=a+1"),
            "a=a-1",
            "a=a+10",
        ];
        let updates = updates.map(|update| format!("UPDATE v.t{table} y SET {update};")).concat();
        let function =
            format!("CREATE FUNCTION v.f{table}() RETURNS INT DETERMINISTIC MODIFIES SQL DATA");
        run(conn, &format!("{function} BEGIN {updates} RETURN 0; END")).await;
    }
}

async fn move_in_index(conn: &mut Conn) {
    for (number, (rows, updates)) in MOVES.into_iter().enumerate() {
        let table = format!("v.m{number}");
        let updates = updates.replace("v.m", &table);
        run(conn, &format!("CREATE TABLE {table} (k INT, v INT, KEY (k))")).await;
        run(conn, &format!("INSERT INTO {table} VALUES {rows}")).await;
        run(
            conn,
            &format!(
                "CREATE FUNCTION v.g{number}() RETURNS INT DETERMINISTIC MODIFIES SQL DATA \
                 BEGIN {updates}; RETURN 0; END"
            ),
        )
        .await;
        run(conn, &format!("DO v.g{number}()")).await;
    }
}

async fn update(conn: &mut Conn, types: &[Type], image: &str) {
    run(conn, &format!("SET {image}")).await;
    for (table, (_, [_, second, third]), _) in tables(types) {
        // Both aliases are the same row.
        let both = format!("UPDATE v.t{table} x, v.t{table} y SET x.a=x.a+100");
        for value in [second, third] {
            run(conn, &format!("{both}, y.b={value} WHERE x.k=1 AND y.k=1")).await;
        }
        run(conn, &format!("DO v.f{table}()")).await;
    }
}
