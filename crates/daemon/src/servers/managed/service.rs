//! The managed services, a row for each: privileges that an account there can have, and how its
//! settings are changed. From the services' documentation (docs/managed.md names the pages).

use csa_provider::server::Place;

/// A managed MySQL service.
#[derive(Debug)]
pub(crate) struct ManagedService {
    /// The name as on the command line.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// Dynamic privileges that an account can have, from the version on, oldest first.
    grantable: &'static [([u32; 3], &'static [&'static str])],
    pub(super) settings: ServiceSettings,
    pub(super) retention: Retention,
    /// The fix of these checks, where it is no setting or GRANT.
    pub(super) fixes: &'static [(&'static str, Place, &'static str)],
    /// Keys that verify the server's certificate.
    pub(super) tls: &'static str,
}

/// The way to change server variables, with `{name}` and `{value}` for each of them.
#[derive(Debug)]
pub(super) struct ServiceSettings {
    pub(super) introduction: &'static str,
    pub(super) each: &'static str,
    pub(super) between: &'static str,
    /// Names that differ from the variable's.
    pub(super) renamed: &'static [(&'static str, &'static str)],
}

/// The rule by which binary logs are purged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Retention {
    /// `mysql.rds_configuration`, whatever `binlog_expire_logs_seconds` says.
    Configuration,
    /// `binlog_expire_logs_seconds`, of which 0 means at once.
    ZeroIsAtOnce,
    /// `binlog_expire_logs_seconds`, as everywhere.
    Usual,
}

impl ManagedService {
    /// # Errors
    /// Names the services that are known.
    pub(crate) fn named(name: &str) -> Result<&'static Self, String> {
        let found = SERVICES.iter().find(|service| service.name == name);
        found.ok_or_else(|| {
            let known: Vec<&str> = SERVICES.iter().map(|service| service.name).collect();
            format!("no profile has that name; known are {}", known.join(", "))
        })
    }

    /// Returns true if an account of a server of this version can have the privilege.
    pub(super) fn can_grant(&self, privilege: &str, version: [u32; 3]) -> bool {
        if privilege == "SUPER" {
            return false;
        }
        // A dynamic privilege has a name of several words with underscores between them.
        if !privilege.contains('_') {
            return true;
        }
        let of_version = self.grantable.iter().rev().find(|(since, _)| *since <= version);
        of_version.is_some_and(|(_, names)| names.contains(&privilege))
    }
}

const PARAMETER_NAMES: &[(&str, &str)] = &[("gtid_mode", "gtid-mode")];
const RETENTION_PROCEDURE: &str =
    "CALL mysql.rds_set_configuration('binlog retention hours', 168); -- as the master user";

static SERVICES: [ManagedService; 4] = [
    ManagedService {
        name: "rds-mysql",
        title: "Amazon RDS for MySQL",
        grantable: &[
            (
                [8, 0, 0],
                &[
                    "BINLOG_ADMIN",
                    "CONNECTION_ADMIN",
                    "REPLICATION_APPLIER",
                    "ROLE_ADMIN",
                    "SESSION_VARIABLES_ADMIN",
                    "SET_USER_ID",
                ],
            ),
            ([8, 0, 36], &["ROLE_ADMIN", "SESSION_VARIABLES_ADMIN", "SET_USER_ID"]),
            ([8, 4, 0], &["ROLE_ADMIN", "SESSION_VARIABLES_ADMIN", "SET_ANY_DEFINER"]),
        ],
        settings: ServiceSettings {
            introduction: "in the DB parameter group of the instance: ",
            each: "{name} = {value}",
            between: ", ",
            renamed: PARAMETER_NAMES,
        },
        retention: Retention::Configuration,
        fixes: &[
            (
                "source.log_bin",
                Place::Operator,
                "turn on automated backups of the instance (a retention above 0 days); they turn on the \
                 binary log",
            ),
            ("source.binlog_retention", Place::Source, RETENTION_PROCEDURE),
            (
                "target.read_only",
                Place::Operator,
                "promote the instance if it is a read replica; else read_only = 0 in its DB parameter group",
            ),
        ],
        tls: "tls = \"verify-identity\" and tls_ca, a copy of Amazon's global-bundle.pem",
    },
    ManagedService {
        name: "aurora-mysql",
        title: "Amazon Aurora MySQL",
        grantable: &[
            (
                [8, 0, 0],
                &["CONNECTION_ADMIN", "ROLE_ADMIN", "SESSION_VARIABLES_ADMIN", "SET_USER_ID"],
            ),
            (
                [8, 4, 0],
                &[
                    "ALLOW_NONEXISTENT_DEFINER",
                    "CONNECTION_ADMIN",
                    "ROLE_ADMIN",
                    "SESSION_VARIABLES_ADMIN",
                    "SET_ANY_DEFINER",
                ],
            ),
        ],
        settings: ServiceSettings {
            introduction: "in the DB cluster parameter group: ",
            each: "{name} = {value}",
            between: ", ",
            renamed: PARAMETER_NAMES,
        },
        retention: Retention::Configuration,
        fixes: &[
            (
                "source.log_bin",
                Place::Operator,
                "in the DB cluster parameter group: binlog_format = ROW, then reboot the writer",
            ),
            ("source.binlog_retention", Place::Source, RETENTION_PROCEDURE),
            (
                "target.read_only",
                Place::Configuration,
                "[channel.target] host = the cluster's writer endpoint",
            ),
        ],
        tls: "tls = \"verify-identity\" and tls_ca, a copy of Amazon's global-bundle.pem",
    },
    ManagedService {
        name: "cloud-sql",
        title: "Google Cloud SQL for MySQL",
        grantable: &[
            ([8, 0, 0], &["CONNECTION_ADMIN", "ROLE_ADMIN", "SET_USER_ID"]),
            ([8, 4, 0], &["CONNECTION_ADMIN", "ROLE_ADMIN", "SET_ANY_DEFINER"]),
        ],
        settings: ServiceSettings {
            introduction: "gcloud sql instances patch INSTANCE --database-flags=",
            each: "{name}={value}",
            between: ",",
            renamed: &[],
        },
        retention: Retention::Usual,
        fixes: &[
            (
                "source.log_bin",
                Place::Operator,
                "gcloud sql instances patch INSTANCE --enable-bin-log",
            ),
            (
                "target.read_only",
                Place::Operator,
                "gcloud sql instances promote-replica INSTANCE, if it is a read replica",
            ),
        ],
        tls: "tls = \"verify-ca\" and tls_ca, a copy of the instance's server-ca.pem",
    },
    ManagedService {
        name: "azure-mysql",
        title: "Azure Database for MySQL",
        grantable: &[(
            [8, 0, 0],
            &["REPLICATION_APPLIER", "ROLE_ADMIN", "SESSION_VARIABLES_ADMIN"],
        )],
        settings: ServiceSettings {
            introduction: "",
            each: "az mysql flexible-server parameter set -g GROUP -s SERVER -n {name} -v {value}",
            between: " && ",
            renamed: &[],
        },
        retention: Retention::ZeroIsAtOnce,
        fixes: &[
            (
                "target.read_only",
                Place::Operator,
                "az mysql flexible-server replica stop-replication -g GROUP -n SERVER, if it is a read \
                 replica",
            ),
            ("target.time_zones", Place::Target, "CALL mysql.az_load_timezone();"),
        ],
        tls: "tls = \"verify-identity\" and tls_ca, the root certificates that Azure names for the service",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_profile_names_the_known_ones() {
        assert_eq!(
            ManagedService::named("aurora-mysql").expect("known").title,
            "Amazon Aurora MySQL"
        );
        let why = ManagedService::named("rds").expect_err("unknown");
        assert!(why.ends_with("rds-mysql, aurora-mysql, cloud-sql, azure-mysql"), "{why}");
    }

    #[test]
    fn privileges_depend_on_the_service_and_its_version() {
        for (service, version, privilege, expected) in [
            ("rds-mysql", [8, 0, 35], "REPLICATION_APPLIER", true),
            ("rds-mysql", [8, 0, 36], "REPLICATION_APPLIER", false),
            ("rds-mysql", [8, 4, 3], "SET_USER_ID", false),
            ("rds-mysql", [8, 4, 3], "SET_ANY_DEFINER", true),
            ("rds-mysql", [5, 7, 44], "ROLE_ADMIN", false),
            ("rds-mysql", [5, 7, 44], "REPLICATION SLAVE", true),
            ("azure-mysql", [8, 4, 0], "REPLICATION_APPLIER", true),
            ("azure-mysql", [8, 0, 40], "SET_USER_ID", false),
            ("cloud-sql", [8, 0, 40], "SESSION_VARIABLES_ADMIN", false),
            ("aurora-mysql", [8, 4, 7], "ALLOW_NONEXISTENT_DEFINER", true),
            ("aurora-mysql", [8, 0, 39], "SUPER", false),
        ] {
            let known = ManagedService::named(service).expect("known");
            assert_eq!(known.can_grant(privilege, version), expected, "{service} {privilege}");
        }
    }
}
