//! Finds the object of a statement that commits implicitly, from the statement's words.

use csa_provider::sql_text::{Dialect, Token, TokenKind};

/// The object that table rules look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Object {
    /// Nothing: routines, events, servers and the like.
    Unfiltered,
    /// A schema as a whole; `None` for the default database.
    Schema(Option<String>),
    /// Tables and views that are changed.
    Tables(Vec<Name>),
    /// The table of this trigger; the statement does not name the table.
    TriggerOf(Name),
    Accounts,
    /// Accounts, and a table or routine on which privileges are granted.
    Grant(Name),
    /// The statement was not understood.
    Unknown,
}

/// A name as written in the statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) schema: Option<String>,
    pub(super) name: String,
}

/// Kinds of objects that table rules do not look at.
const UNFILTERED: [&str; 9] = [
    "PROCEDURE",
    "FUNCTION",
    "EVENT",
    "SERVER",
    "TABLESPACE",
    "LOGFILE",
    "RESOURCE",
    "REFERENCE",
    "LIBRARY",
];
/// The kind of tables that only their session sees.
const TEMPORARY: &str = "TEMPORARY TABLE";
/// Words between CREATE, ALTER or DROP and the kind of the object.
const MODIFIERS: [&str; 21] = [
    "OR",
    "REPLACE",
    "UNIQUE",
    "FULLTEXT",
    "SPATIAL",
    "ONLINE",
    "OFFLINE",
    "ALGORITHM",
    "DEFINER",
    "CURRENT_USER",
    "SQL",
    "SECURITY",
    "INVOKER",
    "AGGREGATE",
    "UNDO",
    "JSON",
    "RELATIONAL",
    "DUALITY",
    "MATERIALIZED",
    "EXTERNAL",
    "IGNORE",
];

/// Returns the object of the statement with these words.
pub(super) fn object(tokens: &[Token<'_>], dialect: Dialect) -> Object {
    let mut words = Words { tokens, dialect };
    words.object().unwrap_or(Object::Unknown)
}

/// Returns the table whose definition a CREATE TABLE … LIKE takes.
pub(super) fn model(tokens: &[Token<'_>], dialect: Dialect) -> Option<Name> {
    let mut words = Words { tokens, dialect };
    words.take("CREATE")?;
    words.kind().filter(|kind| kind == "TABLE")?;
    words.if_exists();
    words.name()?;
    words.symbol(b'(');
    words.take("LIKE")?;
    words.name()
}

/// Returns true if a statement that begins with these words is about accounts, roles or privileges.
pub(super) fn is_about_accounts(leading: &[Token<'_>], dialect: Dialect) -> bool {
    let mut words = Words { tokens: leading, dialect };
    let Some(verb) = words.word() else { return false };
    match verb.to_ascii_uppercase().as_slice() {
        b"GRANT" | b"REVOKE" => true,
        b"RENAME" => words.is("USER"),
        b"SET" => words.is("PASSWORD") || words.take("DEFAULT").is_some() && words.is("ROLE"),
        b"CREATE" | b"ALTER" | b"DROP" => words.kind().is_some_and(|kind| kind == "USER"),
        _ => false,
    }
}

/// Returns true if a statement that begins with these words is a FLUSH.
pub(super) fn is_flushing(leading: &[Token<'_>], dialect: Dialect) -> bool {
    Words { tokens: leading, dialect }.is("FLUSH")
}

/// Returns true if a statement that begins with these words is an ALTER INSTANCE.
pub(super) fn is_about_instance(leading: &[Token<'_>]) -> bool {
    matches!(leading, [verb, what, ..] if verb.is("ALTER") && what.is("INSTANCE"))
}

/// Returns true if a statement that begins with these words maintains tables, and changes nothing in them.
pub(super) fn is_maintenance(leading: &[Token<'_>]) -> bool {
    let verbs = ["ANALYZE", "CHECK", "OPTIMIZE", "REPAIR"];
    leading.first().is_some_and(|verb| verbs.iter().any(|one| verb.is(one)))
}

/// Returns true if a FLUSH that begins with these words makes its server read the grant tables again.
pub(super) fn is_about_privileges(flush: &[Token<'_>]) -> bool {
    let Some((_, options)) = flush.split_first() else { return false };
    let of_tables = options.first().is_some_and(|token| token.is("TABLE") || token.is("TABLES"));
    !of_tables && options.iter().any(|token| token.is("PRIVILEGES"))
}

/// Returns true if a statement that begins with these words creates or drops temporary tables.
pub(super) fn is_about_temporary_tables(leading: &[Token<'_>], dialect: Dialect) -> bool {
    let mut words = Words { tokens: leading, dialect };
    let verb = words.word();
    let is_definition = verb.is_some_and(|verb| {
        ["CREATE", "ALTER", "DROP"].iter().any(|word| verb.eq_ignore_ascii_case(word.as_bytes()))
    });
    is_definition && words.kind().is_some_and(|kind| kind == TEMPORARY)
}

/// Returns true if a statement that begins with these words may change or copy a temporary table without the word TEMPORARY.
pub(super) fn may_use_temporary_table(leading: &[Token<'_>], dialect: Dialect) -> bool {
    let mut words = Words { tokens: leading, dialect };
    let Some(verb) = words.word() else { return false };
    match verb.to_ascii_uppercase().as_slice() {
        b"TRUNCATE" => true,
        b"ALTER" => words.kind().is_some_and(|kind| kind == "TABLE"),
        b"CREATE" => words.kind().is_some_and(|kind| kind == "INDEX" || kind == "TABLE"),
        b"DROP" => words.kind().is_some_and(|kind| kind == "INDEX"),
        _ => false,
    }
}

/// Names before a dot, anywhere in the statement.
pub(super) fn qualifiers<'t, 'a>(tokens: &'t [Token<'a>]) -> impl Iterator<Item = &'t Token<'a>> {
    tokens.windows(2).filter_map(|pair| match pair {
        [name, dot] if is_name(name) && dot.is_symbol(b'.') => Some(name),
        _ => None,
    })
}

pub(super) fn is_name(token: &Token<'_>) -> bool {
    matches!(token.kind, TokenKind::Word | TokenKind::Member | TokenKind::QuotedName)
}

/// The unread rest of a statement. Methods return `None` if it is not as expected.
struct Words<'t, 'a> {
    tokens: &'t [Token<'a>],
    dialect: Dialect,
}

impl<'t, 'a> Words<'t, 'a> {
    fn object(&mut self) -> Option<Object> {
        let verb = self.word()?.to_ascii_uppercase();
        match verb.as_slice() {
            b"CREATE" => self.create(),
            b"ALTER" => self.alter(),
            b"DROP" => self.drop(),
            b"RENAME" => self.rename(),
            b"TRUNCATE" => {
                self.take("TABLE");
                self.tables()
            }
            b"DELETE" => {
                self.take("FROM")?;
                self.one_table()
            }
            b"ANALYZE" | b"OPTIMIZE" | b"REPAIR" | b"CHECK" => {
                self.take_any(&["NO_WRITE_TO_BINLOG", "LOCAL"]);
                self.take_any(&["TABLE", "TABLES"])?;
                self.tables()
            }
            b"GRANT" | b"REVOKE" => self.grant(),
            // PRIVILEGES: all others are left out before.
            b"FLUSH" => Some(Object::Accounts),
            b"SET" => match self.take_any(&["PASSWORD", "DEFAULT"]) {
                Some(()) => Some(Object::Accounts),
                None => Some(Object::Unfiltered),
            },
            b"INSTALL" | b"UNINSTALL" => Some(Object::Unfiltered),
            _ => None,
        }
    }

    fn create(&mut self) -> Option<Object> {
        match self.kind()?.as_str() {
            "TABLE" | "VIEW" => {
                self.if_exists();
                self.one_table()
            }
            "INDEX" => {
                self.skip_to("ON")?;
                self.one_table()
            }
            "TRIGGER" => {
                self.if_exists();
                self.name()?;
                self.skip_to("ON")?;
                self.one_table()
            }
            "SCHEMA" => {
                self.if_exists();
                Some(Object::Schema(Some(self.name()?.name)))
            }
            other => other_kind(other),
        }
    }

    fn alter(&mut self) -> Option<Object> {
        match self.kind()?.as_str() {
            "TABLE" => {
                let mut tables = vec![self.name()?];
                self.others_of_alter_table(&mut tables)?;
                Some(Object::Tables(tables))
            }
            "VIEW" => self.one_table(),
            "SCHEMA" => {
                // Without a name it changes the default database
                // (<https://dev.mysql.com/doc/refman/en/alter-database.html>).
                let options = ["CHARACTER", "CHARSET", "DEFAULT", "COLLATE", "ENCRYPTION", "READ"];
                match options.iter().any(|option| self.is(option)) {
                    true => Some(Object::Schema(None)),
                    false => Some(Object::Schema(Some(self.name()?.name))),
                }
            }
            other => other_kind(other),
        }
    }

    /// Other tables that ALTER TABLE changes: its new name, and one it exchanges a partition with.
    fn others_of_alter_table(&mut self, tables: &mut Vec<Name>) -> Option<()> {
        let mut depth = 0_usize;
        while let Some(token) = self.next() {
            match token.kind {
                TokenKind::Symbol(b'(') => depth += 1,
                TokenKind::Symbol(b')') => depth = depth.saturating_sub(1),
                TokenKind::Word if depth == 0 => {
                    if token.is("RENAME") {
                        if ["COLUMN", "INDEX", "KEY"].iter().any(|part| self.is(part)) {
                            continue;
                        }
                        if self.take_any(&["TO", "AS"]).is_none() {
                            self.symbol(b'=');
                        }
                        tables.push(self.name()?);
                    } else if token.is("EXCHANGE") && self.is("PARTITION") {
                        self.skip_to("WITH")?;
                        self.take("TABLE")?;
                        tables.push(self.name()?);
                    }
                }
                _ => {}
            }
        }
        Some(())
    }

    fn drop(&mut self) -> Option<Object> {
        match self.kind()?.as_str() {
            "TABLE" | "VIEW" => {
                self.if_exists();
                self.tables()
            }
            "INDEX" => {
                self.skip_to("ON")?;
                self.one_table()
            }
            "TRIGGER" => {
                self.if_exists();
                Some(Object::TriggerOf(self.name()?))
            }
            "SCHEMA" => {
                self.if_exists();
                Some(Object::Schema(Some(self.name()?.name)))
            }
            other => other_kind(other),
        }
    }

    fn rename(&mut self) -> Option<Object> {
        if self.take("USER").is_some() {
            return Some(Object::Accounts);
        }
        self.take_any(&["TABLE", "TABLES"])?;
        let mut tables = Vec::new();
        loop {
            tables.push(self.name()?);
            self.take("TO")?;
            tables.push(self.name()?);
            if !self.symbol(b',') {
                return self.tokens.is_empty().then_some(Object::Tables(tables));
            }
        }
    }

    fn grant(&mut self) -> Option<Object> {
        if self.is("PROXY") {
            return Some(Object::Accounts);
        }
        let mut depth = 0_usize;
        loop {
            let token = self.next()?;
            match token.kind {
                TokenKind::Symbol(b'(') => depth += 1,
                TokenKind::Symbol(b')') => depth = depth.saturating_sub(1),
                TokenKind::Word if depth == 0 => {
                    if token.is("TO") || token.is("FROM") {
                        return Some(Object::Accounts);
                    }
                    if token.is("ON") {
                        return self.granted();
                    }
                }
                _ => {}
            }
        }
    }

    /// Returns the object on which privileges are granted.
    fn granted(&mut self) -> Option<Object> {
        if self.symbol(b'*') {
            return Some(Object::Accounts);
        }
        // Before a dot such a word is the name of a schema.
        if self.tokens.get(1).is_some_and(|token| !token.is_symbol(b'.')) {
            self.take_any(&["TABLE", "FUNCTION", "PROCEDURE", "LIBRARY"]);
        }
        let first = self.part()?;
        if !self.symbol(b'.') {
            return Some(Object::Grant(Name { schema: None, name: first }));
        }
        if self.symbol(b'*') {
            return Some(Object::Accounts);
        }
        Some(Object::Grant(Name { schema: Some(first), name: self.part()? }))
    }

    /// Returns the kind of the object, after skipping everything that may precede it.
    fn kind(&mut self) -> Option<String> {
        let mut temporary = false;
        loop {
            let token = self.next()?;
            match token.kind {
                // The value of ALGORITHM or DEFINER.
                TokenKind::Symbol(b'=') => drop(self.next()?),
                // Of DEFINER=user@host and CURRENT_USER(); the host is no token here (`tokens`).
                TokenKind::Symbol(b'@' | b'(' | b')') => {}
                TokenKind::Word => {
                    let word = String::from_utf8(token.text.to_ascii_uppercase()).ok()?;
                    if word == "TEMPORARY" {
                        temporary = true;
                    } else if !MODIFIERS.contains(&word.as_str()) {
                        return Some(match word.as_str() {
                            "TABLE" | "TABLES" if temporary => TEMPORARY.to_owned(),
                            "TABLES" => "TABLE".to_owned(),
                            "DATABASE" => "SCHEMA".to_owned(),
                            "ROLE" => "USER".to_owned(),
                            _ => word,
                        });
                    }
                }
                _ => return None,
            }
        }
    }

    fn one_table(&mut self) -> Option<Object> {
        Some(Object::Tables(vec![self.name()?]))
    }

    /// Names separated by commas.
    fn tables(&mut self) -> Option<Object> {
        let mut tables = vec![self.name()?];
        while self.symbol(b',') {
            tables.push(self.name()?);
        }
        Some(Object::Tables(tables))
    }

    fn if_exists(&mut self) {
        if self.take("IF").is_some() {
            self.take("NOT");
            self.take("EXISTS");
        }
    }

    fn name(&mut self) -> Option<Name> {
        let first = self.part()?;
        match self.symbol(b'.') {
            true => Some(Name { schema: Some(first), name: self.part()? }),
            false => Some(Name { schema: None, name: first }),
        }
    }

    fn part(&mut self) -> Option<String> {
        let token = self.next()?;
        self.dialect.name(token)
    }

    fn skip_to(&mut self, word: &str) -> Option<()> {
        loop {
            if self.take(word).is_some() {
                return Some(());
            }
            self.next()?;
        }
    }

    fn next(&mut self) -> Option<&'t Token<'a>> {
        let (first, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        Some(first)
    }

    fn word(&mut self) -> Option<&'a [u8]> {
        let token = self.next()?;
        (token.kind == TokenKind::Word).then_some(token.text)
    }

    /// Returns true if the next token is this word.
    fn is(&self, word: &str) -> bool {
        self.tokens.first().is_some_and(|token| token.is(word))
    }

    fn take(&mut self, word: &str) -> Option<()> {
        if !self.is(word) {
            return None;
        }
        self.next().map(drop)
    }

    fn take_any(&mut self, words: &[&str]) -> Option<()> {
        words.iter().find_map(|word| self.take(word))
    }

    fn symbol(&mut self, symbol: u8) -> bool {
        if !self.tokens.first().is_some_and(|token| token.is_symbol(symbol)) {
            return false;
        }
        self.next();
        true
    }
}

fn other_kind(kind: &str) -> Option<Object> {
    match kind {
        "USER" => Some(Object::Accounts),
        TEMPORARY => Some(Object::Unfiltered),
        _ => UNFILTERED.contains(&kind).then_some(Object::Unfiltered),
    }
}
