//! Columns and keys of a table on both sides: what differs, what can be compared, and by which key.

use csa_applier::CollationMap;

use super::catalogue::{Column, Definition, UniqueKey};
use super::key_column::{KeyColumn, KeyKind};

/// The parts that two definitions of a table have in common.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Common {
    /// Differences, one phrase each.
    pub(crate) differences: Vec<String>,
    /// Columns of the same name, type and collation, in the source's order.
    pub(crate) columns: Vec<Column>,
    /// JSON columns that the target keeps as text, in a form of its own.
    pub(super) json_as_text: Vec<String>,
    /// The best key that is unique and NOT NULL on both sides.
    pub(crate) key: Option<CommonKey>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommonKey {
    pub(crate) columns: Vec<KeyColumn>,
    /// Each side's name for the index.
    pub(crate) source_index: String,
    pub(crate) target_index: String,
}

impl Common {
    /// Returns the first column of the key, if it holds integers.
    pub(crate) fn integer_column(&self) -> Option<&str> {
        let first = &self.key.as_ref()?.columns.first()?.name;
        let column = self.columns.iter().find(|column| column.name == *first)?;
        column.is_integer().then_some(first)
    }

    /// Returns the column by whose integers a copy takes a range of rows.
    pub(super) fn range_column(&self) -> Option<&str> {
        self.integer_column().filter(|_| self.key.as_ref().is_some_and(CommonKey::is_primary))
    }
}

impl CommonKey {
    /// Returns true if it is the source's primary key.
    pub(crate) fn is_primary(&self) -> bool {
        self.source_index == "PRIMARY"
    }
}

/// Compares what row images depend on: columns, their order, types and collations. Indexes,
/// defaults and comments may differ; a target often has its own.
pub(crate) fn common(source: &Definition, target: &Definition, map: &CollationMap) -> Common {
    let mut found = Common::default();
    for column in &source.columns {
        match target.columns.iter().find(|other| other.is_named(&column.name)) {
            None => found.differences.push(format!("column {} is only on the source", column.name)),
            Some(other)
                if target.keeps_json_as_text
                    && column.data_type == "json"
                    && other.data_type == "longtext" =>
            {
                found.json_as_text.push(column.name.clone());
            }
            Some(other) if column.full_type() != other.full_type() => {
                let mapped = column.mapped(map);
                if let Some(mapped) = mapped.filter(|one| one.full_type() == other.full_type()) {
                    found.columns.push(mapped);
                    continue;
                }
                found.differences.push(format!(
                    "column {} is {} on the source, {} on the target",
                    column.name,
                    column.full_type(),
                    other.full_type()
                ));
            }
            Some(_) => found.columns.push(column.clone()),
        }
    }
    for column in &target.columns {
        if !source.columns.iter().any(|other| other.is_named(&column.name)) {
            found.differences.push(format!("column {} is only on the target", column.name));
        }
    }
    // Row images identify columns by place, not by name.
    let places = source.columns.iter().zip(&target.columns);
    if found.differences.is_empty() && !places.into_iter().all(|(a, b)| a.is_named(&b.name)) {
        found.differences.push("the columns are in another order".to_owned());
    }
    found.key = key(source, target, &found.columns);
    found
}

/// Returns the primary key if it qualifies, else the key with the fewest columns.
fn key(source: &Definition, target: &Definition, columns: &[Column]) -> Option<CommonKey> {
    let usable = source.keys.iter().filter_map(|key| {
        let other = target.keys.iter().find(|other| is_same(key, other))?;
        let is_descending = |place: usize| key.descending.contains(&place);
        let columns: Option<Vec<KeyColumn>> = key
            .columns
            .iter()
            .enumerate()
            .map(|(place, name)| {
                let column = columns.iter().find(|column| column.is_named(name))?;
                let is_reversed = is_descending(place) != is_descending(0);
                Some(KeyColumn {
                    name: column.name.clone(),
                    kind: KeyKind::of(column)?,
                    is_reversed,
                })
            })
            .collect();
        Some(CommonKey {
            columns: columns?,
            source_index: key.index.clone(),
            target_index: other.index.clone(),
        })
    });
    usable.min_by_key(|key| (!key.is_primary(), key.columns.len()))
}

fn is_same(key: &UniqueKey, other: &UniqueKey) -> bool {
    let names = |key: &UniqueKey| -> Vec<String> {
        key.columns.iter().map(|name| name.to_lowercase()).collect()
    };
    names(key) == names(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, column_type: &str, collation: Option<&str>) -> Column {
        Column::new(name, column_type, collation, collation.map(|_| "utf8mb4"), Some(40))
    }

    fn definition(columns: &[(&str, &str)], keys: &[(&str, &[&str])]) -> Definition {
        let columns = columns.iter().map(|(name, column_type)| {
            let text = column_type.contains("char");
            column(name, column_type, text.then_some("utf8mb4_0900_ai_ci"))
        });
        let keys = keys.iter().map(|(index, columns)| UniqueKey {
            index: (*index).to_owned(),
            columns: columns.iter().map(|&name| name.to_owned()).collect(),
            ..UniqueKey::default()
        });
        Definition { columns: columns.collect(), keys: keys.collect(), ..Definition::default() }
    }

    fn key_of(common: &Common) -> Vec<&str> {
        let key = common.key.as_ref().expect("a key");
        key.columns.iter().map(|column| column.name.as_str()).collect()
    }

    #[test]
    fn equal_definitions_have_no_differences() {
        let table = definition(&[("id", "int"), ("v", "varchar(10)")], &[("PRIMARY", &["id"])]);
        let found = common(&table, &table, &CollationMap::default());
        assert!(found.differences.is_empty(), "{found:?}");
        assert_eq!(found.columns.len(), 2);
        assert_eq!(key_of(&found), ["id"]);
    }

    #[test]
    fn each_difference_is_named() {
        let source = definition(&[("id", "int"), ("a", "int"), ("b", "int")], &[]);
        let target = definition(&[("ID", "int"), ("a", "bigint"), ("c", "int")], &[]);
        let found = common(&source, &target, &CollationMap::default());
        assert_eq!(
            found.differences,
            [
                "column a is int on the source, bigint on the target",
                "column b is only on the source",
                "column c is only on the target",
            ]
        );
        let names: Vec<&str> = found.columns.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["id"]);
        let swapped = definition(&[("a", "int"), ("id", "int"), ("b", "int")], &[]);
        assert_eq!(
            common(&source, &swapped, &CollationMap::default()).differences,
            ["the columns are in another order"]
        );
    }

    #[test]
    fn json_that_mariadb_keeps_as_text_is_no_difference_and_not_compared() {
        let source = definition(&[("id", "int"), ("doc", "json")], &[]);
        let mut target = definition(&[("id", "int(11)"), ("doc", "longtext")], &[]);
        assert_eq!(
            common(&source, &target, &CollationMap::default()).differences,
            ["column doc is json on the source, longtext on the target"]
        );
        target.keeps_json_as_text = true;
        let found = common(&source, &target, &CollationMap::default());
        assert_eq!((found.differences.len(), found.columns.len()), (0, 1));
        assert_eq!(found.json_as_text, ["doc"]);
    }

    #[test]
    fn spellings_of_older_servers_are_the_same_type() {
        for (old, new) in [
            ("int(11)", "int"),
            ("bigint(20) unsigned", "bigint unsigned"),
            ("year(4)", "year"),
            ("tinyint(4)", "tinyint"),
        ] {
            assert_eq!(column("a", old, None).full_type(), column("a", new, None).full_type());
        }
        let utf8 = column("a", "char(3)", Some("utf8_bin"));
        assert_eq!(utf8.full_type(), column("a", "char(3)", Some("utf8mb3_bin")).full_type());
        for (one, other) in [
            ("decimal(10,2)", "decimal(10,3)"),
            ("int", "int unsigned"),
            ("int(5) zerofill", "int(6) zerofill"),
            ("enum('int(1)')", "enum('int')"),
        ] {
            assert_ne!(column("a", one, None).full_type(), column("a", other, None).full_type());
        }
    }

    #[test]
    fn the_key_is_unique_on_both_sides_and_of_common_columns() {
        let columns = [("a", "int"), ("b", "int"), ("s", "set('x')"), ("c", "int")];
        let source = definition(
            &columns,
            &[("PRIMARY", &["a"]), ("one", &["c", "b"]), ("two", &["b"]), ("three", &["s"])],
        );
        assert_eq!(key_of(&common(&source, &source, &CollationMap::default())), ["a"]);
        let target = definition(&columns, &[("x", &["B"]), ("y", &["c", "b"]), ("z", &["s"])]);
        let found = common(&source, &target, &CollationMap::default());
        assert_eq!(key_of(&found), ["b"]);
        assert_eq!(found.key.expect("a key").target_index, "x");
        // A wide SET has no exact number to compare by.
        let target = definition(&columns, &[("z", &["s"])]);
        assert_eq!(common(&source, &target, &CollationMap::default()).key, None);
        let mut changed = columns;
        changed[0].1 = "bigint";
        let target = definition(&changed, &[("PRIMARY", &["a"]), ("y", &["c", "b"])]);
        assert_eq!(key_of(&common(&source, &target, &CollationMap::default())), ["c", "b"]);
    }

    #[test]
    fn directions_count_from_that_of_the_first_column() {
        for (descending, reversed) in [
            (&[][..], [false, false, false]),
            (&[1], [false, true, false]),
            (&[0, 2], [false, true, false]),
            (&[0, 1, 2], [false, false, false]),
        ] {
            let columns = [("a", "int"), ("b", "int"), ("c", "int")];
            let mut table = definition(&columns, &[("PRIMARY", &["a", "b", "c"])]);
            // The target's index may have others.
            let found = |source: &Definition, target: &Definition| {
                let key = common(source, target, &CollationMap::default()).key.expect("a key");
                key.columns.iter().map(|column| column.is_reversed).collect::<Vec<bool>>()
            };
            let target = table.clone();
            table.keys[0].descending = descending.iter().copied().collect();
            assert_eq!(found(&table, &target), reversed, "{descending:?}");
        }
    }

    #[test]
    fn a_range_is_one_of_integers_of_the_primary_key() {
        let of = |column_type, index| {
            let table = definition(&[("a", column_type), ("b", "int")], &[(index, &["a", "b"])]);
            common(&table, &table, &CollationMap::default()).range_column().map(str::to_owned)
        };
        for column_type in ["tinyint", "int(11)", "bigint unsigned", "int(5) unsigned zerofill"] {
            assert_eq!(of(column_type, "PRIMARY").as_deref(), Some("a"), "{column_type}");
        }
        for column_type in ["decimal(9,0)", "double", "year", "bit(8)", "enum('1')", "char(3)"] {
            assert_eq!(of(column_type, "PRIMARY"), None, "{column_type}");
        }
        assert_eq!(of("int", "one"), None, "a copy goes by the primary key");
    }

    #[test]
    fn a_mapped_collation_is_no_difference_and_no_order() {
        let text = |collation| Definition {
            columns: vec![column("s", "varchar(10)", Some(collation))],
            keys: vec![UniqueKey {
                index: "PRIMARY".to_owned(),
                columns: vec!["s".to_owned()],
                ..UniqueKey::default()
            }],
            ..Definition::default()
        };
        let pair = ("utf8mb4_0900_ai_ci".to_owned(), "utf8mb4_unicode_520_ci".to_owned());
        let map = CollationMap::new([pair]).expect("valid");
        let (source, target) = (text("utf8mb4_0900_ai_ci"), text("utf8mb4_unicode_520_ci"));
        let found = common(&source, &target, &map);
        assert_eq!((found.differences.len(), found.columns.len()), (0, 1));
        assert_eq!(found.key, None, "the servers have different orders");
        assert!(common(&source, &source, &map).key.is_some());
        assert_eq!(common(&source, &text("utf8mb4_bin"), &map).differences.len(), 1);
    }
}
