//! Files of a comparison: the state from which an interrupted run resumes, and statements for rows that
//! differ. Both hold values of rows, so only their owner can read them.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::verify::{REPAIR_SESSION, STATE_FILE, Saved, TableReport, VerifyOptions};
use csa_applier::TargetGtids;
use csa_provider::server::visible::one_line;
use csa_relaystore::disk::create_private_file;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::config::ChannelSettings;
use crate::host::replaced_file::replace;
use crate::host::{Failure, now_micros, rfc3339};

/// The rows of an older state may have changed since.
const OLDEST_MICROS: u64 = 7 * 24 * 3_600_000_000;
/// The version of the file's form.
const VERSION: u32 = 2;

#[derive(Debug, Serialize, Deserialize)]
struct Content<S> {
    version: u32,
    /// Microseconds since the epoch.
    saved_at: u64,
    saved: S,
}

/// `verify.json` in the channel's part of the state directory.
#[derive(Debug)]
pub(super) struct ResumeFile {
    channel: String,
    path: PathBuf,
    /// It was said that it can't be written.
    is_said: AtomicBool,
    /// It has something that this run, or one before it, has compared.
    is_useful: AtomicBool,
}

impl ResumeFile {
    pub(super) fn of(channel: &ChannelSettings) -> Self {
        Self {
            channel: channel.name.clone(),
            path: channel.directory().join(STATE_FILE),
            is_said: AtomicBool::new(false),
            is_useful: AtomicBool::new(false),
        }
    }

    /// Returns the state of a run that was interrupted, and says so.
    pub(super) fn read(&self) -> Option<Saved> {
        let text = fs::read_to_string(&self.path).ok()?;
        // One that can't be read is one of another version, or was cut off.
        let Content { version, saved_at, saved }: Content<Saved> =
            serde_json::from_str(&text).ok()?;
        if version != VERSION {
            eprintln!(
                "channel {}: the run that was interrupted at {} is not resumed: another version of csa-daemon made it",
                self.channel,
                rfc3339(saved_at)
            );
            return None;
        }
        // One of the future was saved before the clock was set back, at an unknown time.
        let age = now_micros().checked_sub(saved_at);
        if age.is_none_or(|age| age > OLDEST_MICROS) {
            eprintln!(
                "channel {}: the run that was interrupted at {} is too old to resume, or the clock was set back",
                self.channel,
                rfc3339(saved_at)
            );
            return None;
        }
        let (tables, rows) = saved.progress();
        self.is_useful.store((tables, rows) != (0, 0), Ordering::Relaxed);
        eprintln!(
            "channel {}: a run was interrupted at {} after {tables} tables and {rows} rows of the next; \
             what it compared is not compared again, unless a definition has changed or the target was \
             restored (--from-start compares everything)",
            self.channel,
            rfc3339(saved_at)
        );
        Some(saved)
    }

    /// Replaces the file as a whole. A run that can't keep its state continues without.
    pub(super) fn write(&self, saved: &Saved) {
        let content = Content { version: VERSION, saved_at: now_micros(), saved };
        let text = serde_json::to_vec(&content).map_err(io::Error::from);
        let written = text.and_then(|text| replace(&self.path, &text));
        if written.is_ok() {
            self.is_useful.store(saved.progress() != (0, 0), Ordering::Relaxed);
        }
        if let Err(error) = written
            && !self.is_said.swap(true, Ordering::Relaxed)
        {
            eprintln!(
                "channel {}: an interrupted run could not be resumed, because {} can't be written: {error}",
                self.channel,
                self.path.display()
            );
        }
    }

    /// Returns what a signal has done to this run, and how to continue.
    pub(super) fn interrupted(&self, from_start: bool) -> String {
        if self.is_said.load(Ordering::Relaxed) {
            return "interrupted; its state could not be written, so the next run may compare everything again"
                .to_owned();
        }
        if !self.is_useful.load(Ordering::Relaxed) {
            return "interrupted before it had compared anything that it could keep; the same command begins again"
                .to_owned();
        }
        let without = if from_start { " without --from-start" } else { "" };
        format!("interrupted; the same command{without} continues it")
    }

    pub(super) fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Statements for rows that differ, as `mysql` reads them.
pub(super) struct RepairFile {
    name: String,
    state: Mutex<RepairOutput>,
}

struct RepairOutput {
    output: Box<dyn Write + Send>,
    /// The channel whose settings were written.
    channel: Option<String>,
    rows: usize,
    failed: Option<io::Error>,
}

impl RepairFile {
    pub(super) fn create(path: &Path) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let wrong = |error| Failure::Input(format!("--repair {name}: {error}"));
        let output: Box<dyn Write + Send> = match name.as_str() {
            "-" => Box::new(io::stdout()),
            _ => Box::new(create_private_file(path).map_err(wrong)?),
        };
        let state = RepairOutput { output, channel: None, rows: 0, failed: None };
        Ok(Self { name, state: Mutex::new(state) })
    }

    pub(super) fn is_standard_output(&self) -> bool {
        self.name == "-"
    }

    pub(super) fn write(&self, options: &VerifyOptions, table: &TableReport) {
        let repair = &table.repair;
        if repair.statements.is_empty() && repair.notes.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        let mut text = String::new();
        if state.channel.as_ref() != Some(&options.channel) {
            state.channel = Some(options.channel.clone());
            text.push_str(&head(options));
        }
        text.push_str(&statements(table));
        state.rows += table.differences.len();
        if let Err(error) = state.output.write_all(text.as_bytes()) {
            state.failed.get_or_insert(error);
        }
    }

    /// Says how to proceed.
    pub(super) fn finish(self) -> Result<(), Failure> {
        let Self { name, state } = self;
        let mut state = state.into_inner();
        if let Err(error) = state.output.flush() {
            state.failed.get_or_insert(error);
        }
        if let Some(error) = state.failed {
            return Err(Failure::NotCompared(format!("--repair {name}: {error}")));
        }
        if state.rows > 0 && name != "-" {
            eprintln!(
                "statements for {} rows that differ are in {name}; read them before you apply them to the \
                 target, and verify again after it",
                state.rows
            );
        }
        Ok(())
    }
}

/// Returns the comment and the session's settings before the statements of a channel.
fn head(options: &VerifyOptions) -> String {
    let logged = match options.target.gtids {
        TargetGtids::Own => "-- Where a channel leads from this target back, add: SET SESSION sql_log_bin=0;\n".to_owned(),
        // A GTID of the target's own would be missing on the source.
        TargetGtids::Mirror | TargetGtids::Source => {
            "-- target_gtids keeps the target's own GTIDs out of its binary log: repair its replicas too.\n\
             SET SESSION sql_log_bin=0;\n"
                .to_owned()
        }
    };
    let session: String =
        REPAIR_SESSION.iter().map(|statement| format!("{statement};\n")).collect();
    let (channel, target) = (&options.channel, options.target.address());
    format!(
        "-- Written by csa-daemon verify at {}: brings rows of target {} (channel {channel}) to the content of the\n\
         -- source. Find out first why they differ. A statement changes a row only if it is still as it was found.\n\
         {logged}{session}",
        rfc3339(now_micros()),
        one_line(&target),
    )
}

fn statements(table: &TableReport) -> String {
    let mut text = format!(
        "\n-- {}\n",
        one_line(&format!("{}: {} rows differ", table.target, table.differences.len()))
    );
    for note in table.repair.notes.iter().chain(&table.left_out) {
        text.push_str(&format!("-- {}\n", one_line(note)));
    }
    if !table.repair.statements.is_empty() {
        text.push_str("START TRANSACTION;\n");
        table.repair.statements.iter().for_each(|one| text.push_str(&format!("{one};\n")));
        text.push_str("COMMIT;\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_replaced_as_a_whole_and_one_that_is_cut_off_is_ignored() {
        let directory = tempfile::tempdir().expect("a folder");
        let kept = ResumeFile {
            channel: "shop".to_owned(),
            path: directory.path().join("verify.json"),
            is_said: AtomicBool::new(false),
            is_useful: AtomicBool::new(false),
        };
        assert!(kept.read().is_none());
        kept.write(&Saved::default());
        let nothing = "interrupted before it had compared anything";
        assert!(kept.interrupted(false).starts_with(nothing));
        kept.is_useful.store(true, Ordering::Relaxed);
        assert_eq!(kept.interrupted(false), "interrupted; the same command continues it");
        assert!(kept.interrupted(true).contains(" without --from-start "));
        assert_eq!(kept.read().expect("kept").progress(), (0, 0));
        let text = fs::read_to_string(&kept.path).expect("readable");
        fs::write(&kept.path, &text[..text.len() / 2]).expect("writable");
        assert!(kept.read().is_none());
        let future = serde_json::json!({
            "version": VERSION, "saved_at": now_micros() + 3_600_000_000, "saved": Saved::default(),
        });
        for unfit in [text.replace("\"version\":2", "\"version\":1"), future.to_string()] {
            fs::write(&kept.path, unfit).expect("writable");
            assert!(kept.read().is_none());
        }
        kept.remove();
        assert_eq!(fs::read_dir(directory.path()).expect("readable").count(), 0);
        let nowhere = ResumeFile { path: directory.path().join("none/verify.json"), ..kept };
        nowhere.write(&Saved::default());
        assert!(nowhere.interrupted(false).contains("could not be written"));
    }
}
