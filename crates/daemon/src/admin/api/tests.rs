use std::collections::BTreeSet;

use serde_json::Value;

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
    let routes: BTreeSet<_> = routes()
        .into_iter()
        .map(|(method, path, needs, _)| {
            // Row values need more rights than the list that contains them.
            let control = needs == Needs::Control || path.ends_with("/relay/transactions");
            (method.to_owned(), path.to_owned(), needs != Needs::Nothing, control)
        })
        .collect();
    assert_eq!(routes, described);
}
