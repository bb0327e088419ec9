//! A server as its client: the link and its errors, the product, the privileges of an account.

pub(crate) mod environment;
pub(crate) mod grants;
pub mod link;
pub(crate) mod product;
pub mod visible;

pub use environment::Environment;
pub use grants::{Grants, account_name};
pub use link::TlsMode;
pub use product::{Product, unsupported_source, unsupported_target};
