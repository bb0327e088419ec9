//! Sessions on the target, executing groups, checkpoint, retries and fencing.
