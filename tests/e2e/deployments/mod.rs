//! Everything that is deployed as it is written: guides, packages, containers, manifests and alerts. `make
//! test-deployments` runs these; `make test` leaves them out.

mod alerts;
pub(crate) mod archive_s3;
mod containers;
mod files;
mod guides;
pub(crate) mod kubernetes;
mod provisioning;
