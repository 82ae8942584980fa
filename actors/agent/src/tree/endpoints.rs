//! The servers for clients outside the agent.

use std::rc::Rc;

use anyhow::Context as _;
use clients::runtime::RuntimeClient;
use cluster::certificates;
use cluster::reviews::ApiReviews;
use kernel::{Addr, ChildSpec, Intensity, Strategy, Supervisor, mailbox};
use pods::runtime::handover;
use resources::apis::pod_resources::{self, PodResources};
use resources::apis::pods::{self as pods_api, PodsApi};
use resources::stats::SummaryProvider;
use serving::read_only::ReadOnlyHandlers;
use serving::server::HttpServer;
use serving::{Https, NoReviews};

use super::NodeHandle;
use super::api_server::ClusterWiring;
use super::certificates::spawn_serving;
use crate::endpoints;
use crate::endpoints::admin::{
    Admin, AdminPeers, Console, ContainerCheckpoints, FaultInjection, Plugins,
};
use crate::endpoints::healthz::NodeHealth;
use crate::endpoints::node_api::{self, AgentDescription, NodeApi};
use crate::service_manager::{self, ServiceManager, ServiceNotifier};
use crate::settings::AgentSettings;

/// Spawns the servers; returns the manager of the HTTPS API's certificate, if it needs the node's addresses.
pub(super) fn spawn(
    node: &NodeHandle,
    (runtime, summaries): (RuntimeClient, SummaryProvider),
    (plugins, handover, manager): (Plugins, Addr<handover::Msg>, Option<ServiceManager>),
    (settings, cluster): (&AgentSettings, Option<&ClusterWiring>),
) -> anyhow::Result<Option<Addr<certificates::Msg>>> {
    let group = node
        .root
        .supervisor("serving", Strategy::OneForOne, Intensity::MANAGERS);
    let health = NodeHealth::new(
        node.pod_manager.clone(),
        node.pleg.clone(),
        node.root.clone(),
    );
    if let Some(address) = settings.healthz {
        let (_, port) = mailbox(endpoints::MAILBOX);
        let health = health.clone();
        group.spawn(ChildSpec::permanent("healthz"), port, move || {
            HttpServer::new(address, health.clone())
        });
    }
    let checkpoints = ContainerCheckpoints::new(runtime.clone(), &settings.node.root_dir);
    let notified = health.clone();
    let peers = admin_peers(
        (node, runtime.clone()),
        (plugins, handover, checkpoints),
        settings,
    );
    let api = node_api(
        node,
        (runtime, summaries),
        (health, peers.clone()),
        settings,
    );
    if let Some(address) = settings.read_only {
        let (_, port) = mailbox(serving::MAILBOX);
        let (policy, api) = (settings.serving.clone(), api.clone());
        group.spawn(ChildSpec::permanent("read-only"), port, move || {
            HttpServer::new(address, ReadOnlyHandlers::new(&policy, api.clone()))
        });
    }
    let certificate = https(&group, api.clone(), settings, cluster)?;
    let (_, port) = mailbox(pod_resources::MAILBOX);
    let (root_dir, pod_manager) = (settings.node.root_dir.clone(), node.pod_manager.clone());
    let held = (settings.assignments(), node.claims.clone());
    group.spawn(ChildSpec::permanent("pod-resources"), port, move || {
        PodResources::new(&root_dir, pod_manager.clone(), held.clone())
    });
    if settings.config.gates.enabled("PodsAPI") {
        spawn_pods_api(&group, node, settings);
    }
    admin(&group, (peers, api), settings);
    notifier(&group, notified, manager);
    Ok(certificate)
}

/// Spawns the server of the pods API.
fn spawn_pods_api(group: &Supervisor, node: &NodeHandle, settings: &AgentSettings) {
    let (_, port) = mailbox(pods_api::MAILBOX);
    let (root_dir, pod_manager) = (settings.node.root_dir.clone(), node.pod_manager.clone());
    let statuses = node.statuses.clone();
    group.spawn(ChildSpec::permanent("pods-api"), port, move || {
        PodsApi::new(&root_dir, pod_manager.clone(), statuses.clone())
    });
}

/// What the HTTPS API and the read-only port answer with.
fn node_api(
    node: &NodeHandle,
    (runtime, summaries): (RuntimeClient, SummaryProvider),
    (health, peers): (NodeHealth, AdminPeers),
    settings: &AgentSettings,
) -> Rc<NodeApi> {
    Rc::new(NodeApi(node_api::NodeApiPeers {
        runtime,
        pod_manager: node.pod_manager.clone(),
        statuses: node.statuses.clone(),
        health,
        checkpoints: peers.checkpoints.clone(),
        console: Console::new(peers),
        summaries,
        constant: Rc::new(AgentDescription {
            config: node_api::configz(&settings.config.kubelet),
            flags: node_api::flags(&settings.config.flags),
            version: settings.config.version.clone(),
            started: kernel::wall(),
        }),
    }))
}

/// What the operator is shown comes from.
fn admin_peers(
    (node, runtime): (&NodeHandle, RuntimeClient),
    (plugins, handover, checkpoints): (Plugins, Addr<handover::Msg>, ContainerCheckpoints),
    settings: &AgentSettings,
) -> AdminPeers {
    AdminPeers {
        root: node.root.clone(),
        plugins,
        handover,
        pod_manager: node.pod_manager.clone(),
        images: node.images.clone(),
        runtime,
        volumes: node.volumes.clone(),
        statuses: node.statuses.clone(),
        events: node.events.clone(),
        checkpoints,
        assignments: settings.assignments(),
        claims: node.claims.clone(),
        faults: FaultInjection::from_environment(),
    }
}

/// Spawns the server of the admin socket, for `oxctl`.
fn admin(group: &Supervisor, (peers, api): (AdminPeers, Rc<NodeApi>), settings: &AgentSettings) {
    let (_, port) = mailbox(endpoints::MAILBOX);
    let (path, policy) = (settings.admin.clone(), settings.serving.clone());
    group.spawn(ChildSpec::permanent("admin"), port, move || {
        Admin::new(path.clone(), peers.clone(), (api.clone(), &policy))
    });
}

/// Spawns what notifies the service manager, where there is one: after all else, as it says that the agent has started.
fn notifier(group: &Supervisor, health: NodeHealth, manager: Option<ServiceManager>) {
    let Some(manager) = manager else {
        return;
    };
    let (_, port) = mailbox(service_manager::MAILBOX);
    group.spawn(ChildSpec::permanent("service-manager"), port, move || {
        ServiceNotifier::new(manager.clone(), health.clone())
    });
}

/// Spawns the HTTPS API, and the manager of its certificate.
fn https(
    group: &Supervisor,
    api: Rc<NodeApi>,
    settings: &AgentSettings,
    cluster: Option<&ClusterWiring>,
) -> anyhow::Result<Option<Addr<certificates::Msg>>> {
    if settings.https.is_none() {
        return Ok(None);
    }
    let policy = settings.serving.clone();
    let client = cluster.map(|cluster| &cluster.client);
    let (identity, certificate) =
        spawn_serving(group, settings, client).context("no certificate for the HTTPS API")?;
    let (_, port) = mailbox(serving::MAILBOX);
    let spec = ChildSpec::permanent("https");
    match client {
        Some(client) => {
            let reviews = Rc::new(ApiReviews::new(client));
            group.spawn(spec, port, move || {
                Https::new(
                    policy.clone(),
                    api.clone(),
                    reviews.clone(),
                    identity.clone(),
                )
            });
        }
        None => group.spawn(spec, port, move || {
            Https::new(
                policy.clone(),
                api.clone(),
                Rc::new(NoReviews),
                identity.clone(),
            )
        }),
    }
    Ok(certificate)
}
