//! The archive: a channel's stream in an object store, as binary log files with an index.
//!
//! ```text
//! upload/     the task of a channel that fills the archive, and deletes what is too old
//!   |
//! replay/     the archive, or a directory of binary logs, as a recording that a channel receives
//!   |
//! store.rs    what lies in the object store, and how it is read and written
//!   |
//! layout.rs, index.rs    names and contents of objects (pure)
//! ```

pub(crate) mod index;
mod layout;
pub(crate) mod replay;
pub(crate) mod store;
pub(crate) mod upload;
