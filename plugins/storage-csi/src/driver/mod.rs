//! A CSI driver that has registered: its name, its capabilities, and its calls.

pub(crate) mod capability;
pub(crate) mod failure;
pub(crate) mod name;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) use csi::node_service_capability::rpc::Type as Ability;
use failure::Failure;
use proto::csi;
use proto::csi::identity_client::IdentityClient;
use proto::csi::node_client::NodeClient;
use proto::csi::node_service_capability::Type as Capability;
use registration::rpc::{self, ConnectRetry};
use tokio::time::{Instant, timeout_at};
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

/// Upstream's: what a driver has for any one call.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(2 * 60);
/// What a driver answers is a few kilobytes at most.
const ANSWER_LIMIT: usize = 1 << 20;

/// One driver as it registered; when it registers again there is a new one.
#[derive(Clone, Debug)]
pub(crate) struct Driver {
    pub(crate) name: String,
    pub(crate) endpoint: PathBuf,
    pub(crate) abilities: BTreeSet<Ability>,
}

impl Driver {
    pub(crate) fn can(&self, ability: Ability) -> bool {
        self.abilities.contains(&ability)
    }

    /// Calls the driver's node service and waits for its answer, for `left` and no longer than a driver ever gets.
    pub(crate) async fn call<M, T, F>(
        &self,
        left: Duration,
        message: M,
        rpc: impl FnOnce(NodeClient<Channel>, Request<M>) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        call_node(&self.endpoint, left.min(CALL_TIMEOUT), message, rpc).await
    }

    /// Asks it how many volumes it takes on this node; 0: it knows no limit.
    pub(crate) async fn most_volumes(&self, left: Duration) -> Result<i64, Failure> {
        let node = node_info(&self.endpoint, left.min(CALL_TIMEOUT)).await?;
        Ok(node.max_volumes_per_node)
    }
}

/// Asks whatever serves at `endpoint` for the node's name and place.
pub(crate) async fn node_info(
    endpoint: &Path,
    within: Duration,
) -> Result<csi::NodeGetInfoResponse, Failure> {
    let message = csi::NodeGetInfoRequest {};
    call_node(endpoint, within, message, |mut node, request| async move {
        node.node_get_info(request).await
    })
    .await
}

/// Asks it what it can.
pub(crate) async fn abilities(
    endpoint: &Path,
    within: Duration,
) -> Result<BTreeSet<Ability>, Failure> {
    let message = csi::NodeGetCapabilitiesRequest {};
    let answer = call_node(endpoint, within, message, |mut node, request| async move {
        node.node_get_capabilities(request).await
    });
    let capabilities = answer.await?.capabilities.into_iter();
    let named = capabilities.filter_map(|capability| match capability.r#type {
        // One of a later version means nothing to us.
        Some(Capability::Rpc(rpc)) => Ability::try_from(rpc.r#type).ok(),
        None => None,
    });
    Ok(named
        .filter(|&ability| ability != Ability::Unknown)
        .collect())
}

/// Asks it what it calls itself.
pub(crate) async fn own_name(endpoint: &Path, within: Duration) -> Result<String, Failure> {
    let end = Instant::now() + within;
    let channel = timeout_at(end, rpc::connect(endpoint, ConnectRetry::None)).await;
    let channel = channel.unwrap_or_else(|_| Err(Failure::late()))?;
    let mut identity = IdentityClient::new(channel).max_decoding_message_size(ANSWER_LIMIT);
    let left = end - Instant::now();
    let request = rpc::request(csi::GetPluginInfoRequest {}, left);
    let answer = rpc::finish(left, identity.get_plugin_info(request)).await?;
    Ok(answer.name)
}

async fn call_node<M, T, F>(
    endpoint: &Path,
    within: Duration,
    message: M,
    rpc: impl FnOnce(NodeClient<Channel>, Request<M>) -> F,
) -> Result<T, Failure>
where
    F: Future<Output = Result<Response<T>, Status>>,
{
    let end = Instant::now() + within;
    let channel = timeout_at(end, rpc::connect(endpoint, ConnectRetry::None)).await;
    let channel = channel.unwrap_or_else(|_| Err(Failure::late()))?;
    let node = NodeClient::new(channel).max_decoding_message_size(ANSWER_LIMIT);
    let left = end - Instant::now();
    rpc::finish(left, rpc(node, rpc::request(message, left))).await
}
