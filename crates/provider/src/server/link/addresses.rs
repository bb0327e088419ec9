//! The addresses of a name. One that swallows packets must not take the time of the others, so the next one is tried while
//! it is still silent (RFC 8305).

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;

/// Time that an address has before the next one is tried as well, as RFC 8305 recommends.
const HEAD_START: Duration = Duration::from_millis(250);

/// Connects to the first address of `host` that answers.
///
/// # Errors
/// The name has no address, or none accepts the connection. The text then names those that were tried.
#[expect(clippy::disallowed_methods, reason = "the system's network, which gives it to channels")]
pub async fn connect_to_host(host: &str, port: u16) -> io::Result<TcpStream> {
    let addresses = interleaved(lookup_host((host, port)).await?.collect());
    first_to_accept(addresses, TcpStream::connect::<SocketAddr>).await
}

/// Mixes both families, in the resolver's order within each: often all addresses of one family are out of reach. Pure.
fn interleaved(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let is_first_ipv6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (first, second): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| address.is_ipv6() == is_first_ipv6);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut mixed = Vec::new();
    while first.len() + second.len() > 0 {
        mixed.extend(first.next());
        mixed.extend(second.next());
    }
    mixed
}

/// Tries addresses in their order, each after the one before has failed or has been silent for a while. The first that
/// accepts ends all other attempts.
async fn first_to_accept<T, F>(
    addresses: Vec<SocketAddr>,
    connect: impl Fn(SocketAddr) -> F,
) -> io::Result<T>
where
    T: Send + 'static,
    F: Future<Output = io::Result<T>> + Send + 'static,
{
    let mut next = addresses.into_iter();
    let mut attempts = JoinSet::new();
    let mut failures = Vec::new();
    loop {
        if let Some(address) = next.next() {
            let attempt = connect(address);
            attempts.spawn(async move { (address, attempt.await) });
        }
        let ended = tokio::select! {
            biased;
            ended = attempts.join_next() => ended,
            () = tokio::time::sleep(HEAD_START), if next.len() > 0 => continue,
        };
        match ended {
            Some(Ok((_, Ok(connection)))) => return Ok(connection),
            Some(Ok((address, Err(error)))) => failures.push((address, error)),
            Some(Err(panic)) => return Err(io::Error::other(panic)),
            None => return Err(none_accepts(failures)),
        }
    }
}

/// Returns one error for all addresses. That of a single one remains as the system gave it.
fn none_accepts(mut failures: Vec<(SocketAddr, io::Error)>) -> io::Error {
    if failures.len() <= 1 {
        let no_address = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        return failures.pop().map_or_else(no_address, |(_, error)| error);
    }
    let kind = failures.last().map_or(io::ErrorKind::Other, |(_, error)| error.kind());
    let texts: Vec<String> =
        failures.into_iter().map(|(address, error)| format!("{address}: {error}")).collect();
    io::Error::new(kind, texts.join("; "))
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().expect("an address")).collect()
    }

    /// Connects by the port: 1 is silent, 2 refuses, and another one accepts after so many milliseconds.
    async fn connect(address: SocketAddr) -> io::Result<SocketAddr> {
        match address.port() {
            1 => std::future::pending().await,
            2 => Err(io::ErrorKind::ConnectionRefused.into()),
            millis => {
                tokio::time::sleep(Duration::from_millis(millis.into())).await;
                Ok(address)
            }
        }
    }

    async fn tried(texts: &[&str]) -> (io::Result<String>, u128) {
        let begun = Instant::now();
        let accepted = first_to_accept(addresses(texts), connect).await;
        (accepted.map(|address| address.to_string()), begun.elapsed().as_millis())
    }

    #[test]
    fn families_take_turns_and_keep_the_order_of_the_resolver() {
        let mixed = |texts: &[&str]| interleaved(addresses(texts));
        let found = mixed(&["[::1]:7", "[::2]:7", "[::3]:7", "10.0.0.1:7", "10.0.0.2:7"]);
        let wanted = ["[::1]:7", "10.0.0.1:7", "[::2]:7", "10.0.0.2:7", "[::3]:7"];
        assert_eq!(found, addresses(&wanted));
        let found = mixed(&["10.0.0.1:7", "10.0.0.2:7", "[::1]:7"]);
        assert_eq!(found, addresses(&["10.0.0.1:7", "[::1]:7", "10.0.0.2:7"]));
        assert_eq!(mixed(&[]), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_address_costs_a_moment() {
        let (accepted, millis) = tried(&["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:30"]).await;
        assert_eq!(accepted.expect("the third accepts"), "10.0.0.3:30");
        assert!((530..540).contains(&millis), "{millis}");
        // A slow one that began first may still be the first.
        let (accepted, millis) = tried(&["10.0.0.1:300", "10.0.0.2:90"]).await;
        assert_eq!(accepted.expect("the first accepts"), "10.0.0.1:300");
        assert!((300..310).contains(&millis), "{millis}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_refuses_costs_nothing() {
        let (accepted, millis) = tried(&["10.0.0.1:2", "10.0.0.2:20"]).await;
        assert_eq!(accepted.expect("the second accepts"), "10.0.0.2:20");
        assert!((20..30).contains(&millis), "{millis}");
    }

    #[tokio::test(start_paused = true)]
    async fn all_that_refuse_are_named() {
        let (refused, _) = tried(&["10.0.0.1:2", "[::1]:2"]).await;
        let refused = refused.expect_err("none accepts");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        let said = refused.to_string();
        assert!(said.contains("10.0.0.1:2: ") && said.contains("; [::1]:2: "), "{said}");
        let (refused, _) = tried(&["10.0.0.1:2"]).await;
        assert_eq!(refused.expect_err("it refuses").to_string(), "connection refused");
        let (none, _) = tried(&[]).await;
        assert!(none.expect_err("nothing to try").to_string().contains("no address"));
    }
}
