//! A `ReplicationChannel`, and the file of the channel that it describes. Pure.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::resource_status::Status;

pub(super) const GROUP: &str = "csa-daemon.internal";
pub(super) const VERSION: &str = "v1alpha1";
pub(super) const KIND: &str = "ReplicationChannel";
pub(super) const PLURAL: &str = "replicationchannels";

/// Keys of `source` and `target` that name a key of a secret, and those of the file that take its place.
pub(super) const SECRETS: [(&str, &str); 5] = [
    ("password_secret", "password_file"),
    ("tls_ca_secret", "tls_ca"),
    ("tls_cert_secret", "tls_cert"),
    ("tls_key_secret", "tls_key"),
    ("public_key_secret", "public_key_file"),
];

#[derive(Debug, Deserialize)]
pub(super) struct List {
    pub(super) metadata: ListMetadata,
    pub(super) items: Vec<Resource>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListMetadata {
    /// A watch begins after it.
    pub(super) resource_version: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Resource {
    pub(super) metadata: Metadata,
    #[serde(default)]
    pub(super) spec: Map<String, Value>,
    #[serde(default)]
    pub(super) status: Status,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata {
    pub(super) name: String,
    /// Rises with each change of `spec`.
    #[serde(default)]
    pub(super) generation: i64,
}

/// Sections and keys that a resource must not have: whoever may write one could run programs in the daemon's pod, or send
/// its files elsewhere.
pub(super) const OF_THE_POD: [(&str, &str); 6] = [
    ("notify", "command"),
    ("notify", "url"),
    ("notify", "token_file"),
    ("notify", "tls_ca"),
    ("move", "fence_command"),
    ("move", "hand_over"),
];

/// A key of a secret in the resource's namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reference {
    pub(super) name: String,
    pub(super) key: String,
}

impl Reference {
    /// Both become parts of paths.
    fn check(&self) -> Result<(), String> {
        let is_plain = |text: &str| {
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            !text.is_empty() && !text.starts_with('.') && text.chars().all(plain)
        };
        match is_plain(&self.name) && is_plain(&self.key) {
            true => Ok(()),
            false => Err(format!("{:?}, {:?} is no key of a secret", self.name, self.key)),
        }
    }
}

impl Resource {
    /// Returns the text of the channel's file. `file` gives the path of the file with a secret.
    ///
    /// # Errors
    /// Names the key that can't be in a file, or the error of `file`.
    pub(super) fn file(
        &self,
        mut file: impl FnMut(&Reference) -> Result<String, String>,
    ) -> Result<String, String> {
        let mut channel = self.spec.clone();
        let has = |section: &str, key: &str| {
            channel.get(section).is_some_and(|keys| !keys[key].is_null())
        };
        if let Some((section, key)) = OF_THE_POD.iter().find(|(section, key)| has(section, key)) {
            return Err(format!(
                "{section}.{key}: only in [defaults.{section}] of the daemon's own file"
            ));
        }
        for side in ["source", "target"] {
            let Some(Value::Object(keys)) = channel.get_mut(side) else { continue };
            for (key, taken) in SECRETS {
                let Some(named) = keys.remove(key) else { continue };
                let wrong = |why: &dyn std::fmt::Display| format!("{side}.{key}: {why}");
                let named: Reference =
                    serde_json::from_value(named).map_err(|error| wrong(&error))?;
                named.check().map_err(|why| wrong(&why))?;
                let path = file(&named).map_err(|why| wrong(&why))?;
                keys.insert(taken.to_owned(), path.into());
            }
        }
        channel.insert("name".to_owned(), self.metadata.name.clone().into());
        let mut file = json!({ "channel": [channel] });
        without_nulls(&mut file);
        toml::to_string(&file).map_err(|error| format!("spec: {error}"))
    }
}

/// TOML has none: a key that is not there.
fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(spec: Value) -> Resource {
        let metadata = json!({ "name": "shop", "generation": 3, "uid": "x" });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).expect("a resource")
    }

    #[test]
    fn a_resource_is_the_channel_of_a_file_with_its_secrets_in_files() {
        let shop = resource(json!({
            "standby": null,
            "source": {
                "host": "db", "server_id": 7, "connect_retry": "2s",
                "password_secret": { "name": "mysql", "key": "repl" },
                "failover": [{ "host": "db2", "port": 3307 }],
            },
            "target": { "tls_ca_secret": { "name": "ca", "key": "ca.pem" } },
            "applier": { "worker_count": 3, "replicate_do_db": ["a", "b"] },
        }));
        let text = shop.file(|secret| Ok(format!("/s/{}.{}", secret.name, secret.key)));
        let found: toml::Table = text.expect("a file").parse().expect("TOML");
        let expected = "[[channel]]\nname = \"shop\"\n\
             [channel.source]\nhost = \"db\"\nserver_id = 7\nconnect_retry = \"2s\"\n\
             password_file = \"/s/mysql.repl\"\nfailover = [{ host = \"db2\", port = 3307 }]\n\
             [channel.target]\ntls_ca = \"/s/ca.ca.pem\"\n\
             [channel.applier]\nworker_count = 3\nreplicate_do_db = [\"a\", \"b\"]\n";
        assert_eq!(found, expected.parse().expect("TOML"));
    }

    #[test]
    fn a_reference_that_leads_elsewhere_is_refused() {
        for (name, key) in [("../x", "k"), ("a/b", "k"), ("a", "../../etc"), ("", "k"), ("a", "..")]
        {
            let target = json!({ "password_secret": { "name": name, "key": key } });
            let error = resource(json!({ "target": target })).file(|_| Ok(String::new()));
            let error = error.expect_err("refused");
            assert!(error.starts_with("target.password_secret: "), "{error}");
        }
        for (section, key) in OF_THE_POD {
            let error =
                resource(json!({ section: { key: ["/bin/sh"] } })).file(|_| Ok(String::new()));
            assert!(error.expect_err("refused").starts_with(&format!("{section}.{key}: ")));
        }
        let events = resource(json!({ "notify": { "events": ["failed"], "url": null } }));
        assert!(events.file(|_| Ok(String::new())).is_ok());
        let missing =
            resource(json!({ "source": { "tls_ca_secret": { "name": "a", "key": "k" } } }));
        let error = missing.file(|_| Err("none".to_owned())).expect_err("refused");
        assert_eq!(error, "source.tls_ca_secret: none");
    }
}
