//! The other channels of a target: a table that only the target has may be one of theirs.

use csa_provider::sql_text::quote;
use csa_scheduler::filter::Filters;

use super::scope::ListedTables;
use super::session::VerifySession;
use super::table_name::TableName;
use crate::config::read_rules;

/// The rules of the other channels, as each has noted them on the target.
#[derive(Debug)]
pub(super) struct Others(Vec<Filters>);

impl Others {
    /// Returns the channels that have a checkpoint there; none if the target can't say.
    pub(super) async fn of(
        target: &mut VerifySession,
        channel: &str,
        listed: &ListedTables<'_>,
    ) -> Self {
        let query = format!(
            "SELECT filters FROM csa.channel WHERE channel <> {} AND channel IN (SELECT channel FROM csa.checkpoint)",
            quote(channel)
        );
        let rules: Vec<String> = target.rows(&query).await.unwrap_or_default();
        Self::new(rules.iter().map(String::as_str), listed.target_folds_case)
    }

    fn new<'a>(rules: impl Iterator<Item = &'a str>, folds_case: bool) -> Self {
        // Rules of a later version may permit every table, as no rules do.
        let filters =
            rules.map(|text| Filters::new(read_rules(text).unwrap_or_default(), folds_case));
        Self(filters.collect())
    }

    /// Returns true if one of them may write the table.
    pub(super) fn write(&self, table: &TableName) -> bool {
        self.0.iter().any(|filters| filters.writes(&table.schema, &table.table))
    }
}

#[cfg(test)]
mod tests {
    use csa_scheduler::filter::FilterRules;

    use super::*;
    use crate::config::written_rules;

    #[test]
    fn a_table_belongs_to_a_channel_whose_rules_permit_it() {
        let table = |schema: &str| TableName { schema: schema.to_owned(), table: "t".to_owned() };
        let only = |schema: &str| {
            written_rules(&FilterRules { do_db: vec![schema.to_owned()], ..FilterRules::default() })
        };
        let (a, b) = (only("a"), only("b"));
        let others = Others::new([a.as_str(), b.as_str()].into_iter(), false);
        assert!(
            others.write(&table("a")) && others.write(&table("b")) && !others.write(&table("c"))
        );
        assert!(!Others::new([].into_iter(), false).write(&table("a")), "no other channel");
        for every in ["{}", "{\"of_a_later_version\": 1}"] {
            assert!(Others::new([every].into_iter(), false).write(&table("a")), "{every}");
        }
    }
}
