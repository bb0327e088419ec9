//! Changes of definitions, and their effect on the known state of the tables.

use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::{IndexedMutRandom as _, IndexedRandom as _};

use super::schema::{Column, Schema, Style, Table};
use super::values::{COLLATIONS, Kind};

/// A statement and its effect once it has succeeded.
#[derive(Debug)]
pub(super) struct Definition {
    pub(super) statements: Vec<String>,
    effect: Effect,
}

#[derive(Debug)]
enum Effect {
    None,
    Add { table: String, column: Column },
    Drop { table: String, column: String },
    Become { table: String, column: String, kind: Kind },
    RenameColumn { table: String, from: String, to: String },
    Rename { from: String, to: String },
    Swap { one: String, other: String },
    Gone { table: String },
}

impl Definition {
    fn new(statement: String, effect: Effect) -> Self {
        Self { statements: vec![statement], effect }
    }

    /// The statements have succeeded.
    pub(super) fn done(self, schema: &mut Schema) {
        let mut with = |name: &str, change: &mut dyn FnMut(&mut Table)| {
            schema.tables.iter_mut().filter(|table| table.name == name).for_each(change);
        };
        match self.effect {
            Effect::None => {}
            Effect::Add { table, column } => {
                with(&table, &mut |table| table.columns.push(column.clone()));
            }
            Effect::Drop { table, column } => {
                with(&table, &mut |table| table.columns.retain(|other| other.name != column));
            }
            Effect::Become { table, column, kind } => with(&table, &mut |table| {
                let columns = table.columns.iter_mut().filter(|other| other.name == column);
                columns.for_each(|column| column.kind = kind.clone());
            }),
            Effect::RenameColumn { table, from, to } => with(&table, &mut |table| {
                let columns = table.columns.iter_mut().filter(|other| other.name == from);
                columns.for_each(|column| column.name = to.clone());
            }),
            Effect::Rename { from, to } => with(&from, &mut |table| table.name = to.clone()),
            Effect::Swap { one, other } => {
                for table in &mut schema.tables {
                    if table.name == one {
                        table.name.clone_from(&other);
                    } else if table.name == other {
                        table.name.clone_from(&one);
                    }
                }
            }
            Effect::Gone { table } => schema.tables.retain(|other| other.name != table),
        }
    }
}

/// Returns a change of a definition.
pub(super) fn any(schema: &mut Schema, random: &mut StdRng) -> Option<Definition> {
    if random.random_bool(0.1) {
        let statements = schema.add_table(random);
        return Some(Definition { statements, effect: Effect::None });
    }
    if random.random_bool(0.06) {
        return swap(schema, random);
    }
    let style = schema.style;
    let Style { by_statements, renamed, .. } = style;
    let table = schema.tables.choose_mut(random)?;
    let name = table.name.clone();
    let quiet = |statement| Some(Definition::new(statement, Effect::None));
    match random.random_range(0..36) {
        0..4 => add_column(table, random),
        4 | 5 => {
            let column = table.columns.choose(random)?.name.clone();
            // References between tables, or the key that distinguishes rows, would go with it.
            if ["id", "p", "k", "k_", "l", "l_", "g", "g_"].contains(&column.as_str()) {
                return None;
            }
            let statement = format!("ALTER TABLE {name} DROP COLUMN {column}");
            Some(Definition::new(statement, Effect::Drop { table: name, column }))
        }
        6 | 7 => modify(table, random),
        8 => {
            let from = table.columns.choose(random)?.name.clone();
            let to = format!("{from}_");
            if ["id", "p"].contains(&from.as_str()) || from.len() > 8 {
                return None;
            }
            let statement = format!("ALTER TABLE {name} RENAME COLUMN {from} TO {to}");
            Some(Definition::new(statement, Effect::RenameColumn { table: name, from, to }))
        }
        9..13 => {
            let key = table.any_key(random.random_bool(0.5), random)?;
            quiet(format!("ALTER TABLE {name} ADD {key}"))
        }
        13 => {
            let n = random.random_range(1..10);
            quiet(format!("ALTER TABLE {name} DROP INDEX k{n}"))
        }
        14 => quiet(format!("TRUNCATE TABLE {name}")),
        15 => quiet(format!("ALTER TABLE {name} ENGINE=InnoDB")),
        16 => quiet(format!("ANALYZE TABLE {name}")),
        17 => {
            let collation = COLLATIONS.choose(random)?;
            quiet(format!("ALTER TABLE {name} DEFAULT COLLATE {collation}, COMMENT '{collation}'"))
        }
        18 => {
            let to = format!("{name}_");
            if !name.starts_with('t') || name.len() > 8 {
                return None;
            }
            let statement = format!("RENAME TABLE {name} TO {to}");
            Some(Definition::new(statement, Effect::Rename { from: name, to }))
        }
        19 if name.starts_with('t') && random.random_bool(0.3) => {
            Some(Definition::new(format!("DROP TABLE {name}"), Effect::Gone { table: name }))
        }
        20 => quiet(format!("ALTER TABLE {name} PARTITION BY KEY () PARTITIONS 3")),
        21 => quiet(format!("ALTER TABLE {name} REMOVE PARTITIONING")),
        22 if style.leaves_out(&name) => None,
        22 => {
            quiet(format!("CREATE OR REPLACE VIEW v_{name} AS SELECT 1 AS one, t.* FROM {name} t"))
        }
        // With rows it is a single transaction with row images only.
        23 if by_statements => quiet(format!("CREATE TABLE made_{name} LIKE {name}")),
        // The server logs UTF-8 whatever the session's character set, and replicas, MySQL's own
        // included, read it in the session's.
        23 => Some(Definition {
            statements: vec![
                "SET NAMES utf8mb4".to_owned(),
                format!("CREATE TABLE made_{name} SELECT * FROM {name} ORDER BY 1 LIMIT 9"),
            ],
            effect: Effect::None,
        }),
        24 => quiet(format!("DROP TABLE IF EXISTS made_{name}, made_none")),
        25..28 => partitions(table, random),
        28 => {
            let column = table.any_generated(random)?;
            let statement = format!("ALTER TABLE {name} ADD COLUMN {}", column.sql());
            Some(Definition::new(statement, Effect::Add { table: name, column }))
        }
        29 if by_statements => quiet(format!("DROP VIEW IF EXISTS v_{name}")),
        29 => Some(Definition {
            statements: vec![format!("DROP TRIGGER IF EXISTS after_{name}"), table.trigger(random)],
            effect: Effect::None,
        }),
        30 => {
            let column = &table.columns.choose(random)?.name;
            quiet(format!("CREATE INDEX also ON {name} ({column}) INVISIBLE"))
        }
        31 => quiet(format!("DROP INDEX also ON {name}")),
        32 => {
            let collation = COLLATIONS.choose(random)?;
            let set = collation.split('_').next()?;
            quiet(format!("ALTER TABLE {name} CONVERT TO CHARACTER SET {set} COLLATE {collation}"))
        }
        33 => quiet(format!("ALTER TABLE {name} DROP PRIMARY KEY, ADD PRIMARY KEY (id DESC)")),
        34 if !renamed => account(&name, random),
        _ => quiet(format!("ALTER TABLE {name} AUTO_INCREMENT=100, STATS_PERSISTENT=1")),
    }
}

/// Two tables change their names in one statement.
fn swap(schema: &Schema, random: &mut StdRng) -> Option<Definition> {
    let mut names =
        schema.tables.iter().map(|table| &table.name).filter(|name| name.starts_with('t'));
    let (one, other) = (names.next()?.clone(), names.next_back()?.clone());
    let between = random.random_range(1..9);
    // Relatives keep their places.
    if one == "tree" || other == "tree" {
        return None;
    }
    let statement = format!(
        "RENAME TABLE {one} TO between_{between}, {other} TO {one}, between_{between} TO {other}"
    );
    Some(Definition::new(statement, Effect::Swap { one, other }))
}

/// Changes the partitions of a table, or moves one out of it and back.
fn partitions(table: &Table, random: &mut StdRng) -> Option<Definition> {
    if !table.was_partitioned() {
        return None;
    }
    let name = &table.name;
    let part = *["p0", "p1", "a", "b"].choose(random)?;
    let alter = |what: &str| vec![format!("ALTER TABLE {name} {what}")];
    let statements = match random.random_range(0..8) {
        0 => alter(&format!("TRUNCATE PARTITION {part}")),
        1 => alter("COALESCE PARTITION 1"),
        2 => alter("ADD PARTITION PARTITIONS 2"),
        3 => alter(
            "REORGANIZE PARTITION b INTO (PARTITION b VALUES LESS THAN (40), \
             PARTITION c VALUES LESS THAN MAXVALUE)",
        ),
        4 => alter(&format!("DROP PARTITION {part}")),
        5 => alter("REBUILD PARTITION ALL"),
        _ => vec![
            format!("CREATE TABLE moved LIKE {name}"),
            "ALTER TABLE moved REMOVE PARTITIONING".to_owned(),
            format!("ALTER TABLE {name} EXCHANGE PARTITION {part} WITH TABLE moved"),
            format!("DELETE FROM {name} ORDER BY 1 LIMIT 3"),
            format!("ALTER TABLE {name} EXCHANGE PARTITION {part} WITH TABLE moved"),
            "DROP TABLE moved".to_owned(),
        ],
    };
    Some(Definition { statements, effect: Effect::None })
}

/// Accounts and what they may do.
fn account(table: &str, random: &mut StdRng) -> Option<Definition> {
    let number = random.random_range(1..4);
    let user = format!("rt_user_{number}@localhost");
    let role = format!("rt_role_{number}");
    // A password costs 5,000 rounds of SHA-256, here and on each target.
    let known = "IDENTIFIED WITH caching_sha2_password AS ''";
    let statement = match random.random_range(0..14) {
        0..3 => format!("CREATE USER IF NOT EXISTS {user} {known}"),
        3 => format!("CREATE ROLE IF NOT EXISTS {role}"),
        4 => format!("GRANT SELECT, INSERT ON {table} TO {user}"),
        5 => format!("GRANT {role} TO {user} WITH ADMIN OPTION"),
        6 => format!("SET DEFAULT ROLE ALL TO {user}"),
        7 => format!("ALTER USER {user} ACCOUNT LOCK PASSWORD EXPIRE NEVER COMMENT 'c {number}'"),
        8 => format!("ALTER USER {user} REQUIRE SSL ATTRIBUTE '{{\"n\": {number}}}'"),
        9 => format!("REVOKE ALL PRIVILEGES, GRANT OPTION FROM {user}"),
        10 => format!("RENAME USER {user} TO rt_user_{}@localhost", number + 1),
        11 => format!("DROP USER IF EXISTS {user}, rt_user_4@localhost"),
        12 => format!("DROP ROLE IF EXISTS {role}"),
        _ => format!("GRANT PROCESS, REPLICATION CLIENT, BACKUP_ADMIN ON *.* TO {user}"),
    };
    Some(Definition::new(statement, Effect::None))
}

fn add_column(table: &mut Table, random: &mut StdRng) -> Option<Definition> {
    let column = table.any_column(random);
    let other = &table.columns.choose(random)?.name;
    let place = match random.random_range(0..3) {
        0 => "FIRST".to_owned(),
        1 => format!("AFTER {other}"),
        _ => String::new(),
    };
    let statement = format!("ALTER TABLE {} ADD COLUMN {} {place}", table.name, column.sql());
    Some(Definition::new(statement, Effect::Add { table: table.name.clone(), column }))
}

/// Returns another type for a column.
fn modify(table: &Table, random: &mut StdRng) -> Option<Definition> {
    let column = table.columns.choose(random)?;
    if column.generated || ["id", "p", "k"].contains(&column.name.as_str()) {
        return None;
    }
    let kind = match &column.kind {
        Kind::Integer { .. } => {
            Kind::Integer { name: "BIGINT", max: i64::MAX.into(), unsigned: false }
        }
        Kind::Text { name, long, .. } => {
            Kind::Text { name, collation: COLLATIONS.choose(random)?, long: *long }
        }
        _ => Kind::any(random),
    };
    let statement = format!("ALTER TABLE {} MODIFY {} {}", table.name, column.name, kind.sql());
    let effect = Effect::Become { table: table.name.clone(), column: column.name.clone(), kind };
    Some(Definition::new(statement, effect))
}
