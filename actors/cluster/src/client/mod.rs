//! How the API server is called: one shared connection, lanes with their own rates.
//!
//! [`Client::kube`] is what everybody calls with `kube::Api`; [`watch`] follows what is listed; [`Trouble`] says what
//! went wrong. Bodies are JSON, whatever contentType asks for.

mod access;
mod backoff;
mod body;
mod by_value;
mod call;
mod connections;
mod credentials;
mod exec;
mod kubeconfig;
mod limiter;
mod measured;
mod own_key;
mod server;
#[cfg(test)]
pub(crate) mod tests;
mod tls;
mod trouble;
mod user;
mod watching;

use std::sync::Arc;

use http::Uri;
use rustls::sign::CertifiedKey;
use tokio::sync::watch as channel;

pub use access::{Access, AccessError, Identity};
pub use by_value::ByValue;
pub use trouble::Trouble;
pub use watching::{Event, Selection, watch};

use call::Caller;
use limiter::Bucket;
use server::Server;

/// Whose turn a request takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// Everything else: kubeAPIQPS and kubeAPIBurst.
    Work,
    /// The node's status and lease: never waits for the others.
    Heartbeat,
    /// eventRecordQPS and eventBurst.
    Events,
}

/// The way to the API server; every clone shares its connection.
#[derive(Clone)]
pub struct Client {
    base: Uri,
    work: kube::Client,
    heartbeat: kube::Client,
    events: kube::Client,
}

impl Client {
    /// Reads the kubeconfig; nothing is asked of the server yet. `identity` goes before the kubeconfig's own.
    pub fn new(
        access: Access,
        identity: channel::Receiver<Option<Arc<CertifiedKey>>>,
    ) -> Result<Client, AccessError> {
        let server = access::server(&access, identity)?;
        Ok(Client::of(server, &access))
    }

    /// Returns a client whose requests go by this lane.
    pub fn kube(&self, lane: Lane) -> kube::Client {
        match lane {
            Lane::Work => self.work.clone(),
            Lane::Heartbeat => self.heartbeat.clone(),
            Lane::Events => self.events.clone(),
        }
    }

    /// Where the server is.
    pub fn uri(&self) -> &Uri {
        &self.base
    }

    fn of(server: Server, access: &Access) -> Client {
        let base = server.base.clone();
        let server = Arc::new(server);
        let lane = |lane, bucket: Option<Bucket>| {
            let caller = Caller {
                server: Arc::clone(&server),
                lane,
                bucket: bucket.map(Arc::new),
            };
            kube::Client::new(caller, "default")
        };
        Client {
            work: lane(Lane::Work, Bucket::new(access.qps, access.burst)),
            heartbeat: lane(Lane::Heartbeat, None),
            events: lane(
                Lane::Events,
                Bucket::new(access.event_qps, access.event_burst),
            ),
            base,
        }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client({})", self.base)
    }
}

/// A client of a server that needs neither TLS nor credentials, without limits: for tests.
pub fn plain(uri: Uri) -> Client {
    let access = Access::unlimited();
    Client::of(access::open(uri), &access)
}

/// A client whose answers are a test's own.
#[cfg(test)]
impl From<kube::Client> for Client {
    fn from(kube: kube::Client) -> Client {
        Client {
            base: Uri::from_static("http://localhost"),
            work: kube.clone(),
            heartbeat: kube.clone(),
            events: kube,
        }
    }
}
