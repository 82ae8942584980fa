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
#[cfg(any(test, feature = "testing"))]
pub mod rig;
#[cfg(test)]
mod tests;
mod tls;

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use logic_pods::probes::target::authority;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use self::tls::ProbeTls;

/// Bytes that are kept of a response; upstream's limit.
pub const MAX_BODY: usize = 10 << 10;

/// Concurrent DNS lookups. A lookup holds a thread for as long as the resolver takes, even after its
/// attempt has timed out; the blocking pool can spare this many threads.
const MAX_LOOKUPS: usize = 4;

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

/// Connects to pods. Clones share the TLS settings and the limit of lookups.
#[derive(Debug, Clone)]
pub struct ProbeClient {
    lookups: Arc<Semaphore>,
    tls: ProbeTls,
}

impl Default for ProbeClient {
    fn default() -> Self {
        ProbeClient {
            lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)),
            tls: ProbeTls::default(),
        }
    }
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
            Err(_) => self.lookup(host, port).await?,
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

    async fn lookup(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, DialError> {
        let failed = |why| DialError::Lookup {
            host: host.to_owned(),
            why,
        };
        let room = Arc::clone(&self.lookups).acquire_owned().await;
        let room = room.map_err(|closed| failed(closed.to_string()))?;
        let name = host.to_owned();
        let found = kernel::spawn_blocking(move || {
            let found = (name, port).to_socket_addrs();
            drop(room);
            found.map(Iterator::collect::<Vec<_>>)
        });
        match found.await {
            Ok(Ok(addresses)) if !addresses.is_empty() => Ok(addresses),
            Ok(Ok(_)) => Err(failed("no such host".to_owned())),
            Ok(Err(error)) => Err(failed(go_error_text(&error))),
            Err(error) => Err(failed(error.to_string())),
        }
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
