use std::path::PathBuf;
use std::time::Duration;

use csa_applier::StartFrom;

use super::*;

pub(crate) const MINIMAL: &str = r#"
[[channel]]
name = "orders"
[channel.source]
host = "127.0.0.1"
user = "repl"
password = "secret"
server_id = 4201
[channel.target]
user = "csa"
password = "secret"
"#;

/// Returns a file of one channel for a test without servers: its state is in `folder`, nothing listens where its source
/// is, and its last section is that of the target.
pub(crate) fn in_folder(folder: &std::path::Path, target_port: u16) -> String {
    let source = MINIMAL.replace("host = \"127.0.0.1\"", "host = \"127.0.0.1\"\nport = 1");
    format!(
        "[daemon]\nstate_dir = {:?}\n{source}port = {target_port}\n",
        folder.display().to_string()
    )
}

fn error(text: &str) -> String {
    Config::parse(text).expect_err("refused").0
}

fn changed(from: &str, to: &str) -> String {
    assert!(MINIMAL.contains(from), "{from}");
    MINIMAL.replace(from, to)
}

#[test]
fn a_minimal_file_has_the_documented_defaults() {
    let config = Config::parse(MINIMAL).expect("valid");
    let channel = &config.channels[0];
    assert_eq!(config.daemon.admin_listen, "127.0.0.1:9104");
    assert_eq!(channel.source.port, 3306);
    assert_eq!(channel.declared.worker_count, 8);
    assert_eq!(channel.declared.event_memory_limit.0, 256 << 20);
    assert_eq!(channel.relay.segment_size, 128 << 20);
    assert_eq!(channel.relay.directory, PathBuf::from("/var/lib/csa-daemon/orders/relay"));
    assert_eq!(channel.start_from, StartFrom::Target);
    assert!(config.warnings.is_empty());
}

#[test]
fn the_shipped_files_are_valid() {
    for text in [
        include_str!("../../../../config/csa-daemon.toml"),
        include_str!("../../../../config/minimal.toml"),
    ] {
        let directory = tempfile::tempdir().expect("temp dir");
        let password = directory.path().join("pw");
        std::fs::write(&password, "secret\n").expect("writable");
        let password = password.display().to_string();
        let text = text
            .replace("/etc/csa-daemon/source.pw", &password)
            .replace("/etc/csa-daemon/target.pw", &password);
        assert_eq!(Config::parse(&text).expect("valid").channels[0].name, "orders");
        // Its accounts are in the defaults, which the comment at its top shows.
        let channel = include_str!("../../../../config/channel.toml");
        let shown = channel.lines().filter_map(|line| line.strip_prefix("#   "));
        let main = shown.collect::<Vec<_>>().join("\n");
        let main = main
            .replace("/etc/csa-daemon/source.pw", &password)
            .replace("/etc/csa-daemon/target.pw", &password);
        let files = [("main", main.as_str()), ("conf.d/orders.toml", channel)];
        let files = files.map(|(path, text)| Text { path: path.into(), text: text.to_owned() });
        let channel = &Config::of(&files).expect("valid").channels[0];
        assert_eq!((&*channel.name, &*channel.source.user), ("orders", "repl"));
    }
}

#[test]
fn a_default_that_fits_no_channel_is_found_in_the_main_file() {
    let main = "[defaults.applier]\ntarget_gtids = \"source\"\n";
    let named = |text: &str| {
        let files = [("main", main), ("conf.d/a.toml", text)];
        let files = files.map(|(path, text)| Text { path: path.into(), text: text.to_owned() });
        Config::of(&files).expect_err("refused").0
    };
    let said = named(MINIMAL);
    assert!(said.starts_with("main: line 2: channel \"orders\": applier.target_gtids: "), "{said}");
    let own = format!("{MINIMAL}[channel.applier]\ntarget_gtids = \"source\"\n");
    assert!(named(&own).starts_with("conf.d/a.toml: line 13: channel"), "{}", named(&own));
    let missing = MINIMAL.replace("password = \"secret\"\nserver_id", "server_id");
    let said = named(&missing);
    assert!(
        said.starts_with("conf.d/a.toml: line 4: channel \"orders\": source: password"),
        "{said}"
    );
    assert!(named("\n").starts_with("main: no [[channel]] in it, and none in"), "{}", named("\n"));
    let twice =
        named(&format!("{MINIMAL}{MINIMAL}").replace("target]", "target]\ntls = \"preferred\""));
    assert!(twice.contains("target_gtids"), "{twice}");
}

#[test]
fn a_misspelt_key_is_told_with_its_path_and_neighbour() {
    let applier = format!("{MINIMAL}[channel.applier]\nworker_cuont = 4\n");
    assert_eq!(
        error(&applier),
        "channel \"orders\": applier.worker_cuont: unknown key, did you mean worker_count?"
    );
    assert_eq!(
        error(&changed("server_id = 4201", "server_id = 4201\nheartbeat = \"5s\"")),
        "channel \"orders\": source.heartbeat: unknown key, did you mean heartbeat_interval?"
    );
    assert!(error(&format!("[deamon]\n{MINIMAL}")).contains("did you mean daemon?"));
    let removed = error(&format!("[defaults.applier]\ncommit_window = 8\n{MINIMAL}"));
    assert!(removed.starts_with("defaults.applier.commit_window: unknown key"), "{removed}");
}

#[test]
fn bad_values_name_their_key() {
    let applier = |line: &str| error(&format!("{MINIMAL}[channel.applier]\n{line}\n"));
    let source =
        |line: &str| error(&changed("server_id = 4201", &format!("server_id = 1\n{line}")));
    for (message, words) in [
        (applier("worker_count = 0"), "applier.worker_count: 0 is not in 1..1024"),
        (applier("commit = \"group\""), "applier.commit: \"group\" is not one of"),
        (applier("event_memory_limit = \"1 apple\""), "size like"),
        (applier("start_from = \"yesterday\""), "applier.start_from"),
        (applier("target_gtids = \"source\""), "needs commit = \"one-to-one\""),
        (applier("source_delay = \"soon\""), "duration like"),
        (applier("until = {}"), "applier.until: one of sql_before_gtids, sql_after_gtids and"),
        (
            applier("until = { sql_before_gtids = \"a\", sql_after_gtids = \"b\" }"),
            "applier.until: one of",
        ),
        (applier("until = { gtids = \"a\" }"), "applier.until.gtids: unknown key"),
        (applier("until = { sql_after_gtids = 1 }"), "applier.until.sql_after_gtids: a GTID set"),
        (applier("until = { sql_after_gtids = \"\" }"), "applier.until.sql_after_gtids: the set"),
        (applier("until = { sql_before_gtids = \"x:1\" }"), "applier.until.sql_before_gtids: "),
        (
            applier("until = { sql_before_time = \"noon\" }"),
            "applier.until.sql_before_time: \"noon\"",
        ),
        (applier("until = { sql_before_time = 2026-03-01T10:00:00 }"), "with offset"),
        (applier("replicate_do_db = [\"\"]"), "applier.replicate_do_db: \"\" can't be a name"),
        (applier("replicate_do_table = [\"t\"]"), "applier.replicate_do_table: \"t\" is not"),
        (
            applier("replicate_wild_ignore_table = ['a%']"),
            "applier.replicate_wild_ignore_table: \"a%\" is not \"schema.table\"",
        ),
        (
            applier("replicate_wild_do_table = ['a.b\\']"),
            "applier.replicate_wild_do_table: \"a.b\\\\\" ends with",
        ),
        (
            applier("replicate_rewrite_db = { a = 1 }"),
            "applier.replicate_rewrite_db.a: a number without quotes is not text in quotes",
        ),
        (
            applier("replicate_rewrite_db = { a = \"csa\" }"),
            "applier.replicate_rewrite_db: \"csa\" holds the checkpoints",
        ),
        (error(&changed("server_id = 4201", "server_id = 0")), "source.server_id: 0"),
        (error(&changed("server_id = 4201", "server_id = 1\nport = 0")), "source.port: 0"),
        (
            error(&changed("server_id = 4201", "server_id = 1\nfailover = [{host='h', port=0}]")),
            "source.failover.port: 0",
        ),
        (error(&changed("server_id = 4201", "")), "server_id"),
        (
            error(&changed("[channel.target]", "[channel.target]\nnet_timeout = \"0s\"")),
            "target.net_timeout: \"0s\" is too small; set at least \"1s\"",
        ),
        (source("heartbeat_interval = 0"), "source.heartbeat_interval: 0 is too small; set at"),
        (source("connect_timeout = \"0s\""), "source.connect_timeout: \"0s\" is too small"),
        (source("connect_retry = \"0ms\""), "source.connect_retry: \"0ms\" is too small"),
        (source("connect_retry_max = \"1ms\""), "source.connect_retry_max: \"1ms\" is too small"),
        (
            error(&format!("{MINIMAL}[channel.archive]\nrequired = true\n")),
            "archive.url is missing",
        ),
        (source("prefer = \"secondary\""), "source.prefer: \"secondary\" needs discover"),
        (source("port = \"x\""), "source.port: \"x\" is not an integer"),
        (source("tls = \"on\""), "source.tls: \"on\" is not one of \"disabled\", \"preferred\","),
        (source("failover = [{ hots = 'h' }]"), "source.failover.hots: unknown key, did you mean"),
        (applier("replicate_do_db = \"shop\""), "applier.replicate_do_db: a text is not a list"),
        (error(&changed("\"orders\"", "\"Orders!\"")), "name: 1 to 64"),
        (error(&changed("password = \"secret\"\nserver_id", "server_id")), "source: password_file"),
        (error(&format!("{MINIMAL}{MINIMAL}")), "used twice"),
        (error(&format!("[daemon]\nlog_filter = \"csa=loud\"\n{MINIMAL}")), "daemon.log_filter: "),
        (error(""), "no [[channel]]"),
        (error("[[channel"), "unclosed"),
    ] {
        assert!(message.contains(words), "{message:?} lacks {words:?}");
        assert!(!message.contains('\n'), "{message:?}");
    }
}

#[test]
fn what_may_be_a_secret_is_not_repeated() {
    let archive = |options: &str| {
        error(&format!("{MINIMAL}[channel.archive]\nurl = \"s3://b/p\"\noptions = {options}\n"))
    };
    let notify = |url: &str| error(&format!("{MINIMAL}[channel.notify]\nurl = {url}\n"));
    let section = |keys: &str| error(&format!("{MINIMAL}[channel.{keys}\n"));
    for (message, words) in [
        (error(&changed("password = \"secret\"", "password = 5309")), "password: a number"),
        (error(&changed("password = \"secret\"", "password = [\"5309\"]")), "password: a list"),
        (notify("[\"https://hooks/5309\"]"), "notify.url: a list is not text in quotes"),
        (section("notify]\ncommand = \"/bin/say 5309\""), "notify.command: a text is not a list"),
        (section("notify]\ncommand = [\"say 5309\", \"5309\"]"), "notify.command: \"say\": write"),
        (section("move]\nhand_over = \"/bin/say 5309\""), "move.hand_over: a text is not a list"),
        (archive("\"5309\""), "archive.options: a text is not a table"),
        (archive("{ aws_secret_access_key = 5309 }"), "aws_secret_access_key: a number"),
    ] {
        assert!(message.contains(words), "{message:?} lacks {words:?}");
        assert!(!message.contains("5309"), "{message:?}");
    }
}

#[test]
fn filters_delay_and_end_are_read() {
    let text = format!(
        "{MINIMAL}[channel.applier]\nsource_delay = \"1h\"\n\
         until = {{ sql_after_gtids = \"3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5\" }}\n\
         replicate_do_db = [\"a\"]\nreplicate_ignore_db = [\"b\"]\n\
         replicate_wild_do_table = ['a\\_b.%']\nreplicate_rewrite_db = {{ x = \"a\" }}\n"
    );
    let config = Config::parse(&text).expect("valid");
    let channel = &config.channels[0];
    assert_eq!(channel.declared.source_delay.0, Duration::from_secs(3600));
    let until = channel.until.as_ref().map(ToString::to_string);
    let wanted = "sql_after_gtids = 3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5";
    assert_eq!(until.as_deref(), Some(wanted));
    assert_eq!(channel.filters.wild_do_table, ["a\\_b.%"]);
    assert_eq!(channel.filters.rewrite_db, [("x".to_owned(), "a".to_owned())]);
    assert!(config.warnings[0].contains("replicate_ignore_db has no effect"));
}

#[test]
fn an_end_by_time_is_read_with_and_without_quotes() {
    for time in ["2026-03-01T18:00:00+01:00", "\"2026-03-01 17:00:00Z\""] {
        let text = format!("{MINIMAL}[channel.applier]\nuntil = {{ sql_before_time = {time} }}\n");
        let config = Config::parse(&text).expect("valid");
        let until = config.channels[0].until.as_ref().map(ToString::to_string);
        assert_eq!(until.as_deref(), Some("sql_before_time = 2026-03-01T17:00:00.000000Z"));
    }
}

#[test]
fn units_are_read() {
    assert_eq!(Size::parse("64MiB"), Some(Size(64 << 20)));
    assert_eq!(Size::parse("0"), Some(Size(0)));
    assert_eq!(Size::parse("99999999999GiB"), None);
    assert_eq!(DurationValue::parse("500ms"), Some(DurationValue(Duration::from_millis(500))));
    assert_eq!(DurationValue::parse("2m"), Some(DurationValue(Duration::from_secs(120))));
    assert_eq!(DurationValue::parse("5"), None);
}

#[test]
fn a_small_event_memory_is_raised_with_a_warning() {
    let text = format!("{MINIMAL}[channel.applier]\nevent_memory_limit = \"1MiB\"\n");
    let config = Config::parse(&text).expect("valid");
    assert_eq!(event_memory_limit(config.channels[0].declared.event_memory_limit).0, 64 << 20);
    assert_eq!(config.warnings.len(), 1);
}

#[test]
fn limits_of_health_need_what_they_are_measured_with() {
    let with = |keys: &str| format!("{MINIMAL}[channel.throttle_by]\n{keys}");
    let replicas = "replicas = [{ host = \"r\" }, { host = \"s\", port = 3307 }]\n";
    for (keys, why) in [
        ("threads_running = 0".to_owned(), "throttle_by.threads_running: 0 is not 1 or more"),
        ("at_least = 0".to_owned(), "throttle_by.at_least: 0 is not 1 or more"),
        ("replica_lag = \"5s\"".to_owned(), "throttle_by.replica_lag: the target does not know"),
        (format!("replica_lag = \"10ms\"\n{replicas}"), "throttle_by.replica_lag"),
        (replicas.to_owned(), "throttle_by.replicas: without replica_lag"),
        ("query = \"SELECT 1\"".to_owned(), "throttle_by.query: set query_limit"),
        ("query = \" \"\nquery_limit = 1".to_owned(), "throttle_by.query: it is empty"),
        ("query_limit = 1".to_owned(), "throttle_by.query_limit: set query"),
        ("thread_running = 1".to_owned(), "did you mean threads_running?"),
    ] {
        let said = error(&with(&keys));
        assert!(said.contains(why), "{keys}: {said}");
    }
    let keys = format!(
        "threads_running = 50\nreplica_lag = \"5s\"\n{replicas}query = \"SELECT 1\"\nquery_limit = 2.5"
    );
    let config = Config::parse(&with(&keys)).expect("valid");
    let limits = &config.channels[0].throttle_by;
    assert_eq!(limits.threads_running, Some(50));
    let hosts = vec![("r".to_owned(), 3306), ("s".to_owned(), 3307)];
    assert_eq!(limits.replica_lag, Some((Duration::from_secs(5), hosts)));
    assert_eq!(limits.query, Some(("SELECT 1".to_owned(), 2.5)));
    assert_eq!(limits.at_least.map(std::num::NonZeroU32::get), Some(10));
    assert!(!Config::parse(MINIMAL).expect("valid").channels[0].throttle_by.is_set());
    let inline = MINIMAL.replace("name =", "throttle_by = { threads_running = 7 }\nname =");
    let config = Config::parse(&inline).expect("valid");
    assert_eq!(config.channels[0].throttle_by.threads_running, Some(7));
}

#[test]
fn claims_are_refused_by_the_name_of_the_key() {
    let claims = |lines: &str| format!("[claims]\nengine = \"etcd\"\n{lines}\n{MINIMAL}");
    let endpoint = "endpoints = [\"http://127.0.0.1:2379\"]\n";
    let config = Config::parse(&claims(endpoint)).expect("valid");
    let shared = config.claims.expect("claims");
    assert_eq!((shared.weight, shared.ttl), (100, Duration::from_secs(15)));
    assert!(!shared.name.is_empty());
    assert!(config.channels[0].applier.standby, "a claim alone does not decide");
    assert!(Config::parse(MINIMAL).expect("valid").claims.is_none());
    for (lines, words) in [
        ("", "claims.endpoints: name at least one server"),
        ("endpoints = [\"127.0.0.1:2379\"]", "claims.endpoints: \"127.0.0.1:2379\" is not http://"),
        (
            "endpoints = [\"https://e:2379\"]",
            "claims.endpoints: \"https://e:2379\" needs the authority of its certificate; set claims.tls_ca",
        ),
        (&format!("{endpoint}ttl = \"2s\""), "claims.ttl: \"2s\" is too small"),
        (&format!("{endpoint}ttl = \"3500ms\""), "claims.ttl: 3.5s: whole seconds"),
        (&format!("{endpoint}name = \"a/b\""), "claims.name: \"a/b\": 1 to 64 of"),
        (&format!("{endpoint}prefix = \"/\""), "claims.prefix: must not be empty"),
        (&format!("{endpoint}user = \"csa\""), "claims.user: user and password_file go together"),
        (&format!("{endpoint}tls_ca = \"/nowhere\""), "claims.tls_ca: /nowhere: "),
        (&format!("{endpoint}wieght = 3"), "claims.wieght: unknown key, did you mean weight?"),
    ] {
        let said = error(&claims(lines));
        assert!(said.starts_with(words), "{said}\n{words}");
    }
    let none = Config::parse(&format!("[claims]\n{endpoint}{MINIMAL}")).expect("valid");
    assert!(none.claims.is_none());
    assert_eq!(none.warnings, ["claims.endpoints: without effect: claims.engine is \"none\""]);
    let passwords = tempfile::NamedTempFile::new().expect("a file");
    let login = format!("user = \"csa\"\npassword_file = {:?}\n", passwords.path());
    assert!(Config::parse(&claims(&format!("{endpoint}{login}"))).is_ok(), "loopback is private");
    let far = error(&claims(&format!("endpoints = [\"http://192.0.2.7:2379\"]\n{login}")));
    assert!(far.contains("others could read the password"), "{far}");
    let semi_sync = changed("server_id", "semi_sync = true\nserver_id")
        + "[channel.relay]\nsync = \"transaction\"\n";
    let said = error(&format!("[claims]\nengine = \"etcd\"\n{endpoint}{semi_sync}"));
    assert!(said.contains("claims.engine: not together with source.semi_sync"), "{said}");
}
