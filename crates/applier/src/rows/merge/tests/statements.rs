//! The changes that share a statement, and the images that it has.

use super::*;
use crate::rows::binlog_statements::RowImages;
use crate::rows::merge::writer::{EventHead, StatementWriter};

#[test]
fn rows_of_two_sessions_share_no_statement_where_that_matters() {
    let row = |id, v| Some([Some(id), None, Some(v)]);
    let merged = |table| {
        let mut admission = Admission::new(KEYED);
        let admitted: Vec<AdmittedTransaction> = (0..8)
            .map(|id| Change { table, before: row(id, 1), after: row(id, 2) })
            .zip(1..)
            .map(|(change, gno)| {
                let relayed = transaction_in(gno % 2, gno, &[change]);
                admission.admit_now(relayed, None, true).expect("known")
            })
            .collect();
        let merged =
            merge(&admitted, OWN, 4 << 20, RowImageColumns::Full, |_| None).expect("whole rows");
        let statements = merged.free.into_iter();
        let zone = |images: &RowImages| images.session.as_ref()?.time_zone.clone();
        statements.map(|images| (zone(&images), changes_of(&images.events).len())).collect()
    };
    let zone = |zone: &str| Some(zone.to_owned());
    let parents: Vec<_> = merged(PARENT);
    assert_eq!(parents, [(zone("+01:00"), 4), (zone("+00:00"), 4)]);
    let children: Vec<_> = merged(CHILD);
    assert_eq!(children, [(None, 8)]);
}

#[test]
fn repeated_updates_of_a_row_become_one() {
    let row = |v| Some([Some(1), None, Some(v)]);
    let mut admission = Admission::new(KEYED);
    let admitted: Vec<AdmittedTransaction> = (0..100)
        .map(|v| Change { table: PARENT, before: row(v), after: row(v + 1) })
        .zip(1..)
        .map(|(change, gno)| {
            admission.admit_now(transaction(gno, &[change]), None, true).expect("known")
        })
        .collect();
    let merged =
        merge(&admitted, OWN, 4 << 20, RowImageColumns::Full, |_| None).expect("whole rows");
    assert_eq!((merged.free.len(), merged.late.len()), (1, 0));
    let changes = changes_of(&merged.free[0].events);
    assert_eq!(changes.len(), 1);
    let change = Model::default().completed(changes[0]);
    assert_eq!((change.before, change.after), (row(0), row(100)));
}

/// Three changes of one row can't become one. Late ones of a first stage share no statement with later stages.
#[test]
fn without_a_primary_key_changes_of_a_row_share_no_statement() {
    for (have_primary, statements) in [(true, [1, 2]), (false, [3, 3])] {
        for (late, statements) in [false, true].into_iter().zip(statements) {
            let row = |id| Some([Some(id), None, Some(1)]);
            let moved = |from, to| Change { table: CHILD, before: row(from), after: row(to) };
            let admitted = Admission::new(ModelTables { have_primary, ..KEYED }).admit_now(
                transaction(1, &[moved(1, 2), moved(2, 3), moved(3, 4)]),
                None,
                true,
            );
            let in_the_way = |_| late.then(|| OWN.previous());
            let admitted = [admitted.expect("known")];
            let merged = merge(&admitted, OWN, 4 << 20, RowImageColumns::Full, in_the_way);
            let merged = merged.expect("whole rows");
            let late_statements = merged.late.iter().map(|part| part.images.len()).sum::<usize>();
            assert_eq!(merged.free.len() + late_statements, statements, "{have_primary} {late}");
        }
    }
}

/// A row of a table with a primary key comes between.
#[test]
fn without_a_primary_key_stages_share_no_statement() {
    for (have_primary, statements) in [(true, 1), (false, 2)] {
        let child = |v| Some([Some(1), None, Some(v)]);
        let parent = |id, p| Some([Some(id), Some(p), None]);
        let changes = [
            Change { table: CHILD, before: child(1), after: child(2) },
            Change { table: PARENT, before: parent(1, 1), after: parent(1, 2) },
            Change { table: PARENT, before: None, after: parent(9, 1) },
            Change { table: CHILD, before: child(2), after: child(3) },
        ];
        let admitted = Admission::new(ModelTables { have_primary, ..KEYED }).admit_now(
            transaction(1, &changes),
            None,
            true,
        );
        let admitted = [admitted.expect("known")];
        let merged = merge(&admitted, OWN, 4 << 20, RowImageColumns::Full, |_| None);
        assert_eq!(merged.expect("whole rows").free.len(), statements, "{have_primary}");
    }
}

#[test]
fn a_numbered_row_that_is_deleted_at_once_is_written() {
    for (number_rows, expected) in [(true, 2), (false, 0)] {
        let row = Some([Some(7), None, None]);
        let changes = [(None, row), (row, None)].map(|(before, after)| Change {
            table: CHILD,
            before,
            after,
        });
        let mut admission = Admission::new(ModelTables { number_rows, related: false, ..KEYED });
        let admitted = admission.admit_now(transaction(1, &changes), None, true).expect("known");
        let merged = merge(&[admitted], OWN, 4 << 20, RowImageColumns::Full, |_| None);
        let sent: usize = merged
            .expect("whole rows")
            .free
            .iter()
            .map(|step| changes_of(&step.events).len())
            .sum();
        assert_eq!(sent, expected, "{number_rows}");
    }
}

#[test]
fn minimal_images_have_the_key_before_and_the_changed_columns_after() {
    let row = |id, p, v| Some([Some(id), p, Some(v)]);
    let sent = |table, changes: &[(Option<Row>, Option<Row>)]| {
        let changes: Vec<Change> =
            changes.iter().map(|&(before, after)| Change { table, before, after }).collect();
        let mut admission = Admission::new(KEYED);
        let admitted = admission.admit_now(transaction(1, &changes), None, true).expect("known");
        let merged = merge(&[admitted], OWN, 4 << 20, RowImageColumns::Minimal, |_| None);
        let merged = merged.expect("whole rows");
        let changes = changes_of(&merged.free[0].events).into_iter();
        changes.map(|sent| (sent.before, sent.after)).collect::<Vec<_>>()
    };
    let id = |id| Some([Some(Some(id)), None, None]);
    let updates = [(row(1, Some(2), 3), row(1, Some(2), 4)), (row(5, None, 3), row(5, None, 6))];
    let v = |v| Some([None, None, Some(Some(v))]);
    assert_eq!(sent(CHILD, &updates), [(id(1), v(4)), (id(5), v(6))]);
    // All rows of an event have the same columns.
    let updates = [(row(1, Some(2), 3), row(1, None, 3)), (row(5, None, 3), row(5, None, 6))];
    let both = |p, v| Some([None, Some(p), Some(Some(v))]);
    assert_eq!(sent(CHILD, &updates), [(id(1), both(None, 3)), (id(5), both(None, 6))]);
    assert_eq!(sent(CHILD, &[(row(1, None, 3), None)]), [(id(1), None)]);
    // A key that changes, and a row that ends as it began.
    let moved = [(row(1, None, 3), row(2, None, 3))];
    assert_eq!(sent(CHILD, &moved), [(id(1), id(2))]);
    let undone = [(row(1, None, 3), row(1, None, 4)), (row(1, None, 4), row(1, None, 3))];
    assert_eq!(sent(CHILD, &undone), [(id(1), id(1))]);
    // New rows have all columns, and so has a table from which the target computes something.
    let all = |id, v| Some([Some(Some(id)), Some(None), Some(Some(v))]);
    assert_eq!(sent(CHILD, &[(None, row(1, None, 3))]), [(None, all(1, 3))]);
    let update = [(row(1, None, 3), row(1, None, 4))];
    assert_eq!(sent(PARENT, &update), [(all(1, 3), all(1, 4))]);
}

#[test]
fn changes_that_undo_each_other_are_known_as_such() {
    let row = |v| Some([Some(5), None, Some(v)]);
    let update = |before, after| Change { table: PARENT, before: row(before), after: row(after) };
    for columns in [RowImageColumns::Full, RowImageColumns::Minimal] {
        let is_undone = |changes: &[Change]| {
            let mut admission = Admission::new(KEYED);
            let admitted = admission.admit_now(transaction(1, changes), None, true).expect("known");
            let merged = merge(&[admitted], OWN, 4 << 20, columns, |_| None).expect("whole rows");
            merged.free.iter().map(|images| images.is_undone).collect::<Vec<_>>()
        };
        assert_eq!(is_undone(&[update(3, 4), update(4, 3)]), [true]);
        // Without the other columns the key before it has the bytes of the value after it.
        assert_eq!(is_undone(&[update(3, 5)]), [false]);
        let other = Change { table: CHILD, before: None, after: Some([Some(1), None, Some(1)]) };
        assert_eq!(is_undone(&[update(3, 4), other, update(4, 3)]), [false]);
    }
}

#[test]
fn a_large_row_does_not_make_its_statement_too_long() {
    let change = Change { table: CHILD, before: None, after: Some([Some(1), None, Some(1)]) };
    let mut admission = Admission::new(KEYED);
    let admitted = admission.admit_now(transaction(1, &[change]), None, true).expect("known");
    let layout = &admitted.changes.as_ref().expect("rows").blocks[0].layout;
    let head = EventHead {
        is_undone: false,
        layout,
        kind: RowsKind::Write,
        flags: 0,
        server_id: 1,
        timestamp: 1,
        session: None,
        columns: None,
    };
    let limit = 10_000;
    let mut writer = StatementWriter::new(limit);
    writer.rows(&head, &[(&[][..], &[0; 100][..]); 40]);
    writer.rows(&head, &[(&[][..], &[0; 6_000][..])]);
    let lengths: Vec<usize> = writer.finish().iter().map(|one| one.events.len()).collect();
    assert_eq!(lengths.len(), 2);
    assert!(lengths.iter().all(|&length| length <= limit), "{lengths:?}");
}
