//! Comparison of one table, from its definitions to its rows.

use std::sync::Arc;
use std::time::Duration;

use csa_applier::CollationMap;
use csa_provider::server::Vendor;

use super::catalogue::{self, Estimate, PairedDefinitions};
use super::definition::{Common, common};
use super::error::Result;
use super::event::Activity;
use super::expression::{DigestSum, TableSql};
use super::report::TableReport;
use super::scope::TablePair;
use super::servers::Servers;
use super::suspects::PairedSql;
use super::{keyed, keyless, repair};

/// Rounds that find the same differences in the definitions prove them, as for rows.
const AGREEING: u32 = 2;
const ROUNDS_MAX: u32 = 10;
const PAUSE: Duration = Duration::from_millis(100);
/// How often to begin again when a definition changes during the comparison.
const ATTEMPTS: u32 = 4;

/// The end of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AttemptEnd {
    /// The report says what was found.
    Reported,
    /// Neither side has the table any longer.
    Gone,
    /// A definition changed meanwhile: some rows were compared by the former one.
    Redefined,
}

/// Both sides' definitions of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FoundDefinitions {
    /// Dropped on both.
    Gone,
    MissingOnTarget,
    OnlyOnTarget,
    Both(Box<Common>),
}

/// Compares a table; `None` when neither side has it any longer.
pub(super) async fn compare(
    servers: &mut Servers<'_>,
    pair: &TablePair,
    estimate: Estimate,
) -> Result<Option<TableReport>> {
    for _ in 0..ATTEMPTS {
        // New for each attempt: findings so far belong to the former definition.
        let mut report = TableReport::new(pair);
        match attempt(servers, pair, estimate, &mut report).await {
            Ok(AttemptEnd::Reported) => return Ok(Some(report.conclude())),
            Ok(AttemptEnd::Gone) => return Ok(None),
            Ok(AttemptEnd::Redefined) => {}
            Err(error) if error.is_definition_change() => {}
            Err(error) => return Err(error),
        }
        servers.resume.lock().forget_part(pair);
        tokio::time::sleep(PAUSE).await;
    }
    let mut report = TableReport::new(pair);
    report.unstable.push("the table's definition".to_owned());
    Ok(Some(report.conclude()))
}

async fn attempt(
    servers: &mut Servers<'_>,
    pair: &TablePair,
    estimate: Estimate,
    report: &mut TableReport,
) -> Result<AttemptEnd> {
    let Some((paired, found)) = definitions(servers, pair).await? else {
        report.unstable.push("the table's definition".to_owned());
        return Ok(AttemptEnd::Reported);
    };
    if pair.is_shared {
        report.left_out = Some(format!(
            "not compared: other tables of the source are replicated to {} too",
            pair.target
        ));
        return Ok(AttemptEnd::Reported);
    }
    let common = match &found {
        FoundDefinitions::Gone => return Ok(AttemptEnd::Gone),
        FoundDefinitions::MissingOnTarget => {
            report.definition.push("the table is missing on the target".to_owned());
            return Ok(AttemptEnd::Reported);
        }
        FoundDefinitions::OnlyOnTarget => {
            report.definition.push("the table is only on the target".to_owned());
            return Ok(AttemptEnd::Reported);
        }
        FoundDefinitions::Both(common) => common,
    };
    report.definition.clone_from(&common.differences);
    if !common.differences.is_empty() && !servers.options.common_columns {
        report.left_out =
            Some("rows were not compared; --common-columns compares what both have".to_owned());
        return Ok(AttemptEnd::Reported);
    }
    if common.columns.is_empty() {
        report.left_out = Some("no column is the same on both sides".to_owned());
        return Ok(AttemptEnd::Reported);
    }
    servers.resume.lock().compares(paired.digest());
    compare_rows(servers, pair, common, estimate, report).await?;
    // No query fails where a column was added, or has another type.
    let map = Arc::clone(&servers.options.target.collation_map);
    Ok(match servers.definitions(pair).await?.relate(&map) == found {
        true => AttemptEnd::Reported,
        false => AttemptEnd::Redefined,
    })
}

/// Compares the rows by the columns that both sides have, and writes the statements for those that differ.
async fn compare_rows(
    servers: &mut Servers<'_>,
    pair: &TablePair,
    common: &Common,
    estimate: Estimate,
    report: &mut TableReport,
) -> Result<()> {
    let key = common.key.as_ref();
    let columns = key.map_or(&[][..], |key| &key.columns);
    if !common.json_as_text.is_empty() {
        report.left_out = Some(format!(
            "not compared, because MariaDB keeps JSON as text: {}",
            common.json_as_text.join(", ")
        ));
    }
    let sum = match (servers.source.vendor(), servers.target.vendor()) {
        (Vendor::MySql, Vendor::MySql) => DigestSum::Strings,
        _ => DigestSum::Integers,
    };
    let side = |name, index| TableSql::new(name, &common.columns, columns, index, sum);
    let sql = PairedSql {
        source: side(&pair.source, key.map(|key| key.source_index.as_str())),
        target: side(&pair.target, key.map(|key| key.target_index.as_str())),
    };
    match key {
        Some(_) => keyed::compare(servers, &sql, estimate, report).await?,
        None => keyless::compare(servers, &sql, estimate, report).await?,
    }
    let column = common.range_column().filter(|_| !report.differences.is_empty());
    report.range_column = column.map(str::to_owned);
    if servers.options.repair {
        let is_whole = common.differences.is_empty() && common.json_as_text.is_empty();
        let wanted = std::mem::take(&mut report.wanted);
        report.repair = repair::repair(servers, &sql, pair, is_whole, &wanted).await?;
    }
    Ok(())
}

/// Reads the definitions until they are the same or the difference has lasted; `None` when they
/// keep changing.
async fn definitions(
    servers: &mut Servers<'_>,
    pair: &TablePair,
) -> Result<Option<(PairedDefinitions, FoundDefinitions)>> {
    let map = Arc::clone(&servers.options.target.collation_map);
    let paired = servers.definitions(pair).await?;
    let mut found = paired.relate(&map);
    if found.is_same() {
        return Ok(Some((paired, found)));
    }
    servers.tell(Activity::Rechecking { rows: 0 });
    let mut agreeing = 0;
    for _ in 0..ROUNDS_MAX {
        let source = catalogue::definition(&mut servers.source, &pair.source).await?;
        servers.catch_up().await?;
        let target = catalogue::definition(&mut servers.target, &pair.target).await?;
        let after = catalogue::definition(&mut servers.source, &pair.source).await?;
        let paired = PairedDefinitions { source, target };
        let now = paired.relate(&map);
        if now.is_same() {
            return Ok(Some((paired, now)));
        }
        // A definition that changed on the source in between proves nothing.
        agreeing = if paired.source == after && now == found { agreeing + 1 } else { 0 };
        if agreeing == AGREEING {
            return Ok(Some((paired, now)));
        }
        found = now;
        tokio::time::sleep(PAUSE).await;
    }
    Ok(None)
}

impl PairedDefinitions {
    fn relate(&self, map: &CollationMap) -> FoundDefinitions {
        match (&self.source, &self.target) {
            (None, None) => FoundDefinitions::Gone,
            (Some(_), None) => FoundDefinitions::MissingOnTarget,
            (None, Some(_)) => FoundDefinitions::OnlyOnTarget,
            (Some(source), Some(target)) => {
                FoundDefinitions::Both(Box::new(common(source, target, map)))
            }
        }
    }
}

impl FoundDefinitions {
    fn is_same(&self) -> bool {
        match self {
            Self::Gone => true,
            Self::Both(common) => common.differences.is_empty(),
            Self::MissingOnTarget | Self::OnlyOnTarget => false,
        }
    }
}
