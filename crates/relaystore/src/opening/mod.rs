//! Opens a store, and tells before what opening would find.

pub(crate) mod store;
pub(crate) mod survey;

pub use store::RelayStore;
pub use survey::{RelaySurvey, survey};
