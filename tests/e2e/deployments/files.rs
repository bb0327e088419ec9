//! config/compose and config/kubernetes: the parts that can be tested with the daemon and real servers,
//! without a container engine.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use csa_tests::{Daemon, Server, compare};
use serde_json::Value;

use crate::DRAIN;

fn config(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../config").join(path)
}

fn read(path: &str) -> String {
    let path = config(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A YAML file, with its merge keys resolved.
fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the text at a JSON pointer.
fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_else(|| panic!("no {pointer}: {value}"))
}

fn seconds(text: &str) -> u64 {
    text.strip_suffix('s').and_then(|number| number.parse().ok()).expect("seconds, such as 30s")
}

/// Returns `daemon.stop_timeout` in seconds.
fn stop_timeout(toml: &str) -> u64 {
    let table: toml::Table = toml.parse().expect("TOML");
    let daemon = table.get("daemon").and_then(|daemon| daemon.get("stop_timeout"));
    daemon.map_or(10, |timeout| seconds(timeout.as_str().expect("a string")))
}

/// Files that only their owner reads, by name.
fn secrets<'a>(directory: &Path, files: impl IntoIterator<Item = (&'a str, &'a str)>) {
    for (name, content) in files {
        let path = directory.join(name);
        std::fs::write(&path, content).expect("writes");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).expect("chmod");
    }
}

/// The daemon itself accepts the file.
fn check(file: &Path, environment: &[(&str, &str)]) {
    let output = Command::new(Daemon::executable())
        .arg("--config")
        .arg(file)
        .arg("check")
        .envs(environment.iter().copied())
        .output()
        .expect("runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", file.display());
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(!said.contains("warning"), "{}: {said}", file.display());
}

#[test]
fn the_compose_file_names_files_services_and_volumes_that_there_are() {
    let compose = yaml("compose/compose.yaml");
    let services = compose["services"].as_object().expect("services");
    let names: Vec<&str> = services.keys().map(String::as_str).collect();
    for expected in ["source", "target", "csa-daemon", "prometheus", "grafana"] {
        assert!(names.contains(&expected), "{names:?}");
    }
    for (name, service) in services {
        for volume in service["volumes"].as_array().expect("volumes") {
            let from = volume.as_str().and_then(|text| text.split(':').next()).expect("a source");
            if from.starts_with('.') {
                assert!(config("compose").join(from).exists(), "{name}: no {from}");
            } else {
                assert!(compose["volumes"].get(from).is_some(), "{name}: no volume {from}");
            }
        }
        for needed in service.get("depends_on").and_then(Value::as_object).into_iter().flatten() {
            assert!(names.contains(&needed.0.as_str()), "{name} needs {}", needed.0);
            assert_eq!(needed.1["condition"], "service_healthy");
        }
        for port in service.get("ports").and_then(Value::as_array).into_iter().flatten() {
            assert!(text(port, "").starts_with("127.0.0.1:"), "{name} listens beyond this host");
        }
        // The daemon's health check is in its image.
        assert!(name == "csa-daemon" || service.get("healthcheck").is_some(), "{name}");
    }
    let daemon = &services["csa-daemon"];
    let file = read("compose/csa-daemon.toml");
    let grace = seconds(text(daemon, "/stop_grace_period"));
    assert!(grace > stop_timeout(&file) + 5, "{grace} s is not enough to drain");
    let context = config("compose").join(text(daemon, "/build/context"));
    assert!(context.join(text(daemon, "/build/dockerfile")).exists());
    let channel: toml::Table = file.parse().expect("TOML");
    for side in ["source", "target"] {
        assert_eq!(channel["channel"][0][side]["host"].as_str(), Some(side));
    }
    let environment = [("SOURCE_PASSWORD", "a"), ("TARGET_PASSWORD", "b")];
    for (name, _) in environment {
        assert!(daemon["environment"].get(name).is_some(), "{name}");
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let tokens = ["admin_token", "read_token"].map(|name| {
        assert!(daemon["secrets"].as_array().is_some_and(|s| s.contains(&name.into())), "{name}");
        (name, read(&format!("compose/{}", text(&compose, &format!("/secrets/{name}/file")))))
    });
    secrets(directory.path(), tokens.iter().map(|(name, token)| (*name, token.as_str())));
    let mounted = file.replace("/run/secrets", &directory.path().display().to_string());
    assert_ne!(mounted, file);
    std::fs::write(directory.path().join("csa-daemon.toml"), mounted).expect("writes");
    check(&directory.path().join("csa-daemon.toml"), &environment);
    let scraped = yaml("compose/prometheus.yml");
    let port = text(&scraped, "/scrape_configs/0/static_configs/0/targets/0");
    assert_eq!(port, "csa-daemon:9104");
    let shown = text(&scraped, "/scrape_configs/0/authorization/credentials_file");
    assert_eq!(shown, "/run/secrets/read_token");
    assert!(file.contains(&format!("admin_read_token_file = \"{shown}\"")), "{file}");
    assert!(file.contains("admin_listen = \"0.0.0.0:9104\""), "{file}");
    // Files of config/, which both mount.
    for (setting, mounted) in [
        (yaml("compose/prometheus.yml"), "/rule_files/0"),
        (yaml("compose/grafana/dashboards.yaml"), "/providers/0/options/path"),
    ] {
        let path = text(&setting, mounted).strip_prefix("/etc/csa/").expect("under the mount");
        assert!(config(path).exists(), "{path}");
    }
    for file in ["compose/grafana/datasource.yaml", "compose/grafana/dashboards.yaml"] {
        assert_eq!(yaml(file)["apiVersion"], 1, "{file}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scripts_of_the_compose_file_make_servers_that_replicate() {
    let (source, target) = Server::pair(&[], &["--event-scheduler=OFF"]);
    for (server, script) in [(&source, "source.sql"), (&target, "target.sql")] {
        server.exec("SET sql_log_bin=0; DROP USER repl@'%'; DROP USER csa@'%'").await;
        server.exec(&read(&format!("compose/{script}"))).await;
    }
    let daemon = Daemon::builder(&source, &target)
        .set("source.password", "change me")
        .set("target.password", "change me")
        .start();
    csa_tests::eventually("the event's rows arrive", Duration::from_secs(60), async || {
        let tables = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema='shop'";
        target.value::<u64>(tables).await == 1
            && target.value::<u64>("SELECT COUNT(*) FROM shop.sale").await >= 6
    })
    .await;
    source.exec("SET sql_log_bin=0; DROP EVENT shop.sell").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

#[test]
fn the_scripts_are_those_of_the_grants() {
    let statements = |text: &str| -> Vec<String> {
        let is_sql = |line: &&str| !line.is_empty() && !line.starts_with("--");
        text.lines().filter(is_sql).map(str::to_owned).collect()
    };
    assert_eq!(statements(&read("compose/target.sql")), statements(&read("grants-target.sql")));
    // The source's script grants what the comments of the other name, too, and also makes tables.
    let (source, grants) = (read("compose/source.sql"), read("grants-source.sql"));
    let account = |text: &str| {
        let line = text.lines().find(|line| line.starts_with("CREATE USER"));
        line.expect("an account").to_owned()
    };
    assert_eq!(account(&source), account(&grants));
    let privileges = |text: &str| -> BTreeSet<String> {
        let lists = text.lines().filter_map(|line| {
            line.trim_start_matches("-- ").strip_prefix("GRANT ")?.split_once(" ON *.* TO 'repl'")
        });
        lists.flat_map(|(list, _)| list.split(", ").map(str::to_owned)).collect()
    };
    assert_eq!(privileges(&source), privileges(&grants));
}

/// Returns true if `kubectl apply -k` applies the file.
fn listed(file: &str) -> bool {
    let kustomization = yaml("kubernetes/kustomization.yaml");
    kustomization["resources"].as_array().is_some_and(|list| list.contains(&file.into()))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kubernetes_manifests_fit_each_other_and_the_daemon() {
    let [config_map, policy, service, set] =
        ["configmap", "networkpolicy", "service", "statefulset"].map(|name| {
            let file = format!("{name}.yaml");
            assert!(listed(&file), "{file} is not applied");
            yaml(&format!("kubernetes/{file}"))
        });
    let secret = yaml("kubernetes/secret.example.yaml");
    assert!(!listed("secret.example.yaml"), "an apply would write over the secret");
    let labels = set.pointer("/spec/template/metadata/labels").expect("labels");
    assert_eq!(set.pointer("/spec/selector/matchLabels"), Some(labels));
    assert_eq!(service.pointer("/spec/selector"), Some(labels));
    assert_eq!(text(&set, "/spec/serviceName"), text(&service, "/metadata/name"));
    assert_eq!(set.pointer("/spec/replicas"), Some(&1.into()), "a second pod would be refused");

    let toml = text(&config_map, "/data/csa-daemon.toml");

    let pod = set.pointer("/spec/template/spec").expect("a pod");
    let grace = pod["terminationGracePeriodSeconds"].as_u64().expect("a number");
    assert!(grace > stop_timeout(toml) + 5, "{grace} s is not enough to drain");
    let container = &pod["containers"][0];
    let port = &container["ports"][0];
    assert!(toml.contains(&format!("admin_listen = \"0.0.0.0:{}\"", port["containerPort"])));
    assert_eq!(text(&service, "/spec/ports/0/targetPort"), text(port, "/name"));
    // The network policy is about this pod and this port.
    assert_eq!(policy.pointer("/spec/podSelector/matchLabels"), Some(labels));
    assert_eq!(text(&policy, "/spec/ingress/0/ports/0/port"), text(port, "/name"));
    for side in ["source", "target"] {
        let channel: toml::Table = toml.parse().expect("TOML");
        let reached = channel["channel"][0][side]["port"].as_integer();
        assert_eq!(policy.pointer("/spec/egress/1/ports/0/port").and_then(Value::as_i64), reached);
    }
    // A file mounted by subPath would never be updated.
    let mounts = container["volumeMounts"].as_array().expect("mounts");
    assert!(mounts.iter().all(|mount| mount.get("subPath").is_none()), "{mounts:?}");

    // Every mounted volume exists, and so does its content.
    let volumes = pod["volumes"].as_array().expect("volumes");
    let claim = set.pointer("/spec/volumeClaimTemplates/0/metadata/name").expect("a claim");
    for mount in container["volumeMounts"].as_array().expect("mounts") {
        let known = volumes.iter().any(|volume| volume["name"] == mount["name"]);
        assert!(known || mount["name"] == *claim, "{mount}");
    }
    let named = |pointer: &str| volumes.iter().find_map(|volume| volume.pointer(pointer));
    assert_eq!(named("/configMap/name"), config_map.pointer("/metadata/name"));
    assert_eq!(named("/secret/secretName"), secret.pointer("/metadata/name"));

    // The daemon accepts the configuration with the secrets at their mount points.
    let directory = tempfile::tempdir().expect("a temporary directory");
    let files = secret["stringData"].as_object().expect("secrets");
    secrets(directory.path(), files.iter().map(|(name, value)| (name.as_str(), text(value, ""))));
    let mounted = directory.path().display().to_string();
    let file = directory.path().join("csa-daemon.toml");
    std::fs::write(&file, toml.replace("/run/secrets/csa-daemon", &mounted)).expect("writes");
    check(&file, &[]);

    // The daemon answers the paths of the probes, whatever its channels do.
    let (source, target) = Server::pair(&[], &[]);
    let token = |name: &str| directory.path().join(name).display().to_string();
    let daemon = Daemon::builder(&source, &target)
        .set("daemon.admin_token_file", token("admin-token"))
        .set("daemon.admin_read_token_file", token("read-token"))
        .start();
    let live = |probe: &str| {
        assert_eq!(text(container, &format!("/{probe}/httpGet/port")), text(port, "/name"));
        let path = text(container, &format!("/{probe}/httpGet/path"));
        assert_eq!(daemon.get(path).map(|answer| answer.0), Some(200), "{probe}");
    };
    let is_well = || {
        let mut status = Command::new(Daemon::executable());
        let status = status.env("CSA_DAEMON_CONFIG", daemon.config_path()).arg("status");
        status.output().expect("runs").status.success()
    };
    let patience = Duration::from_secs(60);
    csa_tests::eventually("the channel runs", patience, async || is_well()).await;
    target.stop();
    csa_tests::eventually("the channel does not run", patience, async || !is_well()).await;
    // The kubelet does not restart the pod because of that, and an upgrade continues.
    live("livenessProbe");
    live("readinessProbe");
    live("startupProbe");
}
