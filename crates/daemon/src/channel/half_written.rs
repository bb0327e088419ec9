//! The transaction of which a part may be on the target, on disk. Under the source's GTIDs no binary log has its entry in
//! `csa.statement`, so a replica of the target that takes over has the part and its GTID alone.

use std::fs;
use std::path::Path;

use csa_applier::Error;
use csa_provider::binlog::Gtid;
use csa_relaystore::disk::create_private_folder;
use tracing::warn;

use crate::host::replaced_file::replace_synced;

const FILE: &str = "half_written";

/// Returns the transaction in the channel's `directory`, if there is one.
pub(super) fn read(directory: &Path) -> Option<Gtid> {
    fs::read_to_string(directory.join(FILE)).ok()?.trim().parse().ok()
}

/// Keeps the transaction of an error that leaves a part of it.
pub(super) fn keep(directory: &Path, error: &Error) {
    let Some(gtid) = error.gtid().filter(|_| error.is_half_way()) else { return };
    let path = directory.join(FILE);
    let written = create_private_folder(directory)
        .and_then(|()| replace_synced(&path, gtid.to_string().as_bytes()));
    if let Err(error) = written {
        let path = path.display();
        warn!(%path, %error, %gtid, "a replica of the target that takes over is not asked about its rows");
    }
}

/// Removes it: the target has the transaction as a whole, or an operator has decided.
pub(super) fn forget(directory: &Path) {
    // Left in place, it is asked about once more at most.
    drop(fs::remove_file(directory.join(FILE)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_transaction_that_is_half_there_is_kept() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let directory = folder.path().join("shop");
        let gtid = "3e11fa47-71ca-11e1-9e33-c80aa9429562:5";
        let unsupported =
            Error::Unsupported { gtid: gtid.to_owned(), what: "something".to_owned() };
        keep(&directory, &unsupported);
        assert_eq!(read(&directory), None);
        let half = Error::PartlyDone { gtid: gtid.to_owned(), if_done: String::new() };
        keep(&directory, &half);
        assert_eq!(read(&directory), Some(gtid.parse().expect("a GTID")));
        forget(&directory);
        assert_eq!(read(&directory), None);
    }
}
