//! The last look at the rows, once the old server is fenced: the last rows of the tables that were changed last.

use std::time::Duration;

use csa_applier::{CollationMap, TargetOptions};
use csa_provider::server::Vendor;
use csa_provider::server::link::Side;
use tokio::time::Instant;

use crate::verify::{
    DigestRow, DigestSum, KeyRange, LEFT_OUT, TableName, TableSelection, TableSql, VerifyError,
    VerifySession, common, definition,
};

/// The time for all of them: the applications wait for it.
pub(super) const BUDGET: Duration = Duration::from_millis(1500);
const TABLES: u32 = 20;
const ROWS: u64 = 1000;

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Compared {
    pub(super) tables: u64,
    pub(super) rows: u64,
    /// Tables whose last rows differ.
    pub(super) differing: Vec<String>,
}

/// Compares as much as the time permits.
pub(super) async fn compare(
    from: &TargetOptions,
    to: &TargetOptions,
    selection: &dyn TableSelection,
) -> Result<Compared, VerifyError> {
    let until = Instant::now() + BUDGET;
    let mut compared = Compared::default();
    let comparison = compare_all(from, to, selection, &mut compared);
    match tokio::time::timeout_at(until, comparison).await {
        Ok(Err(error)) => Err(error),
        Ok(Ok(())) | Err(_) => Ok(compared),
    }
}

async fn compare_all(
    from: &TargetOptions,
    to: &TargetOptions,
    selection: &dyn TableSelection,
    compared: &mut Compared,
) -> Result<(), VerifyError> {
    let (source, target) = tokio::join!(
        VerifySession::connect(Side::Source, from),
        VerifySession::connect(Side::Target, to)
    );
    let (mut source, mut target) = (source?, target?);
    source.look_afresh().await?;
    let rows: Vec<(String, String)> = source
        .rows(&format!(
            "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES \
             WHERE TABLE_TYPE='BASE TABLE' AND UPDATE_TIME IS NOT NULL AND TABLE_SCHEMA NOT IN ({LEFT_OUT}) \
             ORDER BY UPDATE_TIME DESC LIMIT {TABLES}"
        ))
        .await?;
    for (schema, table) in rows {
        let name = TableName { schema, table };
        let Some(there) = selection.target_of(&name, false) else { continue };
        if let Some((rows, is_equal)) =
            last_rows(&mut source, &mut target, &name, &there, &to.collation_map).await?
        {
            compared.tables += 1;
            compared.rows += rows;
            if !is_equal {
                compared.differing.push(name.to_string());
            }
        }
    }
    tokio::join!(source.close(), target.close());
    Ok(())
}

/// Returns the number of rows compared and whether they are equal; `None` for a table without a common key.
async fn last_rows(
    source: &mut VerifySession,
    target: &mut VerifySession,
    name: &TableName,
    there: &TableName,
    map: &CollationMap,
) -> Result<Option<(u64, bool)>, VerifyError> {
    let of_source = definition(source, name).await?;
    let of_target = definition(target, there).await?;
    let (Some(of_source), Some(of_target)) = (of_source, of_target) else { return Ok(None) };
    let common = common(&of_source, &of_target, map);
    let Some(key) = &common.key else { return Ok(None) };
    let sum = match (source.vendor(), target.vendor()) {
        (Vendor::MySql, Vendor::MySql) => DigestSum::Strings,
        _ => DigestSum::Integers,
    };
    let sql = |name, index| TableSql::new(name, &common.columns, &key.columns, Some(index), sum);
    let (here, there) = (sql(name, &*key.source_index), sql(there, &*key.target_index));
    let last = source.texts(&here.before_last(ROWS)).await?;
    // Fewer rows: all of them.
    let after = last.into_iter().next().and_then(|key| key.into_iter().collect());
    if after.is_none() && !target.texts(&there.before_last(ROWS)).await?.is_empty() {
        // To read all that the target has could take the whole time, after which nothing differs.
        return Ok(Some((0, false)));
    }
    let range = KeyRange { after, through: None };
    let (at_source, at_target) = (here.digest(&range), there.digest(&range));
    let (at_source, at_target) =
        tokio::join!(source.rows::<DigestRow>(&at_source), target.rows::<DigestRow>(&at_target));
    Ok(at_source?.first().zip(at_target?.first()).and_then(|(here, there)| judged(here, there)))
}

/// Returns the number of rows compared and whether they are equal; `None` if a server has no digest of one of them.
fn judged(source: &DigestRow, target: &DigestRow) -> Option<(u64, bool)> {
    let ((rows, digested, digest), (rows_there, digested_there, digest_there)) = (source, target);
    if rows != rows_there {
        return Some((*rows, false));
    }
    let has_all = rows == digested && rows_there == digested_there;
    // The length of an empty digest depends on the server's version.
    has_all.then(|| (*rows, *rows == 0 || digest == digest_there))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(rows: u64, digested: u64, digest: &str) -> DigestRow {
        (rows, digested, Some(digest.to_owned()))
    }

    #[test]
    fn tables_without_rows_are_equal_whatever_a_server_calls_their_digest() {
        let empty = row(0, 0, "00000000");
        for other in [row(0, 0, "0000"), row(0, 0, ""), (0, 0, None)] {
            assert_eq!(judged(&empty, &other), Some((0, true)), "{other:?}");
            assert_eq!(judged(&other, &empty), Some((0, true)), "{other:?}");
        }
    }

    #[test]
    fn rows_that_one_side_has_alone_differ() {
        let (none, some) = (row(0, 0, "0000"), row(3, 3, "abcd"));
        assert_eq!(judged(&none, &some), Some((0, false)));
        assert_eq!(judged(&some, &none), Some((3, false)));
        assert_eq!(judged(&some, &some), Some((3, true)));
        assert_eq!(judged(&some, &row(3, 3, "abce")), Some((3, false)));
    }

    #[test]
    fn a_row_without_a_digest_is_not_compared() {
        let (whole, part) = (row(3, 3, "abcd"), row(3, 2, "abcd"));
        assert_eq!(judged(&whole, &part), None);
        assert_eq!(judged(&part, &part), None);
    }
}
