//! The server that a session has reached, and what fits one packet to it.

use csa_provider::server::link::LinkError;
use csa_provider::server::{Vendor, Version};

use crate::error::Error;

const ER_NET_PACKET_TOO_LARGE: u16 = 1153;
/// The largest `max_allowed_packet`.
const PACKET_MAX: usize = 1 << 30;
/// The first version of MySQL that keeps CHECK clauses.
pub(crate) const FIRST_CHECKS: u32 = 80_016;
/// The first version of MySQL that takes time zones from -13:59 to +14:00.
const FIRST_WIDE_OFFSETS: u32 = 80_019;

/// The name, kind and limits of a session's server.
#[derive(Debug)]
pub(crate) struct ReachedServer {
    /// Its name in messages.
    pub(super) address: String,
    pub(super) vendor: Vendor,
    /// `@@version`.
    pub(super) version: String,
    /// Bytes that it takes in one packet.
    pub(super) max_allowed_packet: usize,
}

impl ReachedServer {
    /// Returns a server that was not asked anything yet.
    pub(super) fn at(address: String) -> Self {
        Self {
            address,
            vendor: Vendor::default(),
            version: String::new(),
            max_allowed_packet: usize::MAX,
        }
    }

    /// Returns the error for an answer that a server of this kind does not give.
    pub(crate) fn unexpected(&self, what: impl Into<String>) -> Error {
        Error::Answer { address: self.address.clone(), what: what.into() }
    }

    pub(crate) fn vendor(&self) -> Vendor {
        self.vendor
    }

    /// Returns the number of a version as version comments have it, such as 80031.
    pub(crate) fn version_id(&self) -> u32 {
        let [major, minor, patch] = csa_provider::binlog::version_numbers(&self.version);
        major * 10_000 + minor * 100 + patch
    }

    /// Returns true if CHECK in the definition of a table makes a constraint.
    pub(crate) fn keeps_checks(&self) -> bool {
        self.vendor == Vendor::MariaDb || self.version_id() >= FIRST_CHECKS
    }

    /// Returns true if the server makes cascades itself, unless `innodb_native_foreign_keys` is on.
    pub(crate) fn cascades_itself(&self) -> bool {
        Version::parse(&self.version).cascades_itself()
    }

    /// Returns true if a session's time zone can be an offset beyond -12:59 or +13:00.
    pub(crate) fn takes_wide_offsets(&self) -> bool {
        self.vendor != Vendor::MariaDb && self.version_id() >= FIRST_WIDE_OFFSETS
    }

    /// Returns true if REFERENCES in the definition of a column makes a foreign key.
    pub(crate) fn takes_inline_references(&self) -> bool {
        self.vendor == Vendor::MariaDb
            || csa_provider::binlog::version_numbers(&self.version)[0] >= 9
    }

    /// Returns the bytes of row images or of statements that fit one packet beside the opening of a group.
    pub(crate) fn packet_bytes(&self) -> usize {
        // BASE64 takes 4/3 of the images, and the opening states a whole GTID set.
        self.max_allowed_packet / 2
    }

    /// The server would answer a larger packet by closing the connection, which would look like an
    /// outage for ever.
    pub(super) fn check_packet(&self, bytes: usize) -> std::result::Result<(), LinkError> {
        let limit = self.max_allowed_packet;
        if bytes < limit {
            return Ok(());
        }
        let remedy = match limit < PACKET_MAX {
            true => format!(
                "run there: {} max_allowed_packet={PACKET_MAX}, then restart the channel",
                self.vendor.set()
            ),
            false => {
                "no server takes more; if rows go there as row images (BASE64), set [channel.applier] \
                 executor = \"sql\" until it is applied; otherwise skip the transaction"
                    .to_owned()
            }
        };
        Err(LinkError::Server {
            code: ER_NET_PACKET_TOO_LARGE,
            message: format!(
                "a row needs a packet of {bytes} bytes, but the target's max_allowed_packet is \
                 {limit}; {remedy}"
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_that_no_server_takes_needs_another_executor() {
        let said = |limit: usize| {
            let server =
                ReachedServer { max_allowed_packet: limit, ..ReachedServer::at("db".to_owned()) };
            assert!(server.check_packet(limit - 1).is_ok());
            server.check_packet(limit).expect_err("too large").to_string()
        };
        let (small, largest) = (said(PACKET_MAX / 2), said(PACKET_MAX));
        assert!(small.contains("SET PERSIST max_allowed_packet=1073741824"), "{small}");
        assert!(!largest.contains("SET PERSIST") && largest.contains("executor"), "{largest}");
        // Rows may go there as statements already.
        assert!(largest.contains("if rows go") && largest.contains("otherwise skip"), "{largest}");
    }
}
