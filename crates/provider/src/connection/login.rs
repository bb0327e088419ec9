//! Greeting, TLS, and the authentication plugins
//! (<https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_connection_phase.html>).

use std::sync::Arc;

use mysql_common::constants::CapabilityFlags;
use mysql_common::io::ParseBuf;
use mysql_common::packets::{
    AuthPlugin, AuthSwitchRequest, HandshakePacket, HandshakeResponse, SslRequest,
};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use secrecy::ExposeSecret;
use tokio_rustls::TlsConnector;

use super::packets::Packets;
use super::{ConnectionError, Transport, rsa};
use crate::options::{SourceOptions, TlsMode};
use crate::tls;

const MAX_PACKET: u32 = 1 << 30;
const UTF8MB4_GENERAL_CI: u8 = 45;
/// Authentication nonces are 20 bytes; some packets put a zero behind them.
const NONCE_LEN: usize = 20;

pub(super) struct Greeting {
    pub(super) connection_id: u32,
    pub(super) server_version: String,
}

struct Auth<'a> {
    plugin: AuthPlugin<'static>,
    nonce: Vec<u8>,
    password: &'a str,
    encrypted: bool,
}

pub(super) async fn login(
    transport: Box<dyn Transport>,
    options: &SourceOptions,
    host: &str,
    tls: Option<Arc<ClientConfig>>,
) -> Result<(Packets, Greeting), ConnectionError> {
    let mut packets = Packets::new(transport);
    let packet = packets.receive_ok(None).await?;
    let greeting: HandshakePacket<'_> = ParseBuf(&packet)
        .parse(())
        .map_err(|error| ConnectionError::Protocol(format!("greeting: {error}")))?;
    let encrypt = tls.filter(|_| greeting.capabilities().contains(CapabilityFlags::CLIENT_SSL));
    if encrypt.is_none() && !matches!(options.tls, TlsMode::Disabled | TlsMode::Preferred) {
        return Err(ConnectionError::Tls("the source offers no TLS".to_owned()));
    }
    let mut capabilities = capabilities() & greeting.capabilities();
    let encrypted = encrypt.is_some();
    if let Some(config) = encrypt {
        capabilities |= CapabilityFlags::CLIENT_SSL;
        let request = SslRequest::new(capabilities, MAX_PACKET, UTF8MB4_GENERAL_CI);
        packets.send_struct(&request).await?;
        packets = encrypt_transport(packets, config, host).await?;
    }
    let mut auth = Auth {
        plugin: greeting
            .auth_plugin()
            .filter(is_supported)
            .unwrap_or(AuthPlugin::CachingSha2Password)
            .into_owned(),
        nonce: nonce(&greeting.nonce()),
        password: options.password.expose_secret(),
        encrypted,
    };
    let proof = auth.plugin.gen_data(Some(auth.password), &auth.nonce).map(|data| data.to_vec());
    let response = HandshakeResponse::new(
        proof,
        greeting.server_version_parsed().unwrap_or((8, 0, 0)),
        Some(options.user.as_bytes()),
        None::<&[u8]>,
        Some(auth.plugin.borrow()),
        capabilities,
        None,
        MAX_PACKET,
    );
    packets.send_struct(&response).await?;
    finish(&mut packets, &mut auth).await?;
    let facts = Greeting {
        connection_id: greeting.connection_id(),
        server_version: greeting.server_version_str().into_owned(),
    };
    Ok((packets, facts))
}

fn capabilities() -> CapabilityFlags {
    CapabilityFlags::CLIENT_PROTOCOL_41
        | CapabilityFlags::CLIENT_LONG_PASSWORD
        | CapabilityFlags::CLIENT_LONG_FLAG
        | CapabilityFlags::CLIENT_TRANSACTIONS
        | CapabilityFlags::CLIENT_SECURE_CONNECTION
        | CapabilityFlags::CLIENT_PLUGIN_AUTH
        | CapabilityFlags::CLIENT_PLUGIN_AUTH_LENENC_CLIENT_DATA
        | CapabilityFlags::CLIENT_DEPRECATE_EOF
}

async fn encrypt_transport(
    packets: Packets,
    config: Arc<ClientConfig>,
    host: &str,
) -> Result<Packets, ConnectionError> {
    let (transport, codec) = packets.into_transport()?;
    let name = ServerName::try_from(host.to_owned())
        .map_err(|error| ConnectionError::Tls(format!("{host:?}: {error}")))?;
    let stream = TlsConnector::from(config).connect(name, transport).await.map_err(tls_error)?;
    Ok(Packets::resume(Box::new(stream), codec))
}

/// What TLS itself has to say is about the two sides; all else, an end included, is the network's.
fn tls_error(error: std::io::Error) -> ConnectionError {
    match error.get_ref().and_then(|cause| cause.downcast_ref()) {
        Some(cause) => ConnectionError::Tls(tls::explain(cause)),
        None => ConnectionError::Io(error),
    }
}

/// Never one that sends the password as it is, and no other server's: those a source can offer, but
/// it has to switch to what we start with.
fn is_supported(plugin: &AuthPlugin<'_>) -> bool {
    matches!(plugin, AuthPlugin::CachingSha2Password | AuthPlugin::MysqlNativePassword)
}

/// Answers what the server asks until it says OK. Bounded: a login has few steps.
async fn finish(packets: &mut Packets, auth: &mut Auth<'_>) -> Result<(), ConnectionError> {
    const STEPS_MAX: usize = 8;
    for _ in 0..STEPS_MAX {
        let packet = packets.receive_ok(None).await?;
        match packet.as_ref() {
            [0x00, ..] => return Ok(()),
            [0xfe, ..] => switch_plugin(packets, auth, &packet).await?,
            // caching_sha2_password: the server remembers us.
            [0x01, 0x03] => {}
            // caching_sha2_password: it does not, and wants the password itself.
            [0x01, 0x04] => send_password(packets, auth).await?,
            _ => return Err(ConnectionError::Login("unexpected packet".to_owned())),
        }
    }
    Err(ConnectionError::Login("no end after many steps".to_owned()))
}

async fn switch_plugin(
    packets: &mut Packets,
    auth: &mut Auth<'_>,
    packet: &[u8],
) -> Result<(), ConnectionError> {
    let request: AuthSwitchRequest<'_> = ParseBuf(packet)
        .parse(())
        .map_err(|error| ConnectionError::Login(format!("plugin switch: {error}")))?;
    let plugin = request.auth_plugin().into_owned();
    if !is_supported(&plugin) {
        return Err(ConnectionError::Login(format!(
            "authentication plugin {} is not supported; use caching_sha2_password",
            String::from_utf8_lossy(plugin.as_bytes())
        )));
    }
    auth.nonce = nonce(request.plugin_data());
    auth.plugin = plugin;
    let proof = auth.plugin.gen_data(Some(auth.password), &auth.nonce);
    packets.send(proof.as_deref().unwrap_or_default()).await
}

/// In the clear inside TLS; without, masked by the nonce under the server's RSA key.
async fn send_password(packets: &mut Packets, auth: &Auth<'_>) -> Result<(), ConnectionError> {
    let mut password = auth.password.as_bytes().to_vec();
    password.push(0);
    if auth.encrypted {
        return packets.send(&password).await;
    }
    packets.send(&[0x02]).await?;
    let packet = packets.receive_ok(None).await?;
    let key = packet.get(1..).unwrap_or_default();
    for (byte, mask) in password.iter_mut().zip(auth.nonce.iter().cycle()) {
        *byte ^= mask;
    }
    packets.send(&rsa::encrypt(&password, key)?).await
}

fn nonce(data: &[u8]) -> Vec<u8> {
    data.get(..NONCE_LEN).unwrap_or(data).to_vec()
}
