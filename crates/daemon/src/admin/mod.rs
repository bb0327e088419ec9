//! The admin port: routes and rights, the status page, and the record of who gave which command.

pub(crate) mod api;
mod audit;
mod page;
