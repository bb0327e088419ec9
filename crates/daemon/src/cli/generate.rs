//! `generate`: manual pages, shell completions, and the reference, example and JSON schema of the
//! configuration file, from the code's own definitions, for packages and docs.

use std::io;
use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_complete::Shell;
use clap_mangen::Man;

use super::arguments::{Cli, set_commands};
use super::controller::definition;
use super::server_errors;
use crate::channel::CHANNEL_SETTINGS;
use crate::config::{example, manual, reference, schema};
use crate::daemon::DAEMON_SETTINGS;
use crate::host::Failure;

const NAME: &str = "csa-daemon";
/// Administration commands and daemons, see man-pages(7).
const SECTION: &str = "8";
/// Sections of the program's page that its options do not give.
const MANUAL: &str = include_str!("generate/csa-daemon.roff");
/// Names that only the running daemon knows.
const NAMES: &str = include_str!("generate/names.bash");
const SEE_ALSO: &str = ".SH \"SEE ALSO\"\n\\fBcsa\\-daemon\\fR(8), \\fBcsa\\-daemon.toml\\fR(5)\n";

/// Writes `man/*.8`, `man/csa-daemon.toml.5`, `completions/*`, `configuration.md`, `server-errors.md`,
/// `csa-daemon.toml`, `csa-daemon.schema.json` and `replicationchannels.json` under `directory`.
///
/// # Errors
/// A file that can't be written.
pub(crate) fn generate(directory: &Path) -> Result<(), Failure> {
    write(directory)
        .map_err(|error| Failure::Runtime(format!("writing to {}: {error}", directory.display())))
}

fn write(directory: &Path) -> io::Result<()> {
    let mut command = visible();
    command.build();
    let manuals = directory.join("man");
    std::fs::create_dir_all(&manuals)?;
    for (name, text) in pages(&command)? {
        std::fs::write(manuals.join(format!("{name}.{SECTION}")), text)?;
    }
    std::fs::write(manuals.join("csa-daemon.toml.5"), manual(env!("CARGO_PKG_VERSION")))?;
    for (file, text) in [
        ("configuration.md", reference()),
        ("server-errors.md", server_errors::page()),
        ("csa-daemon.toml", example()),
        ("csa-daemon.schema.json", schema()),
        ("replicationchannels.json", definition()),
    ] {
        std::fs::write(directory.join(file), text)?;
    }
    let completions = directory.join("completions");
    std::fs::create_dir_all(&completions)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let file = clap_complete::generate_to(shell, &mut visible(), NAME, &completions)?;
        if shell == Shell::Bash {
            let script = std::fs::read_to_string(&file)?;
            // clap_complete 4.6 takes the hyphen of our name for a space in one of two places: nothing was
            // completed after a command.
            let script = script.replace("csa__subcmd__daemon", "csa__daemon");
            std::fs::write(file, script + &names())?;
        }
    }
    Ok(())
}

/// Returns the part of bash's completion that offers channels of the running daemon, and settings.
fn names() -> String {
    let settings = set_commands(&CHANNEL_SETTINGS).chain(set_commands(&DAEMON_SETTINGS));
    let settings: Vec<&str> = settings.map(|(name, _)| name).collect();
    NAMES.replace("@SETTINGS@", &settings.join(" "))
}

/// Returns the pages of a command and of all its subcommands, by name.
fn pages(command: &Command) -> io::Result<Vec<(String, Vec<u8>)>> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let manual = Man::new(command.clone())
        .section(SECTION)
        .source(format!("csa-daemon {}", env!("CARGO_PKG_VERSION")))
        .manual("csa-daemon");
    let mut text = Vec::new();
    manual.render(&mut text)?;
    text.extend_from_slice(if name == NAME { MANUAL } else { SEE_ALSO }.as_bytes());
    let mut pages = vec![(name, text)];
    for below in command.get_subcommands() {
        pages.extend(self::pages(below)?);
    }
    Ok(pages)
}

/// Returns the command line without its hidden commands, which completions would offer.
fn visible() -> Command {
    let all = Cli::command();
    let about = all.get_about().cloned().unwrap_or_default();
    Command::new(NAME)
        .about(about)
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_subcommand(true)
        .subcommand_required(true)
        .args(all.get_arguments().cloned())
        .subcommands(all.get_subcommands().filter(|below| !below.is_hide_set()).cloned())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn every_command_has_a_page_and_hidden_ones_have_none() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        generate(directory.path()).expect("writes");
        let read = |file: &str| std::fs::read_to_string(directory.path().join(file)).expect(file);
        for command in Cli::command().get_subcommands() {
            let page = directory.path().join(format!("man/csa-daemon-{}.8", command.get_name()));
            assert_eq!(page.exists(), !command.is_hide_set(), "{}", page.display());
        }
        let page = read("man/csa-daemon.8");
        for text in [".TH csa-daemon 8", "csa\\-daemon\\-run(8)", ".SH \"EXIT STATUS\""] {
            assert!(page.contains(text), "{text} is missing in {page}");
        }
        let configuration = read("man/csa-daemon.toml.5");
        assert!(configuration.contains("\n\\&[channel.source]\n"), "{configuration}");
        let bash = read("completions/csa-daemon.bash");
        // The function of clap's own that ours calls.
        assert!(bash.contains("    _csa__daemon \"$@\""), "{bash}");
        assert!(bash.starts_with("_csa__daemon() {"), "{bash}");
        assert!(bash.contains("        csa__daemon__subcmd__status)\n"), "{bash}");
        assert!(bash.contains("worker_count") && !bash.contains("@SETTINGS@"), "{bash}");
        for file in ["csa-daemon.bash", "_csa-daemon", "csa-daemon.fish"] {
            let completion = read(&format!("completions/{file}"));
            assert!(completion.contains("connect"), "{file} lacks check --connect");
            assert!(!completion.contains("generate"), "{file} offers a hidden command");
        }
    }

    #[test]
    fn the_guides_show_commands_that_there_are() {
        let mut shown = 0;
        for guide in [
            include_str!("../../../../README.md"),
            include_str!("../../../../docs/operating.md"),
            include_str!("../../../../docs/channels.md"),
            include_str!("../../../../docs/copy-one-table.md"),
            include_str!("../../../../docs/fleet.md"),
            include_str!("../../../../docs/monitoring.md"),
            include_str!("../../../../docs/stop-at-a-point.md"),
            include_str!("../../../../docs/verify.md"),
            include_str!("../../../../docs/provisioning.md"),
        ] {
            let lines = guide.lines().filter(|line| line.starts_with("csa-daemon "));
            for command in lines.flat_map(|line| {
                let line = line.split(['#', '>']).next().unwrap_or_default();
                line.split(';')
            }) {
                let parsed = Cli::try_parse_from(command.split_whitespace());
                if let Err(error) = parsed {
                    panic!("{command}: {error}");
                }
                shown += 1;
            }
        }
        assert!(shown >= 16, "{shown}");
    }
}
