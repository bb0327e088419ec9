//! Greeting, TLS, and the authentication plugins
//! (<https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_connection_phase.html>).
//!
//! Two plugins are supported, caching_sha2_password and mysql_native_password. Both prove that the
//! password is known without sending it. The first may still ask for it; it is then sent only over
//! a link that nobody else can read, or encrypted with an RSA key that the operator has approved.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use mysql_common::constants::CapabilityFlags;
use mysql_common::io::ParseBuf;
use mysql_common::packets::{AuthPlugin, AuthSwitchRequest, HandshakeResponse, SslRequest};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use secrecy::ExposeSecret;
use tokio_rustls::TlsConnector;

use super::greeting::{Greeting, NONCE_LEN};
use super::{
    Link, LinkError, LinkOptions, Packets, PublicKey, Purpose, Side, State, TlsMode, Transport,
    rsa, tls,
};

const MAX_PACKET: u32 = 1 << 30;
// Every version knows it; 255, the default since 8.0, is unknown to earlier ones.
const UTF8MB4_GENERAL_CI: u8 = 45;

struct Auth<'a> {
    plugin: AuthPlugin<'static>,
    nonce: Vec<u8>,
    options: &'a LinkOptions,
    encrypted: bool,
}

pub(super) async fn login(
    transport: Box<dyn Transport>,
    options: &LinkOptions,
    tls: Option<Arc<ClientConfig>>,
) -> Result<Link, LinkError> {
    let mut packets = Packets::new(transport);
    let greeting = Greeting::parse(&packets.receive_ok(None).await?)?;
    let offered = greeting.capabilities;
    // Like the server's own clients: over a Unix socket only if it was configured explicitly.
    let wanted =
        tls.filter(|_| options.tls.mode != TlsMode::Preferred || !options.endpoint.is_local());
    let encrypt = wanted.filter(|_| offered.contains(CapabilityFlags::CLIENT_SSL));
    if encrypt.is_none() && !matches!(options.tls.mode, TlsMode::Disabled | TlsMode::Preferred) {
        let side = options.side;
        return Err(LinkError::Tls(format!(
            "the {side} offers no TLS; set it up there, or set [channel.{side}] tls to \"preferred\""
        )));
    }
    let attributes = offered.contains(CapabilityFlags::CLIENT_CONNECT_ATTRS).then(attributes);
    let mut capabilities = capabilities(options.purpose) & offered;
    let encrypted = encrypt.is_some();
    if let Some(config) = encrypt {
        capabilities |= CapabilityFlags::CLIENT_SSL;
        // Before TLS only the capabilities are sent; user and proof follow encrypted.
        let request = SslRequest::new(capabilities, MAX_PACKET, UTF8MB4_GENERAL_CI);
        packets.send_struct(&request).await?;
        // A handshake that fails ends the login in every mode: trying again in the clear would let
        // anyone in between turn encryption off.
        packets = encrypt_transport(packets, config, options).await?;
    }
    // The greeting names the server's default plugin; the account's may be another, to which the
    // server then switches.
    let plugin = AuthPlugin::from_bytes(&greeting.plugin).into_owned();
    let plugin = Some(plugin).filter(is_supported).unwrap_or(AuthPlugin::CachingSha2Password);
    let mut auth = Auth { plugin, nonce: greeting.nonce, options, encrypted };
    let proof = auth.proof();
    let response = HandshakeResponse::new(
        Some(proof),
        (8, 0, 0),
        Some(options.user.as_bytes()),
        None::<&[u8]>,
        Some(auth.plugin.borrow()),
        capabilities,
        attributes,
        MAX_PACKET,
    );
    packets.send_struct(&response).await?;
    finish(&mut packets, &mut auth).await?;
    Ok(Link {
        packets,
        state: State::Idle,
        silence: options.silence,
        deprecate_eof: capabilities.contains(CapabilityFlags::CLIENT_DEPRECATE_EOF),
        connection_id: greeting.connection_id,
        server_version: greeting.server_version,
    })
}

/// Never includes LOCAL_FILES: no server gets a file from us.
fn capabilities(purpose: Purpose) -> CapabilityFlags {
    let base = CapabilityFlags::CLIENT_PROTOCOL_41
        | CapabilityFlags::CLIENT_LONG_PASSWORD
        | CapabilityFlags::CLIENT_LONG_FLAG
        | CapabilityFlags::CLIENT_TRANSACTIONS
        | CapabilityFlags::CLIENT_SECURE_CONNECTION
        | CapabilityFlags::CLIENT_PLUGIN_AUTH
        | CapabilityFlags::CLIENT_PLUGIN_AUTH_LENENC_CLIENT_DATA
        | CapabilityFlags::CLIENT_CONNECT_ATTRS
        | CapabilityFlags::CLIENT_DEPRECATE_EOF;
    match purpose {
        Purpose::Replication => base,
        Purpose::Statements => {
            base | CapabilityFlags::CLIENT_MULTI_STATEMENTS
                | CapabilityFlags::CLIENT_MULTI_RESULTS
                | CapabilityFlags::CLIENT_FOUND_ROWS
        }
    }
}

/// Returns our entries in `performance_schema.session_connect_attrs`.
fn attributes() -> HashMap<String, String> {
    let pid = std::process::id().to_string();
    [("program_name", "csa-daemon"), ("_client_version", env!("CARGO_PKG_VERSION")), ("_pid", &pid)]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

async fn encrypt_transport(
    packets: Packets,
    config: Arc<ClientConfig>,
    options: &LinkOptions,
) -> Result<Packets, LinkError> {
    let (transport, sequence) = packets.into_transport()?;
    let host = options.endpoint.host();
    let name = ServerName::try_from(host.to_owned())
        .map_err(|error| LinkError::Tls(format!("{host:?}: {error}")))?;
    let stream =
        TlsConnector::from(config).connect(name, transport).await.map_err(LinkError::Io)?;
    Ok(Packets::resume(Box::new(stream), sequence))
}

/// An error of TLS comes from one of the two sides; any other, an end included, from the network. With TLS 1.3 a server
/// refuses our certificate after the handshake, as an answer to the login.
pub(super) fn tls_error(error: std::io::Error, side: Side) -> LinkError {
    match error.get_ref().and_then(|cause| cause.downcast_ref()) {
        Some(cause) => LinkError::Tls(tls::explain(cause, side)),
        None => LinkError::Io(error),
    }
}

/// Returns false for a plugin that sends the password in the clear, and for one of another product.
/// A server may offer such a plugin first, but must then switch to one of ours.
fn is_supported(plugin: &AuthPlugin<'_>) -> bool {
    matches!(plugin, AuthPlugin::CachingSha2Password | AuthPlugin::MysqlNativePassword)
}

impl Auth<'_> {
    /// The proof for this nonce that the password is known; empty if there is no password.
    fn proof(&self) -> Vec<u8> {
        let password = self.options.password.expose_secret();
        let proof = self.plugin.gen_data(Some(password), &self.nonce);
        proof.map(|proof| proof.to_vec()).unwrap_or_default()
    }
}

/// Answers the server's requests until it sends OK. Limited, because a login has few steps.
async fn finish(packets: &mut Packets, auth: &mut Auth<'_>) -> Result<(), LinkError> {
    const STEPS_MAX: usize = 8;
    for _ in 0..STEPS_MAX {
        let packet = packets.receive_ok(None).await?;
        match packet.as_ref() {
            [0x00, ..] => return Ok(()),
            [0xfe, ..] => switch_plugin(packets, auth, &packet).await?,
            // caching_sha2_password: the server has the account in its cache.
            [0x01, 0x03] => {}
            // caching_sha2_password: it has not, and asks for the password itself.
            [0x01, 0x04] => send_password(packets, auth).await?,
            _ => return Err(LinkError::Login("unexpected packet".to_owned())),
        }
    }
    Err(LinkError::Login("the server does not complete it".to_owned()))
}

async fn switch_plugin(
    packets: &mut Packets,
    auth: &mut Auth<'_>,
    packet: &[u8],
) -> Result<(), LinkError> {
    let request: AuthSwitchRequest<'_> = ParseBuf(packet)
        .parse(())
        .map_err(|error| LinkError::Login(format!("plugin switch: {error}")))?;
    let plugin = request.auth_plugin().into_owned();
    if !is_supported(&plugin) {
        return Err(LinkError::Login(format!(
            "authentication plugin {} is not supported. If the account '{}' exists, give it caching_sha2_password or \
             mysql_native_password there. If it does not, the server names any plugin: create it \
             (config/grants-{side}.sql), or set another [channel.{side}] user",
            String::from_utf8_lossy(plugin.as_bytes()),
            auth.options.user,
            side = auth.options.side,
        )));
    }
    let nonce = request.plugin_data();
    auth.nonce = nonce.get(..NONCE_LEN).unwrap_or(nonce).to_vec();
    // A genuine server chooses 20 random bytes. A shorter nonce
    // lets an attacker use precomputed tables.
    if auth.nonce.len() < NONCE_LEN {
        return Err(LinkError::Login("plugin switch with a short nonce".to_owned()));
    }
    auth.plugin = plugin;
    packets.send(&[], &auth.proof()).await
}

/// Sends the password in the clear if nobody else can read it, else masked by the nonce and
/// encrypted with an approved RSA key.
async fn send_password(packets: &mut Packets, auth: &Auth<'_>) -> Result<(), LinkError> {
    let LinkOptions { side, tls, endpoint, .. } = auth.options;
    let mut password = auth.options.password.expose_secret().as_bytes().to_vec();
    password.push(0);
    match &tls.public_key {
        // An attacker in between can offer TLS of its own, and would get the password that the key
        // is intended to protect.
        PublicKey::Pinned(_) if auth.encrypted && !tls.mode.verifies() => {
            return Err(LinkError::Login(format!(
                "the {side} asks for the password, which public_key_file can't protect inside TLS \
                 that is not verified; set [channel.{side}] tls to \"verify-ca\" with tls_ca, or to \
                 \"disabled\""
            )));
        }
        _ if auth.encrypted || endpoint.is_local() => return packets.send(&[], &password).await,
        PublicKey::None => {
            return Err(LinkError::Login(format!(
                "the {side} asks for the password over a link that is not encrypted; set \
                 [channel.{side}] tls to \"verify-ca\" with tls_ca, or public_key_file to a copy of \
                 the server's public_key.pem, or get_public_key to true to trust whoever answers"
            )));
        }
        PublicKey::Asked | PublicKey::Pinned(_) => {}
    }
    for (byte, mask) in password.iter_mut().zip(auth.nonce.iter().cycle()) {
        *byte ^= mask;
    }
    let encrypted = match &tls.public_key {
        PublicKey::Pinned(path) => rsa::encrypt(&password, &pinned(path, *side)?),
        _ => {
            packets.send(&[], &[0x02]).await?;
            let packet = packets.receive_ok(None).await?;
            rsa::encrypt(&password, packet.get(1..).unwrap_or_default())
        }
    };
    let encrypted =
        encrypted.map_err(|why| LinkError::Login(format!("the {side}'s public key: {why}")))?;
    packets.send(&[], &encrypted).await
}

#[expect(clippy::disallowed_methods, reason = "certificates and keys of the host")]
fn pinned(path: &Path, side: Side) -> Result<Vec<u8>, LinkError> {
    std::fs::read(path).map_err(|error| {
        LinkError::Login(format!("[channel.{side}] public_key_file {}: {error}", path.display()))
    })
}
