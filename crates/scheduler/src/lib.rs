//! Sequence numbers, groups and commit order, as pure state machines.
