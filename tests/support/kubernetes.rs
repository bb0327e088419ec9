//! A real Kubernetes API server with its store: no nodes, no scheduler and no controllers but its own.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::config::free_port;
use crate::daemon::Running;
use crate::tools::tool;

const PATIENCE: Duration = Duration::from_secs(60);
/// Tokens and the users that they belong to. The second one is a service account in the namespace `default`.
pub const ADMIN_TOKEN: &str = "token-of-the-admin";
/// See [`ADMIN_TOKEN`].
pub const ACCOUNT_TOKEN: &str = "token-of-the-service-account";
const USERS: &str = "token-of-the-admin,admin,1,system:masters\n\
    token-of-the-service-account,system:serviceaccount:default:csa-daemon,2,\n";

/// Returns a program that `tests/sandbox/go-tool` has or builds. Without `CSA_KUBERNETES` it is taken from the
/// cache or from this machine, otherwise stderr says that the test did not run.
#[must_use]
pub fn kubernetes_tool(name: &str) -> Option<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("sandbox/go-tool");
    let is_asked_for = std::env::var_os("CSA_KUBERNETES").is_some();
    let mut find = Command::new(script);
    if !is_asked_for {
        find.arg("--cached");
    }
    let found = find.arg(name).output().expect("running go-tool");
    if found.status.success() {
        return Some(String::from_utf8_lossy(&found.stdout).trim().into());
    }
    let why = String::from_utf8_lossy(&found.stderr).trim().to_owned();
    assert!(!is_asked_for, "{why}");
    // Not println: the output of a test that passes is not shown.
    let _ = writeln!(
        std::io::stderr(),
        "\nNOT RUN: Kubernetes (tests/e2e/deployments/kubernetes.rs, claims in Leases): {why}\n"
    );
    None
}

/// Both programs are killed when it is dropped.
#[derive(Debug)]
pub struct ApiServer {
    server: Mutex<Option<Running>>,
    _store: Running,
    program: PathBuf,
    store_port: u16,
    directory: TempDir,
    kubectl: PathBuf,
    port: u16,
}

impl ApiServer {
    /// Returns `None` where there is none, of which stderr tells.
    ///
    /// # Panics
    /// With its log if it does not come up.
    #[must_use]
    pub fn start() -> Option<Self> {
        let (program, kubectl) = (kubernetes_tool("kube-apiserver")?, kubernetes_tool("kubectl")?);
        let directory = TempDir::with_prefix("csa-kubernetes-").expect("a temporary directory");
        let path = directory.path();
        let (port, store_port, peer_port) = (free_port(), free_port(), free_port());
        let address = |port: u16| format!("http://127.0.0.1:{port}");
        let mut store = tool("etcd");
        store
            .arg("--data-dir")
            .arg(path.join("etcd"))
            .args(["--listen-client-urls", &address(store_port)])
            .args(["--advertise-client-urls", &address(store_port)])
            .args(["--listen-peer-urls", &address(peer_port), "--unsafe-no-fsync"]);
        let store = spawn(&mut store, &path.join("etcd.log"));
        let key = path.join("account.key");
        let made = Command::new("openssl")
            .args(["genpkey", "-algorithm", "RSA", "-out"])
            .arg(&key)
            .output()
            .expect("running openssl");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        fs::write(path.join("users"), USERS).expect("writing the users");
        let server = Mutex::new(None);
        let made = Self { server, _store: store, program, store_port, directory, kubectl, port };
        let config = format!(
            "{{apiVersion: v1, kind: Config, current-context: c, \
             clusters: [{{name: c, cluster: {{server: \"{}\", certificate-authority: \"{}\"}}}}], \
             users: [{{name: u, user: {{token: {ADMIN_TOKEN}}}}}], \
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]}}",
            made.url(),
            made.authority().display()
        );
        fs::write(made.directory.path().join("config"), config).expect("writing the configuration");
        made.start_again();
        Some(made)
    }

    /// Starts it with the objects that it has.
    ///
    /// # Panics
    /// With its log if it does not come up.
    pub fn start_again(&self) {
        let path = self.directory.path();
        let key = path.join("account.key");
        let mut server = Command::new(&self.program);
        server
            .arg(format!("--etcd-servers=http://127.0.0.1:{}", self.store_port))
            .arg(format!("--secure-port={}", self.port))
            .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"])
            .arg(format!("--cert-dir={}", path.display()))
            .arg("--service-account-issuer=https://kubernetes.default.svc")
            .arg(format!("--service-account-key-file={}", key.display()))
            .arg(format!("--service-account-signing-key-file={}", key.display()))
            .arg(format!("--token-auth-file={}", path.join("users").display()))
            .args(["--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/24"])
            .arg("--disable-admission-plugins=ServiceAccount");
        let server = spawn(&mut server, &path.join("server.log"));
        *self.server.lock().expect("not poisoned") = Some(server);
        let started = Instant::now();
        while self.kubectl(&["get", "namespace", "default"], "").is_err() {
            let log = fs::read_to_string(path.join("server.log")).unwrap_or_default();
            assert!(started.elapsed() < PATIENCE, "the API server does not come up\n{log}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// `kill -9` of the API server; its store stays.
    ///
    /// # Panics
    /// If it is not running.
    pub fn kill9(&self) {
        let server = self.server.lock().expect("not poisoned").take();
        drop(server.expect("the API server is not running"));
    }

    /// Requests for Leases since its start, watches when they have ended.
    ///
    /// # Panics
    /// If it serves no metrics.
    #[must_use]
    pub fn lease_requests(&self) -> u64 {
        let metrics = self.kubectl(&["get", "--raw", "/metrics"], "").expect("metrics");
        let counted = metrics.lines().filter(|line| {
            line.starts_with("apiserver_request_total{") && line.contains("resource=\"leases\"")
        });
        counted
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .map(|count| count as u64)
            .sum()
    }

    #[must_use]
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// Returns the certificates that vouch for it.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.directory.path().join("apiserver.crt")
    }

    /// Returns the output of `kubectl` as an administrator.
    ///
    /// # Errors
    /// Its messages, if it fails.
    ///
    /// # Panics
    /// When it does not start.
    pub fn kubectl(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let mut child = Command::new(&self.kubectl)
            .env("KUBECONFIG", self.directory.path().join("config"))
            .env("NO_PROXY", "127.0.0.1")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starting kubectl");
        let mut stdin = child.stdin.take().expect("piped");
        // It may end without having read everything.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        let output = child.wait_with_output().expect("kubectl ends");
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }
}

fn spawn(command: &mut Command, log: &Path) -> Running {
    let log = File::create(log).expect("creating a log");
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("the log a second time"))
        .stderr(log);
    Running::new(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
}
