//! The target's definitions as far as they decide what may run beside what.

mod collations;
mod definitions;
mod references;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use csa_scheduler::{
    ForeignKey, KeyPart, KeySource, KeySourceError, TableId, TableKeys, UniqueKey,
};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::options::TargetOptions;
use crate::session::Session;
use crate::sql::{identifier, quote};
use crate::{Error, Result};
use collations::Collations;
use definitions::Definition;
use references::References;

/// A table's schema and name, as the target tells tables apart.
pub(super) type TableName = (String, String);

const RETRY: Duration = Duration::from_millis(200);
const UNKNOWN_DATABASE: u16 = 1049;
const NO_SUCH_TRIGGER: u16 = 1360;

/// Reads keys from the target, for the thread that admits transactions. Its methods block.
///
/// What is read holds until a statement is executed; [`KeySource::forget`] must then be called.
#[derive(Debug)]
pub struct TargetCatalogue {
    runtime: Handle,
    target: TargetOptions,
    end: CancellationToken,
    session: Option<Session>,
    /// `lower_case_table_names` is not 0.
    folds_case: bool,
    collations: Collations,
    ids: HashMap<TableName, TableId>,
    definitions: HashMap<TableName, Option<Definition>>,
    references: Option<Arc<References>>,
}

impl TargetCatalogue {
    /// Nothing is read before the first table is asked for. `end` gives up waiting for a target that
    /// is away.
    #[must_use]
    pub fn new(runtime: Handle, target: TargetOptions, end: CancellationToken) -> Self {
        Self {
            runtime,
            target,
            end,
            session: None,
            folds_case: false,
            collations: Collations::default(),
            ids: HashMap::new(),
            definitions: HashMap::new(),
            references: None,
        }
    }

    /// Asks until the target answers or the channel ends.
    fn ask<T>(
        &mut self,
        question: impl AsyncFn(&mut Self) -> Result<T>,
    ) -> std::result::Result<T, KeySourceError> {
        let runtime = self.runtime.clone();
        let end = self.end.clone();
        let answer = async {
            loop {
                match question(self).await {
                    Err(error) if error.is_passing() => {
                        warn!(%error, "the target's definitions can't be read, trying again");
                        self.session = None;
                        tokio::time::sleep(RETRY).await;
                    }
                    other => return other,
                }
            }
        };
        runtime.block_on(async {
            tokio::select! {
                answer = answer => answer.map_err(Into::into),
                () = end.cancelled() => Err(Error::Relay("the channel stops".to_owned()).into()),
            }
        })
    }

    async fn session(&mut self) -> Result<&mut Session> {
        if self.session.is_none() {
            let mut session = Session::connect(&self.target).await?;
            let rows: Vec<u8> = session.rows("SELECT @@GLOBAL.lower_case_table_names").await?;
            self.folds_case = rows.first().is_some_and(|&mode| mode != 0);
            self.session = Some(session);
        }
        self.session.as_mut().ok_or_else(|| Error::Relay("no session".to_owned()))
    }

    async fn load(&mut self, name: &TableName) -> Result<(TableId, Option<Arc<TableKeys>>)> {
        self.session().await?;
        let name = match self.folds_case {
            true => (name.0.to_lowercase(), name.1.to_lowercase()),
            false => name.clone(),
        };
        let id = self.id(&name);
        self.read(&name).await?;
        let references = self.read_references().await?;
        for parent in references.parents_of(&name) {
            self.read(&parent).await?;
        }
        let keys = self.assemble(&name, &references);
        debug!(
            schema = name.0,
            table = name.1,
            known = keys.is_some(),
            "keys read from the target"
        );
        Ok((id, keys.map(Arc::new)))
    }

    fn id(&mut self, name: &TableName) -> TableId {
        let next = TableId(self.ids.len() as u32 + 1);
        *self.ids.entry(name.clone()).or_insert(next)
    }

    async fn read(&mut self, name: &TableName) -> Result<()> {
        if self.definitions.contains_key(name) {
            return Ok(());
        }
        let Some(session) = self.session.as_mut() else { return Ok(()) };
        let definition = definitions::read(session, &mut self.collations, name).await?;
        self.definitions.insert(name.clone(), definition);
        Ok(())
    }

    async fn read_references(&mut self) -> Result<Arc<References>> {
        if let Some(references) = &self.references {
            return Ok(Arc::clone(references));
        }
        let references = match self.session.as_mut() {
            Some(session) => references::read(session, self.folds_case).await?,
            None => References::default(),
        };
        Ok(Arc::clone(self.references.insert(Arc::new(references))))
    }

    fn assemble(&mut self, name: &TableName, references: &References) -> Option<TableKeys> {
        let definition = self.definitions.get(name)?.clone()?;
        let unique = definition.unique.iter().map(|parts| UniqueKey { parts: parts.clone() });
        Some(TableKeys {
            columns: definition.columns.len(),
            unique: unique.collect(),
            opaque_unique_key: definition.opaque_unique_key,
            foreign_keys: references
                .of(name)
                .iter()
                .map(|reference| self.foreign_key(&definition, reference))
                .collect(),
            cascades_to: references
                .cascades_from(name)
                .iter()
                .map(|table| self.id(table))
                .collect(),
            foreign_key_rank: references.rank(name),
            has_relations: references.has_relations(name),
        })
    }

    fn foreign_key(&mut self, child: &Definition, reference: &references::Reference) -> ForeignKey {
        let parent = self.id(&reference.parent);
        let definition = self.definitions.get(&reference.parent).and_then(Option::as_ref);
        let parent_key = definition.and_then(|definition| {
            definition.unique.iter().enumerate().find_map(|(index, parts)| {
                let columns = child_columns(child, definition, parts, reference)?;
                Some((index, columns))
            })
        });
        ForeignKey { parent, parent_key }
    }
}

/// The child's columns in the order of the parent's key, if the reference is to exactly that key.
fn child_columns(
    child: &Definition,
    parent: &Definition,
    parts: &[KeyPart],
    reference: &references::Reference,
) -> Option<Vec<KeyPart>> {
    if parts.len() != reference.columns.len() {
        return None;
    }
    let column_of = |part: &KeyPart| {
        let name = parent.columns.get(part.column)?;
        let (own, _) = reference.columns.iter().find(|(_, theirs)| theirs == name)?;
        let column = child.columns.iter().position(|column| column == own)?;
        Some(KeyPart { column, class: part.class.clone() })
    };
    parts.iter().map(column_of).collect()
}

impl KeySource for TargetCatalogue {
    fn table(
        &mut self,
        schema: &[u8],
        table: &[u8],
    ) -> std::result::Result<(TableId, Option<Arc<TableKeys>>), KeySourceError> {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let name = (text(schema), text(table));
        self.ask(async |catalogue| catalogue.load(&name).await)
    }

    fn trigger_table(
        &mut self,
        schema: &str,
        trigger: &str,
    ) -> std::result::Result<Option<String>, KeySourceError> {
        let query = format!(
            "SELECT EVENT_OBJECT_TABLE FROM information_schema.TRIGGERS \
             WHERE TRIGGER_SCHEMA={} AND TRIGGER_NAME={}",
            quote(schema),
            quote(trigger)
        );
        let show = format!("SHOW CREATE TRIGGER {}.{}", identifier(schema), identifier(trigger));
        self.ask(async |catalogue| {
            let session = catalogue.session().await?;
            let rows: Vec<String> = session.rows(&query).await?;
            if let Some(table) = rows.into_iter().next() {
                return Ok(Some(table));
            }
            // The schema tables also leave out what this account may not see.
            match session.run(&show).await {
                Err(error) if matches!(error.code(), Some(NO_SUCH_TRIGGER | UNKNOWN_DATABASE)) => {
                    Ok(None)
                }
                Err(error) => Err(error),
                Ok(_) => Err(Error::Relay(format!("trigger {schema}.{trigger} has no table"))),
            }
        })
    }

    fn forget(&mut self) {
        self.definitions.clear();
        self.references = None;
        self.ids.clear();
    }
}
