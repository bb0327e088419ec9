use super::*;
use crate::target::state::Value;

fn read(text: &str) -> Statement {
    parse(text, "app")
}

#[test]
fn packets_are_split_outside_of_quotes() {
    assert_eq!(
        split("BEGIN;UPDATE t SET a=';\\';';COMMIT"),
        ["BEGIN", "UPDATE t SET a=';\\';'", "COMMIT"]
    );
}

#[test]
fn values_come_out_as_they_went_in() {
    let text = "o'n\\e\0";
    let quoted = csa_provider::sql_text::quote(text);
    let Statement::Insert(insert) =
        read(&format!("INSERT INTO csa.audit (a, b) VALUES ({quoted}, -7)"))
    else {
        panic!("an INSERT");
    };
    let value = |value| Scalar::Value(value);
    assert_eq!(insert.rows, [[value(Value::Text(text.to_owned())), value(Value::Number(-7))]]);
    assert_eq!(insert.table, ("csa".to_owned(), "audit".to_owned()));
}

#[test]
fn tables_are_read_with_their_keys() {
    let text = "CREATE TABLE child (id INT NOT NULL, parent INT, code VARCHAR(20) DEFAULT 'x', \
        PRIMARY KEY (id), UNIQUE KEY (code), FOREIGN KEY (parent) REFERENCES parents (id)) ENGINE=InnoDB";
    let Statement::CreateTable { name, table, if_missing } = read(text) else {
        panic!("a definition");
    };
    assert_eq!((name.0.as_str(), name.1.as_str(), if_missing), ("app", "child", false));
    assert_eq!((&table.primary, &table.unique), (&vec![0], &vec![vec![2]]));
    assert_eq!(table.references[0].column, 1);
    assert_eq!(table.references[0].parent, ("app".to_owned(), "parents".to_owned()));
    let defaults: Vec<_> = table.columns.iter().map(|column| column.default.clone()).collect();
    assert_eq!(defaults, [Value::Number(0), Value::Null, Value::Text("x".to_owned())]);
}

#[test]
fn variables_keep_commas_in_their_values() {
    let Statement::Set(set) = read("SET SESSION gtid_next=_utf8mb4'u:1',sql_mode='A,B', x=1")
    else {
        panic!("a SET");
    };
    let shown: Vec<String> = set.iter().map(|(name, value)| format!("{name} {value}")).collect();
    assert_eq!(shown, ["gtid_next u:1", "sql_mode A,B", "x 1"]);
}

#[test]
fn assignments_in_version_comments_count() {
    let Statement::Set(set) = read("SET SESSION a=1/*!80030 , b=2*/, c=3/*!90700 , d=4*/") else {
        panic!("a SET");
    };
    let shown: Vec<String> = set.iter().map(|(name, value)| format!("{name}{value}")).collect();
    assert_eq!(shown, ["a1", "b2", "c3", "d4"]);
}

#[test]
#[should_panic(expected = "the simulated target does not know: SELECT * FROM t JOIN u")]
fn an_unknown_statement_is_named() {
    read("SELECT * FROM t JOIN u");
}
