//! The files of a configuration: the main one, and those in the folder beside it, which hold channels
//! only. Pure, but for reading them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::archive_only::OF_TARGET;
use super::error::{ConfigError, one_line};
use super::keys;
use super::place::{Text, TextPlace};

/// Beside `csa-daemon.toml`. A main file of another name has a folder of its own, because the instances
/// of `csa-daemon@.service` share /etc/csa-daemon.
const FOLDER: &str = "conf.d";
const MAIN: &str = "csa-daemon";

/// Keys of which a channel has one: if it sets one itself, it takes no default of the others.
const EITHER: [&[&str]; 5] = [
    &["password", "password_file", "password_env"],
    &["host", "socket"],
    &["port", "socket"],
    &["public_key_file", "get_public_key"],
    // A token is for its own address alone.
    &["command", "url", "token_file", "tls_ca"],
];

/// Keys of a section without sense where another one is missing or "none": a channel takes no default of them there.
const NEEDS: [(&str, &str, &str); 3] = [
    ("source", "prefer", "discover"),
    ("archive", "required", "url"),
    ("archive", "options", "url"),
];

/// One table of all files, with the defaults in the channels.
#[derive(Debug)]
pub(super) struct Merged<'a> {
    pub(super) table: Table,
    /// The place of each channel.
    pub(super) places: Vec<TextPlace<'a>>,
}

/// Reads the main file, and the `*.toml` of its folder in the order of their names.
///
/// # Errors
/// Names the file that can't be read.
pub(super) fn read(main: &Path) -> Result<Vec<Text>, ConfigError> {
    let unreadable =
        |path: &Path, error: std::io::Error| ConfigError(format!("{}: {error}", path.display()));
    let folder = folder(main);
    let mut paths = Vec::new();
    match std::fs::read_dir(&folder) {
        Ok(entries) => {
            for entry in entries {
                let path = entry.map_err(|error| unreadable(&folder, error))?.path();
                if is_channel_file(&path) {
                    paths.push(path);
                }
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(unreadable(&folder, error)),
    }
    paths.sort();
    paths.insert(0, main.to_owned());
    let read = |path: PathBuf| match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Text { path, text }),
        Err(error) => Err(unreadable(&path, error)),
    };
    paths.into_iter().map(read).collect()
}

/// Returns the folder with further channels: `conf.d`, or `NAME.conf.d` for a main file
/// `NAME.toml`.
pub(crate) fn folder(main: &Path) -> PathBuf {
    match main.file_stem() {
        Some(stem) if stem != MAIN => {
            let mut name = OsString::from(stem);
            name.push(".");
            name.push(FOLDER);
            main.with_file_name(name)
        }
        _ => main.with_file_name(FOLDER),
    }
}

/// Editors leave hidden files beside the one that they write.
fn is_channel_file(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.ends_with(".toml") && !name.starts_with('.')
}

/// Checks every file, and puts them together.
///
/// # Errors
/// Names the file, the line and the key.
pub(super) fn merge(files: &[Text]) -> Result<Merged<'_>, ConfigError> {
    let mut merged = Table::new();
    let mut channels = Vec::new();
    let mut places = Vec::new();
    let main = files.first();
    for (number, file) in files.iter().enumerate() {
        let mut table: Table = file.text.parse().map_err(|error: toml::de::Error| {
            ConfigError(format!("{}: {}", file.path.display(), one_line(&error, &file.text)))
        })?;
        let whole = TextPlace { file, main, channel: None };
        let own = table.remove("channel");
        if number == 0 {
            keys::check(&table).map_err(|error| whole.named(&error))?;
            merged = table;
        } else if let Some(key) = table.keys().next() {
            let why =
                format!("{key}: only [[channel]] may be in this file; move it to the main file");
            return Err(whole.named(&ConfigError(why)));
        }
        let defaults = merged.get("defaults").and_then(Value::as_table);
        let own = match own {
            Some(Value::Array(own)) => own,
            None => Vec::new(),
            Some(_) => {
                return Err(whole.named(&ConfigError("channel: write [[channel]]".to_owned())));
            }
        };
        for (index, channel) in own.into_iter().enumerate() {
            let place = TextPlace { file, main, channel: Some(index) };
            let channel = with_defaults(channel, defaults);
            keys::check_channel(&channel, index).map_err(|error| place.named(&error))?;
            channels.push(channel);
            places.push(place);
        }
    }
    merged.remove("defaults");
    merged.insert("channel".to_owned(), Value::Array(channels));
    Ok(Merged { table: merged, places })
}

fn with_defaults(mut channel: Value, defaults: Option<&Table>) -> Value {
    if let (Some(own), Some(defaults)) = (channel.as_table_mut(), defaults) {
        let mut unset = NEEDS.to_vec();
        unset.retain(|&(section, key, _)| own.get(section).is_none_or(|of| of.get(key).is_none()));
        // The rest of the defaults is for channels that apply something.
        let has_target = own.contains_key("target") || defaults.contains_key("target");
        let defaults =
            defaults.iter().filter(|(key, _)| has_target || !OF_TARGET.contains(&key.as_str()));
        for (key, value) in defaults {
            match (own.get_mut(key), value) {
                (None, value) => {
                    own.insert(key.clone(), value.clone());
                }
                (Some(Value::Table(own)), Value::Table(defaults)) => add(own, defaults),
                (Some(_), _) => {}
            }
        }
        for (section, key, other) in unset {
            if let Some(Value::Table(own)) = own.get_mut(section)
                && own.get(other).is_none_or(|value| value.as_str() == Some("none"))
            {
                own.remove(key);
            }
        }
    }
    channel
}

/// Adds the defaults of a section.
fn add(own: &mut Table, defaults: &Table) {
    let set: Vec<String> = own.keys().cloned().collect();
    let is_set = |key: &str| set.iter().any(|set| set == key);
    for (key, value) in defaults {
        let mut others = EITHER.iter().filter(|keys| keys.contains(&key.as_str()));
        if !is_set(key) && !others.any(|keys| keys.iter().any(|key| is_set(key))) {
            own.insert(key.clone(), value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIN: &str = r#"
[defaults.source]
user = "repl"
password_file = "/etc/repl.pw"
server_id = 7
[defaults.target]
socket = "/run/mysqld.sock"
[defaults.applier]
worker_count = 3
until = { sql_after_gtids = "a" }
"#;

    fn merged(texts: &[(&str, &str)]) -> Result<Table, String> {
        let of = |(path, text): &(&str, &str)| Text { path: path.into(), text: (*text).to_owned() };
        let texts: Vec<_> = texts.iter().map(of).collect();
        merge(&texts).map(|merged| merged.table).map_err(|error| error.0)
    }

    fn channel(name: &str, source: &str) -> String {
        format!(
            "[[channel]]\nname = \"{name}\"\n[channel.source]\n{source}\n[channel.target]\nuser = \"csa\"\n"
        )
    }

    #[test]
    fn channels_of_all_files_have_the_defaults_that_they_do_not_set() {
        let a = channel("a", "host = \"h\"\npassword = \"own\"") + "host = \"t\"\n";
        let b = channel("b", "host = \"h\"\nserver_id = 8")
            + "[channel.applier]\nworker_count = 5\nuntil = { sql_before_gtids = \"b\" }\n";
        let b = b + &channel("c", "host = \"h\"") + "port = 3307\n";
        let all = merged(&[("main", MAIN), ("conf.d/a.toml", &a), ("conf.d/b.toml", &b)]);
        let all = all.expect("valid");
        assert!(!all.contains_key("defaults"));
        let value = |at: usize, section: &str, key: &str| {
            all["channel"][at][section].get(key).and_then(|value| value.clone().try_into().ok())
        };
        let text = |at, section, key| value(at, section, key) as Option<String>;
        let number =
            |at: usize, section: &str, key: &str| all["channel"][at][section][key].as_integer();
        assert_eq!(number(0, "source", "server_id"), Some(7));
        assert_eq!(text(0, "source", "password").as_deref(), Some("own"));
        assert_eq!(text(0, "source", "password_file"), None, "the channel has a password");
        assert_eq!(text(0, "target", "socket"), None, "the channel has a host");
        assert_eq!(text(1, "source", "password_file").as_deref(), Some("/etc/repl.pw"));
        assert_eq!(text(1, "target", "socket").as_deref(), Some("/run/mysqld.sock"));
        assert_eq!(text(2, "target", "socket"), None, "the channel has a port");
        assert_eq!(number(1, "source", "server_id"), Some(8));
        assert_eq!(number(0, "applier", "worker_count"), Some(3));
        assert_eq!(number(1, "applier", "worker_count"), Some(5));
        let until = all["channel"][1]["applier"]["until"].as_table().expect("a table");
        assert_eq!(until.keys().collect::<Vec<_>>(), ["sql_before_gtids"], "replaced as a whole");
    }

    #[test]
    fn a_default_is_for_channels_with_the_key_that_it_needs() {
        let main = MAIN.replace("server_id = 7", "server_id = 7\nprefer = \"secondary\"")
            + "[defaults.archive]\nrequired = true\ninterval = \"5s\"\noptions = { a = \"b\" }\n";
        let without = channel("a", "host = \"h\"");
        let with = channel("b", "host = \"h\"\ndiscover = \"group\"")
            + "[channel.archive]\nurl = \"file:///tmp\"\n";
        let own = channel("c", "host = \"h\"\ndiscover = \"none\"")
            + "[channel.archive]\nrequired = true\n";
        let all = merged(&[("main", &main), ("conf.d/a.toml", &(without + &with + &own))]);
        let all = all.expect("valid");
        let has = |at: usize, section: &str, key: &str| {
            all["channel"][at].get(section).is_some_and(|section| section.get(key).is_some())
        };
        let found = [0, 1, 2].map(|at| NEEDS.map(|(section, key, _)| has(at, section, key)));
        assert_eq!(found, [[false; 3], [true; 3], [false, true, false]], "its own are checked");
        assert!(has(0, "archive", "interval"));
    }

    #[test]
    fn a_mistake_names_its_file_line_and_key() {
        let good = channel("a", "host = \"h\"");
        let bad = channel("b", "hots = \"h\"");
        let both = format!("# Two.\n{good}\n{bad}");
        let nameless = "[[channel]]\n[channel.source]\nhost = \"h\"\n";
        for (files, words) in [
            (
                vec![("main", MAIN), ("conf.d/b.toml", &*both)],
                "conf.d/b.toml: line 12: channel \"b\": source.hots: unknown key, did you mean host?",
            ),
            (
                vec![("main", MAIN), ("conf.d/c.toml", "\n[daemon]\n")],
                "conf.d/c.toml: line 2: daemon: only [[channel]]",
            ),
            (
                vec![("main", MAIN), ("conf.d/c.toml", "[defaults.relay]\n")],
                "conf.d/c.toml: line 1: defaults: only [[channel]]",
            ),
            (vec![("main", MAIN), ("conf.d/d.toml", "\nx = [")], "conf.d/d.toml: line 2"),
            (
                vec![("main", MAIN), ("conf.d/e.toml", nameless)],
                "conf.d/e.toml: line 1: channel[0]: name: missing; it must be set",
            ),
            (
                vec![("main", "[defaults.source]\nuesr = \"x\"\n")],
                "main: line 2: defaults.source.uesr: unknown key, did you mean user?",
            ),
            (
                vec![("main", "[defaults.applier]\nworker_count = 0\n")],
                "main: line 2: defaults.applier.worker_count: 0",
            ),
            (
                vec![("main", "[defaults]\nname = \"a\"\n")],
                "main: line 2: defaults.name: unknown key",
            ),
            (vec![("main", "\nchannel = 1\n")], "main: line 2: channel: write [[channel]]"),
            (
                vec![("main", "[daemon]\nstop_timeout = 1\n")],
                "main: line 2: daemon.stop_timeout: 1 is not a duration",
            ),
            (
                vec![("main", "[defalts]\n"), ("conf.d/a.toml", &*good)],
                "main: line 1: defalts: unknown key, did you mean defaults?",
            ),
        ] {
            let error = merged(&files).expect_err("refused");
            assert!(error.starts_with(words), "{error}\n{words}");
        }
    }

    #[test]
    fn only_toml_files_that_are_not_hidden_are_read() {
        let folder = tempfile::tempdir().expect("temp dir");
        let main = folder.path().join("csa-daemon.toml");
        std::fs::write(&main, "main").expect("writable");
        let read = |main: &Path| {
            read(main).map(|texts| texts.into_iter().map(|text| text.text).collect::<Vec<_>>())
        };
        assert_eq!(read(&main).expect("readable"), ["main"]);
        let conf = folder.path().join("conf.d");
        std::fs::create_dir(&conf).expect("created");
        for name in ["b.toml", "a.toml", ".a.toml", "a.toml~", "a.toml.dpkg-old", "README"] {
            std::fs::write(conf.join(name), name).expect("writable");
        }
        assert_eq!(read(&main).expect("readable"), ["main", "a.toml", "b.toml"]);
        // Another instance on this host does not run the same channels.
        let other = folder.path().join("eu.toml");
        std::fs::write(&other, "eu").expect("writable");
        assert_eq!(read(&other).expect("readable"), ["eu"]);
        assert_eq!(super::folder(&other), folder.path().join("eu.conf.d"));
    }
}
