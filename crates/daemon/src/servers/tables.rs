//! The replicated tables, on both sides.

use std::collections::BTreeSet;

use csa_applier::{CollationMap, Executor};
use csa_provider::sql_text::identifier;
use csa_scheduler::keys::foreign_key_ranks;

use crate::verify::{TableName, TablePair, common};

use super::catalogue::{Catalogue, Table};
use csa_provider::server::{Finding, Level, Place};

/// The most differences named for a table.
const PHRASES_MAX: usize = 3;
/// The most statements printed as a fix.
const STATEMENTS_MAX: usize = 10;

/// The engine that keeps no rows.
const BLACKHOLE: &str = "BLACKHOLE";

/// Both sides' tables, and the settings that matter for them.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) source: &'a Catalogue,
    pub(super) target: &'a Catalogue,
    /// The pairs that the channel's `replicate_*` select.
    pub(super) pairs: &'a [TablePair],
    pub(super) executor: Executor,
    /// Transactions are pending, which may create what is missing on the target.
    pub(super) is_behind: bool,
    /// MariaDB keeps JSON as text.
    pub(super) target_is_mariadb: bool,
    /// The target is a member of a group, which takes no rows without a key.
    pub(super) target_is_group: bool,
    /// See [`super::missed_cascades`].
    pub(super) target_misses_cascades: bool,
    /// The target's account sees every table there.
    pub(super) sees_target: bool,
    pub(super) collation_map: &'a CollationMap,
    /// The channel, if it has a checkpoint: only single tables can be copied then.
    pub(super) begun: Option<&'a str>,
    /// Single tables can be copied.
    pub(super) takes_copies: bool,
}

/// A table that exists on both sides.
struct PairedTable<'a> {
    pair: &'a TablePair,
    source: &'a Table,
    target: &'a Table,
}

impl Context<'_> {
    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut found = vec![self.replicated(), self.missing(), self.engines(), self.discarded()];
        found.push(self.triggers());
        found.extend([self.cascades(), self.cycles(), self.missed_cascades(), self.schemas()]);
        if self.source.is_too_large || self.target.is_too_large {
            found.push(
                Finding::warning(
                    "tables.definitions",
                    "there are too many tables to compare columns and keys here",
                )
                .fix(Place::Operator, "csa-daemon verify --schema SCHEMA compares them in parts"),
            );
            return found;
        }
        found.extend([self.primary_keys(), self.columns(), self.unique_keys(), self.collations()]);
        found
    }

    /// Pairs whose table the source has.
    fn sources(&self) -> impl Iterator<Item = (&TablePair, &Table)> {
        let tables = &self.source.tables;
        self.pairs.iter().filter_map(|pair| Some((pair, tables.get(&pair.source)?)))
    }

    fn both(&self) -> impl Iterator<Item = PairedTable<'_>> {
        self.sources().filter_map(|(pair, source)| {
            let target = self.target.tables.get(&pair.target)?;
            Some(PairedTable { pair, source, target })
        })
    }

    fn replicated(&self) -> Finding {
        const CHECK: &str = "tables.replicated";
        let (here, all) = (self.sources().count(), self.source.tables.len());
        if here == 0 && all > 0 {
            return Finding::warning(CHECK, format!("none of {all} tables is replicated"))
                .fix(Place::Configuration, "[channel.applier] replicate_*");
        }
        Finding::ok(CHECK, format!("{here} of {all} that the account sees on the source"))
    }

    fn missing(&self) -> Finding {
        const CHECK: &str = "tables.missing";
        let missing: Vec<&TablePair> = self
            .sources()
            .map(|(pair, _)| pair)
            .filter(|pair| !self.target.tables.contains_key(&pair.target))
            .collect();
        let names: Vec<String> = missing.iter().map(|pair| both_names(pair)).collect();
        let Some(first) = missing.first() else {
            return Finding::ok(CHECK, "every table exists on the target");
        };
        let count = counted(names.len(), "is not", "are not");
        let found = match (self.is_behind, self.sees_target) {
            (true, _) => {
                let text = format!(
                    "{count} on the target, unless pending transactions create what is missing"
                );
                Finding::warning(CHECK, text)
            }
            (false, false) => {
                let text = format!("{count} seen by the account on the target");
                Finding::warning(CHECK, text)
            }
            (false, true) => {
                let text = format!("{count} on the target: the first change stops the channel");
                Finding::error(CHECK, text)
            }
        };
        found.names(&names).fix(Place::Operator, self.copy_of(&missing)).fix(
            Place::Configuration,
            format!("[channel.applier] replicate_ignore_table = [{}, …]", first.target.rule()),
        )
    }

    /// Returns the way to have the tables on the target.
    fn copy_of(&self, missing: &[&TablePair]) -> String {
        let Some(channel) = self.begun else {
            return "copy what is missing: csa-daemon copy, or docs/provisioning.md".to_owned();
        };
        let is_renamed = missing.iter().any(|pair| pair.source != pair.target);
        if is_renamed || !self.takes_copies {
            return "copy what is missing from a dump that has the transactions of the channel's checkpoint, and no \
                    others, or copy the source again (docs/provisioning.md#copy-again)"
                .to_owned();
        }
        let tables = missing.iter().take(STATEMENTS_MAX);
        let tables: String =
            tables.map(|pair| format!(" --table {}", pair.source.argument())).collect();
        let others = if missing.len() > STATEMENTS_MAX { " --table …" } else { "" };
        format!("copy what is missing: csa-daemon copy --channel {channel}{tables}{others}")
    }

    fn engines(&self) -> Finding {
        const CHECK: &str = "tables.engines";
        let other: Vec<PairedTable<'_>> = self
            .both()
            .filter(|both| !matches!(both.target.engine.as_str(), "InnoDB" | BLACKHOLE))
            .collect();
        let names: Vec<String> = other
            .iter()
            .map(|both| format!("{} ({})", both.pair.target, both.target.engine))
            .collect();
        if names.is_empty() {
            return Finding::ok(CHECK, "a ROLLBACK restores all on the target");
        }
        let count = counted(names.len(), "is not InnoDB", "are not InnoDB");
        let alter = |both: &PairedTable<'_>| {
            format!("ALTER TABLE {} ENGINE=InnoDB;", quoted(&both.pair.target))
        };
        let run: Vec<String> = other.iter().take(STATEMENTS_MAX).map(alter).collect();
        Finding::warning(
            CHECK,
            format!(
                "{count} on the target: a change that can't be rolled back is applied alone, with no \
                 other in parallel; an interrupted one stops the channel, for it may be half done"
            ),
        )
        .names(&names)
        .fix(Place::Target, run.join(" "))
    }

    fn discarded(&self) -> Finding {
        const CHECK: &str = "tables.discarded";
        let found = self.both().filter(|both| both.target.engine == BLACKHOLE);
        let tables: Vec<&TableName> = found.map(|both| &both.pair.target).collect();
        let names: Vec<String> =
            tables.iter().map(|table| format!("{table} ({BLACKHOLE})")).collect();
        if names.is_empty() {
            return Finding::ok(CHECK, "every table keeps its rows on the target");
        }
        let count = counted(names.len(), "keeps no rows", "keep no rows");
        let list: Vec<String> =
            tables.iter().take(STATEMENTS_MAX).map(|table| table.rule()).collect();
        let list = list.join(", ");
        Finding::warning(
            CHECK,
            format!(
                "{count} on the target: an UPDATE or DELETE finds none there, and stops the channel"
            ),
        )
        .names(&names)
        .fix(
            Place::Configuration,
            format!(
                "[channel.applier] replicate_ignore_table = [{list}] leaves all their changes out"
            ),
        )
    }

    fn triggers(&self) -> Finding {
        const CHECK: &str = "tables.triggers";
        if self.executor == Executor::RowImage {
            return Finding::ok(CHECK, "row images fire none");
        }
        let targets: BTreeSet<&TableName> = self.pairs.iter().map(|pair| &pair.target).collect();
        let fire: Vec<&(TableName, String)> =
            self.target.triggers.iter().filter(|(table, _)| targets.contains(table)).collect();
        let names: Vec<String> =
            fire.iter().map(|(table, name)| format!("{name} of {table}")).collect();
        if names.is_empty() {
            return Finding::ok(CHECK, "there are none on the target");
        }
        let drop = |(table, name): &&(TableName, String)| {
            format!("DROP TRIGGER {}.{};", identifier(&table.schema), identifier(name))
        };
        let run: Vec<String> = fire.iter().take(STATEMENTS_MAX).map(drop).collect();
        let count = match names.len() {
            1 => "1 trigger".to_owned(),
            count => format!("{count} triggers"),
        };
        Finding::warning(
            CHECK,
            format!(
                "{count} on the target would fire for changes that the source's triggers have already \
                 made: a change of the table stops the channel"
            ),
        )
        .names(&names)
        .fix(Place::Target, run.join(" "))
        .fix(Place::Configuration, "[channel.applier] executor = \"row-image\"")
    }

    fn replicated_cascades(&self) -> Vec<(&TableName, &TableName)> {
        let replicated: BTreeSet<&TableName> = self.pairs.iter().map(|pair| &pair.source).collect();
        let edges = self.source.cascades.iter().map(|(child, parent)| (child, parent));
        edges.filter(|&(c, p)| replicated.contains(c) || replicated.contains(p)).collect()
    }

    /// Returns a note, not a warning.
    fn cascades(&self) -> Finding {
        const CHECK: &str = "tables.cascades";
        let text = match self.replicated_cascades().len() {
            0 => return Finding::ok(CHECK, "no foreign key changes rows of its own"),
            1 => "1 foreign key changes".to_owned(),
            count => format!("{count} foreign keys change"),
        };
        Finding::ok(CHECK, format!("{text} rows of its own (CASCADE, SET NULL); they are followed"))
    }

    fn cycles(&self) -> Finding {
        const CHECK: &str = "tables.cascade_cycles";
        // A table that refers to itself is usually a tree.
        let mut edges = self.replicated_cascades();
        edges.retain(|(child, parent)| child != parent);
        let back: Vec<(&TableName, &TableName)> =
            edges.iter().map(|&(child, parent)| (parent, child)).collect();
        let (up, down) = (foreign_key_ranks(&edges), foreign_key_ranks(&back));
        let tables: BTreeSet<&TableName> =
            edges.iter().flat_map(|&(child, parent)| [child, parent]).collect();
        let cycle: Vec<String> = tables
            .into_iter()
            .filter(|table| !up.contains_key(table) && !down.contains_key(table))
            .map(ToString::to_string)
            .collect();
        if cycle.is_empty() {
            return Finding::ok(CHECK, "no cascade returns to its own table");
        }
        Finding::warning(
            CHECK,
            "cascades form a circle: if rows do so too, no replica can follow their change, \
             and the channel stops (1032)",
        )
        .names(&cycle)
    }

    /// By the target's definition, where the table exists there: rows are searched on the target.
    fn primary_keys(&self) -> Finding {
        const CHECK: &str = "tables.primary_key";
        let without: Vec<&TablePair> = self
            .sources()
            .filter(|(pair, source)| {
                let table = self.target.tables.get(&pair.target).unwrap_or(source);
                table.definition.keys.is_empty()
            })
            .map(|(pair, _)| pair)
            .collect();
        let Some(first) = without.first() else {
            return Finding::ok(CHECK, "every table has a primary or a unique NOT NULL key");
        };
        let names: Vec<String> = without.iter().map(|pair| pair.source.to_string()).collect();
        let count = counted(names.len(), "has", "have");
        let (level, effect) = match self.target_is_group {
            true => (Level::Error, "a group takes no rows of such tables (3098)"),
            false => (
                Level::Warning,
                "each changed row is searched in the whole table, and no two changes of the table run in parallel",
            ),
        };
        Finding::new(
            CHECK,
            level,
            format!("{count} neither a primary nor a unique NOT NULL key: {effect}"),
        )
        .names(&names)
        .fix(
            Place::Source,
            format!(
                "ALTER TABLE {} ADD PRIMARY KEY (…); -- of its columns: a new AUTO_INCREMENT column \
                 would be numbered differently on both sides, unless it is added before the copy",
                quoted(&first.source)
            ),
        )
    }

    /// Compares the defaults of schemas: a table without a character set of its own gets that of the target's schema.
    fn schemas(&self) -> Finding {
        const CHECK: &str = "tables.schemas";
        let pairs: BTreeSet<(&String, &String)> =
            self.pairs.iter().map(|pair| (&pair.source.schema, &pair.target.schema)).collect();
        let differ = pairs.into_iter().filter_map(|(source, target)| {
            let wanted = self.source.schemas.get(source)?;
            let wanted = self.collation_map.get(wanted).unwrap_or(wanted);
            let found = self.target.schemas.get(target)?;
            // A target that does not know it has another in its place in any case.
            let is_known = self.target.collations.contains(wanted);
            (found != wanted && is_known).then_some((target, found, wanted))
        });
        let differ: Vec<_> = differ.collect();
        let Some((first, _, wanted)) = differ.first() else {
            return Finding::ok(CHECK, "schemas have the same default collations on both sides");
        };
        let names: Vec<String> = differ
            .iter()
            .map(|(schema, found, wanted)| format!("{schema} ({found} instead of {wanted})"))
            .collect();
        Finding::warning(
            CHECK,
            format!(
                "{} on the target: a table that the source makes there from now on would hold other characters, or \
                 compare them in another way",
                match differ.len() {
                    1 => "1 schema has another default collation".to_owned(),
                    more => format!("{more} schemas have other default collations"),
                }
            ),
        )
        .names(&names)
        .fix(Place::Target, format!("ALTER DATABASE {} COLLATE {wanted};", identifier(first)))
    }

    fn columns(&self) -> Finding {
        const CHECK: &str = "tables.columns";
        let differ: Vec<String> = self
            .both()
            .filter_map(|both| {
                let found =
                    common(&both.source.definition, &both.target.definition, self.collation_map);
                let mut phrases = found.differences;
                let is_json = |phrase: &String| phrase.contains(" is json on the source, longtext");
                phrases.retain(|phrase| !(self.target_is_mariadb && is_json(phrase)));
                if phrases.is_empty() {
                    return None;
                }
                let more = phrases.len().saturating_sub(PHRASES_MAX);
                phrases.truncate(PHRASES_MAX);
                if more > 0 {
                    phrases.push(format!("{more} more"));
                }
                Some(format!("{} ({})", both_names(both.pair), phrases.join("; ")))
            })
            .collect();
        if differ.is_empty() {
            return Finding::ok(CHECK, "the same on both sides");
        }
        let count = counted(differ.len(), "has other columns", "have other columns");
        let unless = if self.is_behind { ", unless pending transactions adjust them" } else { "" };
        let found = Finding::warning(
            CHECK,
            format!("{count} on the target: a row that does not fit stops the channel{unless}"),
        )
        .names(&differ)
        .fix(Place::Operator, "on the target: ALTER TABLE to the source's definition");
        match self.executor {
            Executor::Sql => found,
            Executor::RowImage => found.fix(
                Place::Configuration,
                "[channel.applier] executor = \"sql\" # accepts wider types, and added last columns",
            ),
        }
    }

    fn unique_keys(&self) -> Finding {
        const CHECK: &str = "tables.unique_keys";
        let differ: Vec<String> = self
            .both()
            .filter_map(|both| {
                let (source, target) = (&both.source.unique, &both.target.unique);
                let target_only = target.difference(source).map(|key| format!("{key} only there"));
                let source_only =
                    source.difference(target).map(|key| format!("{key} only on the source"));
                let phrases: Vec<String> =
                    target_only.chain(source_only).take(PHRASES_MAX).collect();
                let is_different = !phrases.is_empty();
                is_different.then(|| format!("{} ({})", both_names(both.pair), phrases.join("; ")))
            })
            .collect();
        if differ.is_empty() {
            return Finding::ok(CHECK, "the same on both sides");
        }
        let count = counted(differ.len(), "has other unique keys", "have other unique keys");
        Finding::warning(
            CHECK,
            format!(
                "{count} on the target: one that the source lacks may refuse its rows (1062), one that \
                 the target lacks accepts other rows"
            ),
        )
        .names(&differ)
        .fix(Place::Operator, "on the target: ALTER TABLE to the source's definition")
    }

    /// Checks the collations of columns; those that a statement may name are not known.
    fn collations(&self) -> Finding {
        const CHECK: &str = "tables.collations";
        let unknown: BTreeSet<&String> = self
            .sources()
            .flat_map(|(_, table)| table.collations.difference(&self.target.collations))
            // The start checks those that take their place.
            .filter(|collation| self.collation_map.get(collation).is_none())
            .collect();
        if unknown.is_empty() {
            return Finding::ok(CHECK, "the target knows the collations of all columns");
        }
        let names: Vec<String> = unknown.into_iter().cloned().collect();
        Finding::warning(CHECK, "the target does not know collations of the source's columns")
            .names(&names)
            .fix(
                Place::Configuration,
                "[channel.applier] collation_map = { \"COLLATION\" = \"one of the target's\" }",
            )
            .fix(
                Place::Operator,
                "on the source: ALTER TABLE … CONVERT TO a collation that both have",
            )
    }
}

fn counted(count: usize, one: &str, many: &str) -> String {
    match count {
        1 => format!("1 table {one}"),
        _ => format!("{count} tables {many}"),
    }
}

fn both_names(pair: &TablePair) -> String {
    match pair.source == pair.target {
        true => pair.source.to_string(),
        false => format!("{} -> {}", pair.source, pair.target),
    }
}

fn quoted(name: &TableName) -> String {
    format!("{}.{}", identifier(&name.schema), identifier(&name.table))
}

#[cfg(test)]
#[path = "tables_tests.rs"]
mod tests;
