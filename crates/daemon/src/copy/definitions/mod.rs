//! The definitions of a source, as the statements that create them on an empty target.
//!
//! A table is filled before it gets its secondary indexes, which is faster, and all tables are filled before
//! any gets its foreign keys. Views, triggers and events come last: a trigger would fire for copied rows.

mod collation;
mod digest;
mod elements;
mod event;
mod program;
mod program_lists;
mod table;
mod view_order;
mod zoned;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use collation::with_collations;
use csa_provider::server::by_hand::of_account;
use csa_provider::sql_text::identifier;

pub(super) use digest::CHANGED;
pub(super) use program::{Program, ProgramKind};
pub(super) use program_lists::schema_collations;
pub(super) use table::{additions, qualified, unnumbered};
pub(super) use zoned::zoned;

use crate::servers::copy_privileges;
use crate::verify::{Result, TableName, VerifyError, VerifySession};

/// Everything that has to be created, in the order of use.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    /// CREATE DATABASE and CREATE TABLE.
    pub(super) before: Vec<String>,
    /// Secondary indexes, of tables that have any. The statements of a table run one after another.
    pub(super) indexes: Vec<(TableName, Vec<String>)>,
    /// Unique keys of tables that are copied in chunks: chunks of several moments may hold one value twice.
    pub(super) unique: Vec<(TableName, String)>,
    pub(super) foreign_keys: Vec<(TableName, String)>,
    /// The order is one in which each is likely to succeed. One that fails is tried again after all others, until
    /// a round creates none.
    pub(super) programs: Vec<Program>,
    /// Named at the end of a copy, and not made.
    pub(super) not_copied: Vec<String>,
}

impl Definitions {
    /// Returns true if both define the same. The next numbers of AUTO_INCREMENT may differ: they change while the
    /// source is in use.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.programs == other.programs && self.has_same_tables(other)
    }

    /// Returns true if both define the same schemas and tables.
    pub(super) fn has_same_tables(&self, other: &Self) -> bool {
        self.indexes == other.indexes
            && self.unique == other.unique
            && self.foreign_keys == other.foreign_keys
            && self.unnumbered() == other.unnumbered()
    }

    fn unnumbered(&self) -> Vec<String> {
        self.before.iter().map(|text| table::unnumbered(text)).collect()
    }
}

/// Reads the definitions of schemas, of base tables in them, and of all programs in these schemas. A trigger is
/// read if its table is one of the tables. `chunked`: tables that are copied in chunks.
///
/// # Errors
/// The account may not see all of them, a table is gone, or the server goes away.
pub(super) async fn read(
    session: &mut VerifySession,
    schemas: &[String],
    tables: &[TableName],
    chunked: &BTreeSet<TableName>,
) -> Result<Definitions> {
    let schemas: BTreeSet<&str> = schemas.iter().map(String::as_str).collect();
    let grants = session.grants().await?;
    if let Some(missing) = copy_privileges::missing(&grants, &schemas) {
        let account = grants.account();
        return Err(session.refused(&format!(
            "{account} may not see all that is copied; run there: {}",
            of_account(&missing)
        )));
    }
    let collations = default_collations(session).await?;
    let mut found = Definitions::default();
    for schema in &schemas {
        let what = format!("DATABASE IF NOT EXISTS {}", identifier(schema));
        found.before.push(shown(session, &what, &collations).await?);
    }
    for name in tables {
        let what = format!("TABLE {}", table::qualified(name));
        let text = shown(session, &what, &collations).await?;
        found.not_copied.extend(zoned(name, &text));
        let created = table::Statements::of(name, &text, chunked.contains(name))
            .map_err(|error| unreadable(session, &what, &error))?;
        found.before.push(created.create);
        found.not_copied.extend(created.unclear);
        if !created.indexes.is_empty() {
            found.indexes.push((name.clone(), created.indexes));
        }
        if let Some(unique) = created.unique {
            found.unique.push((name.clone(), unique));
        }
        if let Some(foreign_keys) = created.foreign_keys {
            found.foreign_keys.push((name.clone(), foreign_keys));
        }
    }
    let (programs, not_made) = program_lists::read(session, &schemas, tables).await?;
    found.programs = programs;
    found.not_copied.extend(not_made);
    found.not_copied.extend(spatial_reference_systems(session).await?);
    Ok(found)
}

/// Names the spatial reference systems that are not MySQL's: those in ranges that it does not reserve. They belong to
/// no schema, and to create one takes a privilege of its own.
async fn spatial_reference_systems(session: &mut VerifySession) -> Result<Vec<String>> {
    if !program_lists::has_list(session, "ST_SPATIAL_REFERENCE_SYSTEMS").await? {
        return Ok(Vec::new());
    }
    let rows: Vec<(u32, String)> = session
        .rows(
            "SELECT SRS_ID, SRS_NAME FROM information_schema.ST_SPATIAL_REFERENCE_SYSTEMS \
             WHERE SRS_ID BETWEEN 32768 AND 59999999 OR SRS_ID BETWEEN 70000000 AND 1999999999 \
             OR SRS_ID > 2147483647 ORDER BY SRS_ID",
        )
        .await?;
    let named = |(number, name)| {
        format!(
            "spatial reference system {number} ({name}): unless it is there, run its CREATE SPATIAL REFERENCE SYSTEM \
             on the target"
        )
    };
    Ok(rows.into_iter().map(named).collect())
}

/// Returns the default collations of character sets.
async fn default_collations(session: &mut VerifySession) -> Result<BTreeMap<String, String>> {
    let rows: Vec<(String, String)> = session
        .rows(
            "SELECT CHARACTER_SET_NAME, DEFAULT_COLLATE_NAME FROM information_schema.CHARACTER_SETS",
        )
        .await?;
    Ok(rows.into_iter().collect())
}

/// Returns the text from SHOW CREATE DATABASE or SHOW CREATE TABLE, with all collations.
async fn shown(
    session: &mut VerifySession,
    what: &str,
    collations: &BTreeMap<String, String>,
) -> Result<String> {
    let rows: Vec<(String, String)> = session.rows(&format!("SHOW CREATE {what}")).await?;
    let Some((_, text)) = rows.first() else {
        return Err(session.refused(&format!("SHOW CREATE {what} returns nothing")));
    };
    with_collations(text, collations).map_err(|error| unreadable(session, what, &error))
}

fn unreadable(session: &VerifySession, what: &str, why: &dyn Display) -> VerifyError {
    session.refused(&format!("the answer to SHOW CREATE {what} can't be read: {why}"))
}
