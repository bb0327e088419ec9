//! Settings of the source.

use super::limits;
use super::report::{Finding, Place};
use super::server::Server;

const DAY: u64 = 86_400;

/// `server_id`: the channel's own.
pub(super) fn settings(server: &Server, server_id: u32) -> Vec<Finding> {
    vec![
        binary_log(server),
        format(server),
        row_image(server),
        gtids(server),
        identity(server, server_id),
        retention(server),
        // A dump, and a session that looks at the source.
        limits::account(Place::Source, server, 2),
        limits::init_connect(Place::Source, server),
    ]
}

fn binary_log(server: &Server) -> Finding {
    const CHECK: &str = "source.log_bin";
    if !server.is_on("log_bin") {
        return Finding::error(CHECK, "it writes no binary log")
            .fix(Place::Operator, "start it with --log-bin and a --server-id");
    }
    let compressed = match server.is_on("binlog_transaction_compression") {
        true => ", compressed: decompressing it costs this host CPU",
        false => "",
    };
    Finding::ok(CHECK, format!("it writes a binary log{compressed}"))
}

fn format(server: &Server) -> Finding {
    const CHECK: &str = "source.binlog_format";
    match server.text("binlog_format") {
        // A later server may have no other format.
        "ROW" | "" => Finding::ok(CHECK, "ROW"),
        other => Finding::error(
            CHECK,
            format!("{other}: a change logged as a statement stops the channel"),
        )
        .fix(Place::Source, "SET PERSIST binlog_format=ROW; -- open sessions keep theirs"),
    }
}

fn row_image(server: &Server) -> Finding {
    const CHECK: &str = "source.binlog_row_image";
    match server.text("binlog_row_image") {
        "FULL" => Finding::ok(CHECK, "FULL"),
        other => Finding::warning(
            CHECK,
            format!(
                "{other}: fewer changes can be told apart, so fewer run in parallel; FULL is faster"
            ),
        )
        .fix(Place::Source, "SET PERSIST binlog_row_image=FULL;"),
    }
}

fn gtids(server: &Server) -> Finding {
    const CHECK: &str = "source.gtid_mode";
    let mode = server.text("gtid_mode");
    if mode == "ON" {
        let consistency = server.text("enforce_gtid_consistency");
        return Finding::ok(CHECK, format!("ON, enforce_gtid_consistency={consistency}"));
    }
    // One step after the other, the last one once no anonymous transaction is left
    // (https://dev.mysql.com/doc/refman/en/replication-mode-change-online-enable-gtids.html).
    let steps = ["OFF", "OFF_PERMISSIVE", "ON_PERMISSIVE", "ON"];
    let at = steps.iter().position(|&step| step == mode).unwrap_or(0);
    let mut run = String::new();
    if server.text("enforce_gtid_consistency") != "ON" {
        run.push_str("SET PERSIST enforce_gtid_consistency=ON; ");
    }
    let left: Vec<String> =
        steps.iter().skip(at + 1).map(|step| format!("SET PERSIST gtid_mode={step};")).collect();
    run.push_str(&left.join(" "));
    Finding::error(CHECK, format!("{mode}: transactions have no GTID")).fix(Place::Source, run)
}

fn identity(server: &Server, server_id: u32) -> Finding {
    const CHECK: &str = "source.server_id";
    match server.number("server_id") {
        Some(0) => Finding::error(CHECK, "0: it refuses replicas").fix(
            Place::Source,
            "SET PERSIST server_id=1; -- or another number that is unique in the topology",
        ),
        Some(theirs) if theirs == u64::from(server_id) => {
            Finding::error(CHECK, format!("{theirs} is also the channel's own")).fix(
                Place::Configuration,
                "[channel.source] server_id = a number that is unique in the topology",
            )
        }
        Some(theirs) => Finding::ok(CHECK, format!("{theirs}; the channel's is {server_id}")),
        None => Finding::ok(CHECK, format!("the channel's is {server_id}")),
    }
}

/// Returns the transactions that are purged before they were received are lost to the target.
fn retention(server: &Server) -> Finding {
    const CHECK: &str = "source.binlog_retention";
    let seconds = server.number("binlog_expire_logs_seconds").unwrap_or(0);
    if seconds == 0 || server.text("binlog_expire_logs_auto_purge") == "OFF" {
        return Finding::ok(CHECK, "binary logs are not purged automatically");
    }
    if seconds < DAY {
        return Finding::warning(
            CHECK,
            format!(
                "binary logs are purged after {seconds} s: once reception has paused for \
                 longer, the target has to be copied again"
            ),
        )
        .fix(Place::Source, "SET PERSIST binlog_expire_logs_seconds=604800;");
    }
    Finding::ok(CHECK, format!("binary logs are kept for {:.1} days", seconds as f64 / DAY as f64))
}

/// The plugin's names: since 8.0.26, and before; servers up to 8.4 accept the old one too.
const NEW: &str = "source";
const OLD: &str = "master";

/// The source waits for acknowledgements only with its plugin.
pub(super) fn semi_sync(server: &Server) -> Finding {
    const CHECK: &str = "source.semi_sync";
    let variable = |name: &str, what: &str| format!("rpl_semi_sync_{name}_{what}");
    let persist = if server.version.has_set_persist() { "PERSIST" } else { "GLOBAL" };
    let installed =
        [NEW, OLD].into_iter().find(|name| !server.text(&variable(name, "enabled")).is_empty());
    let Some(name) = installed else {
        let name = if server.version.is_at_least(8, 4) { NEW } else { OLD };
        return Finding::warning(
            CHECK,
            format!("plugin rpl_semi_sync_{name} is not installed: commits do not wait"),
        )
        .fix(
            Place::Source,
            format!(
                "INSTALL PLUGIN rpl_semi_sync_{name} SONAME 'semisync_{name}.so'; \
                 SET {persist} rpl_semi_sync_{name}_enabled=ON; -- then csa-daemon stop --receiving, restart"
            ),
        );
    };
    let (enabled, point) = (variable(name, "enabled"), variable(name, "wait_point"));
    if !server.is_on(&enabled) {
        return Finding::warning(CHECK, format!("{enabled} is OFF: commits do not wait"))
            .fix(Place::Source, format!("SET {persist} {enabled}=ON;"));
    }
    if server.text(&point) == "AFTER_COMMIT" {
        let text = "AFTER_COMMIT: other sessions see a transaction before it is acknowledged, and a \
             crash can take it from them again";
        return Finding::warning(CHECK, text)
            .fix(Place::Source, format!("SET {persist} {point}=AFTER_SYNC;"));
    }
    let timeout = server.number(&variable(name, "timeout")).unwrap_or_default();
    Finding::ok(
        CHECK,
        format!(
            "commits wait for acknowledgements; after {timeout} ms without one they no longer do"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::report::Level;
    use crate::servers::test_util::server;

    const GOOD: [(&str, &str); 7] = [
        ("log_bin", "ON"),
        ("binlog_format", "ROW"),
        ("binlog_row_image", "FULL"),
        ("gtid_mode", "ON"),
        ("enforce_gtid_consistency", "ON"),
        ("server_id", "7"),
        ("binlog_expire_logs_seconds", "2592000"),
    ];

    fn found(variable: &str, value: &str) -> Vec<(&'static str, Level, String)> {
        let mut server = server(&GOOD);
        server.variables.insert(variable.to_owned(), value.to_owned());
        settings(&server, 42)
            .into_iter()
            .filter(|finding| finding.level != Level::Ok)
            .map(|finding| (finding.check, finding.level, finding.to_string()))
            .collect()
    }

    #[test]
    fn each_setting_has_its_finding_and_its_fix() {
        assert_eq!(found("version", "9.7.4"), []);
        for (variable, value, check, level, fix) in [
            ("log_bin", "OFF", "source.log_bin", Level::Error, "--log-bin"),
            (
                "binlog_format",
                "MIXED",
                "source.binlog_format",
                Level::Error,
                "SET PERSIST binlog_format=ROW",
            ),
            (
                "binlog_row_image",
                "MINIMAL",
                "source.binlog_row_image",
                Level::Warning,
                "SET PERSIST binlog_row_image=FULL",
            ),
            (
                "gtid_mode",
                "OFF_PERMISSIVE",
                "source.gtid_mode",
                Level::Error,
                "source: SET PERSIST gtid_mode=ON_PERMISSIVE; SET PERSIST gtid_mode=ON;",
            ),
            ("server_id", "42", "source.server_id", Level::Error, "[channel.source] server_id"),
            ("server_id", "0", "source.server_id", Level::Error, "SET PERSIST server_id"),
            (
                "binlog_expire_logs_seconds",
                "3600",
                "source.binlog_retention",
                Level::Warning,
                "binlog_expire_logs_seconds",
            ),
        ] {
            let found = found(variable, value);
            let [(name, is, text)] = found.as_slice() else { panic!("{variable}: {found:?}") };
            assert_eq!((*name, *is), (check, level));
            assert!(text.contains(fix), "{text}");
        }
        assert_eq!(found("binlog_expire_logs_seconds", "0"), []);
    }

    #[test]
    fn semi_sync_names_the_plugin_of_the_version() {
        let found = |variables: &[(&str, &str)], version: &str| {
            let mut server = server(variables);
            server.version = crate::servers::version::Version::parse(version);
            semi_sync(&server)
        };
        for (version, plugin) in [("5.7.44", "master"), ("8.0.31", "master"), ("9.7.4", "source")] {
            let finding = found(&[], version);
            assert_eq!(finding.level, Level::Warning);
            let run = &finding.fixes.first().expect("a fix").run;
            let statement = format!("INSTALL PLUGIN rpl_semi_sync_{plugin} SONAME");
            assert!(run.contains(&statement), "{version}: {run}");
        }
        for name in [NEW, OLD] {
            let variable = |what: &str| format!("rpl_semi_sync_{name}_{what}");
            let (enabled, point) = (variable("enabled"), variable("wait_point"));
            let off = found(&[(&enabled, "OFF")], "8.0.31");
            assert!(off.to_string().contains(&format!("SET PERSIST {enabled}=ON")), "{off}");
            let late = found(&[(&enabled, "ON"), (&point, "AFTER_COMMIT")], "8.0.31");
            assert!(late.to_string().contains("AFTER_SYNC"), "{late}");
            let timeout = variable("timeout");
            let on = [(&*enabled, "ON"), (&*point, "AFTER_SYNC"), (&*timeout, "10000")];
            let good = found(&on, "8.0.31");
            assert_eq!(good.level, Level::Ok);
            assert!(good.to_string().contains("10000 ms"), "{good}");
        }
    }

    #[test]
    fn gtids_are_turned_on_step_by_step() {
        let finding = gtids(&server(&[("gtid_mode", "OFF"), ("enforce_gtid_consistency", "WARN")]));
        assert_eq!(
            finding.fixes.first().expect("a fix").run,
            "SET PERSIST enforce_gtid_consistency=ON; SET PERSIST gtid_mode=OFF_PERMISSIVE; \
             SET PERSIST gtid_mode=ON_PERMISSIVE; SET PERSIST gtid_mode=ON;"
        );
    }
}
