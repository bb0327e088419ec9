//! `config/csa-daemon.toml`.

use std::fmt::Write as _;

use serde_json::Value;

use super::{Applies, Key, SECTIONS, toml};

/// The first line tells editors where to find the schema; the package has its own place for it.
const HEAD: &str = "\
#:schema ./csa-daemon.schema.json
# Every key of csa-daemon. Made from the code (csa-daemon generate). A key has its default, unless it is marked as an
# example; one that is commented out is not set. In brackets: its values, and \"reload\" if it can be changed while the
# daemon runs. Files conf.d/*.toml hold further channels. [defaults] has the sections of a channel, such as
# [defaults.source], with keys for all channels that do not set them.
# Durations \"500ms\" \"5s\" \"2m\" \"1h\"; sizes \"64MiB\" \"10GiB\"; an unknown key is an error that names the nearest one.
";
const WIDTH: usize = 118;

pub(crate) fn example() -> String {
    let mut text = HEAD.to_owned();
    for section in SECTIONS.iter() {
        // Writing to a String can't fail.
        let _ = write!(text, "\n{}", comment(section.text));
        let _ = writeln!(text, "{}", section.header());
        for key in &section.keys {
            let _ = write!(text, "\n{}{}", comment(&words(key)), setting(key));
        }
    }
    text
}

fn setting(key: &Key) -> String {
    let value = key.example().or(key.default()).map(toml).unwrap_or_default();
    let hidden = if is_set(key) { "" } else { "# " };
    format!("{hidden}{} = {value}\n", key.name)
}

fn is_set(key: &Key) -> bool {
    let is_empty = |value: &Value| matches!(value.to_string().as_str(), "[]" | "{}");
    key.required
        || key.schema.get("x-in-example").is_some()
        || key.default().is_some_and(|default| !is_empty(default))
}

fn words(key: &Key) -> String {
    let takes = key.takes();
    let is_plain = ["path", "text", "boolean", "duration", "size"].contains(&takes.as_str());
    let is_said = is_plain || super::words(key.schema).next().is_some();
    let mut notes: Vec<String> = (!is_said).then_some(takes).into_iter().collect();
    match (key.default(), key.example()) {
        _ if key.required => notes.push("must be set; an example".to_owned()),
        (None, _) if is_set(key) => notes.push("an example".to_owned()),
        (Some(default), Some(_)) if is_set(key) => {
            notes.push(format!("an example, the default is {}", toml(default)));
        }
        _ => {}
    }
    if matches!(key.applies(), Applies::AtOnce | Applies::Access) {
        notes.push("reload".to_owned());
    }
    let text = match &notes[..] {
        [] => key.text(),
        _ => format!("{} [{}]", key.text(), notes.join("; ")),
    };
    text.replace('`', "")
}

fn comment(text: &str) -> String {
    let mut lines = vec!["#".to_owned()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + word.chars().count() < WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("# {word}")),
        }
    }
    lines.join("\n") + "\n"
}
