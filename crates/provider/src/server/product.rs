//! Recognizes a server's product. Other products speak MySQL's protocol and report version 8.0 so
//! that drivers accept them, but lack what replication needs (binary log, GTIDs, BINLOG, locks) or
//! do it differently.

use crate::binlog::version::version_numbers;

/// Words in `@@version` or `@@version_comment`, in lower case, that only one product uses.
const OTHERS: [(&str, &str); 15] = [
    // https://docs.pingcap.com/tidb/stable/system-variables#version
    ("tidb", "TiDB"),
    ("vitess", "Vitess"),
    ("planetscale", "PlanetScale"),
    ("dolt", "Dolt"),
    ("oceanbase", "OceanBase"),
    ("oceanbase_ce", "OceanBase"),
    ("singlestore", "SingleStore"),
    ("singlestoredb", "SingleStore"),
    ("memsql", "SingleStore"),
    ("starrocks", "StarRocks"),
    ("doris", "Apache Doris"),
    ("clickhouse", "ClickHouse"),
    ("databend", "Databend"),
    ("matrixone", "MatrixOne"),
    ("readyset", "ReadySet"),
];

/// The oldest MySQL that can be a source or a target.
const OLDEST: (u32, u32) = (5, 7);

/// The product that a server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Product {
    /// MySQL, or a build of it.
    MySql,
    MariaDb,
    /// Neither; its name.
    Other(&'static str),
}

impl Product {
    /// Recognises the product by `@@version` and `@@version_comment`.
    #[must_use]
    pub fn of(version: &str, comment: &str) -> Self {
        let words = |text: &str| -> Vec<String> {
            text.to_ascii_lowercase()
                .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
                .map(str::to_owned)
                .collect()
        };
        let said = [words(version), words(comment)].concat();
        if said.iter().any(|word| word == "mariadb") {
            return Self::MariaDb;
        }
        let other = OTHERS.iter().find(|(word, _)| said.iter().any(|said| said == word));
        other.map_or(Self::MySql, |(_, name)| Self::Other(name))
    }
}

/// The reason a server can't be a source, to follow its address; `None` if it can.
#[must_use]
pub fn unsupported_source(version: &str, comment: &str) -> Option<String> {
    match Product::of(version, comment) {
        Product::MariaDb => Some(format!(
            "is MariaDB {version}, with a binary log and GTIDs of its own format; a source must be \
             MySQL 5.7 or newer"
        )),
        Product::Other(name) => Some(another(name, version)),
        Product::MySql => too_old(version),
    }
}

/// The reason a server can't be a target, to follow its address; `None` if it can. Versions of
/// MariaDB are checked elsewhere.
#[must_use]
pub fn unsupported_target(version: &str, comment: &str) -> Option<String> {
    match Product::of(version, comment) {
        Product::MariaDb => None,
        Product::Other("TiDB") => Some(format!(
            "{}: its named locks do not tell who holds them and end on their own, so nothing would keep a \
             second daemon from executing a definition (docs/decisions/0003-tidb-as-a-target.md)",
            another("TiDB", version)
        )),
        Product::Other(name) => Some(another(name, version)),
        Product::MySql => too_old(version),
    }
}

fn another(name: &str, version: &str) -> String {
    format!(
        "is {name} (version {version:?}), which speaks MySQL's protocol and is not MySQL; this \
         version does not support it"
    )
}

fn too_old(version: &str) -> Option<String> {
    let [major, minor, _] = version_numbers(version);
    let is_old = (major, minor) < OLDEST;
    let (major, minor) = OLDEST;
    is_old.then(|| format!("has version {version:?}; MySQL {major}.{minor} or newer is needed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_known_by_what_they_say() {
        for (version, comment, name) in [
            ("8.0.11-TiDB-v7.5.1", "TiDB Server (Apache License 2.0)", "TiDB"),
            ("5.7.25-TiDB-v6.1.0-serverless", "", "TiDB"),
            ("8.0.30-Vitess", "Version: 18.0.2", "Vitess"),
            ("8.0.23-PlanetScale", "", "PlanetScale"),
            ("8.0.33", "Dolt", "Dolt"),
            ("5.7.25-OceanBase-v4.2.1.0", "", "OceanBase"),
            ("5.7.25", "OceanBase_CE 4.2.1.0 (r100) (Built Oct 26 2023)", "OceanBase"),
            ("5.7.32", "SingleStoreDB source distribution (compatible; MySQL)", "SingleStore"),
            ("8.0.33", "StarRocks version 3.2.4", "StarRocks"),
            ("5.7.99", "Doris version doris-2.1.0-rc11", "Apache Doris"),
        ] {
            assert_eq!(Product::of(version, comment), Product::Other(name), "{version} {comment}");
            for why in [unsupported_source(version, comment), unsupported_target(version, comment)]
            {
                let why = why.expect("refused");
                assert!(why.contains(&format!("is {name} ")) && why.contains(version), "{why}");
            }
        }
    }

    #[test]
    fn a_target_of_tidb_is_refused_with_the_reason() {
        let why = unsupported_target("8.0.11-TiDB-v8.5.0", "").expect("refused");
        assert!(why.contains("is TiDB ") && why.contains("named locks"), "{why}");
    }

    #[test]
    fn builds_of_mysql_are_mysql() {
        for (version, comment) in [
            ("8.0.11", "MySQL Community Server - GPL"),
            ("8.0.36-28", "Percona Server (GPL), Release 28, Revision 47601f19"),
            ("8.4.6-6.1", "Percona XtraDB Cluster (GPL), Release rel6"),
            ("9.7.4-Debian", "(Debian)"),
            ("8.0.28", "Source distribution"),
            ("8.0.35-google", "(Google)"),
            ("8.4.3-cloud", "MySQL Enterprise - Cloud"),
            ("10.0.1", ""),
        ] {
            assert_eq!(Product::of(version, comment), Product::MySql, "{version}");
            assert_eq!(unsupported_source(version, comment), None);
            assert_eq!(unsupported_target(version, comment), None);
        }
    }

    #[test]
    fn old_ones_and_mariadb_as_a_source_are_refused() {
        assert_eq!(unsupported_source("5.7.44-log", ""), None);
        assert_eq!(unsupported_target("5.7.44-log", ""), None);
        for version in ["5.6.51", "", "what"] {
            assert!(unsupported_source(version, "").is_some(), "{version}");
            assert!(unsupported_target(version, "").is_some(), "{version}");
        }
        for version in ["11.8.2-MariaDB-log", "5.5.5-10.11.6-MariaDB"] {
            assert!(unsupported_source(version, "").is_some_and(|why| why.contains("MariaDB")));
            assert_eq!(unsupported_target(version, ""), None, "another rule decides");
        }
    }
}
