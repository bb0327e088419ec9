//! The topology of a profile: a source, and one target for each applier.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, anyhow};
use csa_tests::{Compare, Compared, Daemon, Proxy, Server};
use mysql_async::prelude::Queryable;
use serde::Serialize;

use super::profile::Profile;

/// No filling, drain or catching up takes longer.
pub(super) const PATIENCE: Duration = Duration::from_secs(1800);

/// Both appliers are stopped unless a measurement runs one.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) profile: Profile,
    /// All that are filled or written.
    pub(super) schemas: Vec<String>,
    pub(super) source: Server,
    /// Followed by the server's own multi-threaded applier.
    pub(super) mta: Server,
    /// Followed by csa-daemon.
    pub(super) csa: Server,
    pub(super) daemon: Daemon,
    /// Between csa-daemon and its target, if round trips are to take longer.
    pub(super) _proxy: Option<Proxy>,
    pub(super) versions: Versions,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Versions {
    pub(super) mysqld: String,
    pub(super) csa_daemon: String,
}

/// One of the two appliers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Applier {
    Mta,
    Csa,
}

impl Applier {
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Mta => "server's own applier",
            Self::Csa => "csa-daemon",
        }
    }
}

impl Stage {
    pub(super) fn targets(&self) -> [&Server; 2] {
        [&self.mta, &self.csa]
    }

    pub(super) fn target(&self, applier: Applier) -> &Server {
        match applier {
            Applier::Mta => &self.mta,
            Applier::Csa => &self.csa,
        }
    }

    /// Returns the rows of every table on the source.
    pub(super) async fn source_rows(&self) -> Result<BTreeMap<String, u64>> {
        let mut conn = self.source.conn().await;
        let names: Vec<String> = conn
            .query(format!(
                "SELECT CONCAT(table_schema, '.', table_name) FROM information_schema.tables \
                 WHERE table_schema IN ('{}') ORDER BY 1",
                self.schemas.join("','")
            ))
            .await?;
        let mut rows = BTreeMap::new();
        for name in names {
            let count: Option<u64> =
                conn.query_first(format!("SELECT COUNT(*) FROM {name}")).await?;
            rows.insert(name, count.unwrap_or_default());
        }
        conn.disconnect().await?;
        Ok(rows)
    }

    /// Compares the schemas named on both targets with the source, by content.
    pub(super) async fn compare(&self, schemas: &[&str]) -> Result<Compared> {
        let mut compare = Compare::new();
        for schema in &self.schemas {
            if !schemas.contains(&schema.as_str()) {
                compare = compare.ignore_schema(schema);
            }
        }
        let (mta, csa) = tokio::join!(
            compare.run(&self.source, &self.mta),
            compare.run(&self.source, &self.csa)
        );
        let different = |applier: Applier, difference| {
            anyhow!("DIFFERENT: target of {}: {difference}", applier.title())
        };
        mta.map_err(|difference| different(Applier::Mta, difference))?;
        csa.map_err(|difference| different(Applier::Csa, difference))
    }
}
