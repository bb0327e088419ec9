//! Opens a store, and tells before what opening would find.

mod loss;
pub(crate) mod store;
pub(crate) mod survey;

pub use loss::Loss;
pub use store::RelayStore;
pub use survey::{RelayContents, RelaySurvey, contents, survey};
