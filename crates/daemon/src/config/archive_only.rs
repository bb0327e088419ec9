//! A channel without a target. It only archives, so that what concerns a target has no sense in it.

use csa_applier::{PublicKey, Route, TargetGtids, TargetOptions, TlsOptions};
use secrecy::SecretString;
use toml::{Table, Value};

use super::error::ConfigError;

/// Keys and sections of a channel that say how its target is written. `[defaults]` gives them to channels with a
/// target alone.
pub(super) const OF_TARGET: [&str; 6] =
    ["standby", "applier", "copy", "throttle_by", "verify", "move"];

/// Returns whether a channel only archives.
///
/// # Errors
/// It lacks a target and an archive, or has a key that needs a target.
pub(super) fn archives_only(channel: &Table, is_shared: bool) -> Result<bool, ConfigError> {
    let wrong = |text: String| Err(ConfigError(text));
    let section = |name: &str| channel.get(name).and_then(Value::as_table);
    if channel.contains_key("target") {
        return Ok(false);
    }
    let archive = section("archive").filter(|archive| archive.contains_key("url"));
    let Some(archive) = archive else {
        return wrong(
            "target: missing; it must be set. Only a channel with [channel.archive] url may lack it: it archives, \
             and applies nothing"
                .to_owned(),
        );
    };
    for name in OF_TARGET {
        let key = match (channel.get(name), section(name)) {
            (None, _) => continue,
            // Where the stream begins is a question for an archive, too.
            (_, Some(keys)) => {
                keys.keys().find(|key| (name, key.as_str()) != ("applier", "start_from"))
            }
            (Some(_), None) => {
                return wrong(needs_target(name));
            }
        };
        if let Some(key) = key {
            return wrong(needs_target(&format!("{name}.{key}")));
        }
    }
    let start = section("applier").and_then(|applier| applier.get("start_from")?.as_str());
    if let Some(start @ ("copy" | "target")) = start {
        return wrong(format!(
            "applier.start_from: {start:?} needs [channel.target]; without one take \"source\" or a GTID set, or leave \
             the key out to begin with everything that the source still has"
        ));
    }
    if archive.get("required").and_then(Value::as_bool) == Some(false) {
        return wrong(
            "archive.required: false needs [channel.target]; without one nothing else reads the relay store, which \
             always waits for the archive: leave the key out"
                .to_owned(),
        );
    }
    if is_shared {
        return wrong(
            "target: missing, and the channels of [claims] need one: only a lock on the target keeps two daemons \
             apart. Run a channel that archives only in a daemon without [claims]"
                .to_owned(),
        );
    }
    Ok(true)
}

fn needs_target(key: &str) -> String {
    format!(
        "{key}: needs [channel.target], and this channel only archives; leave the key out, or set [channel.target]"
    )
}

/// Returns what stands in the place of a target, and is never connected to.
pub(super) fn no_target() -> TargetOptions {
    TargetOptions {
        host: String::new(),
        port: 0,
        socket: None,
        user: String::new(),
        password: SecretString::from("").into(),
        tls: TlsOptions { public_key: PublicKey::None, ..TlsOptions::default() },
        connect_timeout: std::time::Duration::from_secs(10),
        net_timeout: std::time::Duration::from_secs(30),
        gtids: TargetGtids::Own,
        executor: None,
        collation_map: std::sync::Arc::default(),
        route: Route::new(Vec::new(), false),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    const MINIMAL: &str = r#"
[[channel]]
name = "orders"
[channel.source]
host = "127.0.0.1"
user = "repl"
password = "secret"
server_id = 4201
[channel.archive]
url = "file:///tmp"
"#;

    fn error(text: &str) -> String {
        Config::parse(text).expect_err("refused").0
    }

    #[test]
    fn a_channel_with_an_archive_needs_no_target() {
        let config = Config::parse(MINIMAL).expect("valid");
        let channel = &config.channels[0];
        assert!(channel.archives_only() && !channel.relay.archived);
        assert!(channel.archive.as_ref().is_some_and(|archive| archive.is_required));
        assert!(channel.check_target("verify").is_err_and(|why| why.contains("verify")));
        let with_target =
            format!("{MINIMAL}[channel.target]\nuser = \"csa\"\npassword = \"secret\"\n");
        let config = Config::parse(&with_target).expect("valid");
        assert!(!config.channels[0].archives_only() && config.channels[0].relay.archived);
        let said = error(&MINIMAL.replace("[channel.archive]\nurl = \"file:///tmp\"\n", ""));
        assert!(said.contains("target: missing; it must be set"), "{said}");
    }

    #[test]
    fn defaults_that_need_a_target_are_for_channels_with_one() {
        let defaults = "[defaults.applier]\nworker_count = 4\n[defaults.verify]\nevery = \"1h\"\n";
        let config = Config::parse(&format!("{defaults}{MINIMAL}")).expect("valid");
        assert!(config.channels[0].archives_only());
        let target = "[defaults.target]\nuser = \"csa\"\npassword = \"secret\"\n";
        let config = Config::parse(&format!("{defaults}{target}{MINIMAL}")).expect("valid");
        assert!(!config.channels[0].archives_only());
        assert_eq!(config.channels[0].declared.worker_count, 4);
    }

    #[test]
    fn keys_that_need_a_target_are_refused_by_name() {
        for (section, key) in [
            ("[channel.applier]\nworker_count = 4", "applier.worker_count"),
            (
                "[channel.applier]\nuntil = { sql_before_time = \"2026-03-01T18:00:00Z\" }",
                "applier.until",
            ),
            ("[channel.applier]\nstart_from = \"copy\"", "applier.start_from"),
            ("[channel.applier]\nstart_from = \"target\"", "applier.start_from"),
            ("[channel.copy]\nlanes = 2", "copy.lanes"),
            ("[channel.verify]\nevery = \"1h\"", "verify.every"),
            ("[channel.move]\nback = \"b\"", "move.back"),
            ("[channel.throttle_by]\nquery = \"SELECT 1\"", "throttle_by."),
        ] {
            let said = error(&format!("{MINIMAL}{section}\n"));
            assert!(said.contains(key) && said.contains("[channel.target]"), "{section}: {said}");
        }
        let said =
            error(&MINIMAL.replace("name = \"orders\"", "name = \"orders\"\nstandby = true"));
        assert!(said.contains("standby: needs [channel.target]"), "{said}");
        let said = error(&format!("{MINIMAL}required = false\n"));
        assert!(said.contains("archive.required: false"), "{said}");
        let claims = "[claims]\nengine = \"etcd\"\nendpoints = [\"http://127.0.0.1:2379\"]\n";
        let said = error(&format!("{claims}{MINIMAL}"));
        assert!(said.contains("[claims]"), "{said}");
        for start in ["source", "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"] {
            let file = format!("{MINIMAL}[channel.applier]\nstart_from = \"{start}\"\n");
            assert!(Config::parse(&file).is_ok(), "{start}");
        }
    }
}
