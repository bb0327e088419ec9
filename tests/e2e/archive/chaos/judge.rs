//! The judgement: what the source has committed in each of its histories is in the archive's files, once and as the source
//! wrote it, or the archive says that it is missing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Command;

use csa_provider::binlog::{GtidSet, Uuid};
use csa_tests::{Daemon, Server, compare};
use serde_json::Value;

use super::binlog::transactions;
use super::store::KEYS;
use super::world::{World, gno};
use crate::DRAIN;
use crate::archive::{files, into, mysqlbinlog};

/// Files that one mysqlbinlog reads.
const BATCH: usize = 50;

/// A time in which the source counts its transactions from 1, and the history of the archive that belongs to it.
#[derive(Debug)]
struct Era {
    uuid: Uuid,
    /// Digests of all transactions that are in the source's binary logs, by their numbers.
    committed: BTreeMap<u64, u64>,
    /// Binary logs of the source that are counted already.
    counted: BTreeSet<String>,
    permits_gaps: bool,
    /// Numbers that the archive may lack, as faults made it so.
    permitted: Vec<RangeInclusive<u64>>,
    /// Numbers that the archive lacks by its own account, and how many gaps they are.
    missing: BTreeSet<u64>,
    gaps: u64,
}

/// A file of the archive as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Read {
    index: String,
    length: u64,
    /// Numbers and digests.
    transactions: Vec<(u64, u64)>,
}

#[derive(Debug, Default)]
pub(super) struct Judge {
    eras: Vec<Era>,
    read: HashMap<PathBuf, Read>,
    pub(super) judgements: u64,
    pub(super) restores: u64,
}

/// Sums for the report.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) histories: usize,
    pub(super) files: usize,
    pub(super) bytes: u64,
    pub(super) committed: usize,
    pub(super) gaps: u64,
    pub(super) missing: u64,
}

impl fmt::Display for Totals {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { histories, files, bytes, committed, gaps, missing } = self;
        write!(
            formatter,
            "{committed} transactions in {histories} histories, {files} files with {bytes} bytes, \
             {gaps} gaps of {missing} transactions"
        )
    }
}

impl Judge {
    pub(super) fn begins(&mut self, uuid: &str, permits_gaps: bool) {
        self.eras.push(Era {
            uuid: uuid.parse().expect("a UUID"),
            committed: BTreeMap::new(),
            counted: BTreeSet::new(),
            permits_gaps,
            permitted: Vec::new(),
            missing: BTreeSet::new(),
            gaps: 0,
        });
    }

    fn era(&mut self) -> &mut Era {
        self.eras.last_mut().expect("an era")
    }

    pub(super) fn permits_gaps(&mut self) -> bool {
        self.era().permits_gaps
    }

    /// The archive may lack some of these.
    pub(super) fn permit(&mut self, numbers: RangeInclusive<u64>) {
        self.era().permitted.push(numbers);
    }

    pub(super) fn totals(&self) -> Totals {
        Totals {
            histories: self.eras.len(),
            files: self.read.len(),
            bytes: self.read.values().map(|read| read.length).sum(),
            committed: self.eras.iter().map(|era| era.committed.len()).sum(),
            gaps: self.eras.iter().map(|era| era.gaps).sum(),
            missing: self.eras.iter().map(|era| era.missing.len() as u64).sum(),
        }
    }

    /// Counts what is in the source's binary logs but the one that it writes. Returns that one's name.
    pub(super) async fn count(&mut self, source: &Server) -> String {
        let mut conn = source.conn().await;
        let logs: Vec<mysql_async::Row> =
            mysql_async::prelude::Queryable::query(&mut conn, "SHOW BINARY LOGS")
                .await
                .expect("logs");
        let mut names: Vec<String> = logs.iter().map(|row| row.get(0).expect("a name")).collect();
        let last = names.pop().expect("a binary log");
        let era = self.era();
        for name in names {
            if !era.counted.insert(name.clone()) {
                continue;
            }
            let path = source.data_to_read().join(&name);
            for logged in transactions(&std::fs::read(&path).expect("readable"), &path) {
                assert_eq!(logged.uuid, era.uuid, "{name}");
                let before = era.committed.insert(logged.gno, logged.digest);
                assert_eq!(before, None, "the source has {} twice", logged.gno);
            }
        }
        last
    }

    /// Reads what is new in a history. Returns its indexes with their transactions, in order.
    fn history(&mut self, folder: &Path, uuid: Uuid) -> Vec<(Value, Vec<(u64, u64)>)> {
        let mut fresh: Vec<(PathBuf, Vec<u64>)> = Vec::new();
        let unpacked = super::folder();
        let mut found = Vec::new();
        for path in files(folder) {
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("readable");
            let index: Value = serde_json::from_str(&text).expect("an index");
            let file = folder.join(index["file"].as_str().expect("a name"));
            let length = std::fs::metadata(&file).map_or(0, |meta| meta.len());
            let read =
                self.read.get(&path).filter(|read| read.index == text && read.length == length);
            let read = read.cloned().unwrap_or_else(|| {
                let stored = std::fs::read(&file);
                let stored = stored.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
                let is_packed = index["compression"] == "zstd";
                let bytes = if is_packed { zstd::decode_all(&stored[..]) } else { Ok(stored) };
                let bytes = bytes.expect("zstd");
                let held = transactions(&bytes, &file);
                assert!(held.iter().all(|logged| logged.uuid == uuid), "{}", file.display());
                let plain = match is_packed {
                    true => {
                        unpacked.path().join(path.with_extension("").file_name().expect("a name"))
                    }
                    false => file.clone(),
                };
                if is_packed {
                    std::fs::write(&plain, bytes).expect("written");
                }
                fresh.push((plain, held.iter().map(|logged| logged.gno).collect()));
                let transactions = held.iter().map(|logged| (logged.gno, logged.digest)).collect();
                let read = Read { index: text, length, transactions };
                self.read.insert(path.clone(), read.clone());
                read
            });
            found.push((index, read.transactions));
        }
        for batch in fresh.chunks(BATCH) {
            let (plain, held): (Vec<_>, Vec<_>) = batch.iter().cloned().unzip();
            let prefix = format!("SET @@SESSION.GTID_NEXT= '{uuid}:");
            let text = mysqlbinlog(&plain);
            let number = |line: &str| line.strip_prefix(&prefix)?.split('\'').next()?.parse().ok();
            let shown: Vec<u64> = text.lines().filter_map(number).collect();
            assert_eq!(shown, held.concat(), "mysqlbinlog reads other transactions in {plain:?}");
        }
        found
    }

    /// Judges the history of an era, which the source has committed up to `last` so far.
    fn judge(&mut self, number: usize, folder: &Path, last: u64) {
        let uuid = self.eras[number].uuid;
        let found = self.history(folder, uuid);
        let era = &mut self.eras[number];
        let name = folder.display();
        assert!(era.committed.keys().copied().eq(1..=last), "the source's logs hold all to {last}");
        let (mut end, mut archived, mut missing) =
            (GtidSet::new(), BTreeSet::new(), BTreeSet::new());
        era.gaps = 0;
        for (at, (index, held)) in found.iter().enumerate() {
            let set = |key: &str| index[key].as_str().unwrap_or_default().parse::<GtidSet>();
            let set = |key: &str| set(key).expect("a GTID set");
            let (before, added, lacks) = (set("before"), set("added"), set("missing"));
            assert_eq!(index["number"], at + 1, "{name}: {index}");
            era.gaps += u64::from(!lacks.is_empty());
            missing.extend((1..=last).filter(|gno| contains(&lacks, uuid, *gno)));
            end.union(&lacks);
            assert_eq!(before, end, "{name}: file {} begins elsewhere", at + 1);
            for (gno, digest) in held {
                assert!(contains(&added, uuid, *gno), "{name}: {gno} is not in {index}");
                assert!(archived.insert(*gno), "{name}: {gno} is there twice");
                let written = era.committed.get(gno);
                assert_eq!(Some(digest), written, "{name}: {gno} is not what the source wrote");
            }
            assert_eq!(added.count(), held.len() as u64, "{name}: {index}");
            end.union(&added);
        }
        let unknown: Vec<u64> = (1..=last)
            .filter(|gno| !archived.contains(gno) && !missing.contains(gno))
            .take(20)
            .collect();
        assert!(
            unknown.is_empty(),
            "{name}: {unknown:?} and perhaps more are missing, and no file says so"
        );
        let both: Vec<&u64> = archived.intersection(&missing).take(20).collect();
        assert!(both.is_empty(), "{name}: {both:?} are missing by its account, and there");
        let is_permitted = |gno: &u64| era.permitted.iter().any(|range| range.contains(gno));
        let wrong: Vec<&u64> = missing.iter().filter(|gno| !is_permitted(gno)).take(20).collect();
        assert!(wrong.is_empty(), "{name}: {wrong:?} are missing without a reason");
        assert_eq!(
            archived.last().max(missing.last()).copied().unwrap_or_default(),
            last,
            "{name}"
        );
        era.missing = missing;
    }

    /// Returns the folders of the histories, in order.
    fn histories(root: &Path) -> Vec<PathBuf> {
        let channel = root.join("test");
        let name = |mark: &PathBuf| {
            let text = std::fs::read_to_string(mark).expect("readable");
            let mark: Value = serde_json::from_str(&text).expect("a mark");
            channel.join(mark["history"].as_str().expect("a name"))
        };
        files(&channel.join("histories")).iter().map(name).collect()
    }
}

fn contains(set: &GtidSet, uuid: Uuid, gno: u64) -> bool {
    set.contains(&csa_provider::binlog::Gtid {
        uuid,
        tag: csa_provider::binlog::Tag::untagged(),
        gno,
    })
}

/// Runs a command with the keys of the store.
fn commanded(daemon: &Daemon, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(Daemon::executable())
        .arg("--config")
        .arg(daemon.config_path())
        .args(arguments)
        .envs(KEYS)
        .output()
        .expect("running csa-daemon");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Judges everything while nobody writes. Restores the present era into an empty server if that is asked for.
pub(super) async fn judge(world: &mut World, restores: bool) {
    let World { source, target, .. } = &*world;
    source.exec("FLUSH BINARY LOGS").await;
    world.daemon().wait_drained(source, target, DRAIN).await;
    world.recovered("all faults").await;
    let World { source, target, judge, store, .. } = &mut *world;
    judge.count(source).await;
    let last = gno(&source.gtid_executed().await);
    let folders = Judge::histories(&store.root());
    assert_eq!(folders.len(), judge.eras.len(), "each era has one history: {folders:?}");
    let present = folders.len() - 1;
    for (number, folder) in folders.iter().enumerate() {
        let own = judge.eras[number].committed.len() as u64;
        judge.judge(number, folder, if number == present { last } else { own });
    }
    compare(source, target).await;
    judge.judgements += 1;
    let (era, totals) = (&judge.eras[present], judge.totals());
    let (missing, uuid) = (era.missing.first().copied(), era.uuid);
    let (code, out, error) = commanded(world.daemon(), &["archive", "verify"]);
    let said_gaps = out.matches("a gap of").count() as u64;
    let expected = (Some(i32::from(totals.gaps > 0)), totals.gaps);
    assert_eq!((code, said_gaps), expected, "{out}{error}");
    let there = totals.committed as u64 - totals.missing;
    let said = format!("{} files with {there} transactions read", totals.files);
    assert!(out.contains(&said), "not {said:?}: {out}");
    if restores {
        let history = folders[present].file_name().expect("a name").to_string_lossy().into_owned();
        restored(world, &history, missing, uuid, last).await;
    }
}

/// Restores a history into an empty server, as far as it goes.
async fn restored(world: &mut World, history: &str, missing: Option<u64>, uuid: Uuid, last: u64) {
    let server = Server::start("restored", &[]);
    let run = |more: &[&str]| {
        let mut arguments = into(&server);
        arguments.extend(["--history", history].map(str::to_owned));
        let arguments: Vec<&str> =
            arguments.iter().map(String::as_str).chain(more.iter().copied()).collect();
        tokio::task::block_in_place(|| commanded(world.daemon(), &arguments))
    };
    let (code, out, error) = run(&[]);
    match missing {
        None => {
            assert_eq!(code, Some(0), "{out}{error}");
            assert!(out.contains(&format!(" has {uuid}:1-{last}")), "{out}");
            compare(&world.source, &server).await;
        }
        Some(first) => {
            assert_ne!(code, Some(0), "{out}");
            assert!(error.contains("transactions are missing before"), "{error}");
            let until = format!("{uuid}:1-{}", first - 1);
            let (code, out, error) = run(&["--until", &until]);
            assert_eq!(code, Some(0), "{out}{error}");
            assert!(out.contains(&format!(" has {until}")), "{out}");
        }
    }
    world.judge.restores += 1;
}
