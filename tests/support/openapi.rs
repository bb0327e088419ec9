//! Answers compared with docs/openapi.json: every code and every field, both ways.

use std::collections::BTreeSet;

use serde_json::Value;

const DOCUMENT: &str = include_str!("../../docs/openapi.json");

/// The description of the admin port, and the answers seen so far.
#[derive(Debug)]
pub struct OpenApi {
    document: Value,
    seen: BTreeSet<Answered>,
}

/// Path, method, status code.
type Answered = (String, String, String);

impl Default for OpenApi {
    fn default() -> Self {
        Self {
            document: serde_json::from_str(DOCUMENT).expect("docs/openapi.json"),
            seen: BTreeSet::new(),
        }
    }
}

impl OpenApi {
    /// Returns the path of the document for one that is written without the version: with it, unless only the short
    /// one exists.
    #[must_use]
    pub fn versioned(&self, path: &str) -> String {
        let versioned = format!("/api/v1{path}");
        match self.document["paths"].get(&versioned) {
            Some(_) => versioned,
            None => path.to_owned(),
        }
    }

    /// Compares an answer with its description; the path may be without its version.
    ///
    /// # Panics
    /// When they differ.
    pub fn check(&mut self, method: &str, path: &str, status: u16, body: &str) {
        let path = self.versioned(path);
        let at = format!("{method} {path} -> {status}: {body}");
        let response = &self.document["paths"][&path][method]["responses"][status.to_string()];
        let content =
            response["content"].as_object().unwrap_or_else(|| panic!("{at}: not described"));
        let (kind, described) = content.iter().next().expect("a type of content");
        let wrong = match kind.as_str() {
            "application/json" => match serde_json::from_str(body) {
                Ok(body) => self.mismatch(&described["schema"], &body, "body"),
                Err(error) => Some(error.to_string()),
            },
            "application/x-ndjson" => {
                body.lines().find_map(|line| match serde_json::from_str(line) {
                    Ok(line) => self.mismatch(&described["schema"], &line, "line"),
                    Err(error) => Some(error.to_string()),
                })
            }
            _ => None,
        };
        assert!(wrong.is_none(), "{at}\n{wrong:?}");
        self.seen.insert((path, method.to_owned(), status.to_string()));
    }

    /// Returns the descriptions for which no answer was seen.
    ///
    /// # Panics
    /// If the document is malformed.
    #[must_use]
    pub fn unseen(&self) -> Vec<String> {
        let mut unseen = Vec::new();
        for (path, methods) in self.document["paths"].as_object().expect("paths") {
            for (method, operation) in methods.as_object().expect("methods") {
                for (code, _) in operation["responses"].as_object().expect("responses") {
                    let answered = (path.clone(), method.clone(), code.clone());
                    if !self.seen.contains(&answered) {
                        unseen.push(format!("{method} {path} -> {code}"));
                    }
                }
            }
        }
        unseen
    }

    /// Returns the first part of a value that does not match its schema.
    fn mismatch(&self, schema: &Value, value: &Value, at: &str) -> Option<String> {
        if let Some(name) = schema["$ref"].as_str() {
            let pointer = name.trim_start_matches('#');
            let schema = self.document.pointer(pointer).unwrap_or_else(|| panic!("no {name}"));
            return self.mismatch(schema, value, at);
        }
        if let Some(either) = schema["anyOf"].as_array().or(schema["oneOf"].as_array()) {
            let wrong: Vec<String> =
                either.iter().filter_map(|schema| self.mismatch(schema, value, at)).collect();
            return (wrong.len() == either.len()).then(|| wrong.join(" / "));
        }
        let types = match &schema["type"] {
            Value::Array(types) => types.clone(),
            one => vec![one.clone()],
        };
        if !types.iter().filter_map(Value::as_str).any(|kind| is(kind, value)) {
            return Some(format!("{at} is {value}, not {}", schema["type"]));
        }
        if let Some(known) = schema["enum"].as_array()
            && !known.contains(value)
        {
            return Some(format!("{at} is {value}, not one of {known:?}"));
        }
        match value {
            Value::Object(fields) => self.fields(schema, fields, at),
            Value::Array(items) => items.iter().enumerate().find_map(|(index, item)| {
                self.mismatch(&schema["items"], item, &format!("{at}[{index}]"))
            }),
            _ => None,
        }
    }

    fn fields(
        &self,
        schema: &Value,
        fields: &serde_json::Map<String, Value>,
        at: &str,
    ) -> Option<String> {
        let properties = schema["properties"].as_object()?;
        let missing = properties.keys().find(|name| !fields.contains_key(*name));
        if let Some(missing) = missing {
            return Some(format!("{at} lacks {missing}"));
        }
        fields.iter().find_map(|(name, value)| match properties.get(name) {
            None => Some(format!("{at}.{name} is not described")),
            Some(schema) => self.mismatch(schema, value, &format!("{at}.{name}")),
        })
    }
}

fn is(kind: &str, value: &Value) -> bool {
    match kind {
        "null" => value.is_null(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("type {other} is not known here"),
    }
}
