//! Fenced blocks of the documents that operators follow, for tests that run them as they are written.
//! `tests/provisioning/lib.sh` is the same for scripts; `tests/e2e/deployments/guides.rs` finds blocks that neither runs.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};

/// A fenced block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The heading `## …` before it; empty above the first one.
    pub section: String,
    /// Within the section, from 1.
    pub number: usize,
    /// The words after the fence, such as `sql on=source`.
    pub info: String,
    pub text: String,
}

/// Returns the repository's folder.
#[must_use]
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the blocks of a document: `README.md`, or one of the folder `docs`.
///
/// # Panics
/// If it can't be read, or a block has no end.
#[track_caller]
#[must_use]
pub fn blocks(document: &str) -> Vec<Block> {
    let folder = if document == "README.md" { repository() } else { repository().join("docs") };
    let text = fs::read_to_string(folder.join(document));
    let text = text.unwrap_or_else(|error| panic!("{document}: {error}"));
    let (blocks, unfinished) = parse(&text);
    assert!(!unfinished, "{document}: a block has no end");
    blocks
}

/// Returns the blocks of a text, and whether the last one has no end.
fn parse(text: &str) -> (Vec<Block>, bool) {
    let (mut section, mut number) = (String::new(), 0);
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for line in text.lines() {
        match (open.as_mut(), line.strip_prefix("```")) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, Some(info)) => {
                number += 1;
                let (section, info) = (section.clone(), info.trim().to_owned());
                open = Some(Block { section, number, info, text: String::new() });
            }
            (None, None) => {
                if let Some(heading) = line.strip_prefix("## ") {
                    (section, number) = (heading.to_owned(), 0);
                }
            }
        }
    }
    (blocks, open.is_some())
}

/// The blocks of a section, to be taken one after another. A test that leaves one fails, so a section is either run
/// as a whole or not at all. Blocks of `text` stand for output and are left out.
#[derive(Debug)]
pub struct Guide {
    place: String,
    blocks: VecDeque<Block>,
}

impl Guide {
    /// # Panics
    /// If the section has no blocks.
    #[track_caller]
    #[must_use]
    pub fn section(document: &str, section: &str) -> Self {
        Self::of(document, section, blocks(document))
    }

    #[track_caller]
    fn of(document: &str, section: &str, blocks: Vec<Block>) -> Self {
        let wanted = |block: &Block| block.section == section && block.info != "text";
        let blocks: VecDeque<Block> = blocks.into_iter().filter(wanted).collect();
        let place = format!("{document}, {section:?}");
        assert!(!blocks.is_empty(), "{place}: no blocks there");
        Self { place, blocks }
    }

    /// Returns the next block, which has to be of this kind.
    ///
    /// # Panics
    /// If there is none, or it is of another kind.
    #[track_caller]
    #[must_use]
    pub fn take(&mut self, info: &str) -> String {
        let block = self.blocks.pop_front();
        let block = block.unwrap_or_else(|| panic!("{}: no more blocks: {info:?}", self.place));
        assert_eq!(block.info, info, "{}, block {}", self.place, block.number);
        block.text
    }

    /// All other blocks, for a test that chooses by their kinds and knows each of them.
    #[must_use]
    pub fn rest(&mut self) -> Vec<Block> {
        self.blocks.drain(..).collect()
    }
}

impl Drop for Guide {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let left: Vec<usize> = self.blocks.iter().map(|block| block.number).collect();
            assert!(left.is_empty(), "{}: nothing runs the blocks {left:?}", self.place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# A\n```text\n## no heading\n```\n## One\n```sh\nls\n```\n```toml into=x\na = 1\n```\n## Two\n";

    #[test]
    fn blocks_have_their_section_and_their_number() {
        let (blocks, unfinished) = parse(TEXT);
        assert!(!unfinished);
        let seen: Vec<(&str, usize, &str)> =
            blocks.iter().map(|b| (b.section.as_str(), b.number, b.info.as_str())).collect();
        assert_eq!(seen, [("", 1, "text"), ("One", 1, "sh"), ("One", 2, "toml into=x")]);
        assert_eq!(blocks[0].text, "## no heading\n");
        assert!(parse("```sh\nls\n").1);
    }

    #[test]
    fn a_section_is_run_as_a_whole_or_the_test_fails() {
        let guide = || Guide::of("d.md", "One", parse(TEXT).0);
        let mut whole = guide();
        assert_eq!(whole.take("sh"), "ls\n");
        assert_eq!(whole.rest().len(), 1);
        drop(whole);
        let fails = |test: fn(Guide)| {
            let outcome = std::panic::catch_unwind(|| test(guide()));
            outcome.is_err()
        };
        assert!(fails(|mut guide| drop(guide.take("sh"))), "a block is left");
        assert!(fails(|mut guide| drop(guide.take("toml"))), "another kind");
        assert!(std::panic::catch_unwind(|| Guide::of("d.md", "Two", parse(TEXT).0)).is_err());
    }
}
