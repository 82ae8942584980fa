//! The servers for clients outside the agent.

use std::rc::Rc;

use ::serving::read_only::ReadOnly;
use ::serving::{Https, NoReviews};
use anyhow::Context as _;
use cluster::certificates;
use cluster::reviews::ApiReviews;
use kernel::{Addr, ChildSpec, Strategy, Supervisor, mailbox};

use super::certificates::grow_serving;
use super::cluster::ClusterWiring;
use super::{MANAGER_INTENSITY, NodeHandle};
use crate::pod_resources::{self, PodResources};
use crate::runtime::RuntimeClient;
use crate::serving;
use crate::serving::admin::{Admin, AdminPeers, ContainerCheckpoints, FaultInjection, Plugins};
use crate::serving::healthz::{Healthz, NodeHealth};
use crate::serving::node_api::{self, AgentDescription, NodeApi};
use crate::settings::AgentSettings;
use crate::stats::{self, SummaryProvider};

/// Spawns the servers; returns the manager of the HTTPS API's certificate, if it needs the node's addresses.
pub(super) fn grow(
    node: &NodeHandle,
    runtime: RuntimeClient,
    plugins: Plugins,
    (settings, cluster): (&AgentSettings, Option<&ClusterWiring>),
) -> anyhow::Result<Option<Addr<certificates::Msg>>> {
    let serving = node
        .root
        .supervisor("serving", Strategy::OneForOne, MANAGER_INTENSITY);
    let health = NodeHealth::new(
        node.pod_manager.clone(),
        node.pleg.clone(),
        node.root.clone(),
    );
    if let Some(address) = settings.healthz {
        let (_, port) = mailbox(serving::MAILBOX);
        let health = health.clone();
        serving.spawn(ChildSpec::permanent("healthz"), port, move || {
            Healthz::new(address, health.clone())
        });
    }
    let checkpoints = ContainerCheckpoints::new(runtime.clone(), &settings.node.root_dir);
    let answers = Rc::new(NodeApi(node_api::NodeApiPeers {
        runtime: runtime.clone(),
        pod_manager: node.pod_manager.clone(),
        statuses: node.statuses.clone(),
        health,
        checkpoints: checkpoints.clone(),
        summaries: SummaryProvider::new(stats::Peers {
            root: node.root.clone(),
            runtime,
            pod_manager: node.pod_manager.clone(),
            volumes: node.volumes.clone(),
            rules: settings.rules(),
            groups: settings.system_groups(),
        }),
        constant: Rc::new(AgentDescription {
            config: node_api::configz(&settings.config.kubelet),
            flags: node_api::flags(&settings.config.flags),
            version: settings.config.version.clone(),
            started: kernel::wall(),
        }),
    }));
    if let Some(address) = settings.read_only {
        let (_, port) = mailbox(::serving::MAILBOX);
        let (policy, answers) = (settings.serving.clone(), answers.clone());
        serving.spawn(ChildSpec::permanent("read-only"), port, move || {
            ReadOnly::new(address, &policy, answers.clone())
        });
    }
    let certificate = https(&serving, answers, settings, cluster)?;
    let (_, port) = mailbox(pod_resources::MAILBOX);
    let (root_dir, pod_manager) = (settings.node.root_dir.clone(), node.pod_manager.clone());
    serving.spawn(ChildSpec::permanent("pod-resources"), port, move || {
        PodResources::new(&root_dir, pod_manager.clone())
    });
    let (_, port) = mailbox(serving::MAILBOX);
    let peers = AdminPeers {
        root: node.root.clone(),
        plugins,
        pod_manager: node.pod_manager.clone(),
        images: node.images.clone(),
        volumes: node.volumes.clone(),
        statuses: node.statuses.clone(),
        events: node.events.clone(),
        checkpoints,
        faults: FaultInjection::from_environment(),
    };
    let path = settings.admin.clone();
    serving.spawn(ChildSpec::permanent("admin"), port, move || {
        Admin::new(path.clone(), peers.clone())
    });
    Ok(certificate)
}

fn https(
    serving: &Supervisor,
    answers: Rc<NodeApi>,
    settings: &AgentSettings,
    cluster: Option<&ClusterWiring>,
) -> anyhow::Result<Option<Addr<certificates::Msg>>> {
    if settings.https.is_none() {
        return Ok(None);
    }
    let policy = settings.serving.clone();
    let client = cluster.map(|cluster| &cluster.client);
    let (identity, keeper) =
        grow_serving(serving, settings, client).context("no certificate for the HTTPS API")?;
    let (_, port) = mailbox(::serving::MAILBOX);
    let spec = ChildSpec::permanent("https");
    match client {
        Some(client) => {
            let reviews = Rc::new(ApiReviews::new(client));
            serving.spawn(spec, port, move || {
                Https::new(
                    policy.clone(),
                    answers.clone(),
                    reviews.clone(),
                    identity.clone(),
                )
            });
        }
        None => serving.spawn(spec, port, move || {
            Https::new(
                policy.clone(),
                answers.clone(),
                Rc::new(NoReviews),
                identity.clone(),
            )
        }),
    }
    Ok(keeper)
}
