//! A channel's replica UUID: made once, kept in its state directory.

use std::io::Write as _;
use std::path::Path;

use csa_provider::Uuid;

use super::ChannelError;

/// Reads the UUID, or makes one that survives a crash right after.
pub(super) fn replica_uuid(directory: &Path) -> Result<Uuid, ChannelError> {
    let path = directory.join("replica_uuid");
    let wrong =
        |error: &dyn std::fmt::Display| ChannelError::State(format!("{}: {error}", path.display()));
    if let Ok(text) = std::fs::read_to_string(&path) {
        return Uuid::parse_str(text.trim()).map_err(|error| wrong(&error));
    }
    let uuid = Uuid::new_v4();
    let fresh = directory.join("replica_uuid.new");
    std::fs::create_dir_all(directory)
        .and_then(|()| std::fs::File::create(&fresh))
        .and_then(|mut file| writeln!(file, "{uuid}").and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(&fresh, &path))
        .and_then(|()| std::fs::File::open(directory)?.sync_all())
        .map_err(|error| wrong(&error))?;
    Ok(uuid)
}
