//! Metrics, alerts and dashboard are valid and agree with each other.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use csa_tests::{Daemon, Guide, Server, eventually, tool};
use serde_json::Value;

use crate::DRAIN;

/// Words of PromQL in the queries that are no metrics.
const PROMQL: [&str; 7] = ["and", "or", "unless", "offset", "on", "by", "sum"];

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(repository(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the names in docs/metrics.md, which a unit test of the daemon keeps equal to what it
/// serves.
fn documented() -> BTreeSet<String> {
    let rows = read("docs/metrics.md");
    let names = rows.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    names.map(str::to_owned).collect()
}

#[track_caller]
fn succeeds(command: &mut Command) {
    let output = command.output().expect("running promtool");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scrape_is_valid_and_lag_is_absent_while_the_source_is_away() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d").await;
    let daemon = Daemon::builder(&source, &target).set("throttle_by.threads_running", 1000).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let has = |line: &str| daemon.metrics().lines().any(|one| one == line);
    let is_idle = async || has("csa_lag_seconds{channel=\"test\"} 0");
    eventually("idle lag is 0", Duration::from_secs(10), is_idle).await;
    eventually("the disk has been looked at", Duration::from_secs(10), async || {
        let metrics = daemon.metrics();
        ["csa_relaystore_free_disk_bytes{", "csa_throttle_value{"]
            .iter()
            .all(|m| metrics.contains(m))
    })
    .await;

    let scrape = daemon.metrics();
    let mut check = tool("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starting promtool");
    check.stdin.take().expect("stdin").write_all(scrape.as_bytes()).expect("writes");
    let checked = check.wait_with_output().expect("promtool ends");
    let complaints = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(checked.status.success() && complaints.is_empty(), "{complaints}\n{scrape}");
    let named = scrape.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    // Absent on a channel that runs with all of its sessions.
    let absent = [
        "csa_applier_session_limit",
        "csa_channel_next_attempt_seconds",
        "csa_copy_rows",
        "csa_copy_estimated_rows",
        "csa_copy_differs",
        "csa_copy_unchecked",
        "csa_copy_step",
        "csa_archive_lag_seconds",
        "csa_archive_interval_seconds",
        "csa_archive_pending_bytes",
        "csa_archive_failing",
        "csa_archive_files_total",
        "csa_archive_bytes_total",
        "csa_archive_transactions_total",
        "csa_archive_failures_total",
        "csa_archive_missing_transactions_total",
        "csa_notify_waiting",
        "csa_verify_every_seconds",
        "csa_verify_last_finished_timestamp_seconds",
        "csa_verify_differing_tables",
        "csa_verify_differing_rows",
        "csa_verify_progress_ratio",
        "csa_verify_held",
    ];
    let named: BTreeSet<String> = named.chain(absent).map(str::to_owned).collect();
    assert_eq!(named, documented());

    source.stop();
    eventually("lag is absent", Duration::from_secs(20), async || {
        let metrics = daemon.metrics();
        !metrics.contains("csa_lag_seconds{") && metrics.contains("csa_build_info{")
    })
    .await;
    assert!(has("csa_provider_connected{channel=\"test\"} 0"), "{}", daemon.metrics());
    eventually("the state says why", Duration::from_secs(10), async || {
        has("csa_channel_state{channel=\"test\",state=\"waiting_for_source\"} 1")
            && has("csa_channel_state{channel=\"test\",state=\"running\"} 0")
    })
    .await;
    source.restart();
    eventually("lag is 0 again", Duration::from_secs(30), is_idle).await;
    assert!(has("csa_provider_connected{channel=\"test\"} 1"), "{}", daemon.metrics());
}

#[test]
#[ignore = "slow"]
fn every_alert_fires_when_it_should_and_not_before() {
    let alerts = repository("config/prometheus/alerts.yml");
    succeeds(tool("promtool").args(["check", "rules", "--lint=all"]).arg(&alerts));
    let tests = "config/prometheus/alerts.test.yml";
    succeeds(tool("promtool").args(["test", "rules"]).arg(repository(tests)));
    // Each is tested both ways: once silent, once firing.
    let tests = read(tests);
    for alert in names_of_alerts() {
        let tested = format!("alertname: {alert}");
        let all = tests.lines().filter(|line| line.split(',').any(|part| part.ends_with(&tested)));
        let silent = |line: &&str| line.contains("exp_alerts: []");
        let (silent, firing): (Vec<&str>, Vec<&str>) = all.partition(silent);
        let near_miss = alert == "CsaDaemonRestarting" || !silent.is_empty();
        assert!(near_miss && !firing.is_empty(), "{alert} is not tested");
    }
}

#[test]
fn prometheus_accepts_the_configuration_of_the_runbook() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let config = Guide::section("runbook.md", "Setting up").take("yaml");
    let (file, alerts) =
        (folder.path().join("prometheus.yml"), read("config/prometheus/alerts.yml"));
    std::fs::write(&file, &config).expect("writes");
    std::fs::write(folder.path().join("alerts.yml"), &alerts).expect("writes");
    succeeds(tool("promtool").args(["check", "config"]).arg(&file));
    let name = config.split("job_name: ").nth(1).and_then(|rest| rest.split_whitespace().next());
    let matched = format!("job=\"{}\"", name.expect("a name"));
    assert!(alerts.contains(&matched), "no alert has {matched}");
}

pub(crate) fn names_of_alerts() -> Vec<String> {
    let alerts = read("config/prometheus/alerts.yml");
    let names = alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    names.map(str::to_owned).collect()
}

#[test]
fn every_alert_has_a_place_in_the_runbook() {
    let (alerts, runbook) = (read("config/prometheus/alerts.yml"), read("docs/runbook.md"));
    let names = names_of_alerts();
    assert!(names.len() >= 10, "{names:?}");
    let headings: BTreeSet<&str> =
        runbook.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    for (name, rule) in names.iter().zip(alerts.split("- alert: ").skip(1)) {
        let link = format!("runbook_url: docs/runbook.md#{}", name.to_lowercase());
        assert!(headings.contains(name.as_str()), "docs/runbook.md has no heading {name}");
        for part in ["summary: ", "description: ", "severity: ", &link] {
            assert!(rule.contains(part), "{name} has no {part}");
        }
        let section = runbook.split(&format!("\n## {name}\n")).nth(1).unwrap_or_default();
        let section = section.split("\n## ").next().unwrap_or_default();
        for part in ["**Means**", "**Look at**", "**Do**"] {
            assert!(section.contains(part), "the runbook's {name} has no {part}");
        }
    }
    // Links within the runbook lead somewhere.
    for link in runbook.split("](#").skip(1).filter_map(|rest| rest.split(')').next()) {
        let leads = headings.iter().any(|heading| heading.to_lowercase() == link);
        assert!(leads, "docs/runbook.md: #{link} leads nowhere");
    }
}

#[test]
fn alerts_and_dashboard_ask_for_metrics_that_exist() {
    let known = documented();
    let alerts = read("config/prometheus/alerts.yml").replace(">-\n", "");
    let mut queries: Vec<String> = alerts
        .split("expr: ")
        .skip(1)
        .filter_map(|rest| {
            Some(
                rest.split_once("\n        for:")
                    .map_or_else(|| rest.split_once("\n        labels:"), Some)?
                    .0
                    .to_owned(),
            )
        })
        .collect();
    assert_eq!(queries.len(), names_of_alerts().len());
    let dashboard: Value =
        serde_json::from_str(&read("config/grafana/csa-daemon.json")).expect("a dashboard");
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut ids = BTreeSet::new();
    let mut rules = "groups:\n  - name: dashboard\n    rules:\n".to_owned();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64()), "{}: an id twice", panel["title"]);
        assert!(panel["description"].as_str().is_some_and(|text| !text.is_empty()), "{panel}");
        for target in panel["targets"].as_array().expect("targets") {
            // A range would show the last figure that was known as long as it has one.
            let is_now = target["instant"] == true && target["range"] == false;
            assert_eq!(is_now, panel["type"] == "stat", "{}", panel["title"]);
            let query = target["expr"].as_str().expect("a query").to_owned();
            let filled = query.replace("$__rate_interval", "5m");
            rules += &format!("      - record: a:b\n        expr: {}\n", Value::from(filled));
            queries.push(query);
        }
    }
    for variable in dashboard["templating"]["list"].as_array().expect("variables") {
        if let Some(query) = variable["definition"].as_str() {
            let inner = query.trim_start_matches("label_values(").rsplit_once(", ");
            queries.push(inner.expect("metric and label").0.to_owned());
        }
    }
    for query in &queries {
        let asked = metrics_in(query);
        assert!(!asked.is_empty(), "{query}");
        for name in asked {
            let parts = ["_bucket", "_sum", "_count"];
            let whole = parts.iter().find_map(|part| name.strip_suffix(part)).unwrap_or(&name);
            assert!(known.contains(whole) || name == "up", "{name} does not exist: {query}");
        }
    }
    // The dashboard's queries are PromQL.
    let file = tempfile::Builder::new().suffix(".yml").tempfile().expect("a file");
    std::fs::write(file.path(), rules).expect("writable");
    succeeds(tool("promtool").args(["check", "rules", "--lint=none"]).arg(file.path()));
}

/// Returns the names in a query that are not labels, functions or words of the language.
fn metrics_in(query: &str) -> Vec<String> {
    let mut rest = String::new();
    let mut depth = 0;
    for letter in query.chars() {
        match letter {
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            _ if depth == 0 => rest.push(letter),
            _ => {}
        }
    }
    for labelled in ["on (", "by ("] {
        while let Some(at) = rest.find(labelled) {
            let end = rest[at..].find(')').expect("labels end") + at;
            rest.replace_range(at..=end, " ");
        }
    }
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut names = Vec::new();
    let mut left = rest.as_str();
    while let Some(at) = left.find(is_part) {
        left = &left[at..];
        let end = left.find(|letter| !is_part(letter)).unwrap_or(left.len());
        let (name, after) = left.split_at(end);
        let is_function = after.starts_with('(');
        let is_number = name.starts_with(|letter: char| letter.is_ascii_digit());
        if !is_function && !is_number && !PROMQL.contains(&name) {
            names.push(name.to_owned());
        }
        left = after;
    }
    names
}

#[test]
fn names_are_found_in_queries() {
    let query =
        "sum by (state) (rate(csa_a_total{channel=\"x\"}[5m])) / 1e9 and on (job) cas_b > 0.5";
    assert_eq!(metrics_in(query), ["csa_a_total", "cas_b"]);
}
