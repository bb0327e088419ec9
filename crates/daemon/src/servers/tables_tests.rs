use super::*;
use crate::servers::catalogue::{DeleteRule, IndexPart, meaning};
use crate::verify::{Column, UniqueKey};
use csa_provider::server::Level;

fn name(text: &str) -> TableName {
    text.parse().expect("a table")
}

/// Returns `d.t`, columns as `name type`, keys NOT NULL.
fn table(columns: &[&str], keys: &[&[&str]]) -> Table {
    let mut table = Table { engine: "InnoDB".to_owned(), ..Table::default() };
    for column in columns {
        let (name, column_type) = column.split_once(' ').expect("name and type");
        let collation = column_type.contains("char").then_some("utf8mb4_0900_ai_ci");
        table.definition.columns.push(Column::new(name, column_type, collation, None, None));
        table.collations.extend(collation.map(str::to_owned));
    }
    for columns in keys {
        let part = |name: &&str| IndexPart {
            column: Some((*name).to_owned()),
            prefix: None,
            is_nullable: false,
        };
        table.unique.insert(meaning(&columns.iter().map(part).collect::<Vec<_>>()));
        let columns = columns.iter().map(|&column| column.to_owned()).collect();
        let index = "PRIMARY".to_owned();
        table.definition.keys.push(UniqueKey { index, columns, ..UniqueKey::default() });
    }
    table
}

fn catalogue(tables: Vec<(&str, Table)>) -> Catalogue {
    Catalogue {
        tables: tables.into_iter().map(|(text, table)| (name(text), table)).collect(),
        collations: ["utf8mb4_0900_ai_ci".to_owned()].into(),
        ..Catalogue::default()
    }
}

fn good() -> Catalogue {
    catalogue(vec![("d.t", table(&["id int", "s varchar(9)"], &[&["id"]]))])
}

/// Returns the findings that are not ok, of tables replicated by their names.
fn found(source: &Catalogue, target: &Catalogue, change: fn(&mut Context<'_>)) -> Vec<Finding> {
    let pair = |table: &TableName| TablePair {
        source: table.clone(),
        target: table.clone(),
        is_shared: false,
    };
    let pairs: Vec<TablePair> = source.tables.keys().map(pair).collect();
    let mut context = Context {
        source,
        target,
        pairs: &pairs,
        executor: Executor::RowImage,
        is_behind: false,
        target_is_mariadb: false,
        target_is_group: false,
        target_misses_cascades: false,
        sees_target: true,
        collation_map: &CollationMap::default(),
        begun: None,
        takes_copies: true,
    };
    change(&mut context);
    context.findings().into_iter().filter(|finding| finding.level != Level::Ok).collect()
}

#[track_caller]
fn only(found: &[Finding], check: &str, level: Level, words: &[&str]) {
    let [finding] = found else { panic!("{found:#?}") };
    assert_eq!((finding.check, finding.level), (check, level), "{finding}");
    for word in words {
        assert!(finding.to_string().contains(word), "{word:?} is missing in {finding}");
    }
}

fn unchanged(_: &mut Context<'_>) {}

#[test]
fn equal_tables_are_fine() {
    assert_eq!(found(&good(), &good(), unchanged), []);
}

#[test]
fn a_missing_table_counts_by_what_may_still_come() {
    let empty = catalogue(vec![]);
    let fix = "replicate_ignore_table = [\"d.t\"";
    only(&found(&good(), &empty, unchanged), "tables.missing", Level::Error, &["d.t", fix]);
    let late = found(&good(), &empty, |context| context.is_behind = true);
    only(&late, "tables.missing", Level::Warning, &["pending"]);
    let blind = found(&good(), &empty, |context| context.sees_target = false);
    only(&blind, "tables.missing", Level::Warning, &["seen"]);
    // A channel that has begun is copied as a whole only after its checkpoint and tables are gone.
    let begun = found(&good(), &empty, |context| context.begun = Some("shop"));
    let fix = "csa-daemon copy --channel shop --table d.t";
    only(&begun, "tables.missing", Level::Error, &[fix]);
    let sql = found(&good(), &empty, |context| {
        (context.begun, context.takes_copies) = (Some("shop"), false);
    });
    only(&sql, "tables.missing", Level::Error, &["from a dump", "copy-again"]);
}

#[test]
fn a_rule_names_a_table_as_rules_are_read() {
    for (schema, table_name, rule) in [
        ("my.shop", "t", r#"["my.shop.t""#),
        ("d", "`t", r#"["d.`t""#),
        ("d", r#"a"b\c"#, r#"["d.a\"b\\c""#),
    ] {
        let mut kept = table(&["id int"], &[&["id"]]);
        kept.engine = BLACKHOLE.to_owned();
        let name = TableName { schema: schema.to_owned(), table: table_name.to_owned() };
        let source = Catalogue { tables: [(name, kept)].into(), ..good() };
        let fix = format!("replicate_ignore_table = {rule}");
        let missing = found(&source, &catalogue(vec![]), unchanged);
        only(&missing, "tables.missing", Level::Error, &[&fix]);
        let discarded = found(&source, &source, unchanged);
        only(&discarded, "tables.discarded", Level::Warning, &[&fix]);
    }
}

#[test]
fn columns_and_keys_that_differ_are_named() {
    let target = catalogue(vec![("d.t", table(&["id bigint", "x int"], &[&["id"]]))]);
    only(
        &found(&good(), &target, unchanged),
        "tables.columns",
        Level::Warning,
        &["d.t (column id is int on the source, bigint on the target; column s is only", "\"sql\""],
    );
    let keys: &[&[&str]] = &[&["id"], &["s"]];
    let target = catalogue(vec![("d.t", table(&["id int", "s varchar(9)"], keys))]);
    let differ = found(&good(), &target, unchanged);
    only(&differ, "tables.unique_keys", Level::Warning, &["d.t ((s) only there)"]);
    let differ = found(&target, &good(), unchanged);
    only(&differ, "tables.unique_keys", Level::Warning, &["d.t ((s) only on the source)"]);
}

#[test]
fn json_is_text_in_mariadb_and_nowhere_else() {
    let source = catalogue(vec![("d.t", table(&["id int", "j json"], &[&["id"]]))]);
    let target = catalogue(vec![("d.t", table(&["id int", "j longtext"], &[&["id"]]))]);
    let differ = found(&source, &target, unchanged);
    only(&differ, "tables.columns", Level::Warning, &["j is json on the source"]);
    assert_eq!(found(&source, &target, |context| context.target_is_mariadb = true), []);
}

#[test]
fn a_key_on_the_target_is_enough() {
    let keyless = || catalogue(vec![("d.t", table(&["id int"], &[]))]);
    only(
        &found(&keyless(), &keyless(), unchanged),
        "tables.primary_key",
        Level::Warning,
        &["1 table has", "ALTER TABLE `d`.`t` ADD PRIMARY KEY"],
    );
    let keyed = catalogue(vec![("d.t", table(&["id int"], &[&["id"]]))]);
    let differ = found(&keyless(), &keyed, unchanged);
    only(&differ, "tables.unique_keys", Level::Warning, &["(id) only there"]);
}

#[test]
fn other_engines_triggers_and_collations_are_named() {
    let mut target = good();
    target.tables.values_mut().for_each(|table| table.engine = "MyISAM".to_owned());
    let alter = "ALTER TABLE `d`.`t` ENGINE=InnoDB;";
    let engines = found(&good(), &target, unchanged);
    only(&engines, "tables.engines", Level::Warning, &["d.t (MyISAM)", alter]);
    target.tables.values_mut().for_each(|table| table.engine = "BLACKHOLE".to_owned());
    let ignore = "replicate_ignore_table = [\"d.t\"]";
    let discarded = found(&good(), &target, unchanged);
    only(&discarded, "tables.discarded", Level::Warning, &["d.t (BLACKHOLE)", "stops", ignore]);

    let mut target = good();
    target.triggers = vec![(name("d.t"), "x`y".to_owned()), (name("other.t"), "z".to_owned())];
    assert_eq!(found(&good(), &target, unchanged), []);
    let fires = found(&good(), &target, |context| context.executor = Executor::Sql);
    let drop = "target: DROP TRIGGER `d`.`x``y`;\n";
    only(&fires, "tables.triggers", Level::Warning, &["1 trigger ", "x`y of d.t", drop]);

    let mut target = good();
    target.collations.clear();
    let unknown = found(&good(), &target, unchanged);
    only(&unknown, "tables.collations", Level::Warning, &["utf8mb4_0900_ai_ci"]);
}

#[test]
fn cascades_are_noted_and_circles_warned_of() {
    let names = ["d.a", "d.b", "d.c", "d.tree"];
    let mut source =
        catalogue(names.iter().map(|&name| (name, table(&["id int"], &[&["id"]]))).collect());
    let target = Catalogue {
        tables: names.iter().map(|text| (name(text), table(&["id int"], &[&["id"]]))).collect(),
        ..good()
    };
    let edges = |edges: &[(&str, &str)]| {
        edges.iter().map(|(child, parent)| (name(child), name(parent))).collect::<Vec<_>>()
    };
    source.cascades = edges(&[("d.b", "d.a"), ("d.c", "d.b"), ("d.tree", "d.tree")]);
    assert_eq!(found(&source, &target, unchanged), []);
    source.cascades = edges(&[("d.b", "d.a"), ("d.a", "d.b"), ("d.c", "d.b"), ("d.a", "d.tree")]);
    let circle = found(&source, &target, unchanged);
    only(&circle, "tables.cascade_cycles", Level::Warning, &[": d.a, d.b"]);
    assert_eq!(circle[0].names, ["d.a", "d.b"]);
    // Tables that are not replicated do not count.
    source.cascades = edges(&[("x.a", "x.b"), ("x.b", "x.a")]);
    assert_eq!(found(&source, &target, unchanged), []);
}

#[test]
fn cascades_that_the_target_would_miss_are_warned_of() {
    let names = ["d.a", "d.b", "d.c", "d.e"];
    let mut both = Catalogue {
        tables: names.iter().map(|text| (name(text), table(&["id int"], &[&["id"]]))).collect(),
        ..good()
    };
    let rule = |child: &str, parent: &str, deletes| DeleteRule {
        child: name(child),
        parent: name(parent),
        deletes,
    };
    let by_sql = |context: &mut Context<'_>| {
        (context.target_misses_cascades, context.executor) = (true, Executor::Sql);
    };
    both.delete_rules = vec![rule("d.b", "d.a", true), rule("d.c", "d.b", true)];
    assert_eq!(found(&both, &both, by_sql), []);
    // SET NULL changes nothing that others refer to, but ends a chain.
    both.delete_rules.push(rule("d.e", "d.c", false));
    let missed = found(&both, &both, by_sql);
    only(&missed, "tables.missed_cascades", Level::Warning, &["d.a", "row-image"]);
    assert_eq!(missed[0].names, ["d.a"]);
    assert_eq!(found(&both, &both, |context| context.target_misses_cascades = true), []);
    assert_eq!(found(&both, &both, |context| context.executor = Executor::Sql), []);
    both.delete_rules[1].deletes = false;
    assert_eq!(found(&both, &both, by_sql), []);
}

#[test]
fn nothing_replicated_and_too_much_to_look_at_are_said() {
    let none = found(&good(), &good(), |context| context.pairs = &[]);
    only(&none, "tables.replicated", Level::Warning, &["none of 1 tables", "replicate_*"]);
    let mut large = good();
    large.is_too_large = true;
    let found = found(&large, &catalogue(vec![("d.t", table(&["x int"], &[]))]), unchanged);
    only(&found, "tables.definitions", Level::Warning, &["verify --schema"]);
}
