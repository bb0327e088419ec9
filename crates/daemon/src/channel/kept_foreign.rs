//! The last answer of the target about foreign servers, on disk. A daemon needs it if it starts while the target is
//! away: it tells a source with another history from one of several sources of the target.

use std::fs;
use std::io;
use std::path::Path;

use csa_provider::binlog::Uuid;
use csa_provider::source::Foreign;
use csa_relaystore::disk::{create_private_folder, make_private};
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::host::replaced_file::replace_synced;

const FILE: &str = "foreign.json";

#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    servers: Vec<String>,
    is_undecided: bool,
}

/// Returns no servers where there is no file, or one that can't be read: then a source must have all that was
/// received.
pub(super) fn read(directory: &Path) -> Foreign {
    let path = directory.join(FILE);
    let Ok(text) = fs::read(&path) else { return Foreign::default() };
    make_private(&path);
    let Ok(Kept { servers, is_undecided }) = serde_json::from_slice(&text) else {
        return Foreign::default();
    };
    let servers: Result<_, _> = servers.iter().map(|text| Uuid::parse_str(text)).collect();
    servers.map_or_else(|_| Foreign::default(), |servers| Foreign { servers, is_undecided })
}

/// Replaces the file as a whole, on disk before this returns; a crash leaves the old one or the new one.
pub(super) fn write(directory: &Path, foreign: &Foreign) {
    if read(directory) == *foreign {
        return;
    }
    let path = directory.join(FILE);
    let servers = foreign.servers.iter().map(ToString::to_string).collect();
    let kept = Kept { servers, is_undecided: foreign.is_undecided };
    let written = serde_json::to_vec(&kept).map_err(io::Error::from).and_then(|text| {
        create_private_folder(directory)?;
        replace_synced(&path, &text)
    });
    if let Err(error) = written {
        let path = path.display();
        warn!(%path, %error, "after a restart nothing is received until the target answers");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_start_knows_the_same_servers() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let folder = directory.path().join("orders");
        assert_eq!(read(&folder), Foreign::default());
        for is_undecided in [true, false] {
            let servers = [Uuid::from_u128(7), Uuid::from_u128(9)].into();
            let foreign = Foreign { servers, is_undecided };
            write(&folder, &foreign);
            assert_eq!(read(&folder), foreign);
        }
        let none = Foreign::default();
        write(&folder, &none);
        assert_eq!(read(&folder), none);
    }

    #[test]
    fn a_file_that_is_no_answer_counts_as_none() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for text in ["", "{}", r#"{"servers":["x"],"is_undecided":true}"#] {
            fs::write(directory.path().join(FILE), text).expect("written");
            assert_eq!(read(directory.path()), Foreign::default(), "{text}");
        }
    }
}
