//! The source's binary log, read by `mysqlbinlog`: the order that every sample has to be a prefix of.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use csa_provider::binlog::{Gtid, GtidSet};
use csa_tests::Server;

use crate::load::CLIENTS;
use crate::oracle::{Sample, Samples};
use crate::report::Taken;

/// A transaction, and the client whose counter it increments.
struct Transaction {
    gtid: Gtid,
    /// The client and its new count.
    counts: Option<(u64, u64)>,
}

/// All transactions of a source in the order of its binary log.
pub(crate) struct History(Vec<Transaction>);

/// Reads every binary log file of the server, which may be in use.
pub(crate) fn of(server: &Server) -> History {
    let entries = std::fs::read_dir(server.data_directory()).expect("the data directory");
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.strip_prefix("binlog.").is_some_and(|number| number.parse::<u32>().is_ok())
        })
        .collect();
    files.sort();
    let mut child = Command::new(Server::script_path())
        .args(["client", "mysqlbinlog", "--no-defaults", "--base64-output=decode-rows", "-v"])
        .args(files)
        .stdout(Stdio::piped())
        .spawn()
        .expect("running mysqlbinlog");
    let mut transactions = Vec::new();
    let mut reader = BufReader::new(child.stdout.take().expect("its output"));
    let mut counter = Counter::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line).expect("readable") == 0 {
            break;
        }
        let text = String::from_utf8_lossy(&line);
        if let Some(rest) = text.strip_prefix("SET @@SESSION.GTID_NEXT= '") {
            let gtid = rest.split('\'').next().unwrap_or_default();
            if gtid != "AUTOMATIC" {
                let gtid = gtid.parse().expect("a GTID");
                transactions.push(Transaction { gtid, counts: None });
            }
        } else if let Some(row) = text.strip_prefix("### ")
            && let (Some(counts), Some(last)) = (counter.next(row), transactions.last_mut())
        {
            assert!(last.counts.is_none(), "{} counts twice", last.gtid);
            last.counts = Some(counts);
        }
    }
    assert!(child.wait().expect("mysqlbinlog").success(), "mysqlbinlog failed");
    History(transactions)
}

/// Recognises updates of `chaos.counter` in the text of `mysqlbinlog`.
#[derive(Default)]
struct Counter {
    in_counter: bool,
    after: bool,
    client: u64,
}

impl Counter {
    /// The client and count after the change, with its last line.
    fn next(&mut self, row: &str) -> Option<(u64, u64)> {
        let row = row.trim();
        if row.starts_with("UPDATE ") || row.starts_with("INSERT ") || row.starts_with("DELETE ") {
            (self.in_counter, self.after) = (row == "UPDATE `chaos`.`counter`", false);
        } else if row == "SET" {
            self.after = true;
        } else if self.in_counter && self.after {
            let value = |column: &str| row.strip_prefix(column)?.parse().ok();
            if let Some(client) = value("@1=") {
                self.client = client;
            } else if let Some(n) = value("@2=") {
                return Some((self.client, n));
            }
        }
        None
    }
}

impl History {
    /// Every sample's checkpoint is a prefix of the history, and its counters are those after it.
    pub(crate) fn check(&self, samples: &Samples) -> Result<Taken, String> {
        let mut walk = Walk { history: &self.0, at: 0, counters: vec![0; CLIENTS as usize] };
        for (number, sample) in samples.taken.iter().enumerate() {
            if let Err(wrong) = walk.to(sample) {
                let next = self.0.get(walk.at).map(|transaction| transaction.gtid.to_string());
                return Err(format!(
                    "sample {number}: {wrong}\nit is {sample:?}\nthe history there: {:?} after {} \
                     transactions, the next is {next:?}",
                    walk.counters, walk.at
                ));
            }
        }
        if walk.at != self.0.len() {
            return Err(format!("the last sample has {} of {}", walk.at, self.0.len()));
        }
        let counted: u64 = walk.counters.iter().sum();
        Ok(Taken {
            samples: samples.taken.len(),
            missed: samples.missed,
            transactions: self.0.len(),
            counted,
        })
    }
}

struct Walk<'a> {
    history: &'a [Transaction],
    /// Transactions up to here are in the last sample.
    at: usize,
    counters: Vec<u64>,
}

impl Walk<'_> {
    fn to(&mut self, sample: &Sample) -> Result<(), String> {
        while let Some(next) = self.history.get(self.at) {
            if !sample.executed.contains(&next.gtid) {
                break;
            }
            self.at += 1;
            let Some((client, n)) = next.counts else { continue };
            let counter = &mut self.counters[client as usize - 1];
            if n != *counter + 1 {
                return Err(format!(
                    "{} counts {n} for client {client} after {counter}",
                    next.gtid
                ));
            }
            *counter = n;
        }
        // Whatever else the checkpoint has is past a transaction that it lacks.
        if sample.executed.count() != self.at as u64 {
            let mut prefix = GtidSet::default();
            for transaction in &self.history[..self.at] {
                prefix.add(&transaction.gtid);
            }
            let beyond = sample.executed.difference(&prefix);
            return Err(format!("not a prefix: {beyond} is there and an earlier one is not"));
        }
        match sample.counters == self.counters {
            true => Ok(()),
            false => Err("the rows are not those of the checkpoint".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "01010101-0101-0101-0101-010101010101";

    fn history() -> Vec<Transaction> {
        let transaction = |number: u64, counts| Transaction {
            gtid: format!("{UUID}:{number}").parse().expect("a GTID"),
            counts,
        };
        // The third is a definition.
        vec![
            transaction(1, Some((1, 1))),
            transaction(2, Some((2, 1))),
            transaction(3, None),
            transaction(4, Some((1, 2))),
        ]
    }

    fn walk(samples: &[(&str, [u64; 2])]) -> Result<(), String> {
        let history = history();
        let mut walk = Walk { history: &history, at: 0, counters: vec![0; 2] };
        samples.iter().try_for_each(|(executed, counters)| {
            let executed = format!("{UUID}:{executed}").parse().expect("a set");
            walk.to(&Sample { executed, counters: counters.to_vec() })
        })
    }

    #[test]
    fn only_prefixes_with_their_rows_pass() {
        assert_eq!(walk(&[("1", [1, 0]), ("1-2", [1, 1]), ("1-4", [2, 1])]), Ok(()));
        for (samples, words) in [
            (vec![("1:4", [2, 0])], "not a prefix"),
            (vec![("2", [0, 1])], "not a prefix"),
            (vec![("1-5", [2, 1])], "not a prefix"),
            (vec![("1", [1, 0]), ("1-2", [1, 0])], "not those of the checkpoint"),
            (vec![("1-2", [1, 1]), ("1-3", [2, 1])], "not those of the checkpoint"),
        ] {
            let wrong = walk(&samples).expect_err("wrong");
            assert!(wrong.contains(words), "{samples:?}: {wrong}");
        }
    }

    #[test]
    fn counters_are_found_in_the_text_of_mysqlbinlog() {
        let mut counter = Counter::default();
        let text = "UPDATE `chaos`.`account`\nWHERE\n  @1=7\n  @2=1000\nSET\n  @1=7\n  @2=990\n\
                    UPDATE `chaos`.`counter`\nWHERE\n  @1=3\n  @2=17\nSET\n  @1=3\n  @2=18\n";
        let found: Vec<_> = text.lines().filter_map(|line| counter.next(line)).collect();
        assert_eq!(found, [(3, 18)]);
    }
}
