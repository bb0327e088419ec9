//! The manual page csa-daemon.toml(5).

use std::fmt::Write as _;

use super::{Applies, SECTIONS, toml};

const HEAD: &str = "\
.SH NAME
csa\\-daemon.toml \\- configuration of csa\\-daemon
.SH DESCRIPTION
TOML. Durations are written 500ms, 5s, 2m, 1h, sizes 64MiB, 10GiB, both in quotes. An unknown key is an error that
names the nearest one. In parentheses: the values of a key, its default, and when a change counts: with
\\fBcsa\\-daemon reload\\fR, with the next start of the channel, or with that of the daemon.
.PP
Files \\fIconf.d/*.toml\\fR beside the file hold further channels, and nothing else; for a file \\fINAME.toml\\fR of another
name the folder is \\fINAME.conf.d\\fR.
.PP
\\fB[defaults]\\fR in the main file has the sections of a channel, such as \\fB[defaults.source]\\fR, with keys for all
channels that do not set them.
";
const TAIL: &str = ".SH \"SEE ALSO\"\n\\fBcsa\\-daemon\\fR(8)\n";

pub(crate) fn manual(version: &str) -> String {
    let mut page =
        format!(".TH csa-daemon.toml 5 \"\" \"csa-daemon {version}\" csa-daemon\n{HEAD}");
    for section in SECTIONS.iter() {
        // Writing to a String can't fail.
        let _ = writeln!(page, ".SS\n\\&{}\n{}", plain(&section.header()), plain(section.text));
        for key in &section.keys {
            let default = match key.default() {
                _ if key.required => "; must be set".to_owned(),
                Some(default) => format!("; default {}", toml(default)),
                None => String::new(),
            };
            let applies = match key.applies() {
                Applies::AtOnce | Applies::Access => "reload",
                Applies::Channel => "start of the channel",
                Applies::Daemon => "start of the daemon",
                Applies::Command => "next command",
            };
            let takes = plain(&format!("{}{default}; {applies}", key.takes()));
            let (name, text) = (plain(key.name), plain(&key.text()));
            let _ = writeln!(page, ".TP\n\\fB{name}\\fR ({takes})\n\\&{text}");
        }
    }
    page + TAIL
}

/// Markup of the comments means nothing to the formatter, its own escapes do.
fn plain(text: &str) -> String {
    text.replace('`', "").replace('\\', "\\e").replace('-', "\\-")
}
