//! Changes and queries of the rows of one table.

use super::super::state::{TableName, Value};
use super::Statement;
use super::parser::Parser;

/// A value in a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scalar {
    Value(Value),
    Column(String),
    Now,
}

/// The column has one of the values; all conditions have to hold.
pub(crate) type Condition = (String, Vec<Value>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Insert {
    pub(crate) table: TableName,
    /// None for all.
    pub(crate) columns: Option<Vec<String>>,
    pub(crate) rows: Vec<Vec<Scalar>>,
    pub(crate) conflict: Conflict,
}

/// The consequence of a row that is there already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Conflict {
    Fail,
    Ignore,
    Update(Vec<(String, Scalar)>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Select {
    pub(crate) table: TableName,
    /// None for the number of rows.
    pub(crate) columns: Option<Vec<String>>,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) for_update: bool,
}

fn scalar(parser: &mut Parser<'_>) -> Option<Scalar> {
    if let Some(number) = parser.number() {
        return Some(Scalar::Value(Value::Number(number)));
    }
    if let Some(text) = parser.text() {
        return Some(Scalar::Value(Value::Text(text)));
    }
    if parser.has("NULL") {
        return Some(Scalar::Value(Value::Null));
    }
    for function in ["NOW", "FROM_UNIXTIME"] {
        if parser.has(function) {
            parser.symbol(b'(')?;
            parser.skip_item();
            parser.symbol(b')')?;
            return Some(Scalar::Now);
        }
    }
    parser.name().map(Scalar::Column)
}

fn assignment(parser: &mut Parser<'_>) -> Option<(String, Scalar)> {
    let column = parser.name()?;
    parser.symbol(b'=')?;
    Some((column, scalar(parser)?))
}

fn constant(parser: &mut Parser<'_>) -> Option<Value> {
    match scalar(parser)? {
        Scalar::Value(value) => Some(value),
        _ => None,
    }
}

fn conditions(parser: &mut Parser<'_>) -> Option<Vec<Condition>> {
    let mut conditions = Vec::new();
    if !parser.has("WHERE") {
        return Some(conditions);
    }
    loop {
        let column = parser.name()?;
        let values = match parser.has("IN") {
            true => parser.in_parentheses(constant)?,
            false => {
                parser.symbol(b'=')?;
                vec![constant(parser)?]
            }
        };
        conditions.push((column, values));
        if !parser.has("AND") {
            return Some(conditions);
        }
    }
}

pub(super) fn insert(parser: &mut Parser<'_>) -> Option<Statement> {
    let mut conflict = if parser.has("IGNORE") { Conflict::Ignore } else { Conflict::Fail };
    parser.words(&["INTO"])?;
    let table = parser.table()?;
    let (columns, rows) = if parser.has("SET") {
        let (columns, row) = parser.list(assignment)?.into_iter().unzip();
        (Some(columns), vec![row])
    } else {
        let columns = parser.in_parentheses(Parser::name);
        parser.words(&["VALUES"])?;
        (columns, parser.list(|parser| parser.in_parentheses(scalar))?)
    };
    if parser.words(&["ON", "DUPLICATE", "KEY", "UPDATE"]).is_some() {
        conflict = Conflict::Update(parser.list(assignment)?);
    }
    Some(Statement::Insert(Insert { table, columns, rows, conflict }))
}

pub(super) fn update(parser: &mut Parser<'_>) -> Option<Statement> {
    let table = parser.table()?;
    // The index of the conditions, which is how rows are found here anyway.
    if parser.words(&["FORCE", "INDEX"]).is_some() {
        parser.in_parentheses(Parser::name)?;
    }
    parser.words(&["SET"])?;
    let set = parser.list(assignment)?;
    Some(Statement::Update { table, set, conditions: conditions(parser)? })
}

pub(super) fn delete(parser: &mut Parser<'_>) -> Option<Statement> {
    parser.words(&["FROM"])?;
    let table = parser.table()?;
    Some(Statement::Delete { table, conditions: conditions(parser)? })
}

/// Returns the part after SELECT, if it reads a table.
pub(super) fn select(parser: &mut Parser<'_>) -> Option<Select> {
    parser.attempt(|parser| {
        let columns = match parser.has("COUNT") {
            true => {
                parser.symbol(b'(')?;
                parser.symbol(b'*')?;
                parser.symbol(b')')?;
                None
            }
            false => Some(parser.list(Parser::name)?),
        };
        parser.words(&["FROM"])?;
        let table = parser.table()?;
        let conditions = conditions(parser)?;
        let for_update = parser.words(&["FOR", "UPDATE"]).is_some();
        Some(Select { table, columns, conditions, for_update })
    })
}
