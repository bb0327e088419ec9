//! The keys of the simulated target's tables, in place of the queries by which the daemon reads them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use csa_scheduler::key_source::{KeySource, KeySourceError};
use csa_scheduler::keys::{ForeignKey, KeyClass, KeyPart, TableId, TableKeys, UniqueKey};

use crate::history::History;
use crate::oracle;
use crate::target::{Server, TableName};

/// The keys of the tables as the target has them now.
#[derive(Debug)]
pub(crate) struct Definitions {
    server: Server,
    ids: BTreeMap<TableName, TableId>,
    /// The transaction that is being admitted.
    reading: Option<(Arc<History>, Arc<AtomicUsize>)>,
}

impl Definitions {
    pub(crate) fn of(server: &Server) -> Self {
        Self { server: server.clone(), ids: BTreeMap::new(), reading: None }
    }

    /// Checks that they are those at the transaction under admission, whose place is `reading`.
    pub(crate) fn checked(mut self, history: Arc<History>, reading: Arc<AtomicUsize>) -> Self {
        self.reading = Some((history, reading));
        self
    }

    fn check(&self) {
        let Some((history, reading)) = &self.reading else { return };
        let before = &history.transactions[..reading.load(Ordering::Relaxed)];
        let Some(last) = before.iter().rfind(|before| before.is_definition()) else { return };
        let executed = self.server.with_state(oracle::checkpoint).unwrap_or_default();
        assert!(executed.contains(&last.gtid), "read before {} was committed", last.gtid);
    }

    fn id(&mut self, name: &TableName) -> TableId {
        let next = TableId(u32::try_from(self.ids.len()).expect("few") + 1);
        *self.ids.entry(name.clone()).or_insert(next)
    }
}

fn part(column: usize) -> KeyPart {
    KeyPart { column, class: KeyClass::Integer }
}

impl KeySource for Definitions {
    async fn table(
        &mut self,
        schema: &[u8],
        table: &[u8],
    ) -> Result<(TableId, Option<Arc<TableKeys>>), KeySourceError> {
        let text = |name| String::from_utf8_lossy(name).into_owned();
        let name = (text(schema), text(table));
        self.check();
        let server = self.server.clone();
        let keys = server.with_state(|state| {
            let table = state.tables.get(&name)?;
            let keys = [&table.primary].into_iter().chain(&table.unique);
            let unique = keys.map(|columns| UniqueKey {
                parts: columns.iter().map(|&column| part(column)).collect(),
            });
            let references = table.references.iter().map(|reference| ForeignKey {
                parent: self.id(&reference.parent),
                parent_key: Some((0, vec![part(reference.column)])),
            });
            Some(TableKeys {
                columns: table.columns.len(),
                unique: unique.collect(),
                foreign_keys: references.collect(),
                // Nothing refers to a table that refers to another.
                foreign_key_rank: Some(u32::from(!table.references.is_empty())),
                has_relations: !table.references.is_empty()
                    || state.children_of(&name).next().is_some(),
                ..TableKeys::default()
            })
        });
        Ok((self.id(&name), keys.map(Arc::new)))
    }

    async fn trigger_table(&mut self, _: &str, _: &str) -> Result<Option<String>, KeySourceError> {
        Ok(None)
    }

    fn forget(&mut self) {}
}
