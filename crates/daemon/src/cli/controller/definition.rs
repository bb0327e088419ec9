//! The definition of the resource: its schema is that of the configuration's channels. Pure.

use serde_json::{Map, Value, json};

use super::resource::{GROUP, KIND, OF_THE_POD, PLURAL, SECRETS, VERSION};
use crate::config::channel_schema;

/// Keys that would put a secret into the resource, or read one of the pod's own files or variables.
const LEFT_OUT: [&str; 3] = ["password", "password_env", "password_file"];
/// Keys of the metadata that schemas of Kubernetes can't have.
const UNKNOWN: [&str; 6] =
    ["examples", "x-takes", "x-applies", "x-at-least", "x-in-example", "title"];

/// Returns the `CustomResourceDefinition`, as JSON, which is YAML too.
pub(crate) fn definition() -> String {
    let mut spec = channel_schema();
    convert(&mut spec);
    if let Some(keys) = spec["properties"].as_object_mut() {
        // The resource's own name.
        keys.remove("name");
        for (section, key) in OF_THE_POD {
            if let Some(keys) =
                keys.get_mut(section).and_then(|of| of["properties"].as_object_mut())
            {
                keys.remove(key);
            }
        }
        for side in ["source", "target"] {
            if let Some(keys) =
                keys.get_mut(side).and_then(|side| side["properties"].as_object_mut())
            {
                LEFT_OUT.iter().for_each(|key| drop(keys.remove(*key)));
                for (key, file) in SECRETS {
                    keys.insert(key.to_owned(), secret(file));
                }
            }
        }
    }
    if let Some(required) = spec["required"].as_array_mut() {
        required.retain(|key| key != "name");
    }
    spec["description"] = json!("A channel, with the keys of csa-daemon.toml.");
    let column = |name: &str, kind: &str, path: &str| json!({ "name": name, "type": kind, "jsonPath": path });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{PLURAL}.{GROUP}") },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": format!("{KIND}List"),
                "plural": PLURAL,
                "singular": KIND.to_lowercase(),
                "shortNames": ["rch"],
            },
            "versions": [{
                "name": VERSION,
                "served": true,
                "storage": true,
                "subresources": { "status": {} },
                "additionalPrinterColumns": [
                    column("State", "string", ".status.state"),
                    column("Lag", "string", ".status.lag"),
                    column("Backlog", "integer", ".status.backlog"),
                    column("Holder", "string", ".status.holder"),
                    column("Age", "date", ".metadata.creationTimestamp"),
                ],
                "schema": { "openAPIV3Schema": {
                    "type": "object",
                    "description": "A channel of csa-daemon: a link from one source to one target.",
                    "required": ["spec"],
                    "properties": { "spec": spec, "status": status() },
                    "x-kubernetes-validations": [{
                        "rule": "self.metadata.name.matches('^[a-z0-9-]{1,64}$')",
                        "message": "the name of a channel has 1 to 64 of a-z 0-9 -",
                    }],
                } },
            }],
        },
    });
    format!("{definition:#}\n")
}

fn secret(file: &str) -> Value {
    json!({
        "type": "object",
        "description": format!("The key of a secret whose value is `{file}`."),
        "required": ["name", "key"],
        "properties": { "name": { "type": "string" }, "key": { "type": "string" } },
    })
}

fn status() -> Value {
    let text = || json!({ "type": "string" });
    let or_null = |kind: &str| json!({ "type": kind, "nullable": true });
    json!({
        "type": "object",
        "properties": {
            "state": text(),
            "message": text(),
            "lag": or_null("string"),
            "lagSeconds": or_null("number"),
            "backlog": or_null("integer"),
            "holder": or_null("string"),
            "observedGeneration": { "type": "integer", "format": "int64" },
            "conditions": { "type": "array", "items": {
                "type": "object",
                "required": ["type", "status", "reason", "lastTransitionTime"],
                "properties": {
                    "type": text(), "status": text(), "reason": text(), "message": text(),
                    "observedGeneration": { "type": "integer", "format": "int64" },
                    "lastTransitionTime": { "type": "string", "format": "date-time" },
                },
            } },
        },
    })
}

/// Makes a JSON schema a structural one. Defaults are left out: the daemon has them, and those of `[defaults]`.
fn convert(schema: &mut Value) {
    let Value::Object(fields) = schema else { return };
    for key in UNKNOWN.iter().chain(&["default"]) {
        fields.remove(*key);
    }
    // Properties that the schema does not name are refused where `kubectl` validates strictly, otherwise pruned.
    if fields.get("additionalProperties") == Some(&Value::Bool(false)) {
        fields.remove("additionalProperties");
    }
    if let Some(Value::Array(words)) = fields.remove("oneOf") {
        let words: Vec<Value> = words.into_iter().map(|mut word| word["const"].take()).collect();
        fields.insert("type".to_owned(), json!("string"));
        fields.insert("enum".to_owned(), words.into());
    }
    match fields.get("type") {
        Some(Value::Array(_)) => {
            // A size or a time: a number or a text. The daemon checks it.
            for key in ["type", "pattern", "minimum", "maximum"] {
                fields.remove(key);
            }
            fields.insert("x-kubernetes-int-or-string".to_owned(), json!(true));
        }
        None => drop(fields.insert("type".to_owned(), json!("string"))),
        Some(_) => {}
    }
    below(fields);
}

fn below(fields: &mut Map<String, Value>) {
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        properties.values_mut().for_each(convert);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(schema) = fields.get_mut(key) {
            convert(schema);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_charts_definition_is_what_the_keys_say() {
        let checked_in = include_str!(
            "../../../../../config/kubernetes/helm/csa-daemon/crds/replicationchannels.json"
        );
        assert!(
            checked_in == definition(),
            "run csa-daemon generate DIRECTORY, and copy replicationchannels.json"
        );
    }

    #[test]
    fn the_schema_has_the_keys_of_a_channel_and_no_place_for_a_password() {
        let definition: Value = serde_json::from_str(&definition()).expect("JSON");
        let spec =
            &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        // A channel that only archives has no target.
        assert_eq!(spec["required"], json!(["source"]));
        let source = &spec["properties"]["source"]["properties"];
        assert_eq!(source["server_id"]["type"], "integer");
        assert_eq!(source["tls"]["enum"][3], "verify-ca");
        assert_eq!(source["connect_retry"]["x-kubernetes-int-or-string"], true);
        for key in LEFT_OUT {
            assert!(source.get(key).is_none(), "{key}");
        }
        for (section, key) in OF_THE_POD {
            let keys = &spec["properties"][section]["properties"];
            assert!(keys.is_object() && keys.get(key).is_none(), "{section}.{key}");
        }
        assert!(spec["properties"]["notify"]["properties"].get("events").is_some());
        assert_eq!(source["password_secret"]["required"], json!(["name", "key"]));
        let limit = &spec["properties"]["applier"]["properties"]["worker_count"];
        assert_eq!((limit["minimum"].as_i64(), limit.get("default")), (Some(1), None));
    }
}
