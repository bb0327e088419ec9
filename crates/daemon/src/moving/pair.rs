//! The two channels between which applications move, by their settings and by what the servers say.

use csa_applier::{Target, TargetGtids};
use csa_provider::server::link::Side;

use super::decide::ServerAccess;
use super::fence::Fence;
use super::journal::Direction;
use super::server::Server;
use crate::config::{ChannelSettings, Config, FenceMeans, MoveSettings};
use crate::host::Failure;
use crate::verify::{VerifySession, source_servers};

/// The channels of a move. `up` leads from the old server to the new one, `down` back.
#[derive(Debug)]
pub(crate) struct Pair<'a> {
    pub(crate) up: &'a ChannelSettings,
    pub(crate) down: &'a ChannelSettings,
    pub(crate) settings: &'a MoveSettings,
}

impl<'a> Pair<'a> {
    /// Finds the pair in the configuration.
    ///
    /// # Errors
    /// Names the key that is missing or wrong.
    pub(crate) fn of(config: &'a Config, channel: Option<&str>) -> Result<Self, Failure> {
        let of = |channel: &'a ChannelSettings| Some((channel, channel.moving.as_ref()?));
        let mut found: Vec<_> = config.channels.iter().filter_map(of).collect();
        if let Some(name) = channel {
            found.retain(|(channel, _)| channel.name == name);
        }
        let (up, settings) = match found[..] {
            [one] => one,
            [] => {
                let which =
                    channel.map_or("no channel".to_owned(), |name| format!("channel {name}"));
                return Err(Failure::Input(format!(
                    "{which} has no move.back; set [channel.move] back = \"NAME\" in the channel that \
                     leads to the new server"
                )));
            }
            _ => {
                let names: Vec<&str> = found.iter().map(|(channel, _)| &*channel.name).collect();
                let names = names.join(", ");
                return Err(Failure::Input(format!("name one with --channel: {names}")));
            }
        };
        let wrong = |why: String| Failure::Input(format!("channel {}: {why}", up.name));
        let down = config.channels.iter().find(|channel| channel.name == settings.back);
        let down = down.ok_or_else(|| wrong(format!("move.back: no channel {}", settings.back)))?;
        if down.name == up.name {
            return Err(wrong(format!("move.back: {} is the channel itself", down.name)));
        }
        let has_programs =
            !settings.hand_over.is_empty() || matches!(settings.fence, FenceMeans::Command(_));
        for channel in [up, down] {
            channel.check_target("move").map_err(Failure::Input)?;
            let has_others = !channel.source.failover.is_empty()
                || channel.source.group.is_some()
                || channel.target.route.discovers()
                || channel
                    .written
                    .0
                    .get("target")
                    .is_some_and(|keys| keys.get("failover").is_some());
            if has_others {
                return Err(Failure::Input(format!(
                    "channel {}: failover and discover: not together with move, which fences one server; \
                     leave them out until the move has ended",
                    channel.name
                )));
            }
            if has_programs && channel.target.socket.is_some() {
                return Err(Failure::Input(format!(
                    "channel {}: target.socket: not together with move.hand_over and move.fence_command, which \
                     get host and port of the servers; set these instead",
                    channel.name
                )));
            }
            if channel.target.gtids == TargetGtids::Mirror {
                return Err(Failure::Input(format!(
                    "channel {}: applier.target_gtids: \"mirror\" keeps rows out of the binary log, where the \
                     channel back looks for them; set \"own\"",
                    channel.name
                )));
            }
        }
        Ok(Self { up, down, settings })
    }

    pub(crate) fn fence(&self) -> Fence {
        Fence { means: self.settings.fence.clone(), timeout: self.settings.command_timeout }
    }

    /// Returns the channel that applies what the applications write before a move, and the one for afterwards.
    pub(crate) fn channels(&self, direction: Direction) -> [&'a ChannelSettings; 2] {
        match direction {
            Direction::CutOver => [self.up, self.down],
            Direction::Back => [self.down, self.up],
        }
    }

    /// Returns the server that the applications leave, and the one they move to. The accounts are those with which
    /// channels write.
    pub(crate) fn servers(&self, direction: Direction) -> [Target; 2] {
        match direction {
            Direction::CutOver => [self.down.target.clone(), self.up.target.clone()],
            Direction::Back => [self.up.target.clone(), self.down.target.clone()],
        }
    }
}

/// Checks that each channel reads from the server to which the other one writes.
///
/// # Errors
/// A server does not answer, or is another one.
pub(crate) async fn check_servers(
    forward: &ChannelSettings,
    reverse: &ChannelSettings,
    from: &Server,
    to: &Server,
) -> Result<(), Failure> {
    if from.identity.uuid == to.identity.uuid {
        return Err(Failure::Input(format!(
            "{} and {} are the same server",
            from.address(),
            to.address()
        )));
    }
    for (channel, other, server) in [(forward, reverse, from), (reverse, forward, to)] {
        let sources = source_servers(&channel.source);
        let Some(source) = sources.first() else { continue };
        let session = VerifySession::connect(Side::Source, source).await;
        let mut session = session.map_err(|error| Failure::Runtime(error.to_string()))?;
        let uuid = session.rows::<String>("SELECT @@GLOBAL.server_uuid").await;
        let uuid = uuid.map_err(|error| Failure::Runtime(error.to_string()))?.concat();
        session.close().await;
        if uuid != server.identity.uuid {
            return Err(Failure::Input(format!(
                "move.back: channel {} reads from {} ({uuid}), and channel {} writes to {} ({}); the two \
                 channels of a move join the same two servers",
                channel.name,
                source.address(),
                other.name,
                server.address(),
                server.identity.uuid
            )));
        }
    }
    Ok(())
}

/// Returns an access in words.
pub(crate) const fn said(access: Option<ServerAccess>) -> &'static str {
    match access {
        None => "does not answer",
        Some(ServerAccess::Open) => "takes writes of applications",
        Some(ServerAccess::Following) => "takes writes from channels only",
        Some(ServerAccess::Closed) => "takes no writes",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::MINIMAL;

    #[test]
    fn programs_get_no_address_of_a_server_behind_a_socket() {
        let refused = |keys: &str, socket: &str| {
            let back = MINIMAL.replace("\"orders\"", "\"back\"");
            let text = format!("{MINIMAL}[channel.move]\nback = \"back\"\n{keys}\n{back}{socket}");
            let config = Config::parse(&text).expect("valid");
            Pair::of(&config, None).err().map(|error| error.to_string())
        };
        let socket = "socket = \"/run/mysqld/mysqld.sock\"\n";
        let programs =
            ["hand_over = [\"/bin/a\"]", "fence = \"command\"\nfence_command = [\"/bin/a\"]"];
        for program in programs {
            let why = refused(program, socket).unwrap_or_default();
            assert!(why.starts_with("channel back: target.socket"), "{why}");
            assert_eq!(refused(program, ""), None);
        }
        assert_eq!(refused("", socket), None);
    }
}
