//! Segment files: their bytes and names, the directory, and the disk as a trait.

pub(crate) mod directory;
pub(crate) mod error;
pub(crate) mod fs;
#[cfg(any(test, feature = "test-util"))]
pub(crate) mod memory_fs;
pub(crate) mod options;
pub(crate) mod private;
pub(crate) mod segment;

pub use error::{Error, Result};
pub use fs::{FileSystem, RealFs, StoredFile, in_place};
#[cfg(any(test, feature = "test-util"))]
pub use memory_fs::{Faults, MemoryFs};
pub use options::{RelayStoreOptions, SyncPolicy};
pub use private::{create_private_file, create_private_folder, make_private};
pub use segment::RelayPosition;
