//! Changes of definitions, and their effect on the known state of the tables.

use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::{IndexedMutRandom as _, IndexedRandom as _};

use super::schema::{Column, Schema, Table};
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
            Effect::Gone { table } => schema.tables.retain(|other| other.name != table),
        }
    }
}

/// A change of a definition.
pub(super) fn any(schema: &mut Schema, random: &mut StdRng) -> Option<Definition> {
    if random.random_bool(0.1) {
        let statements = schema.add_table(random);
        return Some(Definition { statements, effect: Effect::None });
    }
    let by_statements = schema.by_statements;
    let table = schema.tables.choose_mut(random)?;
    let name = table.name.clone();
    let quiet = |statement| Some(Definition::new(statement, Effect::None));
    match random.random_range(0..26) {
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
        24 => quiet(format!("DROP TABLE IF EXISTS made_{name}")),
        _ => quiet(format!("ALTER TABLE {name} AUTO_INCREMENT=100, STATS_PERSISTENT=1")),
    }
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

/// Another type for a column.
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
