//! Tables whose rows clients change all the time, for copies that read them meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use csa_tests::Server;
use mysql_async::Error;
use mysql_async::prelude::Queryable as _;
use tokio::task::JoinHandle;

/// Tables in which nothing stays where it is.
const RESTLESS: &[&str] = &[
    "CREATE DATABASE restless",
    "CREATE TABLE restless.person (id INT PRIMARY KEY, email VARCHAR(40) UNIQUE, body VARCHAR(300), KEY body (body))",
    "CREATE TABLE restless.word (w VARCHAR(40) COLLATE utf8mb4_0900_ai_ci, n INT, body VARCHAR(300), \
     PRIMARY KEY (w, n))",
    "CREATE TABLE restless.item (id BIGINT AUTO_INCREMENT PRIMARY KEY, person INT, j JSON, b BLOB, \
     CONSTRAINT of_person FOREIGN KEY (person) REFERENCES person (id))",
    "CREATE TABLE restless.small (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE restless.parent (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE restless.child (id INT PRIMARY KEY, parent INT, FOREIGN KEY (parent) REFERENCES parent (id) \
     ON DELETE CASCADE ON UPDATE CASCADE)",
    "CREATE TABLE restless.keyless (a INT, b VARCHAR(20))",
    "SET cte_max_recursion_depth=100000",
    "INSERT INTO restless.person WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i+1 FROM n WHERE i<6000) \
     SELECT i, CONCAT('e', i), REPEAT(CHAR(97 + i % 26), 200) FROM n",
    "INSERT INTO restless.word WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i+1 FROM n WHERE i<6000) \
     SELECT CONCAT(CHAR(97 + i % 26), i), i % 7, REPEAT('w', 200) FROM n",
    "INSERT INTO restless.item (person, j, b) SELECT id, JSON_OBJECT('n', id, 'a', JSON_ARRAY(1, 2, id)), \
     REPEAT(UNHEX('00ff27'), 60) FROM restless.person WHERE id % 2",
    "INSERT INTO restless.parent SELECT id, 0 FROM restless.person WHERE id <= 400",
    "INSERT INTO restless.child SELECT id, id FROM restless.parent",
    "INSERT INTO restless.keyless SELECT id, 'x' FROM restless.parent",
];

/// Statements of which a client runs one after the other; `?` is a random number.
const CHANGES: &[&str] = &[
    "UPDATE restless.person SET body=CONCAT('n', ?) WHERE id=?",
    "UPDATE restless.person SET id=id+6000 WHERE id=?",
    "UPDATE restless.person SET id=id-6000 WHERE id=6000+?",
    "UPDATE restless.person SET id=-id WHERE id BETWEEN ? AND 20+?",
    "UPDATE restless.person SET id=-id WHERE id BETWEEN -20-? AND -?",
    "DELETE FROM restless.person WHERE id=?",
    "INSERT INTO restless.person VALUES (?, CONCAT('e', ?), 'again')",
    // Not of a person: MySQL 9.7 lets it pass where an item refers to the row, and no replica does.
    "REPLACE INTO restless.word VALUES (CONCAT(CHAR(97 + ? % 26), ?), ? % 7, 'replaced')",
    "SET @a=?, @b=?; BEGIN; SELECT email INTO @x FROM restless.person WHERE id=@a FOR UPDATE; \
     SELECT email INTO @y FROM restless.person WHERE id=@b FOR UPDATE; \
     UPDATE restless.person SET email=NULL WHERE id=@a; UPDATE restless.person SET email=@x WHERE id=@b; \
     UPDATE restless.person SET email=@y WHERE id=@a; COMMIT",
    "UPDATE restless.word SET w=UPPER(w) WHERE n=? % 7 AND w LIKE CONCAT(CHAR(97 + ? % 26), '%') LIMIT 3",
    "UPDATE restless.word SET w=CONCAT('z', ?) WHERE n=? % 7 LIMIT 1",
    "DELETE FROM restless.word WHERE w LIKE CONCAT(CHAR(97 + ? % 26), '%') LIMIT 2",
    "INSERT IGNORE INTO restless.word VALUES (CONCAT('A', ?), ? % 7, 'new')",
    "INSERT INTO restless.item (person, j) SELECT MAX(id), '{\"late\": true}' FROM restless.person WHERE id<?",
    "UPDATE restless.item SET j=JSON_SET(j, '$.n', ?) WHERE id=?",
    "DELETE FROM restless.item WHERE id=?",
    "UPDATE restless.item SET id=id+10000 WHERE id=?",
    "BEGIN; DELETE FROM restless.small; INSERT INTO restless.small VALUES (1, ?), (2, ?); COMMIT",
    "TRUNCATE restless.small",
    "DELETE FROM restless.parent WHERE id=? % 400",
    "UPDATE restless.parent SET id=id+1000 WHERE id=? % 400",
    "INSERT INTO restless.parent VALUES (? % 400, 1)",
    "INSERT INTO restless.child SELECT ? % 400, MAX(id) FROM restless.parent",
    "UPDATE restless.keyless SET b='y' WHERE a=? % 400 LIMIT 1",
    "DELETE FROM restless.keyless WHERE a=? % 400 LIMIT 1",
    "INSERT INTO restless.keyless VALUES (? % 400, 'z')",
    "BEGIN; INSERT INTO restless.person VALUES (20000+?, NULL, 'brief'); DELETE FROM restless.person WHERE id>=20000; COMMIT",
];

/// The pause of a client after each change, which leaves the processors to the copy.
const BREATH: Duration = Duration::from_millis(20);

/// Clients that change the restless tables until they are stopped.
pub(super) struct Restless {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<u64>>,
}

impl Restless {
    pub(super) async fn start(source: &Server, clients: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let start = |seed: u64| {
            let (opts, stop) = (source.opts(), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut conn = mysql_async::Conn::new(opts).await.expect("connects");
                let (mut state, mut done) = (seed * 7919 + 1, 0);
                let mut random = move || {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    state >> 33
                };
                while !stop.load(Ordering::Relaxed) {
                    let change = CHANGES[random() as usize % CHANGES.len()];
                    // Once in a while is enough: after it, all of a table's rows are new.
                    if change.starts_with("TRUNCATE") && random() % 20 > 0 {
                        continue;
                    }
                    let mut statement = String::new();
                    for part in change.split_inclusive('?') {
                        match part.strip_suffix('?') {
                            Some(text) => statement += &format!("{text}{}", random() % 6000),
                            None => statement += part,
                        }
                    }
                    // Duplicates, missing parents and deadlocks are part of it.
                    match conn.query_drop(&statement).await {
                        Ok(()) => done += 1,
                        Err(error) => {
                            let is_mistake = matches!(&error, Error::Server(error)
                                if [1054, 1064].contains(&error.code));
                            assert!(!is_mistake, "{statement}: {error}");
                            conn.query_drop("ROLLBACK").await.expect("the source is there");
                        }
                    }
                    tokio::time::sleep(BREATH).await;
                }
                done
            })
        };
        let clients = (0..clients).map(start).collect();
        Self { stop, clients }
    }

    /// Returns the number of changes.
    pub(super) async fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let mut done = 0;
        for client in self.clients {
            done += client.await.expect("ends");
        }
        assert!(done > 0, "no change worked");
        done
    }
}

pub(super) async fn restless_pair() -> (Server, Server) {
    let (source, target) = Server::pair(&[], &[]);
    make_restless(&source).await;
    (source, target)
}

pub(super) async fn make_restless(source: &Server) {
    let mut session = source.conn().await;
    for statement in RESTLESS {
        session.query_drop(*statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
}
