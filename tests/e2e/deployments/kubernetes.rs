//! The manifests and the chart of config/kubernetes in a real API server. `make kubernetes` builds what it takes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use csa_tests::{
    ACCOUNT_TOKEN, ApiServer, Daemon, Guide, Load, blocks, compare, eventually, kubernetes_tool,
};
use serde_json::{Value, json};

use crate::fleet::{Site, options};
use crate::wait_state;

const PATIENCE: Duration = Duration::from_secs(60);

fn config(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/kubernetes").join(path)
}

/// Returns the chart's objects, as YAML.
#[track_caller]
fn render(helm: &Path, arguments: &[&str]) -> String {
    render_as(helm, "csa-daemon", arguments)
}

/// Returns the objects of a release with this name.
#[track_caller]
fn render_as(helm: &Path, release: &str, arguments: &[&str]) -> String {
    try_render(helm, release, arguments).unwrap_or_else(|why| panic!("{why}"))
}

/// Returns the objects, or the reason why helm makes none.
fn try_render(helm: &Path, release: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(helm)
        // Helm asks no cluster; it takes the chart's demands from here.
        .args(["template", release, "--kube-version", "1.36.0", "--include-crds"])
        .arg(config("helm/csa-daemon"))
        .args(arguments)
        .output()
        .expect("running helm");
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
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
    let mut made = by_kind(&chart);
    made.retain(|(kind, _)| kind != "CustomResourceDefinition");
    assert_eq!(made, by_kind(&manifests), "the chart's defaults are the manifests");

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
        "controller.enabled=true,controller.secretNames={mysql}",
    ];
    let all: Vec<&str> = all.iter().flat_map(|value| ["--set", value]).collect();
    let rendered = render(&helm, &all);
    assert!(rendered.contains("csa-daemon:1.2.3"), "{rendered}");
    check("chart with every value", &rendered);

    let pods = render(&helm, &["--set", "claims.enabled=true,claims.replicas=5,claims.ttl=20s"]);
    check("chart with several pods", &pods);
    let found = |kind: &str| {
        let objects = by_kind(&pods).into_iter().find(|(found, _)| found == kind);
        objects.unwrap_or_else(|| panic!("no {kind}")).1
    };
    assert_eq!(found("StatefulSet")["spec"]["replicas"], 5);
    assert_eq!(found("StatefulSet")["spec"]["podManagementPolicy"], "Parallel");
    let rules = found("Role")["rules"].clone();
    let verbs = json!(["get", "list", "watch", "create", "update", "delete"]);
    assert_eq!(
        rules,
        json!([{ "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs }])
    );
    let file = found("ConfigMap")["data"]["csa-daemon.toml"].clone();
    let file: toml::Table = file.as_str().expect("a file").parse().expect("TOML");
    assert_eq!(file["claims"]["prefix"].as_str(), Some("csa-daemon"));
    assert_eq!(file["claims"]["ttl"].as_str(), Some("20s"));
    assert_eq!(found("PodDisruptionBudget")["spec"]["maxUnavailable"], 1);

    let refused = chart.replace("terminationGracePeriodSeconds", "terminationGracePeriod");
    let refused =
        server.kubectl(&["apply", "--dry-run=server", "--validate=strict", "-f", "-"], &refused);
    assert!(refused.is_err_and(|why| why.contains("unknown field")), "a mistake is noticed");
}

#[test]
fn a_release_that_could_not_run_is_refused() {
    let Some(helm) = kubernetes_tool("helm") else { return };
    let (fleet, alone) = ("claims.enabled=true", "claims.enabled=false");
    let (long, longer) = ("a".repeat(41), "a".repeat(53));
    for (release, values, words) in [
        ("csa-daemon", "claims.enabled=true,controller.enabled=true", "not together"),
        ("csa-daemon", "controller.interval=21", "controller.interval: 1 to 20"),
        (long.as_str(), fleet, "at most 40 characters"),
        (longer.as_str(), alone, "at most 52 characters"),
        ("5db", fleet, "with a letter first"),
        ("a.b", fleet, "only a-z"),
    ] {
        let why = try_render(&helm, release, &["--set", values]).expect_err(release);
        assert!(why.contains(words), "{release}: {why}");
    }
    render_as(&helm, &longer[1..], &["--set", alone]);
    render_as(&helm, &long[1..], &["--set", fleet]);
}

#[test]
fn the_controller_reaches_the_daemon_without_a_token() {
    let Some(helm) = kubernetes_tool("helm") else { return };
    let chart = render(&helm, &["--set", "controller.enabled=true"]);
    let pod = by_kind(&chart).into_iter().find(|(kind, _)| kind == "StatefulSet");
    let pod = pod.expect("a StatefulSet").1["spec"]["template"]["spec"].clone();
    let named = |list: &Value, name: &str| {
        let items = list.as_array().expect("a list");
        items.iter().find(|item| item["name"] == name).cloned().expect(name)
    };
    let controller = named(&pod["containers"], "controller");
    let state = named(&controller["volumeMounts"], "relay");
    assert_eq!(state["mountPath"], "/var/lib/csa-daemon", "the socket is in it");
}

#[test]
fn a_release_with_another_name_is_scraped_under_the_job_of_the_alerts() {
    let Some(helm) = kubernetes_tool("helm") else { return };
    let chart = render_as(&helm, "shop", &["--set", "serviceMonitor.enabled=true"]);
    let objects: Vec<Value> = serde_saphyr::from_multiple(&chart).expect("YAML");
    let found = |kind: &str| {
        let object = objects.iter().find(|object| object["kind"] == kind);
        object.unwrap_or_else(|| panic!("no {kind}"))
    };
    let label = found("ServiceMonitor")["spec"]["jobLabel"].as_str().expect("a label");
    let service = &found("Service")["metadata"];
    assert_eq!(service["name"], "shop");
    assert_eq!(service["labels"][label], "csa-daemon", "{service}");
}

/// Returns the resource of docs/kubernetes.md.
fn example() -> String {
    Guide::section("kubernetes.md", "Channels as Kubernetes resources").take("yaml")
}

/// Returns the columns of `kubectl get` there.
fn columns() -> Vec<String> {
    let blocks = blocks("kubernetes.md").into_iter();
    let mut of_section = blocks.filter(|b| b.section == "Channels as Kubernetes resources");
    let shown = of_section.find(|block| block.info == "text").expect("an output").text;
    let mut lines = shown.lines();
    assert_eq!(lines.next(), Some("$ kubectl get replicationchannels"));
    words_of(lines.next().expect("a heading"))
}

fn words_of(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// That one for servers of the test, and the tables of its own schema.
fn resource(site: &Site, name: &str, applier: &Value) -> String {
    let mut object: Value = serde_saphyr::from_str(&example()).expect("YAML");
    object["metadata"]["name"] = json!(name);
    let spec = &mut object["spec"];
    for (side, port) in [("source", site.source.port), ("target", site.target.port)] {
        spec[side]["host"] = json!("127.0.0.1");
        spec[side]["port"] = json!(port);
    }
    let source = spec["source"].as_object_mut().expect("a link");
    source.insert("server_id".to_owned(), json!(1000 + name.len()));
    source.insert("connect_retry".to_owned(), json!("100ms"));
    // These servers make certificates of their own.
    for key in ["tls", "tls_ca_secret"] {
        assert!(source.remove(key).is_some(), "{key}");
    }
    let mut applier = applier.clone();
    applier["replicate_wild_do_table"] = json!([format!("{name}.%")]);
    applier["start_from"] = json!(site.copied.replace('\n', ""));
    spec["relay"] = json!({ "min_free_disk": "0" });
    spec["applier"] = applier;
    object.to_string()
}

/// Returns the objects that let a part of the chart work: the definition of the resource, and its
/// rights.
pub(crate) fn rights(helm: &Path, part: &str) -> String {
    let chart = render(helm, &["--set", &format!("{part}.enabled=true")]);
    let kinds = ["CustomResourceDefinition", "ServiceAccount", "Role", "RoleBinding"];
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(&chart).expect("YAML");
    objects.retain(|object| object["kind"].as_str().is_some_and(|kind| kinds.contains(&kind)));
    json!({ "apiVersion": "v1", "kind": "List", "items": objects }).to_string()
}

/// A `csa-daemon controller`; killed when dropped.
struct Controller(Child);

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn controller(server: &ApiServer, daemon: &Daemon, account: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(Daemon::executable());
    command
        .arg("--config")
        .arg(account.join("main.toml"))
        .arg("controller")
        .arg("--output")
        .arg(daemon.config_path().parent().expect("a folder"))
        .args([
            "--server",
            &server.url(),
            "--holder",
            "csa-daemon-0",
            "--interval",
            "1",
            "--account",
        ])
        .arg(account)
        .args(options);
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_become_channels_and_show_their_status() {
    let Some(helm) = kubernetes_tool("helm") else { return };
    let Some(server) = ApiServer::start() else { return };
    let apply = |objects: &str| server.kubectl(&["apply", "--filename=-"], objects);
    let done = |outcome: Result<String, String>| outcome.unwrap_or_else(|why| panic!("{why}"));
    done(apply(&rights(&helm, "controller")));
    let wait =
        ["wait", "--for=condition=Established", "crd/replicationchannels.csa-daemon.internal"];
    done(server.kubectl(&wait, ""));
    let strictly = ["apply", "--dry-run=server", "--validate=strict", "--filename=-"];
    done(server.kubectl(&strictly, &example()));
    let passwords = ["--from-literal=repl=repl_pw", "--from-literal=csa=csa_pw"];
    done(server.kubectl(&[&["create", "secret", "generic", "mysql"], &passwords[..]].concat(), ""));

    let site = Site::new(&["shop", "spare"]).await;
    let daemon = Daemon::builder(&site.source, &site.target)
        .without_channels()
        .set("daemon.allow_no_channels", true)
        .start();
    assert_eq!(daemon.status()["channels"], json!([]));
    let account = tempfile::tempdir().expect("a temporary directory");
    let put = |name: &str, text: &str| fs::write(account.path().join(name), text).expect("writes");
    put("namespace", "default");
    put("token", ACCOUNT_TOKEN);
    fs::copy(server.authority(), account.path().join("ca.crt")).expect("copies");
    fs::copy(daemon.config_path(), account.path().join("main.toml")).expect("copies");

    // As the pod's first container, before the daemon of a pod starts.
    done(apply(&resource(&site, "shop", &json!({}))));
    let once = controller(&server, &daemon, account.path(), &["--once"]).output().expect("runs");
    assert!(once.status.success(), "{}", String::from_utf8_lossy(&once.stderr));
    let file = daemon.config_path().with_file_name("conf.d").join("shop.toml");
    assert!(fs::read_to_string(&file).expect("a file").contains("name = \"shop\""));

    let log = fs::File::create(account.path().join("log")).expect("creates");
    let mut controller = Controller(
        controller(&server, &daemon, account.path(), &[]).stderr(log).spawn().expect("starts"),
    );
    let said = || fs::read_to_string(account.path().join("log")).unwrap_or_default();
    let field = |name: &str, path: &str| {
        let path = format!("jsonpath={{.status.{path}}}");
        done(server.kubectl(&["get", "replicationchannel", name, "--output", &path], ""))
    };
    let becomes = async |name: &str, path: &str, value: &str| {
        let what = format!("{path} of {name} becomes {value}");
        let started = Instant::now();
        while field(name, path) != value {
            let state = field(name, "message");
            assert!(
                started.elapsed() < PATIENCE,
                "{what}: {state}\n{}\n{}",
                said(),
                daemon.log_tail()
            );
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    becomes("shop", "state", "running").await;
    let shown = done(server.kubectl(&["get", "replicationchannels"], ""));
    assert_eq!(words_of(shown.lines().next().unwrap_or_default()), columns(), "{shown}");
    done(apply(&resource(&site, "spare", &json!({}))));
    becomes("spare", "state", "running").await;
    let load = Load::start(&site.source, &options("shop"));

    // One change needs no restart, one does, and a secret changes.
    let changed = json!({ "worker_count": 3, "transaction_retries": 7 });
    done(apply(&resource(&site, "shop", &changed)));
    becomes("shop", "observedGeneration", "2").await;
    becomes("shop", "state", "running").await;
    assert_eq!(daemon.status()["channels"][0]["settings"]["worker_count"], 3);
    site.target.exec("SET sql_log_bin=0; ALTER USER csa@'%' IDENTIFIED BY 'another'").await;
    let secret = r#"{"stringData": {"csa": "another"}}"#;
    let before = fs::read_to_string(&file).expect("a file");
    done(server.kubectl(&["patch", "secret", "mysql", "--patch", secret], ""));
    eventually("another file of the password", PATIENCE, async || {
        fs::read_to_string(&file).is_ok_and(|now| now != before)
    })
    .await;
    becomes("shop", "state", "running").await;
    // Nothing that the channel uses changes with the secret, which would restart it.
    let before = fs::read_to_string(&file).expect("a file");
    let secret = r#"{"metadata": {"annotations": {"a": "b"}}, "stringData": {"other": "key"}}"#;
    done(server.kubectl(&["patch", "secret", "mysql", "--patch", secret], ""));

    // Mistakes: some the API server refuses, the others only the daemon knows.
    for (key, value, words) in [
        ("worker_count", json!(0), "worker_count"),
        ("wroker_count", json!(1), "unknown field"),
        ("exec_mode", json!("lax"), "Unsupported value"),
    ] {
        let refused = apply(&resource(&site, "shop", &json!({ key: value })));
        assert!(refused.as_ref().is_err_and(|why| why.contains(words)), "{refused:?}");
    }
    let literal =
        resource(&site, "shop", &json!({})).replacen("\"user\"", "\"password\":\"x\",\"user\"", 1);
    assert!(
        apply(&literal).is_err_and(|why| why.contains("unknown field")),
        "no place for a password"
    );
    let wrong = json!({ "worker_count": 3, "target_gtids": "source" });
    done(apply(&resource(&site, "shop", &wrong)));
    becomes("shop", "state", "invalid").await;
    assert!(field("shop", "message").contains("target_gtids"), "{}", field("shop", "message"));
    assert_eq!(field("shop", "observedGeneration"), "2", "what the daemon runs");
    wait_state(&daemon, 0, "running").await;
    done(apply(&resource(&site, "shop", &changed)));
    becomes("shop", "state", "running").await;
    assert_eq!(fs::read_to_string(&file).expect("a file"), before);
    load.stop().await;
    site.drained(&daemon, &["shop"]).await;
    becomes("shop", "backlog", "0").await;
    // The lag is empty while it is not known.
    let mut table = String::new();
    eventually("a table with the lag", PATIENCE, async || {
        table = done(server.kubectl(&["get", "replicationchannels"], ""));
        let line = table.lines().find(|line| line.starts_with("shop")).expect("a line");
        let columns: Vec<&str> = line.split_whitespace().collect();
        matches!(columns[..], [_, "running", _, "s", "0", "csa-daemon-0", ..])
    })
    .await;
    assert!(table.starts_with("NAME"), "{table}");
    println!("{table}");
    let ready = ["wait", "--for=condition=Ready", "--timeout=10s", "replicationchannel/shop"];
    done(server.kubectl(&ready, ""));

    done(server.kubectl(&["delete", "replicationchannel", "spare"], ""));
    eventually("one channel is left", PATIENCE, async || {
        daemon.status()["channels"].as_array().is_some_and(|channels| channels.len() == 1)
    })
    .await;
    // Channels do not need the API server.
    drop(server);
    eventually("the controller says that it is away", PATIENCE, async || {
        said().contains("the channels keep running")
    })
    .await;
    site.source
        .exec("CREATE TABLE shop.later (id INT PRIMARY KEY); INSERT INTO shop.later VALUES (1)")
        .await;
    site.drained(&daemon, &["shop"]).await;
    compare(&site.source, &site.target).await;
    assert!(controller.0.try_wait().expect("waits").is_none(), "{}", said());
}
