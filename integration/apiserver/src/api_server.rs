//! The server of a cluster, whichever it is: laws about nodes hold on the double as on a real one.

use std::time::Duration;

use serde_json::Value;

use crate::{CallerIdentity, CertificateWithKey, Real, Server, StatusError};

/// A double, or a real server.
#[derive(Debug)]
pub enum ApiServer {
    /// The double, in this process.
    Double(Server),
    /// `kube-apiserver` and `etcd` from the PATH.
    Real(Real),
}

impl ApiServer {
    /// Returns the double; for orders that only a double takes.
    ///
    /// # Panics
    /// Where the server is a real one.
    pub fn double(&self) -> &Server {
        match self {
            ApiServer::Double(server) => server,
            ApiServer::Real(real) => panic!("{real:?} is no double"),
        }
    }

    /// Returns where clients find it, without a slash at the end.
    pub fn url(&self) -> String {
        match self {
            ApiServer::Double(server) => server.url(),
            ApiServer::Real(real) => real.url(),
        }
    }

    /// Returns the certificate of the authority of the cluster, as PEM.
    pub fn authority(&self) -> String {
        match self {
            ApiServer::Double(server) => server.authority(),
            ApiServer::Real(real) => real.authority(),
        }
    }

    /// Returns a client certificate, good for so many seconds.
    pub fn client_certificate(
        &self,
        name: &str,
        group: &str,
        seconds: i64,
    ) -> anyhow::Result<CertificateWithKey> {
        match self {
            ApiServer::Double(server) => server.client_certificate(name, group, seconds),
            ApiServer::Real(real) => real.client_certificate(name, group, seconds),
        }
    }

    /// Returns a kubeconfig that has all it needs in itself.
    pub fn kubeconfig(&self, identity: &CallerIdentity) -> anyhow::Result<String> {
        match self {
            ApiServer::Double(server) => server.kubeconfig(identity),
            ApiServer::Real(real) => real.kubeconfig(identity),
        }
    }

    /// Returns a kubeconfig with a bootstrap token.
    pub fn bootstrap_kubeconfig(&self) -> anyhow::Result<String> {
        match self {
            ApiServer::Double(server) => server.bootstrap_kubeconfig(),
            ApiServer::Real(real) => real.bootstrap_kubeconfig(),
        }
    }

    /// Begins an outage: nothing listens, connections are cut. What is kept stays kept.
    pub fn stop(&self) {
        match self {
            ApiServer::Double(server) => server.stop(),
            ApiServer::Real(real) => real.stop(),
        }
    }

    /// Ends an outage: it serves again on the same port, with all that is kept.
    pub fn resume(&self) -> anyhow::Result<()> {
        match self {
            ApiServer::Double(server) => server.resume(),
            ApiServer::Real(real) => real.resume(),
        }
    }

    /// Returns an object, or a list, by its path: `/api/v1/namespaces/default/pods/x`.
    pub fn get(&self, path: &str) -> Result<Value, StatusError> {
        match self {
            ApiServer::Double(server) => server.get(path),
            ApiServer::Real(real) => real.client.get(path),
        }
    }

    /// Returns the items of a list by its path and query.
    pub fn list(&self, path: &str) -> Result<Vec<Value>, StatusError> {
        let mut list = self.get(path)?;
        let items = list["items"].as_array_mut().map(std::mem::take);
        Ok(items.unwrap_or_default())
    }

    /// Creates an object in the collection of a path.
    pub fn post(&self, path: &str, object: &Value) -> Result<Value, StatusError> {
        match self {
            ApiServer::Double(server) => server.post(path, object),
            ApiServer::Real(real) => real.client.post(path, object),
        }
    }

    /// Replaces an object, or makes it if it is not there.
    pub fn put(&self, path: &str, object: &Value) -> Result<Value, StatusError> {
        match self {
            ApiServer::Double(server) => server.put(path, object),
            ApiServer::Real(real) => real.client.put(path, object),
        }
    }

    /// Patches an object by JSON merge.
    pub fn patch(&self, path: &str, patch: &Value) -> Result<Value, StatusError> {
        match self {
            ApiServer::Double(server) => server.patch(path, patch),
            ApiServer::Real(real) => real.client.patch(path, patch),
        }
    }

    /// Deletes an object as a user does; for a pod with its grace, unless the query says `gracePeriodSeconds`.
    pub fn delete(&self, path: &str) -> Result<Value, StatusError> {
        match self {
            ApiServer::Double(server) => server.delete(path),
            ApiServer::Real(real) => real.client.delete(path),
        }
    }

    /// Waits until an object is as wanted and returns it; none if that does not come to pass in time. The clock is the
    /// machine's, whatever the caller's runtime thinks of time.
    pub async fn wait(
        &self,
        path: &str,
        within: Duration,
        wanted: impl Fn(Option<&Value>) -> bool,
    ) -> Option<Option<Value>> {
        match self {
            ApiServer::Double(server) => server.wait(path, within, wanted).await,
            ApiServer::Real(real) => real.client.wait(path, within, wanted).await,
        }
    }
}
