//! The suite of network plugins: what a runtime relies on of whatever speaks `oxlet.network.v1`.
//!
//! It makes network namespaces with ip(8) and looks into them: run it as root.

mod attachments;
mod case;
mod collection;
pub mod node;
mod readiness;
mod refusals;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tonic::transport::Channel;

use self::case::NetworkCase;
use super::{CheckResult, Report, check};

/// The network plugin under test, and what is known of its backend.
#[derive(Clone)]
pub struct Target {
    /// A connection to it, see [`sdk::testing::connect`].
    pub channel: Channel,
    /// The name of its default network, which gives each interface an address.
    pub network: String,
    /// Tells whether the backend has an attachment, whatever the plugin says of it.
    pub attached: Arc<Attached>,
}

/// Tells whether a backend has the attachment of a sandbox's interface.
pub type Attached = dyn Fn(&Sandbox, &str) -> bool + Send + Sync;

/// A sandbox of one check.
#[derive(Clone, Debug)]
pub struct Sandbox {
    /// Its id.
    pub id: String,
    /// The name of its namespace for ip(8).
    pub name: String,
    /// The path of its namespace.
    pub netns: String,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("network", &self.network)
            .finish_non_exhaustive()
    }
}

type NetworkCheck = for<'a> fn(&'a mut NetworkCase) -> BoxFuture<'a, CheckResult>;

/// Checks every law against `target`, one after the other.
pub async fn run(target: Target) -> Report {
    let groups = [
        attachments::LAWS,
        collection::LAWS,
        readiness::LAWS,
        refusals::LAWS,
    ];
    let mut laws = Vec::new();
    for (words, body) in groups.into_iter().flatten() {
        let mut case = NetworkCase::new(target.clone());
        laws.push(check(words, body(&mut case)).await);
        case.clean_up().await;
    }
    Report { laws }
}
