//! The simulated world: the applier's own code in one thread, with virtual time, on a target that is a model
//! and fails as the world wishes. One seed, one run.

mod applying;
mod target;
