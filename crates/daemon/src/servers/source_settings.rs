//! Settings of the source, beside those that a start requires.

use csa_provider::server::{Finding, Place, ServerFacts};

use super::limits;
use super::server::CheckedServer;

const DAY: u64 = 86_400;

pub(super) fn settings(server: &CheckedServer) -> Vec<Finding> {
    vec![
        retention(&server.facts),
        // A dump, and a session that looks at the source.
        limits::account(Place::Source, server, 2),
        limits::init_connect(Place::Source, &server.facts),
    ]
}

/// Judges how long the source keeps its binary logs: what it purges before reception is lost to the target.
fn retention(server: &ServerFacts) -> Finding {
    const CHECK: &str = "source.binlog_retention";
    // Limits of Percona Server, which count whatever the age of a file.
    for name in ["binlog_space_limit", "max_binlog_files"] {
        if let Some(limit @ 1..) = server.number(name) {
            let text = format!(
                "{name} is {limit}: the source purges binary logs beyond it, and whatever the target lacks of them has \
                 to be copied again"
            );
            let (place, fix) = match name {
                "max_binlog_files" => {
                    (Place::Source, "SET GLOBAL max_binlog_files=0; -- and in its option file")
                }
                _ => (Place::Operator, "binlog_space_limit=0 in its option file, and restart it"),
            };
            return Finding::warning(CHECK, text).fix(place, fix);
        }
    }
    let set = |name: &str, unit: u64| server.number(name).unwrap_or(0).saturating_mul(unit);
    // MySQL 5.7 has only days, and 8.0 uses them where the seconds are 0.
    let seconds = match set("binlog_expire_logs_seconds", 1) {
        0 => set("expire_logs_days", DAY),
        seconds => seconds,
    };
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
pub(super) fn semi_sync(server: &ServerFacts) -> Finding {
    const CHECK: &str = "source.semi_sync";
    let variable = |name: &str, what: &str| format!("rpl_semi_sync_{name}_{what}");
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
                 SET PERSIST rpl_semi_sync_{name}_enabled=ON; -- then csa-daemon stop --receiving, restart"
            ),
        );
    };
    let (enabled, point) = (variable(name, "enabled"), variable(name, "wait_point"));
    if !server.is_on(&enabled) {
        return Finding::warning(CHECK, format!("{enabled} is OFF: commits do not wait"))
            .fix(Place::Source, format!("SET PERSIST {enabled}=ON;"));
    }
    if server.text(&point) == "AFTER_COMMIT" {
        let text = "AFTER_COMMIT: other sessions see a transaction before it is acknowledged, and a \
             crash can take it from them again";
        return Finding::warning(CHECK, text)
            .fix(Place::Source, format!("SET PERSIST {point}=AFTER_SYNC;"));
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
    use csa_provider::server::{Level, Version};

    use super::*;
    use crate::servers::test_util::facts;

    #[test]
    fn binary_logs_are_kept_for_a_day_at_least() {
        let of = |seconds| retention(&facts(&[("binlog_expire_logs_seconds", seconds)])).level;
        assert_eq!([of("3600"), of("2592000"), of("0")], [Level::Warning, Level::Ok, Level::Ok]);
        for seconds in [None, Some(("binlog_expire_logs_seconds", "0"))] {
            let variables: Vec<_> =
                seconds.into_iter().chain([("expire_logs_days", "7")]).collect();
            let days = retention(&facts(&variables)).to_string();
            assert!(days.contains("kept for 7.0 days"), "{days}");
        }
        // Only the first needs a restart.
        for (limit, place) in
            [("binlog_space_limit", Place::Operator), ("max_binlog_files", Place::Source)]
        {
            let of = |value| {
                retention(&facts(&[("binlog_expire_logs_seconds", "2592000"), (limit, value)]))
            };
            assert_eq!([of("0").level, of("1000").level], [Level::Ok, Level::Warning], "{limit}");
            assert_eq!(of("1000").fixes.first().expect("a fix").on, place, "{limit}");
        }
    }

    #[test]
    fn semi_sync_names_the_plugin_of_the_version() {
        let found = |variables: &[(&str, &str)], version: &str| {
            let version = Version::parse(version);
            semi_sync(&ServerFacts { version, ..facts(variables) })
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
}
