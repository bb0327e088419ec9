//! `archive`: looks into the archive of a channel, and keeps what backups need.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use csa_provider::binlog::{GtidSet, TransactionHeader};

use super::output::say;
use super::verify::chosen;
use crate::archive::index::{self, FORMAT, FileIndex, Pin};
use crate::archive::replay::FileReader;
use crate::archive::store::{Archive, ArchiveError, ArchiveLocation, ArchivedHistory};
use crate::cli::arguments::{ArchiveCommand, ArchivePlace};
use crate::config::{ChannelSettings, Config};
use crate::host::{Failure, counted, now_micros, rfc3339, runtime};

/// Carries out one of the commands for one channel.
pub(crate) fn archive(
    path: &Path,
    channel: Option<&str>,
    command: &ArchiveCommand,
) -> Result<(), Failure> {
    let config = Config::load(path)?;
    let channel = only(&config, channel)?;
    let place = match command {
        ArchiveCommand::Ls(place)
        | ArchiveCommand::Verify(place)
        | ArchiveCommand::Pins(place)
        | ArchiveCommand::Export { place, .. }
        | ArchiveCommand::Pin { place, .. }
        | ArchiveCommand::Unpin { place, .. } => place,
    };
    let archive = Archive::open(&location(channel, place)?, &channel.name).map_err(failure)?;
    let history = place.history.as_deref();
    runtime()?.block_on(async {
        match command {
            ArchiveCommand::Ls(_) => list(&archive, history).await,
            ArchiveCommand::Verify(_) => verify(&archive, history).await,
            ArchiveCommand::Export { directory, .. } => export(&archive, history, directory).await,
            ArchiveCommand::Pin { name, gtid_set, .. } => pin(&archive, name, gtid_set).await,
            ArchiveCommand::Pins(_) => pins(&archive).await,
            ArchiveCommand::Unpin { name, .. } => unpin(&archive, name).await,
        }
    })
}

/// Returns the chosen channel.
pub(super) fn only<'a>(
    config: &'a Config,
    channel: Option<&str>,
) -> Result<&'a ChannelSettings, Failure> {
    match chosen(config, channel)?[..] {
        [one] => Ok(one),
        _ => Err(Failure::Input(format!(
            "--channel is missing: the configuration has {}",
            counted(config.channels.len() as u64, "channel")
        ))),
    }
}

/// Returns the place of the channel's archive, as far as the command line does not say another.
pub(super) fn location(
    channel: &ChannelSettings,
    place: &ArchivePlace,
) -> Result<ArchiveLocation, Failure> {
    let configured = channel.archive.as_ref().map(|archive| archive.location.clone());
    let mut location = configured.unwrap_or_default();
    if let Some(url) = &place.archive {
        location = ArchiveLocation { url: url.clone(), ..ArchiveLocation::default() };
    }
    if !place.archive_option.is_empty() {
        location.options = place.archive_option.iter().cloned().collect();
    }
    if location.url.is_empty() {
        return Err(Failure::Input(format!(
            "channel {:?} has no [channel.archive] with a url; --archive URL names one",
            channel.name
        )));
    }
    location.check().map_err(failure)?;
    Ok(location)
}

fn failure(error: ArchiveError) -> Failure {
    match error {
        ArchiveError::Location(why) => Failure::Input(why),
        error => Failure::Runtime(error.to_string()),
    }
}

/// Returns the histories to look at, the oldest first.
async fn histories(
    archive: &Archive,
    wanted: Option<&str>,
) -> Result<Vec<ArchivedHistory>, Failure> {
    let names = archive.histories().await.map_err(failure)?;
    if names.is_empty() {
        return Err(Failure::Runtime(format!("archive {}: there is none", archive.url())));
    }
    let of = |name: &String| archive.history(name);
    match wanted {
        None => Ok(names.iter().map(of).collect()),
        Some(wanted) if names.iter().any(|name| name == wanted) => {
            Ok(vec![archive.history(wanted)])
        }
        Some(wanted) => Err(Failure::Input(format!(
            "--history {wanted}: no such history; there are {}",
            names.join(", ")
        ))),
    }
}

async fn list(archive: &Archive, wanted: Option<&str>) -> Result<(), Failure> {
    for history in histories(archive, wanted).await? {
        say!("history {}", history.name);
        say!(
            "{:>8} {:>12} {:>12}  {:<27} {:<27} transactions",
            "file",
            "count",
            "bytes",
            "first commit",
            "last commit"
        );
        for number in history.objects().await.map_err(failure)?.numbers {
            let Some(file) = history.index(number).await.map_err(failure)? else { continue };
            if !file.missing.is_empty() {
                say!("{:>8} {} missing: {}", "gap", file.missing.count(), file.missing.brief());
            }
            say!(
                "{:>8} {:>12} {:>12}  {:<27} {:<27} {}",
                file.number,
                file.transactions,
                file.stored_bytes,
                file.first_committed,
                file.last_committed,
                file.added.brief()
            );
        }
    }
    Ok(())
}

/// Counts what was read, and what is wrong with it.
#[derive(Default)]
struct Verified {
    files: u64,
    transactions: u64,
    faults: u64,
}

impl Verified {
    fn fault(&mut self, what: &str) {
        self.faults += 1;
        say!("{what}");
    }
}

async fn verify(archive: &Archive, wanted: Option<&str>) -> Result<(), Failure> {
    let mut verified = Verified::default();
    for history in histories(archive, wanted).await? {
        let mut before: Option<FileIndex> = None;
        for number in history.objects().await.map_err(failure)?.numbers {
            let Some(file) = history.index(number).await.map_err(failure)? else { continue };
            if let Some(why) = before.as_ref().and_then(|before| index::follows(before, &file)) {
                verified.fault(&format!("history {}: {why}", history.name));
            }
            if !file.missing.is_empty() {
                let (count, missing) = (file.missing.count(), file.missing.brief());
                verified.fault(&format!(
                    "history {}: a gap of {} before file {number}: {missing}",
                    history.name,
                    counted(count, "transaction")
                ));
            }
            match read(&history, file.clone()).await {
                Ok(transactions) => verified.transactions += transactions,
                Err(ArchiveError::Damaged { what, .. }) => verified.fault(&what),
                Err(error) => return Err(failure(error)),
            }
            verified.files += 1;
            before = Some(file);
        }
    }
    for (name, pin) in archive.pins().await.map_err(failure)? {
        if let Some(why) = lost(archive, &pin.gtid_set).await? {
            verified.fault(&format!("pin {name}: {why}"));
        }
    }
    let Verified { files, transactions, faults } = verified;
    say!("{} with {} read", counted(files, "file"), counted(transactions, "transaction"));
    match faults {
        0 => Ok(()),
        faults => Err(Failure::Runtime(format!("archive: {} found", counted(faults, "fault")))),
    }
}

/// Reads a file to its end, which checks its bytes, and compares its transactions with its index.
async fn read(history: &ArchivedHistory, file: FileIndex) -> Result<u64, ArchiveError> {
    let mut reader = FileReader::open(history, file).await?;
    let mut found = GtidSet::new();
    let mut transactions = 0;
    while let Some(event) = reader.next().await? {
        if let Ok(header) = TransactionHeader::parse(&event) {
            found.add(&header.gtid);
            transactions += 1;
        }
    }
    let index = reader.index();
    if found != index.added || transactions != index.transactions {
        return Err(history.archive().damaged(format!(
            "file {}/{} holds {transactions} transactions, {}; its index says {}, {}",
            history.name,
            index.file,
            found.brief(),
            index.transactions,
            index.added.brief()
        )));
    }
    Ok(transactions)
}

async fn export(archive: &Archive, wanted: Option<&str>, directory: &Path) -> Result<(), Failure> {
    let of = |error: std::io::Error| Failure::Runtime(format!("{}: {error}", directory.display()));
    let histories = histories(archive, wanted).await?;
    let [history] = &histories[..] else {
        let names: Vec<_> = histories.iter().map(|history| history.name.as_str()).collect();
        // A server would apply transactions of one after those of another.
        return Err(Failure::Input(format!(
            "--history is missing: archive {} has several, which may have different transactions under the same \
             GTIDs: {}",
            archive.url(),
            names.join(", ")
        )));
    };
    std::fs::create_dir_all(directory).map_err(of)?;
    let mut files = 0;
    for number in history.objects().await.map_err(failure)?.numbers {
        let Some(file) = history.index(number).await.map_err(failure)? else { continue };
        // So many digits that the order of the names is that of the files also for a shell.
        let path = directory.join(format!("{}.{number:08}", history.name));
        let mut out = File::create_new(&path)
            .map_err(|error| Failure::Runtime(format!("{}: {error}", path.display())))?;
        let mut reader = FileReader::open(history, file).await.map_err(failure)?;
        while !reader.is_over() {
            let bytes = reader.next_bytes().await.map_err(failure)?;
            out.write_all(&bytes).map_err(of)?;
        }
        out.sync_all().map_err(of)?;
        files += 1;
    }
    say!("{} written to {}", counted(files, "binary log"), directory.display());
    Ok(())
}

/// Returns what the archive lacks after a backup with these transactions; `None` if some history follows it.
async fn lost(archive: &Archive, backup: &GtidSet) -> Result<Option<String>, Failure> {
    let mut lost = None;
    for history in histories(archive, None).await? {
        let first = match history.objects().await.map_err(failure)?.numbers.first() {
            Some(&first) => history.index(first).await.map_err(failure)?,
            None => None,
        };
        let before = match first {
            Some(first) => first.before,
            None => history.begins_after().await.map_err(failure)?,
        };
        let missing = before.difference(backup);
        if missing.is_empty() {
            return Ok(None);
        }
        lost = Some(format!(
            "no history follows the backup; {} begins after {}, which neither has. Make a new backup, and pin that one",
            history.name,
            missing.brief()
        ));
    }
    Ok(lost)
}

async fn pin(archive: &Archive, name: &str, gtid_set: &GtidSet) -> Result<(), Failure> {
    if let Some(why) = lost(archive, gtid_set).await? {
        return Err(Failure::Runtime(format!("pin {name}: {why}")));
    }
    let written = rfc3339(now_micros());
    let pin = Pin { format: FORMAT, gtid_set: gtid_set.clone(), written };
    match archive.pin(name, &pin).await.map_err(failure)? {
        true => say!("pinned {name}: everything after {} stays", gtid_set.brief()),
        false => {
            return Err(Failure::Runtime(format!(
                "there is a pin {name} already; csa-daemon archive unpin removes it"
            )));
        }
    }
    Ok(())
}

async fn pins(archive: &Archive) -> Result<(), Failure> {
    for (name, pin) in archive.pins().await.map_err(failure)? {
        say!("{name}  {}  {}", pin.written, pin.gtid_set.brief());
    }
    Ok(())
}

async fn unpin(archive: &Archive, name: &str) -> Result<(), Failure> {
    match archive.unpin(name).await.map_err(failure)? {
        true => say!("removed the pin {name}"),
        false => return Err(Failure::Runtime(format!("there is no pin {name}"))),
    }
    Ok(())
}
