//! Servers for tests.

use std::time::Duration;

use csa_applier::{TargetGtids, TargetOptions, TlsOptions};
use csa_provider::server::{ServerFacts, Version};

use super::server::CheckedServer;

/// Returns a server of the newest version with these variables, and nothing else.
pub(super) fn facts(variables: &[(&str, &str)]) -> ServerFacts {
    let own = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
    let variables = variables.iter().map(own).collect();
    ServerFacts { version: Version::parse("9.7.4"), variables, ..ServerFacts::default() }
}

/// Returns a server with these variables, and nothing else.
pub(super) fn server(variables: &[(&str, &str)]) -> CheckedServer {
    CheckedServer { facts: facts(variables), ..CheckedServer::default() }
}

pub(super) fn target_options() -> TargetOptions {
    TargetOptions {
        host: "target".to_owned(),
        port: 3306,
        socket: None,
        user: "csa".to_owned(),
        password: String::new().into(),
        tls: TlsOptions::default(),
        connect_timeout: Duration::from_secs(1),
        net_timeout: Duration::from_secs(30),
        gtids: TargetGtids::Own,
        executor: None,
        collation_map: Default::default(),
        route: Default::default(),
    }
}
