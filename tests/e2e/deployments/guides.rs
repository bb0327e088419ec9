//! Every fenced block of the documents is run by a test, from the text itself, or is in the list below.
//!
//! Two functions hand out blocks: `guide FILE SECTION [NUMBER]` in the scripts runs all of a section or one block,
//! and `Guide::section(FILE, SECTION)` fails the test that leaves a block. So the calls in their sources are what
//! is run.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use csa_tests::{Daemon, blocks, repository};

/// A block's document, section and number.
type Place = (String, String, usize);

/// The blocks that nothing runs: document, section, number, and the reason.
const NOT_RUN: [(&str, &str, usize, &str); 10] = [
    ("README.md", "", 1, "a drawing"),
    ("README.md", "Try it", 2, "`make test` runs this test"),
    ("architecture.md", "", 1, "a drawing"),
    ("managed.md", "The source", 1, "a procedure that only the service has"),
    (
        "kubernetes.md",
        "Channels as Kubernetes resources",
        2,
        "output; kubernetes.rs compares its columns",
    ),
    ("kubernetes.md", "A fleet in Kubernetes", 3, "output"),
    ("monitoring.md", "The log", 1, "output"),
    ("trust.md", "Chaos on real servers", 1, "half an hour; `make test-slow` runs it for a minute"),
    ("trust.md", "Takeovers", 1, "ten minutes; `make test-slow` runs it for half a minute"),
    ("trust.md", "Power loss", 1, "as root, many rounds; `make test-slow` runs one of each kind"),
];

/// Files below a folder of `tests` with these endings.
fn sources(folder: &Path, endings: &[&str], found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, endings, found);
        } else if endings.iter().any(|ending| path.to_string_lossy().ends_with(ending)) {
            found.push(fs::read_to_string(&path).expect("text"));
        }
    }
}

/// Returns the words of a line of a shell script, without the quotes.
fn words(line: &str) -> Vec<String> {
    let output = Command::new("bash")
        .args(["-c", "eval \"set -- $1\"; printf '%s\\n' \"$@\"", "words", line])
        .output()
        .expect("running bash");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// The calls `guide FILE SECTION [NUMBER]` of the scripts that tests run; a number may be a loop's.
fn run_by_scripts() -> BTreeSet<Place> {
    let folder = repository().join("tests");
    let mut texts = Vec::new();
    let tests = fs::read_to_string(folder.join("e2e/deployments/provisioning.rs")).expect("text");
    let scripts: Vec<&str> =
        tests.split("run(\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(scripts.len() > 8, "{scripts:?}");
    for script in scripts.into_iter().chain(["provisioning/lib.sh"]) {
        texts.push(fs::read_to_string(folder.join(script)).expect("a script"));
    }
    let mut places = BTreeSet::new();
    for line in texts.iter().flat_map(|text| text.lines()) {
        let Some(at) = line.find("guide ").filter(|_| !line.trim_start().starts_with('#')) else {
            continue;
        };
        // It begins a command: after white space, a parenthesis or an assignment.
        if !line[..at].is_empty() && !line[..at].ends_with([' ', '(']) {
            continue;
        }
        let end = line[at..].find([';', '>', '|', ')']).map_or(line.len(), |end| at + end);
        // A parenthesis may be a part of a heading in quotes.
        let call = if line[at..].contains("('") || line[at..end].matches('\'').count() % 2 == 1 {
            &line[at..]
        } else {
            &line[at..end]
        };
        let call = words(call);
        let [_, document, section, rest @ ..] = call.as_slice() else { continue };
        if !document.ends_with(".md") {
            continue;
        }
        let all = blocks(document).into_iter().filter(|block| block.section == *section);
        let numbers: Vec<usize> = match rest.first().map(|number| number.parse::<usize>()) {
            Some(Ok(number)) => vec![number],
            // The loop's variable.
            Some(Err(_)) => loop_over(line),
            None => all.filter(|block| block.info != "text").map(|block| block.number).collect(),
        };
        places.extend(numbers.into_iter().map(|n| (document.clone(), section.clone(), n)));
    }
    places
}

/// Returns the numbers of `for … in 1 2 3; do`.
fn loop_over(line: &str) -> Vec<usize> {
    let list = line.split_once(" in ").and_then(|(_, rest)| rest.split_once(';'));
    let list = list.unwrap_or_else(|| panic!("not a number: {line}")).0;
    list.split_whitespace().map(|number| number.parse().expect("a number")).collect()
}

/// Returns the calls `Guide::section("FILE", "SECTION")` of the tests.
fn run_by_tests() -> BTreeSet<Place> {
    let mut texts = Vec::new();
    sources(&repository().join("tests/e2e"), &[".rs"], &mut texts);
    let mut places = BTreeSet::new();
    for call in texts.iter().flat_map(|text| text.split("Guide::section(").skip(1)) {
        let mut strings = call.split('"').skip(1).step_by(2);
        let (Some(document), Some(section)) = (strings.next(), strings.next()) else { continue };
        if !document.ends_with(".md") {
            continue;
        }
        let all = blocks(document).into_iter();
        let all = all.filter(|block| block.section == section && block.info != "text");
        places.extend(all.map(|b| (document.to_owned(), section.to_owned(), b.number)));
    }
    places
}

/// README.md, and the folder `docs` without its index, which has the same name and no blocks.
fn documents() -> Vec<String> {
    let mut names = vec!["README.md".to_owned()];
    for entry in fs::read_dir(repository().join("docs")).expect("a folder") {
        let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
        names.extend((name.ends_with(".md") && name != "README.md").then_some(name));
    }
    let index = fs::read_to_string(repository().join("docs/README.md")).expect("text");
    assert!(!index.contains("\n```"), "nothing runs a block of docs/README.md");
    names
}

#[test]
fn every_block_of_the_documents_is_run() {
    let (by_scripts, by_tests) = (run_by_scripts(), run_by_tests());
    let excepted: BTreeSet<Place> = NOT_RUN
        .iter()
        .map(|(document, section, number, _)| {
            ((*document).to_owned(), (*section).to_owned(), *number)
        })
        .collect();
    let mut written = BTreeSet::new();
    for document in documents() {
        for block in blocks(&document) {
            let place = (document.clone(), block.section, block.number);
            assert!(written.insert(place.clone()), "two sections of that name: {place:?}");
        }
    }
    let run: BTreeSet<Place> = by_scripts.union(&by_tests).cloned().collect();
    let missing: Vec<&Place> =
        written.iter().filter(|&place| !run.contains(place) && !excepted.contains(place)).collect();
    assert!(
        missing.is_empty(),
        "no test runs these blocks (see the top of this file): {missing:#?}"
    );
    let gone: Vec<&Place> =
        run.union(&excepted).filter(|&place| !written.contains(place)).collect();
    assert!(gone.is_empty(), "no document has these blocks: {gone:#?}");
    let both: Vec<&Place> = run.intersection(&excepted).collect();
    assert!(both.is_empty(), "run, and in the list of those that are not: {both:#?}");
    println!("{} blocks are run, {} are not", run.len(), excepted.len());
}

/// Commands in the running text, as `csa-daemon until --clear`.
fn inline_commands(text: &str) -> BTreeSet<Vec<String>> {
    let mut commands = BTreeSet::new();
    let prose: String = text.split("\n```").step_by(2).collect::<Vec<_>>().join("\n");
    for code in prose.replace('\n', " ").split('`').skip(1).step_by(2) {
        for command in code.split(';') {
            let command = command.split(['|', '#', '…', '>']).next().unwrap_or_default();
            if let Some(rest) = command.trim().strip_prefix("csa-daemon ") {
                commands.insert(
                    rest.split_whitespace()
                        .map(|word| word.trim_matches('\'').to_owned())
                        .collect(),
                );
            }
        }
    }
    commands
}

#[test]
fn commands_in_the_text_are_those_of_the_program() {
    let mut commands = BTreeSet::new();
    for document in documents() {
        let folder = if document == "README.md" { repository() } else { repository().join("docs") };
        commands.append(&mut inline_commands(
            &fs::read_to_string(folder.join(document)).expect("text"),
        ));
    }
    assert!(commands.len() > 20, "{commands:?}");
    let known = |arguments: &[String]| {
        let output = Command::new(Daemon::executable()).args(arguments).arg("--help").output();
        let output = output.expect("runs");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert!(!known(&["restart".to_owned(), "--gently".to_owned()]).0, "it accepts anything");
    let wrong: Vec<String> = commands
        .iter()
        .filter_map(|arguments| match known(arguments) {
            (true, _) => None,
            (false, why) => Some(format!("{}: {why}", arguments.join(" "))),
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
