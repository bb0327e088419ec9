//! The manifests and the chart of config/kubernetes in a real API server. `make kubernetes` builds what it takes.

use std::path::{Path, PathBuf};
use std::process::Command;

use csa_tests::{ApiServer, kubernetes_tool};
use serde_json::Value;

fn config(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/kubernetes").join(path)
}

/// The chart's objects, as YAML.
#[track_caller]
fn render(helm: &Path, arguments: &[&str]) -> String {
    let output = Command::new(helm)
        // Helm asks no cluster; it takes the chart's demands from here.
        .args(["template", "csa-daemon", "--kube-version", "1.36.0", "--include-crds"])
        .arg(config("helm/csa-daemon"))
        .args(arguments)
        .output()
        .expect("running helm");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The documents of a stream, by kind; labels that only a chart has are left out.
fn by_kind(text: &str) -> Vec<(String, Value)> {
    let mut found: Vec<(String, Value)> = serde_saphyr::from_multiple(text)
        .expect("YAML")
        .into_iter()
        .map(|mut object: Value| {
            strip(&mut object);
            (object["kind"].as_str().expect("a kind").to_owned(), object)
        })
        .collect();
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    found
}

/// Takes away what a chart adds to the manifests, and values that are the default.
fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for key in [
                "app.kubernetes.io/instance",
                "app.kubernetes.io/managed-by",
                "app.kubernetes.io/version",
                "helm.sh/chart",
                "namespace",
                "imagePullPolicy",
            ] {
                fields.remove(key);
            }
            fields.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        // Which comments a file of the daemon has is of no interest.
        Value::String(text) if text.contains("[[channel]]") => {
            *text = toml::Table::to_string(&text.parse().expect("TOML"));
        }
        _ => {}
    }
}

#[test]
fn the_chart_makes_the_manifests_and_the_api_server_accepts_them() {
    let Some(helm) = kubernetes_tool("helm") else { return };
    let Some(server) = ApiServer::start() else { return };
    let lint =
        Command::new(&helm).args(["lint", "--strict"]).arg(config("helm/csa-daemon")).output();
    let lint = lint.expect("running helm");
    assert!(lint.status.success(), "{}", String::from_utf8_lossy(&lint.stdout));

    let kustomization = config("").display().to_string();
    let manifests = server.kubectl(&["kustomize", &kustomization], "").expect("kustomize");
    let chart = render(&helm, &[]);
    assert_eq!(by_kind(&chart), by_kind(&manifests), "the chart's defaults are the manifests");

    let check = |what: &str, objects: &str| {
        let arguments = ["apply", "--dry-run=server", "--validate=strict", "--filename=-"];
        let said = server.kubectl(&arguments, objects);
        let said = said.unwrap_or_else(|refused| panic!("{what}: {refused}"));
        let kinds = by_kind(objects).len();
        assert_eq!(said.lines().count(), kinds, "{what}: {said}");
    };
    check("manifests", &manifests);
    check("chart", &chart);
    let all = [
        "storage.className=fast",
        "networkPolicy.mysqlPorts={3306,3307}",
        "podAnnotations.a=b",
        "nodeSelector.disk=ssd",
        "tolerations[0].key=db,tolerations[0].operator=Exists",
        "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight=1",
        "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchFields[0].key=metadata.name",
        "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchFields[0].operator=In",
        "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchFields[0].values={a}",
        "priorityClassName=system-cluster-critical",
        "imagePullSecrets[0].name=registry",
        "image.tag=1.2.3",
    ];
    let all: Vec<&str> = all.iter().flat_map(|value| ["--set", value]).collect();
    let rendered = render(&helm, &all);
    assert!(rendered.contains("csa-daemon:1.2.3"), "{rendered}");
    check("chart with every value", &rendered);

    let refused = chart.replace("terminationGracePeriodSeconds", "terminationGracePeriod");
    let refused =
        server.kubectl(&["apply", "--dry-run=server", "--validate=strict", "-f", "-"], &refused);
    assert!(refused.is_err_and(|why| why.contains("unknown field")), "a mistake is noticed");
}
