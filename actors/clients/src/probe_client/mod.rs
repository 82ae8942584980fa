//! Connections from the node into pods, for probes and hooks.
//!
//! This client decides nothing: an attempt ends with a result or with an error, in the
//! texts of upstream's Go, which people and alerts search for. Every attempt has its own connection and a
//! deadline that ends it wherever it is, and reads at most [`MAX_BODY`] bytes.
//!
//! `SO_LINGER`, which upstream sets on these sockets, is deliberately absent: on Linux it leaves as many
//! sockets in TIME-WAIT as without it, and it lets a `close` block the thread.
//!
//! Upstream: pkg/probe/{exec,http,tcp,grpc} and pkg/probe/dialer_others.go (1.36).

pub mod exec;
pub mod grpc;
pub mod http;
mod lookup;
#[cfg(any(test, feature = "testing"))]
pub mod rig;
mod stream;
#[cfg(test)]
mod tests;
mod tls;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use logic_pods::probes::target::authority;
use tokio::net::TcpStream;
use tokio::time::timeout;

use self::tls::ProbeTls;

/// Bytes that are kept of a response; upstream's limit.
pub const MAX_BODY: usize = 10 << 10;

/// Why no connection was made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DialError {
    #[error("dial tcp {address}: i/o timeout")]
    Timeout { address: String },
    #[error("dial tcp {address}: connect: {why}")]
    Refused { address: String, why: String },
    #[error("dial tcp: lookup {host}: {why}")]
    Lookup { host: String, why: String },
    /// The pod has no address. Go would dial the node itself then, which is never meant.
    #[error("dial tcp {address}: missing address")]
    NoAddress { address: String },
}

/// Connects to pods. Clones share the TLS settings.
#[derive(Debug, Clone, Default)]
pub struct ProbeClient {
    tls: ProbeTls,
}

impl ProbeClient {
    /// Opens a TCP connection.
    ///
    /// # Errors
    /// [`DialError`], in the texts of Go's `net.Dial`.
    pub async fn dial(
        &self,
        host: &str,
        port: u16,
        within: Duration,
    ) -> Result<TcpStream, DialError> {
        let address = authority(host, port);
        if host.is_empty() {
            return Err(DialError::NoAddress { address });
        }
        match timeout(within, self.connect(host, port)).await {
            Ok(end) => end,
            Err(_) => Err(DialError::Timeout { address }),
        }
    }

    async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, DialError> {
        let addresses = match host.parse::<IpAddr>() {
            Ok(address) => vec![SocketAddr::new(address, port)],
            Err(_) => {
                let found = lookup::lookup(host).await;
                let found = found.map_err(|why| DialError::Lookup {
                    host: host.to_owned(),
                    why,
                })?;
                found
                    .into_iter()
                    .map(|ip| SocketAddr::new(ip, port))
                    .collect()
            }
        };
        let stream = TcpStream::connect(addresses.as_slice()).await;
        let stream = stream.map_err(|error| DialError::Refused {
            address: authority(host, port),
            why: go_error_text(&error),
        })?;
        // As Go; without it small packets only wait a little.
        drop(stream.set_nodelay(true));
        Ok(stream)
    }
}

/// The system's text of an error, as Go prints it: `connection refused`.
fn go_error_text(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    match letters.next() {
        Some(letter) => letter.to_lowercase().chain(letters).collect(),
        None => String::new(),
    }
}
