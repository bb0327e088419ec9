//! Changes and queries of the rows of one table.

use super::super::state::{TableName, Value};
use super::Statement;
use super::parser::Parser;

/// A value in a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scalar {
    Value(Value),
    Column(String),
    /// A column's number and another.
    Sum(String, i64),
    Now,
}

/// A column and what it has to be; all conditions have to hold.
pub(crate) type Condition = (String, Test);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Test {
    OneOf(Vec<Value>),
    NotNull,
    Above(Value),
    AtMost(Value),
    /// A column is compared with itself.
    Any,
}

impl Test {
    pub(crate) fn holds(&self, value: &Value) -> bool {
        match self {
            Self::OneOf(values) => values.contains(value),
            Self::NotNull => *value != Value::Null,
            Self::Above(bound) => value > bound,
            Self::AtMost(bound) => value <= bound,
            Self::Any => true,
        }
    }
}

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
    Replace,
    Update(Vec<(String, Scalar)>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Select {
    pub(crate) table: TableName,
    /// None for the number of rows.
    pub(crate) columns: Option<Vec<String>>,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) for_update: bool,
    pub(crate) distinct: bool,
    pub(crate) limit: Option<u64>,
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
    // An unsigned number may be none of the signed ones.
    if let Some(digits) = parser.large_number() {
        return Some(Scalar::Value(Value::Text(digits)));
    }
    let column = parser.name()?;
    match parser.symbol(b'+') {
        Some(()) => Some(Scalar::Sum(column, parser.number()?)),
        None => Some(Scalar::Column(column)),
    }
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
        let test = test(&column, parser)?;
        conditions.push((column, test));
        if !parser.has("AND") {
            return Some(conditions);
        }
    }
}

fn test(column: &str, parser: &mut Parser<'_>) -> Option<Test> {
    if parser.has("IN") {
        return parser.in_parentheses(constant).map(Test::OneOf);
    }
    if parser.has("IS") {
        return parser.words(&["NOT", "NULL"]).map(|()| Test::NotNull);
    }
    if parser.symbol(b'>').is_some() {
        return constant(parser).map(Test::Above);
    }
    if parser.symbol(b'<').is_some() {
        parser.symbol(b'=')?;
        return constant(parser).map(Test::AtMost);
    }
    parser.symbol(b'=')?;
    if parser.has(column) {
        return Some(Test::Any);
    }
    Some(Test::OneOf(vec![constant(parser)?]))
}

pub(super) fn replace(parser: &mut Parser<'_>) -> Option<Statement> {
    match insert(parser)? {
        Statement::Insert(insert) => {
            Some(Statement::Insert(Insert { conflict: Conflict::Replace, ..insert }))
        }
        _ => None,
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
        let distinct = parser.has("DISTINCT");
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
        if parser.words(&["FORCE", "INDEX"]).is_some() {
            parser.in_parentheses(Parser::name)?;
        }
        let conditions = conditions(parser)?;
        // Rows are in the order of the primary key, and nobody asks for another one.
        if parser.words(&["ORDER", "BY"]).is_some() {
            parser.list(Parser::name)?;
        }
        let limit = parser.has("LIMIT").then(|| parser.unsigned()).flatten();
        let for_update = parser.words(&["FOR", "UPDATE"]).is_some();
        Some(Select { table, columns, conditions, for_update, distinct, limit })
    })
}
