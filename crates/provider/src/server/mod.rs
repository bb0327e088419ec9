//! A server as its client: the link and its errors, the product, and the facts by which rules judge it.

pub mod ask;
pub mod by_hand;
pub(crate) mod environment;
pub mod facts;
mod finding;
pub(crate) mod grants;
pub mod group;
pub mod link;
pub(crate) mod product;
mod vendor;
mod version;
pub mod visible;

pub use environment::Environment;
pub use facts::ServerFacts;
pub use finding::{Finding, Fix, Level, Place};
pub use grants::{Grants, account_name};
pub use link::TlsMode;
pub use product::{Product, unsupported_source, unsupported_target};
pub use vendor::Vendor;
pub use version::Version;
