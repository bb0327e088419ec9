//! The simulated world: the product's own code in one thread, with virtual time, between a source, a target
//! and a disk that are models and fail as the world wishes. One seed, one run.

mod applying;
mod branches;
mod chain;
mod definitions;
mod durable;
mod environment;
mod faults;
mod history;
mod life;
mod operator;
mod oracle;
mod planted;
mod receiving;
mod refusals;
mod seeds;
mod source;
mod target;
