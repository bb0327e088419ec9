//! Conversion of `[claims]` with `engine = "kubernetes"`: a pod's account serves where a key is not set.

use std::path::{Path, PathBuf};

use crate::claims::http::Endpoint;
use crate::claims::kubernetes::KubernetesOptions;

use super::addresses::is_private;
use super::claims_tls::tls;
use super::declared_keys::ClaimsConfig;
use super::error::{ConfigError, Result, refuse};

/// Length limit of a prefix: it is a label of every Lease, and part of its name.
const PREFIX_LEN_MAX: usize = 40;
/// The longest name of a namespace (RFC 1123).
const NAMESPACE_LEN_MAX: usize = 63;

/// Address and account that Kubernetes gives every pod.
#[derive(Debug)]
pub(super) struct Pod {
    /// The name of the missing variable of the environment, if there is none.
    server: std::result::Result<String, &'static str>,
    /// Folder with `token`, `ca.crt` and `namespace`.
    account: PathBuf,
}

impl Pod {
    pub(super) fn own() -> Self {
        Self {
            server: api_server_of_pod(),
            account: Path::new("/var/run/secrets/kubernetes.io/serviceaccount").to_owned(),
        }
    }

    /// Returns a file of the account, if it exists.
    fn file(&self, name: &str) -> Option<PathBuf> {
        Some(self.account.join(name)).filter(|path| path.is_file())
    }

    fn missing(&self, key: &str, file: &str) -> ConfigError {
        let path = self.account.join(file);
        ConfigError(format!(
            "claims.{key}: set it; by default it is that of the pod, but {} is missing (in a pod: \
             automountServiceAccountToken, or a volume)",
            path.display()
        ))
    }
}

/// Returns the API server that Kubernetes names in the environment of every pod.
///
/// # Errors
/// The name of the variable that is missing.
pub(crate) fn api_server_of_pod() -> std::result::Result<String, &'static str> {
    let value = |name: &'static str| std::env::var(name).map_err(|_| name);
    let host = value("KUBERNETES_SERVICE_HOST")?;
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    Ok(format!("https://{host}:{}", value("KUBERNETES_SERVICE_PORT")?))
}

pub(super) fn kubernetes(config: ClaimsConfig, pod: &Pod) -> Result<KubernetesOptions> {
    for (key, is_set) in
        [("user", config.user.is_some()), ("password_file", config.password_file.is_some())]
    {
        if is_set {
            return refuse(format!(
                "claims.{key}: only with claims.engine = \"etcd\"; with \"kubernetes\" the account is \
                 that of token_file, or of tls_cert and tls_key"
            ));
        }
    }
    let prefix = config.prefix.trim_matches('/').to_owned();
    if !is_label(&prefix, PREFIX_LEN_MAX) {
        return refuse(format!(
            "claims.prefix: {prefix:?}: with claims.engine = \"kubernetes\" 1 to {PREFIX_LEN_MAX} of a-z, 0-9 \
             and - are allowed, with a letter or digit at each end"
        ));
    }
    let addresses = match &pod.server {
        _ if !config.endpoints.is_empty() => config.endpoints.clone(),
        Ok(server) => vec![server.clone()],
        Err(missing) => {
            return refuse(format!(
                "claims.endpoints: name an API server, like \"https://10.0.0.1:6443\"; in a pod it would be known, \
                 but the environment has no {missing}"
            ));
        }
    };
    let has_certificate = config.tls_cert.is_some() || config.tls_key.is_some();
    let is_https = addresses.iter().any(|address| !address.starts_with("http://"));
    let token_file = match config.token_file {
        Some(path) => Some(readable("token_file", path)?),
        None if has_certificate => None,
        None => match pod.file("token") {
            // An API server without TLS is a proxy on this host, which has an account of its own.
            None if is_https => return Err(pod.missing("token_file", "token")),
            found => found,
        },
    };
    let authority = config.tls_ca.clone().or_else(|| pod.file("ca.crt"));
    let files = (config.tls_cert.as_deref(), config.tls_key.as_deref());
    let tls = authority.map(|ca| tls(&ca, files)).transpose()?;
    let endpoint = |text: &String| {
        if token_file.is_some() && !is_private(text) {
            return refuse(format!(
                "claims.endpoints: {text}: others could read the token of claims.token_file there; use https"
            ));
        }
        if text.starts_with("https") && tls.is_none() {
            return Err(pod.missing("tls_ca", "ca.crt"));
        }
        Endpoint::parse(text, tls.as_ref())
            .map_err(|why| ConfigError(format!("claims.endpoints: {why}")))
    };
    let endpoints = addresses.iter().map(endpoint).collect::<Result<_>>()?;
    let namespace = match (config.namespace, pod.file("namespace")) {
        (Some(namespace), _) => namespace,
        (None, Some(path)) => std::fs::read_to_string(&path)
            .map_err(|error| ConfigError(format!("claims.namespace: {}: {error}", path.display())))?
            .trim()
            .to_owned(),
        (None, None) => return Err(pod.missing("namespace", "namespace")),
    };
    if !is_label(&namespace, NAMESPACE_LEN_MAX) {
        return refuse(format!("claims.namespace: {namespace:?} is not the name of a namespace"));
    }
    Ok(KubernetesOptions { endpoints, namespace, prefix, ttl: config.ttl.0, token_file })
}

/// A file that is there, before the first request needs it.
fn readable(key: &str, path: PathBuf) -> Result<PathBuf> {
    match std::fs::read_to_string(&path) {
        Ok(text) if text.trim().is_empty() => {
            refuse(format!("claims.{key}: {} is empty", path.display()))
        }
        Ok(_) => Ok(path),
        Err(error) => refuse(format!("claims.{key}: {}: {error}", path.display())),
    }
}

fn is_label(text: &str, most: usize) -> bool {
    let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = [text.bytes().next(), text.bytes().last()];
    text.len() <= most
        && ends.into_iter().all(|end| end.is_some_and(known))
        && text.bytes().all(|byte| known(byte) || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(lines: &str, pod: &Pod) -> std::result::Result<KubernetesOptions, String> {
        let config: ClaimsConfig =
            toml::from_str(&format!("engine = \"kubernetes\"\n{lines}")).expect("keys");
        kubernetes(config, pod).map_err(|error| error.0)
    }

    /// Returns a pod whose account has these files.
    fn pod(folder: &Path, files: &[(&str, &str)]) -> Pod {
        for (name, text) in files {
            std::fs::write(folder.join(name), text).expect("writes");
        }
        Pod { server: Ok("https://10.96.0.1:443".to_owned()), account: folder.to_owned() }
    }

    #[test]
    fn a_pod_needs_no_keys() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let authority = std::process::Command::new("openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-nodes",
            ])
            .args(["-subj", "/CN=cluster", "-keyout", "/dev/null"])
            .output()
            .expect("running openssl");
        let authority = String::from_utf8_lossy(&authority.stdout);
        let files = [("token", "t"), ("ca.crt", &*authority), ("namespace", "mysql\n")];
        let found = resolve("", &pod(folder.path(), &files)).expect("valid");
        assert_eq!((&*found.namespace, &*found.prefix), ("mysql", "csa-daemon"));
        assert_eq!(found.token_file, Some(folder.path().join("token")));
        assert_eq!(format!("{:?}", found.endpoints), "[https://10.96.0.1:443]");
        let found = resolve("prefix = \"two\"\nnamespace = \"other\"", &pod(folder.path(), &[]));
        let found = found.expect("valid");
        assert_eq!((&*found.namespace, &*found.prefix), ("other", "two"));
    }

    #[test]
    fn elsewhere_the_missing_key_is_named() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let none =
            Pod { server: Err("KUBERNETES_SERVICE_HOST"), account: folder.path().to_owned() };
        let token = folder.path().join("kubernetes.token");
        std::fs::write(&token, "t").expect("writes");
        let proxy = "endpoints = [\"http://127.0.0.1:8001\"]\n";
        let server = "endpoints = [\"https://k:6443\"]\n";
        let with_token = format!("token_file = {token:?}\n");
        for (lines, words) in [
            ("", "claims.endpoints: name an API server"),
            (server, "claims.token_file: set it; by default"),
            (&format!("{server}{with_token}"), "claims.tls_ca: set it; by default"),
            (&format!("{server}token_file = \"/nowhere\""), "claims.token_file: /nowhere: "),
            (&format!("{server}tls_cert = \"c\""), "claims.tls_ca: set it"),
            (proxy, "claims.namespace: set it; by default"),
            (&format!("{proxy}namespace = \"A\""), "claims.namespace: \"A\" is not"),
            (&format!("{proxy}prefix = \"/a/b\""), "claims.prefix: \"a/b\": with claims.engine"),
            (&format!("{proxy}user = \"u\""), "claims.user: only with claims.engine = \"etcd\""),
            (
                &format!("endpoints = [\"http://192.0.2.1:80\"]\nnamespace = \"n\"\n{with_token}"),
                "claims.endpoints: http://192.0.2.1:80: others could read the token",
            ),
        ] {
            let said = resolve(lines, &none).expect_err(lines);
            assert!(said.starts_with(words), "{said}\n{words}");
        }
        let found = resolve(&format!("{proxy}namespace = \"n\""), &none).expect("valid");
        assert_eq!(found.token_file, None);
    }
}
