//! Tables of every shape: keys of all kinds or none, generated and invisible columns, partitions,
//! checks, relations.

use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

use super::dml;
use super::values::{COLLATIONS, Kind};

#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: Kind,
    /// The column can't be written.
    pub(super) generated: bool,
    /// The text after the type.
    options: String,
}

/// The known state of a table, which other clients may be changing.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) name: String,
    pub(super) columns: Vec<Column>,
    /// Keys, checks, relations.
    clauses: Vec<String>,
    options: String,
    hidden_key: bool,
    /// Rows are found by a key that no two of them share.
    row_key: bool,
    /// Numbers the names of new columns and indexes.
    next: u32,
}

/// The limits of what is generated.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Style {
    /// Rows are not applied as images, so nothing is generated that needs images.
    pub(super) by_statements: bool,
    /// Names of tables have capitals.
    pub(super) capitals: bool,
    /// A follower renames the schema and leaves tables out, so nothing names the schema or needs those.
    pub(super) renamed: bool,
    /// Few tables, for many seeds in a short time.
    pub(super) few: bool,
}

impl Style {
    /// A follower has no such table.
    pub(super) fn leaves_out(self, table: &str) -> bool {
        self.renamed && ["grandchild", "pair"].contains(&table)
    }
}

#[derive(Debug, Clone)]
pub(super) struct Schema {
    pub(super) name: String,
    pub(super) tables: Vec<Table>,
    pub(super) style: Style,
    next: u32,
}

impl Column {
    fn new(name: &str, kind: Kind, options: &str) -> Self {
        Self { name: name.to_owned(), kind, generated: false, options: options.to_owned() }
    }

    fn generated(name: &str, kind: Kind, expression: &str, stored: bool) -> Self {
        let how = if stored { "STORED" } else { "VIRTUAL" };
        let options = format!("GENERATED ALWAYS AS ({expression}) {how}");
        Self { name: name.to_owned(), kind, generated: true, options }
    }

    pub(super) fn sql(&self) -> String {
        format!("{} {} {}", self.name, self.kind.sql(), self.options)
    }
}

impl Schema {
    /// Returns the tables without relations, and a family with them.
    pub(super) fn any(name: &str, style: Style, random: &mut StdRng) -> Self {
        let mut schema = Self { name: name.to_owned(), tables: Vec::new(), style, next: 0 };
        for _ in 0..random.random_range(if style.few { 2..4 } else { 4..8 }) {
            schema.add_table(random);
        }
        let relatives = family(random);
        schema.tables.extend(relatives);
        if style.few {
            schema.leave_relatives(random);
        }
        schema
    }

    /// Leaves some tables of the family, and none without those that it refers to.
    fn leave_relatives(&mut self, random: &mut StdRng) {
        let (child, others) = (random.random_bool(0.7), random.random_bool(0.5));
        self.tables.retain(|table| match table.name.as_str() {
            "child" => child,
            "grandchild" => child && others,
            "only_child" | "tree" => random.random_bool(0.4),
            "pair" => others,
            _ => true,
        });
    }

    /// Adds a table; returns the statements that make it.
    pub(super) fn add_table(&mut self, random: &mut StdRng) -> Vec<String> {
        self.next += 1;
        let letter = if self.style.capitals { "tX" } else { "t" };
        let table = Table::any(&format!("{letter}{}", self.next), random);
        let create = table.create();
        self.tables.push(table);
        create
    }

    /// Objects outside the tables: views, routines, and triggers that write elsewhere. With the SQL
    /// executor the triggers would fire on the target, so only the source gets them then.
    pub(super) fn extras(&self, random: &mut StdRng) -> Vec<String> {
        let mut statements = vec![
            "CREATE TABLE audit (t VARCHAR(20), n INT, at TIMESTAMP(6) NULL)".to_owned(),
            "CREATE TABLE bulk (id INT AUTO_INCREMENT PRIMARY KEY, a INT, b VARCHAR(999), KEY (a))"
                .to_owned(),
            "CREATE FUNCTION noted(n INT) RETURNS INT DETERMINISTIC MODIFIES SQL DATA \
             BEGIN INSERT INTO audit VALUES ('noted', n, NOW(6)); RETURN n; END"
                .to_owned(),
            self.procedure(random),
        ];
        for table in &self.tables {
            let name = &table.name;
            if random.random_bool(0.3) {
                let logged = u8::from(!self.style.by_statements);
                statements.extend([
                    format!("SET sql_log_bin={logged}"),
                    table.trigger(random),
                    "SET sql_log_bin=1".to_owned(),
                ]);
            }
            if random.random_bool(0.2) && !self.style.leaves_out(name) {
                statements.push(format!("CREATE VIEW v_{name} AS SELECT COUNT(*) n FROM {name}"));
            }
        }
        statements
    }

    /// A procedure of several statements, which continues after an error; it may begin and end transactions.
    fn procedure(&self, random: &mut StdRng) -> String {
        let mut body: Vec<String> = (0..3).flat_map(|_| dml::any(self, random)).collect();
        if random.random_bool(0.5) {
            body.insert(0, "START TRANSACTION".to_owned());
            body.insert(2, (*["COMMIT", "SAVEPOINT p"].choose(random).expect("ends")).to_owned());
            body.push("COMMIT".to_owned());
        }
        format!(
            "CREATE PROCEDURE several() BEGIN DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN END; {}; END",
            body.join("; ")
        )
    }
}

impl Table {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            columns: Vec::new(),
            clauses: Vec::new(),
            options: String::new(),
            hidden_key: false,
            row_key: true,
            next: 0,
        }
    }

    fn any(name: &str, random: &mut StdRng) -> Self {
        let mut table = Self::new(name);
        let may_be_partitioned = table.add_primary_key(random);
        for _ in 0..random.random_range(1..7) {
            let column = table.any_column(random);
            table.columns.push(column);
        }
        if random.random_bool(0.4) {
            table.add_generated(random);
        }
        let is_partitioned = may_be_partitioned && random.random_bool(0.3);
        if is_partitioned {
            table.options = [
                "PARTITION BY HASH (id) PARTITIONS 3",
                "PARTITION BY KEY () PARTITIONS 2",
                "PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (20), \
                 PARTITION b VALUES LESS THAN MAXVALUE)",
            ]
            .choose(random)
            .map_or_else(String::new, |text| (*text).to_owned());
        }
        let keys = random.random_range(0..=2);
        for _ in 0..keys {
            let unique = !is_partitioned && random.random_bool(0.6);
            if let Some(key) = table.any_key(unique, random) {
                table.clauses.push(key);
            }
        }
        let mut integers = table.columns.iter().filter(|column| column.kind.is_integer());
        if let Some(column) = integers.next_back()
            && random.random_bool(0.2)
        {
            let check = format!("CHECK ({} IS NULL OR {} <> 13)", column.name, column.name);
            table.clauses.push(check);
        }
        table
    }

    /// Returns true if it can be partitioned by `id`.
    fn add_primary_key(&mut self, random: &mut StdRng) -> bool {
        const AUTOMATIC: &str = "NOT NULL AUTO_INCREMENT";
        let column = |name: &str, kind, options: &str| Column::new(name, kind, options);
        match random.random_range(0..16) {
            0..5 => {
                self.columns.push(column("id", Kind::ID, AUTOMATIC));
                self.clauses.push("PRIMARY KEY (id)".to_owned());
                return true;
            }
            5 => {
                self.columns.push(column("id", Kind::ID, "NOT NULL AUTO_INCREMENT INVISIBLE"));
                self.clauses.push("PRIMARY KEY (id DESC)".to_owned());
            }
            6 | 7 => {
                let (first, second) = (Kind::key(random), Kind::key(random));
                let parts = [("k", first), ("l", second)].map(|(name, kind)| {
                    let part = kind.prefix(random).unwrap_or_default();
                    self.columns.push(column(name, kind, "NOT NULL"));
                    format!("{name}{part}")
                });
                self.clauses.push(format!("PRIMARY KEY ({})", parts.join(",")));
            }
            8..12 => {
                let kind = Kind::key(random);
                let part = kind.prefix(random).unwrap_or_default();
                self.columns.push(column("k", kind, "NOT NULL"));
                // Without a primary key rows are found by the first unique key without NULLs.
                let key = ["PRIMARY KEY", "PRIMARY KEY", "UNIQUE"].choose(random).expect("keys");
                self.clauses.push(format!("{key} (k{part})"));
            }
            12 => {
                let kind = Kind::key(random);
                let part = kind.prefix(random).unwrap_or_default();
                self.columns.push(column("k", kind, ""));
                self.clauses.push(format!("UNIQUE (k{part})"));
                self.row_key = false;
            }
            13 => {
                let base = Kind::Reference;
                self.columns.push(column("k", base, "NOT NULL"));
                self.columns.push(Column::generated("g", Kind::ID, "k % 100", true));
                self.clauses.push("PRIMARY KEY (g)".to_owned());
            }
            14 => self.hidden_key = true,
            _ => self.row_key = false,
        }
        false
    }

    pub(super) fn any_column(&mut self, random: &mut StdRng) -> Column {
        let name = self.next_name("c");
        let kind = Kind::any(random);
        let options = match random.random_range(0..10) {
            0 if kind.is_comparable() => "NOT NULL",
            1 => "INVISIBLE",
            2 if kind.is_integer() => "DEFAULT 7",
            3 if matches!(kind, Kind::DateTime(0) | Kind::Timestamp(0)) => {
                "DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP"
            }
            4 if kind.is_text() => "DEFAULT (CONCAT('de', 'fault'))",
            5 if kind == Kind::Json => "DEFAULT (JSON_OBJECT('n', 1))",
            _ => "NULL",
        };
        Column::new(&name, kind, options)
    }

    /// Returns a trigger that writes to another table.
    pub(super) fn trigger(&self, random: &mut StdRng) -> String {
        let verb = ["INSERT", "UPDATE", "DELETE"].choose(random).expect("verbs");
        let name = &self.name;
        format!(
            "CREATE TRIGGER after_{name} AFTER {verb} ON {name} FOR EACH ROW \
             INSERT INTO audit VALUES ('{name}', 1, NOW(6))"
        )
    }

    /// Returns true if it was made with partitions, which it may have lost since.
    pub(super) fn was_partitioned(&self) -> bool {
        !self.options.is_empty()
    }

    fn add_generated(&mut self, random: &mut StdRng) {
        if let Some(column) = self.any_generated(random) {
            self.columns.push(column);
        }
    }

    /// Returns a new column that is computed from another.
    pub(super) fn any_generated(&mut self, random: &mut StdRng) -> Option<Column> {
        let name = self.next_name("g");
        let stored = random.random_bool(0.5);
        let base = self.columns.iter().find(|column| {
            !column.generated && (column.kind.is_integer() || column.kind.is_text())
        });
        let base = base?;
        Some(match base.kind {
            Kind::Text { .. } => {
                let expression = format!("LOWER(LEFT({},10))", base.name);
                let kind = Kind::Text {
                    name: "VARCHAR(40)",
                    collation: COLLATIONS.choose(random).expect("collations"),
                    long: false,
                };
                Column::generated(&name, kind, &expression, stored)
            }
            // An auto-increment column can't be referred to.
            _ if base.name == "id" => return None,
            _ => {
                let kind = Kind::Integer { name: "BIGINT", max: i64::MAX.into(), unsigned: false };
                Column::generated(&name, kind, &format!("{} % 50", base.name), stored)
            }
        })
    }

    /// Returns a key over any columns; `None` where the dice found none that fit.
    pub(super) fn any_key(&mut self, unique: bool, random: &mut StdRng) -> Option<String> {
        let name = self.next_name("k");
        let kind = if unique && self.row_key { "UNIQUE KEY" } else { "KEY" };
        let column = self.columns.choose(random)?.clone();
        let part = |column: &Column, random: &mut StdRng| {
            Some(format!("{}{}", column.name, column.kind.prefix(random)?))
        };
        let parts = match random.random_range(0..8) {
            0 if column.kind == Kind::Json && !column.generated => {
                format!("(CAST({}->'$.a' AS UNSIGNED ARRAY))", column.name)
            }
            1 if column.kind.is_integer() && column.name != "id" && !column.generated => {
                format!("({} % 100)", column.name)
            }
            1 if column.kind.is_text() => {
                // Without a character set the collation is the connection's. The server leaves it out of the
                // statement that it logs for a table with a hidden key, so replicas, MySQL's own included, have
                // another collation.
                format!("(CAST(LOWER(LEFT({},8)) AS CHAR(8) CHARACTER SET utf8mb4))", column.name)
            }
            2 | 3 => {
                let other = self.columns.choose(random)?.clone();
                if other.name == column.name {
                    return None;
                }
                format!("{},{}", part(&column, random)?, part(&other, random)?)
            }
            _ => part(&column, random)?,
        };
        Some(format!("{kind} {name} ({parts})"))
    }

    /// A statement may change a row by its keys more than once. Not where other tables refer to it: MySQL
    /// 9.7 leaves the children of a replaced row alone, logs a delete and an insert, and every replica,
    /// MySQL's own included, cascades or refuses.
    pub(super) fn is_replaceable(&self) -> bool {
        !["parent", "child", "tree"].iter().any(|name| self.name.starts_with(name))
    }

    /// Returns the columns that many rows may change at once. Where rows are found by a hash of all
    /// columns, a replica changes those of an event in the table's order. So unique values that
    /// move from row to row collide there, on MySQL's own replicas too.
    pub(super) fn updatable(&self) -> impl Iterator<Item = &Column> {
        let fixed = if self.row_key { "" } else { "k" };
        self.columns.iter().filter(move |column| !column.generated && column.name != fixed)
    }

    fn next_name(&mut self, letter: &str) -> String {
        self.next += 1;
        format!("{letter}{}", self.next)
    }

    /// Returns the statements that make it.
    pub(super) fn create(&self) -> Vec<String> {
        let columns = self.columns.iter().map(Column::sql);
        let parts: Vec<String> = columns.chain(self.clauses.iter().cloned()).collect();
        let create = format!("CREATE TABLE {} ({}) {}", self.name, parts.join(", "), self.options);
        match self.hidden_key {
            false => vec![create],
            // The server logs a statement of its own, in UTF-8 whatever the session's character set, and replicas,
            // MySQL's own included, read it in the session's.
            true => vec![
                "SET NAMES utf8mb4".to_owned(),
                "SET sql_generate_invisible_primary_key=ON".to_owned(),
                create,
                "SET sql_generate_invisible_primary_key=OFF".to_owned(),
            ],
        }
    }
}

/// Tables that refer to each other in a tree: the source logs twice a row that a cascade reaches twice.
fn family(random: &mut StdRng) -> Vec<Table> {
    let mut tables = Vec::new();
    let mut add = |name: &str, key: &str, clauses: Vec<String>, random: &mut StdRng| {
        let mut table = Table::new(name);
        for (name, options) in [("id", "NOT NULL"), ("p", "NULL")] {
            table.columns.push(Column::new(name, Kind::Reference, options));
        }
        let more = table.any_column(random);
        table.columns.push(more);
        table.clauses.push(key.to_owned());
        table.clauses.extend(clauses);
        tables.push(table);
    };
    let rules = ["RESTRICT", "CASCADE", "SET NULL", "NO ACTION"];
    let reference = |parent: &str, columns: &str, theirs: &str, random: &mut StdRng| {
        let (delete, update) =
            (rules.choose(random).expect("rules"), rules.choose(random).expect("rules"));
        format!(
            "FOREIGN KEY ({columns}) REFERENCES {parent} ({theirs}) ON DELETE {delete} ON UPDATE {update}"
        )
    };
    add("parent", "PRIMARY KEY (id)", vec!["UNIQUE (p, id)".to_owned()], random);
    let first = vec![reference("parent", "p", "id", random)];
    add("child", "PRIMARY KEY (id)", first, random);
    let second = vec![reference("child", "p", "id", random)];
    add("grandchild", "PRIMARY KEY (id)", second, random);
    let third = vec![reference("parent", "p", "id", random)];
    add("only_child", "UNIQUE (id), UNIQUE (p)", third, random);
    // The columns of its key can't become NULL.
    let fourth = "FOREIGN KEY (p, id) REFERENCES parent (p, id) ON DELETE CASCADE".to_owned();
    add("pair", "PRIMARY KEY (id)", vec![fourth], random);
    // A cascade also logs a row that refers to itself twice.
    let itself = vec!["FOREIGN KEY (p) REFERENCES tree (id)".to_owned()];
    add("tree", "PRIMARY KEY (id)", itself, random);
    tables
}
