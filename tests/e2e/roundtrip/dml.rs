//! Changes of rows by every kind of statement.

use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom as _, IteratorRandom as _};

use super::schema::{Column, Schema, Table};
use super::values::Kind;

/// A file for LOAD DATA, to be written before the statement runs.
#[derive(Debug)]
pub(super) struct Load {
    pub(super) statement: String,
    pub(super) content: String,
}

/// Placeholder of the file's name in [`Load::statement`].
pub(super) const FILE: &str = "{file}";

/// Returns the statements that change rows of one or two tables.
pub(super) fn any(schema: &Schema, random: &mut StdRng) -> Vec<String> {
    let (Some(table), Some(other)) = (schema.tables.choose(random), schema.tables.choose(random))
    else {
        return Vec::new();
    };
    let ignore = if random.random_bool(0.15) { "IGNORE " } else { "" };
    let name = &table.name;
    let one = |statement: String| vec![statement];
    match random.random_range(0..26) {
        0..7 => one(insert(&format!("INSERT {ignore}INTO"), table, random)),
        7 | 8 if !table.is_replaceable() => Vec::new(),
        7 => one(insert("REPLACE INTO", table, random)),
        8 => one(format!(
            "{} ON DUPLICATE KEY UPDATE {}",
            insert("INSERT INTO", table, random),
            assignments(table, "", random)
        )),
        9 => one(select(ignore, table, other, random)),
        10..16 => one(format!(
            "UPDATE {ignore}{name} SET {} WHERE {} {}",
            assignments(table, "", random),
            condition(table, "", random),
            limit(random)
        )),
        16 => one(format!("UPDATE {name} SET {}", assignments(table, "", random))),
        17..20 => one(format!(
            "DELETE {ignore}FROM {name} WHERE {} {}",
            condition(table, "", random),
            limit(random)
        )),
        20 => {
            let row = condition(table, "", random);
            vec![
                format!("DELETE FROM {name} WHERE {row} LIMIT 1"),
                insert("INSERT INTO", table, random),
            ]
        }
        21 => one(format!(
            "UPDATE {ignore}{name} a, {} b SET {}, {} WHERE {} AND {}",
            other.name,
            assignments(table, "a.", random),
            assignments(other, "b.", random),
            condition(table, "a.", random),
            condition(other, "b.", random)
        )),
        22 => one(format!(
            "DELETE {ignore}a, b FROM {name} a JOIN {} b WHERE {} AND {}",
            other.name,
            condition(table, "a.", random),
            condition(other, "b.", random)
        )),
        23 => swap(table, random),
        24 => one(format!("DELETE FROM {name} ORDER BY 1 LIMIT 8")),
        // Changes nothing, or sets everything to its present value.
        _ => one(format!("UPDATE {name} SET {0}={0}", any_writable(table, random))),
    }
}

/// Returns the statements that call the schema's routines.
pub(super) fn routines(schema: &Schema, random: &mut StdRng) -> Vec<String> {
    let n = random.random_range(1..30);
    let with_table = schema.tables.choose(random).map(|table| {
        let condition = condition(table, "", random);
        format!("DELETE FROM {} WHERE {condition} AND noted({n}) > {}", table.name, n / 2)
    });
    match random.random_range(0..4) {
        0 => vec![format!("DO noted({n})")],
        1 => with_table.into_iter().collect(),
        _ => vec!["CALL several()".to_owned()],
    }
}

/// Returns a transaction that leaves the rows as they were.
pub(super) fn undone(random: &mut StdRng) -> Vec<String> {
    let condition = format!("a={}", random.random_range(0..50));
    let changes = match random.random_range(0..3) {
        0 => [
            format!("UPDATE bulk SET b=CONCAT(b,'!') WHERE {condition}"),
            format!("UPDATE bulk SET b=LEFT(b,LENGTH(b)-1) WHERE {condition}"),
        ],
        1 => ["UPDATE audit SET n=n+1".to_owned(), "UPDATE audit SET n=n-1".to_owned()],
        _ => [
            "INSERT INTO bulk (id, a) VALUES (2000000000, 1)".to_owned(),
            "DELETE FROM bulk WHERE id=2000000000".to_owned(),
        ],
    };
    let [change, back] = changes;
    vec!["BEGIN".to_owned(), change, back, "COMMIT".to_owned()]
}

/// Returns a transaction of a thousand rows and more.
pub(super) fn bulk(random: &mut StdRng) -> Vec<String> {
    let (rows, repeated) = (random.random_range(200..1500), random.random_range(1..13));
    let mut statements = vec![
        "BEGIN".to_owned(),
        format!(
            "INSERT INTO bulk (a, b) WITH RECURSIVE n AS (SELECT 1 i UNION ALL SELECT i+1 FROM n \
             WHERE i<{rows}) SELECT i % 50, REPEAT(SHA2(i,256),{repeated}) FROM n"
        ),
    ];
    let modulus = random.random_range(2..9);
    for _ in 0..random.random_range(0..3) {
        statements.push(match random.random_range(0..4) {
            0 => format!("UPDATE bulk SET a=a+1, b=REVERSE(b) WHERE id % {modulus}=0"),
            1 => "UPDATE bulk SET id=-id ORDER BY id".to_owned(),
            2 => format!("UPDATE bulk SET b=CONCAT(LEFT(b,20),a) WHERE a>{modulus}"),
            _ => format!("DELETE FROM bulk WHERE a % {modulus}=1"),
        });
    }
    statements.push("DELETE FROM bulk ORDER BY a, id LIMIT 700".to_owned());
    statements.push((*["COMMIT", "COMMIT", "ROLLBACK"].choose(random).expect("ends")).to_owned());
    statements
}

/// Returns the rows of a table that all seeds share, and of one of the schema, in one statement.
pub(super) fn shared(schema: &Schema, common: &str, random: &mut StdRng) -> Vec<String> {
    let (n, id) = (random.random_range(1..50), random.random_range(1..20));
    let Some(table) = schema.tables.choose(random) else { return Vec::new() };
    let condition = condition(table, "a.", random);
    let name = &table.name;
    vec![match random.random_range(0..5) {
        0 => format!(
            "INSERT INTO {common} (id, n) VALUES ({id},{n}) ON DUPLICATE KEY UPDATE n=n+{n}"
        ),
        1 => format!("DELETE a, b FROM {name} a JOIN {common} b WHERE {condition} AND b.id={id}"),
        2 => format!("REPLACE INTO {common} (id, n) VALUES ({id},{n}),({n},{id})"),
        _ => format!(
            "UPDATE {name} a, {common} b SET {}, b.n=b.n+{n} WHERE {condition} AND b.id>{id}",
            assignments(table, "a.", random)
        ),
    }]
}

/// Returns the rows from a file; `None` where the table has no column for one.
pub(super) fn load(schema: &Schema, random: &mut StdRng) -> Option<Load> {
    let table = schema.tables.choose(random)?;
    let plain =
        |column: &&Column| !column.generated && (column.kind.is_integer() || column.kind.is_text());
    let columns: Vec<&Column> = table.columns.iter().filter(plain).collect();
    if columns.is_empty() {
        return None;
    }
    let rows = random.random_range(1..20);
    let value = |column: &Column, random: &mut StdRng| match random.random_range(0..9) {
        0 => "\\N".to_owned(),
        n if column.kind.is_integer() => (n * 5).to_string(),
        _ => ["a", "B", "ab ", "\\t", "x\\\\"].choose(random).expect("words").to_string(),
    };
    let mut row = || -> String {
        let values: Vec<String> = columns.iter().map(|column| value(column, random)).collect();
        values.join("\t") + "\n"
    };
    let content = (0..rows).map(|_| row()).collect();
    let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    let mode = ["", "IGNORE", "REPLACE"].choose(random).expect("modes");
    let mode = if table.is_replaceable() { mode } else { "IGNORE" };
    let statement = format!(
        "LOAD DATA INFILE '{FILE}' {mode} INTO TABLE {} CHARACTER SET utf8mb4 ({})",
        table.name,
        names.join(",")
    );
    Some(Load { statement, content })
}

/// Uses a temporary table; only rows written to a real table are logged.
pub(super) fn temporary(schema: &Schema, random: &mut StdRng) -> Vec<String> {
    let Some(table) = schema.tables.choose(random) else { return Vec::new() };
    let name = &table.name;
    let replace = if table.is_replaceable() { "REPLACE" } else { "INSERT IGNORE" };
    vec![
        format!("CREATE TEMPORARY TABLE IF NOT EXISTS temporary_{name} LIKE {name}"),
        format!("INSERT IGNORE INTO temporary_{name} SELECT * FROM {name} LIMIT 5"),
        format!("UPDATE IGNORE temporary_{name} SET {}", assignments(table, "", random)),
        format!("{replace} INTO {name} SELECT * FROM temporary_{name}"),
        format!("DROP TEMPORARY TABLE temporary_{name}"),
    ]
}

fn limit(random: &mut StdRng) -> String {
    match random.random_bool(0.4) {
        true => format!("LIMIT {}", random.random_range(1..4)),
        false => String::new(),
    }
}

fn writable(table: &Table) -> impl Iterator<Item = &Column> {
    table.columns.iter().filter(|column| !column.generated)
}

fn any_writable(table: &Table, random: &mut StdRng) -> String {
    writable(table).choose(random).map_or_else(|| "a".to_owned(), |column| column.name.clone())
}

/// Leaves some columns, in any order, to their defaults.
fn any_columns<'a>(table: &'a Table, random: &mut StdRng) -> Vec<&'a Column> {
    let all = random.random_bool(0.5);
    let columns: Vec<&Column> = writable(table)
        .filter(|column| {
            let is_counter = column.name == "id" && column.kind == Kind::ID;
            (all && !is_counter) || random.random_bool(if is_counter { 0.3 } else { 0.7 })
        })
        .collect();
    columns
}

fn value(column: &Column, random: &mut StdRng) -> String {
    match random.random_range(0..16) {
        0 => "NULL".to_owned(),
        1 => "DEFAULT".to_owned(),
        _ => column.kind.value(random),
    }
}

fn insert(verb: &str, table: &Table, random: &mut StdRng) -> String {
    let columns = any_columns(table, random);
    let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    let rows = *[1, 1, 1, 2, 3, 12].choose(random).expect("numbers");
    let rows: Vec<String> = (0..rows)
        .map(|_| {
            let values: Vec<String> = columns.iter().map(|column| value(column, random)).collect();
            format!("({})", values.join(","))
        })
        .collect();
    format!("{verb} {} ({}) VALUES {}", table.name, names.join(","), rows.join(","))
}

/// INSERT … SELECT, from the same table too.
fn select(ignore: &str, table: &Table, from: &Table, random: &mut StdRng) -> String {
    let columns = any_columns(table, random);
    let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    let expressions: Vec<String> = columns
        .iter()
        .map(|column| {
            let alike = from.columns.iter().filter(|other| other.kind == column.kind);
            match alike.choose(random) {
                Some(other) if random.random_bool(0.6) => other.name.clone(),
                _ => column.kind.value(random),
            }
        })
        .collect();
    format!(
        "INSERT {ignore}INTO {} ({}) SELECT {} FROM {} ORDER BY 1 LIMIT {}",
        table.name,
        names.join(","),
        if expressions.is_empty() { "1".to_owned() } else { expressions.join(",") },
        from.name,
        random.random_range(1..6)
    )
}

fn assignments(table: &Table, alias: &str, random: &mut StdRng) -> String {
    let count = *[1, 1, 2, 3].choose(random).expect("numbers");
    let mut columns = table.updatable().choose_multiple(random, count);
    if columns.is_empty() {
        columns.extend(table.columns.first());
    }
    let set: Vec<String> = columns
        .iter()
        .map(|column| {
            let name = format!("{alias}{}", column.name);
            let value = match random.random_range(0..12) {
                0 => "NULL".to_owned(),
                1 => "DEFAULT".to_owned(),
                _ => column.kind.change(&name, random),
            };
            format!("{name}={value}")
        })
        .collect();
    set.join(",")
}

fn condition(table: &Table, alias: &str, random: &mut StdRng) -> String {
    let comparable = table.columns.iter().filter(|column| column.kind.is_comparable());
    let Some(column) = comparable.choose(random) else { return "1".to_owned() };
    let name = format!("{alias}{}", column.name);
    match random.random_range(0..8) {
        0 => format!("{name} IS NULL"),
        1 => format!("{name} > {}", column.kind.value(random)),
        2 => format!(
            "{name} IN ({},{},{})",
            column.kind.value(random),
            column.kind.value(random),
            column.kind.value(random)
        ),
        _ => format!("{name} = {}", column.kind.value(random)),
    }
}

/// Swaps two values of a column, by way of NULL where needed.
fn swap(table: &Table, random: &mut StdRng) -> Vec<String> {
    let comparable = writable(table).filter(|column| column.kind.is_comparable());
    let Some(column) = comparable.choose(random) else { return Vec::new() };
    let (t, c) = (&table.name, &column.name);
    let (one, two, between) =
        (column.kind.value(random), column.kind.value(random), column.kind.value(random));
    vec![
        format!("UPDATE {t} SET {c}={between} WHERE {c}={one} LIMIT 1"),
        format!("UPDATE {t} SET {c}={one} WHERE {c}={two} LIMIT 1"),
        format!("UPDATE {t} SET {c}={two} WHERE {c}={between} LIMIT 1"),
    ]
}
