use std::collections::BTreeSet;

use serde_json::Value;

use super::reports::OPENAPI;
use super::*;

/// The paths of docs/openapi.json and of the router are the same set; the end-to-end tests compare
/// the answers with a running daemon.
#[test]
fn every_route_is_described_and_every_description_is_a_route() {
    let document: Value = serde_json::from_str(OPENAPI).expect("JSON");
    let mut described = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let asked = operation.get("security").is_none();
            let control = asked && operation["responses"].get("403").is_some();
            described.insert((method.clone(), path.clone(), asked, control));
        }
    }
    let versioned = routes()
        .into_iter()
        .map(|(method, path, needs, answer)| (method, format!("{API}{path}"), needs, answer));
    let routes: BTreeSet<_> = routes_without_version()
        .into_iter()
        .chain(versioned)
        .map(|(method, path, needs, _)| {
            // Row values need more rights than the list that contains them.
            let control = needs == Needs::Control || path.ends_with("/relay/transactions");
            (method.to_owned(), path.to_owned(), needs != Needs::Nothing, control)
        })
        .collect();
    assert_eq!(routes, described);
}

/// Generators of clients make a function of each operation, named by its id.
#[test]
fn every_operation_has_an_id_of_its_own_a_summary_and_a_tag() {
    let document: Value = serde_json::from_str(OPENAPI).expect("JSON");
    let tags = document["tags"].as_array().expect("tags");
    let tags: Vec<&Value> = tags.iter().map(|tag| &tag["name"]).collect();
    let mut ids = BTreeSet::new();
    for methods in document["paths"].as_object().expect("paths").values() {
        for operation in methods.as_object().expect("methods").values() {
            let id = operation["operationId"].as_str().expect("an id");
            assert!(ids.insert(id), "{id} is there twice");
            for text in ["summary", "description"] {
                assert!(operation[text].as_str().is_some_and(|text| !text.is_empty()), "{id}");
            }
            let of = operation["tags"].as_array().expect("tags");
            assert!(of.len() == 1 && tags.contains(&&of[0]), "{id}: {of:?}");
        }
    }
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
}
