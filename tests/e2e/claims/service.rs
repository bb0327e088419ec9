//! The services that keep the claims, as the tests start them and daemons use them.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use csa_daemon::claims::engine::Engine;
use csa_daemon::claims::etcd::Etcd as EtcdEngine;
use csa_daemon::claims::http::{Endpoint, TlsSettings};
use csa_daemon::claims::kubernetes::{Kubernetes, KubernetesOptions};
use csa_tests::{ACCOUNT_TOKEN, ApiServer, DaemonBuilder, Etcd, kubernetes_tool};
use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tempfile::TempDir;

pub(super) trait Service {
    type Engine: Engine;
    /// As `csa-daemon fleet` calls it.
    const NAME: &'static str;

    fn engine(&self, ttl: Duration) -> Self::Engine;
    /// Returns a daemon whose `[claims]` lead here.
    fn configure(&self, daemon: DaemonBuilder) -> DaemonBuilder;
    /// Requests answered so far.
    fn requests(&self) -> u64;
    fn kill9(&self);
    /// With the claims that it has.
    fn start_again(&self);
}

impl Service for Etcd {
    type Engine = EtcdEngine;
    const NAME: &'static str = "etcd";

    fn engine(&self, ttl: Duration) -> EtcdEngine {
        super::engine::engine(self, ttl, None)
    }

    fn configure(&self, daemon: DaemonBuilder) -> DaemonBuilder {
        daemon.set("claims.engine", "etcd").set("claims.endpoints", vec![self.endpoint()])
    }

    fn requests(&self) -> u64 {
        self.requests()
    }

    fn kill9(&self) {
        self.kill9();
    }

    fn start_again(&self) {
        self.start_again();
    }
}

/// An API server, and the account that the chart makes for the daemons.
pub(super) struct Leases {
    pub(super) server: ApiServer,
    account: TempDir,
}

impl Leases {
    /// Returns `None` where there is none, of which stderr tells.
    pub(super) fn start() -> Option<Self> {
        let helm = kubernetes_tool("helm")?;
        let server = ApiServer::start()?;
        let rights = crate::deployments::kubernetes::rights(&helm, "claims");
        server.kubectl(&["apply", "--filename=-"], &rights).expect("the chart's rights");
        let account = tempfile::tempdir().expect("a temporary directory");
        let leases = Self { server, account };
        leases.put_token(ACCOUNT_TOKEN);
        Some(leases)
    }

    pub(super) fn put_token(&self, token: &str) {
        fs::write(self.account.path().join("token"), token).expect("writes");
    }
}

impl Service for Leases {
    type Engine = Kubernetes;
    const NAME: &'static str = "kubernetes";

    fn engine(&self, ttl: Duration) -> Kubernetes {
        let certificates = CertificateDer::pem_file_iter(self.server.authority()).expect("reads");
        let mut roots = rustls::RootCertStore::empty();
        for certificate in certificates {
            roots.add(certificate.expect("a certificate")).expect("an authority");
        }
        let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let tls = Arc::new(tls);
        let tls: TlsSettings = Arc::new(move || Arc::clone(&tls));
        // The first one answers nothing.
        let endpoints = ["https://127.0.0.1:1", &self.server.url()];
        let endpoint = |text: &&str| Endpoint::parse(text, Some(&tls)).expect("an address");
        Kubernetes::new(KubernetesOptions {
            endpoints: endpoints.iter().map(endpoint).collect(),
            namespace: "default".to_owned(),
            prefix: "fleet".to_owned(),
            ttl,
            token_file: Some(self.account.path().join("token")),
        })
    }

    fn configure(&self, daemon: DaemonBuilder) -> DaemonBuilder {
        let path = |path: std::path::PathBuf| path.display().to_string();
        daemon
            .set("claims.engine", "kubernetes")
            .set("claims.endpoints", vec![self.server.url()])
            .set("claims.namespace", "default")
            .set("claims.tls_ca", path(self.server.authority()))
            .set("claims.token_file", path(self.account.path().join("token")))
    }

    fn requests(&self) -> u64 {
        self.server.lease_requests()
    }

    fn kill9(&self) {
        self.server.kill9();
    }

    fn start_again(&self) {
        self.server.start_again();
    }
}
