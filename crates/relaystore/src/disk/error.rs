use std::path::PathBuf;

use crate::disk::segment::RelayPosition;

/// The reason the relay store can't continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("{what} {path}: {source}")]
    Io {
        what: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("relay store {path} is in use by another process")]
    Locked { path: PathBuf },
    /// Bytes on disk differ from those written. The transaction that begins at `transaction` and
    /// all transactions after it have to be fetched again.
    #[error("relay segment {path} is damaged at byte {offset}: {what}")]
    Damaged { path: PathBuf, offset: u64, what: &'static str, transaction: RelayPosition },
    /// Not an error of the store: the transaction was followed before it was whole, and its reception was
    /// cut off, or those who followed it have given it up.
    #[error("the transaction was cut off before its end had arrived")]
    CutOff,
    #[error(
        "relay segment {path} is of format version {version}; this version reads version 1: run the version that wrote it, \
         or, once the source or the archive has all of it, delete the folder relay, and nothing beside it"
    )]
    Version { path: PathBuf, version: u16 },
}

pub type Result<T> = std::result::Result<T, Error>;

/// Names the file in an I/O error.
pub(crate) fn io(
    what: &'static str,
    path: impl Into<PathBuf>,
) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.into();
    move |source| Error::Io { what, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_of_another_version_names_all_that_may_be_deleted() {
        let error = Error::Version { path: "/state/shop/relay/1".into(), version: 2 };
        let text = error.to_string();
        assert!(text.contains("is of format version 2; this version reads version 1"), "{text}");
        assert!(text.ends_with("delete the folder relay, and nothing beside it"), "{text}");
    }
}
