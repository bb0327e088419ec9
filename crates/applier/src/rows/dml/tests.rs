use csa_provider::binlog::EventType;
use csa_provider::test_util::{int_image, int_table_map, rows_event};

use super::*;
use crate::server::definitions::table::{Generated, TargetColumn, TargetType, UniqueIndex};

const TABLE_ID: u64 = 7;

fn column(name: &str) -> TargetColumn {
    TargetColumn {
        name: name.to_owned(),
        target_type: TargetType::Integer { bytes: 4, unsigned: false },
        generated: Generated::No,
        has_default: true,
        on_update: false,
        is_now: false,
        indexed: false,
        hidden_key: false,
    }
}

fn index(name: &str, columns: &[usize]) -> UniqueIndex {
    UniqueIndex { name: name.to_owned(), columns: columns.to_vec() }
}

/// Returns `d.t` with INTs.
fn table(columns: &[&str], unique: Vec<UniqueIndex>) -> TargetTable {
    TargetTable {
        schema: "d".to_owned(),
        name: "t".to_owned(),
        columns: columns.iter().map(|name| column(name)).collect(),
        unique,
        ..TargetTable::default()
    }
}

fn images(event_type: EventType, width: u8, rows: &[&[Option<i32>]]) -> Bytes {
    let rows: Vec<u8> = rows.iter().flat_map(|row| int_image(row)).collect();
    let mut out = Vec::new();
    int_table_map(TABLE_ID, "d", "t", width).write_without_checksum(&mut out);
    rows_event(event_type, TABLE_ID, width, &rows).write_without_checksum(&mut out);
    out.into()
}

#[test]
fn what_could_not_be_rolled_back_is_not_written() {
    let mut bare = table(&["a"], Vec::new());
    bare.not_transactional = Some("MyISAM".to_owned());
    let images = images(EventType::WRITE_ROWS, 1, &[&[Some(1)]]);
    let error = sql(&images, bare).expect_err("refused");
    assert_eq!((error.code, error.message.as_str()), (1785, "d.t is MyISAM on the target."));
}

#[test]
fn deletes_whose_cascades_the_target_would_miss_are_refused_unless_they_are_logged() {
    let refused = |event_type, flags: u8| {
        let mut keyed = table(&["a"], vec![index("PRIMARY", &[0])]);
        keyed.missed_cascade = Some("m, tg, dp".to_owned());
        let rows: &[Option<i32>] = &[Some(1)];
        let mut images = images(event_type, 1, &[rows]).to_vec();
        // The flags follow the table's number, in the event after its map.
        let map = EventHeader::parse(&images).expect("a header").event_size as usize;
        images[map + EventHeader::LEN + TableMap::ID_LEN] = flags;
        let names = tables_in(&images.clone().into()).expect("well-formed");
        let tables = HashMap::from([(names[0].clone(), Some(Arc::new(keyed)))]);
        let settings = SessionSettings::default();
        let made = statements(&images.into(), &tables, 1 << 20, settings, None, true);
        made.err().map(|refusal| (refusal.code, refusal.message))
    };
    let (code, message) = refused(EventType::DELETE_ROWS, 1).expect("refused");
    assert_eq!(code, 1235);
    assert!(message.starts_with("a DELETE in d.t cascades through m, tg, dp, "), "{message}");
    assert_eq!(refused(EventType::DELETE_ROWS, 0x11), None, "the source has logged them");
    assert_eq!(refused(EventType::DELETE_ROWS, 3), None, "nothing cascades");
    assert_eq!(refused(EventType::WRITE_ROWS, 1), None);
}

#[test]
fn a_duplicate_is_found_where_the_target_writes_names_in_lower_case() {
    let mut keyed = table(&["a", "b"], vec![index("PRIMARY", &[0]), index("u", &[1])]);
    keyed.name = "Orders".to_owned();
    let name = ("d".to_owned(), "Orders".to_owned());
    let tables = HashMap::from([(name, Some(Arc::new(keyed)))]);
    let mut images = Vec::new();
    int_table_map(TABLE_ID, "d", "Orders", 2).write_without_checksum(&mut images);
    let row = int_image(&[Some(1), Some(2)]);
    let event = rows_event(EventType::WRITE_ROWS, TABLE_ID, 2, &row);
    event.write_without_checksum(&mut images);
    let images = Bytes::from(images);
    for key in ["orders.u", "Orders.u", "u"] {
        let message = format!("Duplicate entry '2' for key '{key}'");
        let facts = describe(&images, &tables, 1062, &message).expect("a row");
        let repair = facts.repair.for_row(true).expect("a repair");
        assert_eq!(
            repair,
            "SET sql_mode='STRICT_ALL_TABLES,ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO'; \
             DELETE FROM `d`.`Orders` WHERE `b`=2",
            "{key}"
        );
    }
    let other = describe(&images, &tables, 1062, "Duplicate entry '2' for key 'order.u'");
    assert!(other.expect("a row").key.is_none());
}

/// A session without them would give a row with the number 0 another one.
#[test]
fn a_missing_row_is_inserted_under_the_settings_of_the_daemons_sessions() {
    let mut keyed = table(&["id", "b"], vec![index("PRIMARY", &[0])]);
    let updated = images(EventType::UPDATE_ROWS, 2, &[&some(&[0, 1]), &some(&[0, 2])]);
    let repair = |table: &TargetTable| {
        let name = ("d".to_owned(), "t".to_owned());
        let tables = HashMap::from([(name, Some(Arc::new(table.clone())))]);
        let facts = describe(&updated, &tables, 1032, "Can't find record").expect("a row");
        facts.repair.for_row(false).expect("a repair")
    };
    let insert = "INSERT INTO `d`.`t` (`id`,`b`) VALUES (0,1)";
    let lenient = "ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO";
    assert_eq!(repair(&keyed), format!("SET sql_mode='STRICT_ALL_TABLES,{lenient}'; {insert}"));
    // What the target computes from the row may not have fitted on the source.
    keyed.functional_index = true;
    assert_eq!(repair(&keyed), format!("SET sql_mode='{lenient}'; {insert}"));
}

/// Lists and hints are MySQL's; MariaDB's rows go one by one.
#[test]
fn rows_are_deleted_one_by_one_on_mariadb() {
    let mut keyed = table(&["a"], vec![index("PRIMARY", &[0])]);
    keyed.vendor = csa_provider::server::Vendor::MariaDb;
    let images = images(EventType::DELETE_ROWS, 1, &[&[Some(1)], &[Some(2)]]);
    let statements = sql(&images, keyed).expect("written");
    assert_eq!(statements, ["DELETE FROM `d`.`t` WHERE `a`=1", "DELETE FROM `d`.`t` WHERE `a`=2"]);
}

/// Returns the statements without the settings before them.
fn sql(images: &Bytes, table: TargetTable) -> Result<Vec<String>, Refusal> {
    let names = tables_in(images).expect("well-formed");
    assert_eq!(names, [("d".to_owned(), "t".to_owned())]);
    let tables = HashMap::from([(names[0].clone(), Some(Arc::new(table)))]);
    let (packets, _) =
        statements(images, &tables, 1 << 20, SessionSettings::default(), None, true)?;
    let text: Vec<String> =
        packets.iter().map(|packet| String::from_utf8_lossy(&packet.text).into_owned()).collect();
    let mut all: Vec<String> = text.join(";").split(';').map(str::to_owned).collect();
    assert!(
        all.remove(0).starts_with("SET SESSION foreign_key_checks=1,unique_checks=1,sql_mode=")
    );
    Ok(all)
}

fn some(values: &[i32]) -> Vec<Option<i32>> {
    values.iter().map(|&value| Some(value)).collect()
}

#[test]
fn rows_are_found_by_their_primary_key() {
    let keyed = || table(&["id", "v"], vec![index("PRIMARY", &[0])]);
    let (first, second) = (some(&[1, 10]), [Some(2), None]);
    let written = images(EventType::WRITE_ROWS, 2, &[&first, &second]);
    assert_eq!(
        sql(&written, keyed()),
        Ok(vec!["INSERT INTO `d`.`t` (`id`,`v`) VALUES (1,10),(2,NULL)".to_owned()])
    );
    let updated = images(EventType::UPDATE_ROWS, 2, &[&first, &second]);
    assert_eq!(
        sql(&updated, keyed()),
        Ok(vec![
            "UPDATE `d`.`t` FORCE INDEX (`PRIMARY`) SET `id`=2,`v`=NULL WHERE `id`=1".to_owned()
        ])
    );
    let deleted = images(EventType::DELETE_ROWS, 2, &[&first, &second]);
    assert_eq!(
        sql(&deleted, keyed()),
        Ok(vec!["DELETE /*+ INDEX(`t` `PRIMARY`) */ FROM `d`.`t` WHERE `id` IN (1,2)".to_owned()])
    );
    // Parents and children in one table: one after the other, as the source did.
    let tree = TargetTable { refers_to_itself: true, ..keyed() };
    assert_eq!(sql(&deleted, tree).expect("possible").len(), 2);
}

#[test]
fn without_a_key_that_has_no_null_all_columns_find_one_row() {
    let rows = [some(&[1, 2]), vec![None, Some(3)]];
    let deleted = images(EventType::DELETE_ROWS, 2, &[&rows[0], &rows[1]]);
    let unique = table(&["a", "b"], vec![index("u", &[0])]);
    assert_eq!(
        sql(&deleted, unique),
        Ok(vec![
            "DELETE /*+ INDEX(`t` `u`) */ FROM `d`.`t` WHERE `a` IN (1)".to_owned(),
            "DELETE FROM `d`.`t` WHERE `a` IS NULL AND `b`=3 LIMIT 1".to_owned(),
        ])
    );
    let composite = table(&["a", "b"], vec![index("PRIMARY", &[1, 0])]);
    assert_eq!(
        sql(&images(EventType::DELETE_ROWS, 2, &[&rows[0]]), composite),
        Ok(vec![
            "DELETE /*+ INDEX(`t` `PRIMARY`) */ FROM `d`.`t` WHERE (`b`,`a`) IN ((2,1))".to_owned(),
        ])
    );
}

#[test]
fn generated_columns_are_left_out_and_virtual_ones_find_nothing() {
    let mut target = table(&["a", "b"], vec![index("v", &[1]), index("w", &[0])]);
    target.columns[1].generated = Generated::Virtual;
    let row = some(&[1, 2]);
    let updated = images(EventType::UPDATE_ROWS, 2, &[&row, &row]);
    assert_eq!(
        sql(&updated, target),
        Ok(vec![
            "UPDATE `d`.`t` FORCE INDEX (`w`) SET `a`=1 WHERE `a`=1".to_owned(),
            "SHOW WARNINGS".to_owned()
        ])
    );
}

#[test]
fn what_the_target_would_do_otherwise_is_refused() {
    let row = some(&[1, 2]);
    let written = images(EventType::WRITE_ROWS, 2, &[&row]);
    let refused = |target: TargetTable| sql(&written, target).expect_err("refused");
    let mut fires = table(&["a", "b"], Vec::new());
    fires.triggers = vec![("x".to_owned(), "INSERT".to_owned())];
    let error = refused(fires.clone());
    assert!(error.message.contains("DROP TRIGGER `d`.`x`"), "{}", error.message);
    // It fires on nothing else.
    assert!(sql(&images(EventType::DELETE_ROWS, 2, &[&row]), fires).is_ok());
    let fewer = refused(table(&["a"], Vec::new()));
    assert!(fewer.message.contains("2 columns on the source and 1 on the target"));
    let mut more = table(&["a", "b", "c"], Vec::new());
    assert_eq!(sql(&written, more.clone()).expect("has a default").len(), 1);
    more.columns[2].has_default = false;
    assert_eq!(refused(more).code, codes::NO_DEFAULT);
    let mut narrow = table(&["a", "b"], Vec::new());
    narrow.columns[1].target_type = TargetType::Integer { bytes: 2, unsigned: false };
    let error = refused(narrow);
    assert_eq!(error.code, codes::CONVERSION);
    assert!(
        error.message.contains("column 2 of d.t (b): an integer of 32 bits"),
        "{}",
        error.message
    );
    let missing = HashMap::from([(("d".to_owned(), "t".to_owned()), None)]);
    let error = statements(&written, &missing, 1 << 20, SessionSettings::default(), None, true);
    assert_eq!(error.expect_err("no table").code, codes::NO_SUCH_TABLE);
}

/// A hidden key that only the target has is no column of the source's.
#[test]
fn a_hidden_key_of_the_target_shifts_the_columns() {
    let mut target = table(&["my_row_id", "a", "b"], vec![index("PRIMARY", &[0])]);
    target.columns[0].hidden_key = true;
    let row = some(&[1, 2]);
    let deleted = images(EventType::DELETE_ROWS, 2, &[&row]);
    assert_eq!(
        sql(&deleted, target),
        Ok(vec!["DELETE FROM `d`.`t` WHERE `a`=1 AND `b`=2 LIMIT 1".to_owned()])
    );
}

/// With binlog_row_image=MINIMAL a row of defaults has no column in its image, and so no bytes.
#[test]
fn an_image_without_columns_is_one_row() {
    let mut out = Vec::new();
    int_table_map(TABLE_ID, "d", "t", 2).write_without_checksum(&mut out);
    let event = rows_event(EventType::WRITE_ROWS, TABLE_ID, 2, &[]);
    let mut body = event.body().to_vec();
    // The bitmap of the columns present.
    *body.last_mut().expect("a bitmap") = 0;
    event.with_body(&body).write_without_checksum(&mut out);
    assert_eq!(
        sql(&out.into(), table(&["a", "b"], Vec::new())),
        Ok(vec!["INSERT INTO `d`.`t` () VALUES ()".to_owned()])
    );
}

/// The source need not have been strict; values that it cut are cut on the target as well.
#[test]
fn rows_with_something_computed_say_what_was_cut() {
    let mut target = table(&["a", "b"], vec![index("PRIMARY", &[0])]);
    target.columns[1].generated = Generated::Stored;
    let rows = [some(&[1, 2]), some(&[3, 4])];
    let written = images(EventType::WRITE_ROWS, 2, &[&rows[0], &rows[1]]);
    assert_eq!(
        sql(&written, target.clone()),
        Ok(vec!["INSERT INTO `d`.`t` (`a`) VALUES (1),(3)".to_owned(), "SHOW WARNINGS".to_owned()])
    );
    target.columns[1].generated = Generated::No;
    target.functional_index = true;
    let deleted = images(EventType::DELETE_ROWS, 2, &[&rows[0]]);
    assert_eq!(sql(&deleted, target).expect("possible")[1], "SHOW WARNINGS");
}

/// The server sets them on its own where a statement does not name them.
#[test]
fn columns_that_only_the_target_has_keep_their_values() {
    let mut wide = table(&["id", "v", "seen", "made"], vec![index("PRIMARY", &[0])]);
    wide.columns[2].on_update = true;
    wide.columns[3].is_now = true;
    let updated = images(EventType::UPDATE_ROWS, 2, &[&some(&[1, 1]), &some(&[1, 2])]);
    assert_eq!(
        sql(&updated, wide.clone()),
        Ok(vec![
            "UPDATE `d`.`t` FORCE INDEX (`PRIMARY`) SET `id`=1,`v`=2,`seen`=`seen` WHERE `id`=1"
                .to_owned()
        ])
    );
    let written = images(EventType::WRITE_ROWS, 2, &[&some(&[1, 1])]);
    let statements = sql(&written, wide).expect("written");
    let start = "INSERT INTO `d`.`t` (`id`,`v`,`made`) VALUES (1,1,FROM_UNIXTIME(";
    assert!(statements[0].starts_with(start), "{statements:?}");
}

#[test]
fn rows_that_are_not_kept_are_not_changed() {
    let hole = || TargetTable { discards_rows: true, ..table(&["a"], Vec::new()) };
    let rows = [&some(&[1])[..]];
    assert!(sql(&images(EventType::WRITE_ROWS, 1, &rows), hole()).is_ok());
    let error = sql(&images(EventType::DELETE_ROWS, 1, &rows), hole()).expect_err("refused");
    assert_eq!(error.code, 1031);
    assert!(error.message.contains("d.t is BLACKHOLE on the target"), "{}", error.message);
}
