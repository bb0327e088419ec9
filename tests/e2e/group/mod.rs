//! Group Replication as source and as target: members leave, come and are killed, and the primary changes, while the
//! channel runs.

mod promoted;
mod source;
mod target;
