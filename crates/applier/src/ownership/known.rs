//! The part of a source's history that the target has, for readers that hold no channel.

use csa_provider::binlog::GtidSet;
use csa_provider::source::{Foreign, Known};

use crate::error::Result;
use crate::ownership::channel_record::{self, ChannelRecord};
use crate::server::facts;
use crate::server::session::Session;
use crate::server::target::Target;

/// Returns everything that the target has executed of `channel`. Before its first start that is
/// what the copy came with: everything that the target did not commit itself.
///
/// # Errors
/// The target is away, or refuses.
pub async fn known_of(target: &Target, channel: &str) -> Result<Known> {
    let mut session = Session::connect(&target.with_own_gtids()).await?;
    let channels = channel_record::read_all(&mut session).await?;
    let server = facts::server_uuid(&mut session).await?;
    let own_uuids = facts::own_uuids(server, &target.route);
    let own = channels.iter().find(|record| record.channel == channel);
    let checkpoint = own.and_then(|record| record.checkpoint.as_ref());
    let known = match checkpoint {
        Some(checkpoint) => Known {
            received: checkpoint.executed.clone(),
            foreign: channel_record::foreign(
                channel,
                own.and_then(ChannelRecord::followed),
                &own_uuids,
                None,
                &channels,
            ),
        },
        None => {
            let executed: GtidSet = facts::executed(&mut session).await?;
            let foreign = Foreign { own: own_uuids, is_undecided: true, ..Foreign::default() };
            Known { received: executed, foreign }
        }
    };
    session.close().await;
    Ok(known)
}
