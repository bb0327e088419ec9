//! `docs/configuration.md`.

use std::fmt::Write as _;

use super::{Applies, Key, SECTIONS, toml};

const HEAD: &str = "\
# Configuration

Made from the code (`csa-daemon generate`). The file is TOML, by default `/etc/csa-daemon/csa-daemon.toml`;
[config/csa-daemon.toml](../config/csa-daemon.toml) is a whole one with comments,
[config/minimal.toml](../config/minimal.toml) the least. Durations are written \"500ms\", \"5s\", \"2m\", \"1h\", sizes
\"64MiB\", \"10GiB\". A key that does not exist is an error that names the nearest one. Editors that know TOML (Even Better
TOML, taplo) complete and check keys with [csa-daemon.schema.json](../config/csa-daemon.schema.json), which the first
line of a file names: `#:schema file:///usr/share/csa-daemon/csa-daemon.schema.json`.

Channels may be in several files: the daemon also reads `conf.d/*.toml` beside the main file, which have `[[channel]]` only
([config/channel.toml](../config/channel.toml) is one). For a main file of another name, such as `eu.toml`, the folder is
`eu.conf.d`. `[defaults]` in the main file has the same sections and keys as a channel, except `name`, for all channels that do
not set them: `[defaults.source]`, `[defaults.relay]`, `[defaults.archive]`, `[defaults.target]`, `[defaults.applier]`,
`[defaults.copy]`, `[defaults.throttle_by]`, `[defaults.notify]`, `[defaults.verify]`, `[defaults.move]`. A channel with a key of
its own for the password (or the address, the public key, or the receiver of notifications) takes no default for the others of
that purpose. A default that needs `archive.url` or `discover = \"group\"` is for channels with that.

A change counts **at once** with `csa-daemon reload`, with the next start of the **channel** (`csa-daemon reload --restart`, or
`csa-daemon reload`, then `csa-daemon restart`), or with that of the **daemon**. `reload` starts channels that are new, stops
those that are no longer in any file, and names what it could not change; with `--dry-run` it only says so. A channel between two
attempts restarts with `reload` alone if the change needs it. Keys `admin_…` that change at once wait for the next start of the
daemon if `admin_listen` changes with them.
";

pub(crate) fn reference() -> String {
    let mut text = HEAD.to_owned();
    for section in SECTIONS.iter() {
        // Writing to a String can't fail.
        let _ = writeln!(text, "\n## {}\n\n{}\n", section.header(), section.text);
        text.push_str(
            "| key | takes | default | a change counts | |\n| --- | --- | --- | --- | --- |\n",
        );
        for key in &section.keys {
            let (default, applies) = (default(key), applies(key.applies()));
            let (name, takes, meaning) = (key.name, key.takes(), key.text());
            let _ = writeln!(text, "| `{name}` | {takes} | {default} | {applies} | {meaning} |");
        }
    }
    text
}

fn default(key: &Key) -> String {
    match key.default() {
        _ if key.required => "must be set".to_owned(),
        None => String::new(),
        Some(value) => format!("`{}`", toml(value)),
    }
}

const fn applies(applies: Applies) -> &'static str {
    match applies {
        Applies::AtOnce | Applies::Access => "at once",
        Applies::Channel => "channel",
        Applies::Daemon => "daemon",
        Applies::Command => "next command",
    }
}
