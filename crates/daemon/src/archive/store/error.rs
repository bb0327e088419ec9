//! The reasons an archive can't be read or written.

/// The reason an archive can't be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArchiveError {
    /// A later attempt may succeed.
    #[error("archive {url}: {what}: {why}")]
    Away { url: String, what: String, why: String },
    /// The object there differs from the one that was written, or a later version wrote it.
    #[error("archive {url}: {what}")]
    Damaged { url: String, what: String },
    /// Another daemon has written the index of this number first.
    #[error("archive {url}: another daemon writes to it, too: file {number} is already there")]
    Overtaken { url: String, number: u64 },
    /// The transactions that are to be archived are damaged.
    #[error("relay store: {0}")]
    Relay(csa_relaystore::disk::Error),
    /// The URL or an option of it is wrong.
    #[error("{0}")]
    Location(String),
}

pub(crate) type Result<T> = std::result::Result<T, ArchiveError>;

/// Returns an error with its causes: a client's own text names none of them.
pub(super) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let said = next.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = next.source();
    }
    text
}
