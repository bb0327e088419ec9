//! Servers for tests.

use std::time::Duration;

use csa_applier::{TargetGtids, TargetOptions, TlsOptions};

use super::server::Server;

/// Returns a server with these variables, and nothing else.
pub(super) fn server(variables: &[(&str, &str)]) -> Server {
    let variables =
        variables.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    Server { variables, ..Server::default() }
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
    }
}
