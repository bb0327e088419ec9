//! Statements of a MySQL source on a MariaDB target.

pub(super) mod context;
