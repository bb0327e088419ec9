//! Statements that a load of small transactions lacks: definitions, large rows, many rows, and ends of binary logs.

use csa_tests::Server;
use rand::Rng as _;
use rand::rngs::StdRng;

/// Makes the tables of [`statement`].
pub(super) async fn prepare(source: &Server) {
    let tables = "CREATE DATABASE other;\
                  CREATE TABLE other.wide (id INT PRIMARY KEY AUTO_INCREMENT, b LONGBLOB);\
                  CREATE TABLE other.many (id INT PRIMARY KEY AUTO_INCREMENT, n INT);\
                  INSERT INTO other.many (n) VALUES (1),(2),(3),(4),(5),(6),(7),(8)";
    source.exec(tables).await;
    for _ in 0..7 {
        source.exec("INSERT INTO other.many (n) SELECT n+1 FROM other.many").await;
    }
}

/// Returns true if a statement may fail so: what it defines is there, or is not.
pub(super) const fn is_expected(error: &mysql_async::ServerError) -> bool {
    matches!(error.code, 1050 | 1051 | 1060 | 1091 | 1146)
}

pub(super) fn statement(random: &mut StdRng) -> String {
    let table = random.random_range(1..=3);
    match random.random_range(0..14) {
        // Above a segment of the relay store.
        0 | 1 => format!(
            "INSERT INTO other.wide (b) VALUES (REPEAT('{}', {}))",
            random.random_range(0..10),
            random.random_range(1_100_000..2_500_000)
        ),
        2 => "TRUNCATE TABLE other.wide".into(),
        3 => "FLUSH BINARY LOGS".into(),
        4 => "UPDATE other.many SET n=n+1".into(),
        5 => format!("DELETE FROM other.many WHERE id={}", random.random_range(1..2000)),
        6 => format!("CREATE TABLE other.made_{table} (id INT PRIMARY KEY, v INT)"),
        7 => format!("CREATE TABLE other.made_{table} (PRIMARY KEY (id)) SELECT * FROM other.many"),
        8 => format!("DROP TABLE IF EXISTS other.made_{table}"),
        9 => "ALTER TABLE other.many ADD COLUMN note VARCHAR(20) DEFAULT 'a'".into(),
        10 => "ALTER TABLE other.many DROP COLUMN note".into(),
        11 => format!("BEGIN; UPDATE other.many SET n=n*2 WHERE id<{table}00; ROLLBACK"),
        // A transaction without rows.
        12 => "DROP TABLE IF EXISTS other.never_there".into(),
        _ => "INSERT INTO other.many (n) VALUES (1),(2),(3)".into(),
    }
}
