//! Waits for locks that sessions of others hold on the target: who holds them, and since when the channel
//! waits. A native replica waits for such a lock as long as it takes, so the channel does too: a statement
//! that ends with a lock wait timeout is repeated, and not counted (`Worker::apply_unit`,
//! `StatementExecutor::execute_once`). Locks of our own are the matter of `group/lock_inversion.rs`.

mod found_lock;
mod lookup;

pub use found_lock::{FoundLock, LockHolder, LockWait};
pub(crate) use lookup::{KNOWN_INTERVAL, PATIENCE, Seen, follow, look};
