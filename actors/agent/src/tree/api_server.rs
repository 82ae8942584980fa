//! The cluster's area: the client of the API server, and the actors that read from it or write to it.
//!
//! Mailboxes and the client are made before anything else, because the state area sends to both; the actors come last.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use api_client::{ApiClient, Identity, RequestLane};
use clients::runtime::RuntimeClient;
use cluster::certificates::{self, BootstrapOutcome};
use cluster::claims;
use cluster::node::csi_node::{self, CsiNode};
use cluster::node::lease::{self, Heartbeat};
use cluster::node::node_informer::{self, NodeInformer};
use cluster::node::pvc_resize::{self, PvcResizer};
use cluster::node::{self, NodeStatusManager};
use cluster::pods::{self as api_pods, ApiPods};
use k8s_openapi::api::core::v1;
use kernel::watch;
use kernel::{
    Addr, ChildSpec, Intensity, Port, Recipient, Strategy, Supervisor, error_chain, mailbox,
};
use logic_api::objects::StaticObjects;
use logic_api::pod::PodView;
use logic_api::types::PodUid;
use logic_node::certificates::{CertificateSubject, RotationPolicy};
use logic_node::node_status::{ExtendedResources, NodeFact};
use logic_placement::claims::{ClaimKey, ResourceSliceSelector};
use logic_placement::devices::NodeDevices;
use logic_pods::admission::NodeShutdown;
use logic_pods::status::terminal_on_arrival::{PodArrival, classify_arrival};
use logic_resources::thresholds::Signal;
use pods::area::PodListeners;
use pods::pod_manager::{self, PodSource};
use resources::dynamic_resources::{ClaimApi, Question};
use resources::node_health::{self, NodeHealthMonitor};
use state::events;
use state::objects::manager::{self, ObjectManager};
use state::objects::{ObjectStore, StoreWriter};
use state::offline::{self, OfflineCheckpoint, OfflineState};
use state::status::{self, PodResync};

use super::NodeHandle;
use super::certificates::{CertificateSender, identities, spawn_client};
use crate::settings::{self, AgentSettings, ClientCertificate};

/// The client and the mailboxes of the cluster's actors, before these are spawned.
#[derive(Debug)]
pub(super) struct ClusterWiring {
    pub client: ApiClient,
    pub addrs: ClusterAddrs,
    /// The node's object; none before it is known.
    pub object: watch::Receiver<Option<Arc<v1::Node>>>,
    bootstrap: Option<ApiClient>,
    certificate: Option<ClientCertificate>,
    offer: CertificateSender,
    publish: watch::Sender<Option<Arc<v1::Node>>>,
    remembered: OfflineState,
    ports: ClusterPorts,
}

/// The addresses of the cluster's actors.
#[derive(Debug, Clone)]
pub(super) struct ClusterAddrs {
    pub pods: Addr<api_pods::Msg>,
    pub object_manager: Addr<manager::Msg>,
    pub alone: Addr<offline::Msg>,
    pub node: Addr<node::Msg>,
    pub csi_node: Addr<csi_node::Msg>,
    pub claims: Addr<pvc_resize::Msg>,
    pub node_health: Addr<node_health::Msg>,
}

#[derive(Debug)]
struct ClusterPorts {
    pods: Port<api_pods::Msg>,
    object_manager: Port<manager::Msg>,
    alone: Port<offline::Msg>,
    node: Port<node::Msg>,
    csi_node: Port<csi_node::Msg>,
    claims: Port<pvc_resize::Msg>,
    node_health: Port<node_health::Msg>,
}

impl ClusterWiring {
    /// Reads the kubeconfig and the offline checkpoint; sends no request yet. None for a standalone node.
    pub(super) fn find(settings: &AgentSettings) -> anyhow::Result<Option<ClusterWiring>> {
        let Some(mut section) = settings.cluster.clone() else {
            return Ok(None);
        };
        find_kubeconfig(&mut section)?;
        let (offer, identity) = watch::channel(None);
        let client =
            ApiClient::new(section.access, identity).context("no way to the API server")?;
        let (_, nobody) = watch::channel(None);
        let bootstrap = section
            .bootstrap
            .map(|access| ApiClient::new(access, nobody));
        let bootstrap = bootstrap.transpose().context("no way to the API server")?;
        let (publish, object) = watch::channel(None);
        let remembered = offline::load(&settings.folder);
        if let Some(trouble) = &remembered.trouble {
            tracing::error!("{trouble}");
        }
        let (addrs, ports) = mailboxes();
        Ok(Some(ClusterWiring {
            client,
            addrs,
            object,
            bootstrap,
            certificate: section.client_certificate,
            offer,
            publish,
            remembered,
            ports,
        }))
    }

    /// The objects of the offline checkpoint, with which the object store begins.
    pub(super) fn remembered(&self) -> StaticObjects {
        self.remembered.objects.clone()
    }

    /// The client that patches pods' statuses.
    pub(super) fn sending(&self) -> status::StatusClient {
        let pods = Recipient::new(self.addrs.pods.clone(), |PodResync| api_pods::Msg::Resync);
        status::StatusClient::new(&self.client, pods)
    }

    /// The offline checkpoint, which keeps every pod's newest status while the API server is away.
    pub(super) fn status_checkpoint(&self) -> Recipient<(PodUid, Arc<v1::PodStatus>)> {
        Recipient::new(self.addrs.alone.clone(), |(uid, status)| {
            offline::Msg::Status { uid, status }
        })
    }

    /// The actors that the volume manager reports to.
    pub(super) fn volumes(&self) -> volumes::ApiPeers {
        volumes::ApiPeers {
            node: Recipient::new(self.addrs.node.clone(), node::Msg::Learned),
            csi_node: Recipient::new(self.addrs.csi_node.clone(), csi_node::Msg::Drivers),
            claims: Recipient::new(self.addrs.claims.clone(), |growth| {
                pvc_resize::Msg::Grew(Box::new(growth))
            }),
            object: self.object.clone(),
        }
    }

    /// The actors that are told what happens to pods.
    pub(super) fn listeners(&self) -> PodListeners {
        let (pods, keeper) = (self.addrs.pods.clone(), self.addrs.object_manager.clone());
        PodListeners {
            mirrors: Some(Recipient::new(pods, api_pods::Msg::Static)),
            over: Some(Recipient::new(keeper.clone(), |uid| manager::Msg::Ended {
                uid,
            })),
            workers: Some(Recipient::new(keeper, |pods| manager::Msg::Workers {
                pods,
            })),
            ..PodListeners::default()
        }
    }

    /// The sink that sends events to the API server.
    pub(super) fn events(&self, node_name: &str) -> events::EventSink {
        events::EventSink::new(&self.client, node_name)
    }

    /// Where the node's pressures are reported: the node status manager.
    pub(super) fn pressures(&self) -> Recipient<BTreeSet<Signal>> {
        Recipient::new(self.addrs.node.clone(), |signals: BTreeSet<Signal>| {
            let pressures = signals.into_iter().map(Into::into).collect();
            node::Msg::Learned(NodeFact::Pressures(pressures))
        })
    }

    /// Where is reported what the machine does not let the agent enforce: the node status manager.
    pub(super) fn unenforced(&self) -> Recipient<Vec<String>> {
        Recipient::new(self.addrs.node.clone(), |refusals| {
            node::Msg::Learned(NodeFact::Unenforced(refusals))
        })
    }

    /// Where the numbers of devices are reported: the node status manager.
    pub(super) fn devices(&self) -> Recipient<NodeDevices> {
        Recipient::new(self.addrs.node.clone(), |devices: NodeDevices| {
            node::Msg::Learned(NodeFact::Devices(ExtendedResources {
                capacity: devices.capacity,
                allocatable: devices.allocatable,
                removed: devices.removed,
            }))
        })
    }

    /// What the manager of dynamic resources reads and deletes.
    pub(super) fn claims(&self) -> ClaimApi {
        let (reader, deleter) = (self.client.clone(), self.client.clone());
        let read = move |key: ClaimKey| {
            let client = reader.clone();
            async move {
                let claim = claims::resource_claim(&client, &key.namespace, &key.name).await;
                claim.map_err(|error| error_chain(&error).to_string())
            }
        };
        let delete = move |selector: ResourceSliceSelector| {
            let client = deleter.clone();
            async move {
                let selector = selector.field_selector();
                let deleted = claims::delete_resource_slices(&client, &selector).await;
                deleted.map_err(|error| error_chain(&error).to_string())
            }
        };
        ClaimApi {
            claims: Some(Question::new(read)),
            slices: Some(Question::new(delete)),
        }
    }

    /// Where a shutdown is reported: the node status manager.
    pub(super) fn shutdown(&self) -> Recipient<NodeShutdown> {
        Recipient::new(self.addrs.node.clone(), |state| {
            let why = match state {
                NodeShutdown::Yes => Some("node is shutting down".to_owned()),
                NodeShutdown::No => None,
            };
            node::Msg::Learned(NodeFact::Shutdown(why))
        })
    }
}

/// Makes a kubeconfig from the bootstrap credentials where needed. A valid kubeconfig's certificate needs no manager,
/// unless it must be rotated.
fn find_kubeconfig(section: &mut settings::ClusterSettings) -> anyhow::Result<()> {
    let asked = section.client_certificate.as_ref();
    let (Some(bootstrap), Some(asked)) = (&section.bootstrap, asked) else {
        return Ok(());
    };
    let (own, given) = (&section.access.kubeconfig, &bootstrap.kubeconfig);
    let current = asked.store.current_path();
    let prepared = certificates::prepare(own, given, &current, kernel::timestamp())?;
    if (prepared, asked.renewal) == (BootstrapOutcome::Kept, RotationPolicy::Never) {
        section.access.identity = Identity::There;
        section.client_certificate = None;
    }
    Ok(())
}

fn mailboxes() -> (ClusterAddrs, ClusterPorts) {
    let (pods, pods_port) = mailbox(api_pods::MAILBOX);
    let (keeper, keeper_port) = mailbox(manager::MAILBOX);
    let (alone, alone_port) = mailbox(offline::MAILBOX);
    let (node, node_port) = mailbox(node::MAILBOX);
    let (csi_node, csi_node_port) = mailbox(csi_node::MAILBOX);
    let (claims, claims_port) = mailbox(pvc_resize::MAILBOX);
    let (node_health, vitals_port) = mailbox(node_health::MAILBOX);
    let addrs = ClusterAddrs {
        pods,
        object_manager: keeper,
        alone,
        node,
        csi_node,
        claims,
        node_health,
    };
    let ports = ClusterPorts {
        pods: pods_port,
        object_manager: keeper_port,
        alone: alone_port,
        node: node_port,
        csi_node: csi_node_port,
        claims: claims_port,
        node_health: vitals_port,
    };
    (addrs, ports)
}

/// What the cluster's actors need, besides one another.
#[derive(Debug)]
pub(super) struct ClusterInputs<'a> {
    pub settings: &'a AgentSettings,
    pub runtime: RuntimeClient,
    pub writer: StoreWriter,
    pub store: ObjectStore,
    /// The objects of the manifests' folder; none without such a folder.
    pub folder: Option<ObjectStore>,
    /// The manager of the serving certificate, which needs the node's addresses; none if it does not.
    pub certificate: Option<Addr<certificates::Msg>>,
    /// Actors spawned earlier that report facts of the node, and must report them again on a resync.
    pub reporters: Vec<Recipient<node::NodeResync>>,
}

/// Spawns the cluster's actors.
pub(super) fn spawn(node: &NodeHandle, cluster: ClusterWiring, inputs: ClusterInputs<'_>) {
    let group = node
        .root
        .supervisor("cluster", Strategy::OneForOne, Intensity::MANAGERS);
    let ClusterWiring {
        client,
        addrs,
        object,
        bootstrap,
        certificate,
        offer,
        publish,
        remembered,
        ports,
    } = cluster;
    let peers = certificates::Peers {
        client: client.clone(),
        bootstrap,
    };
    if let Some(certificate) = certificate {
        let subject = CertificateSubject::node(&inputs.settings.config.node_name);
        spawn_client(&group, subject, certificate, (peers, offer));
    }
    let way = ClusterContext {
        group: &group,
        node,
        client: &client,
        addrs: &addrs,
    };
    let supplied = remembered.supplied.clone();
    way.object_manager(ports.object_manager, &inputs, supplied);
    way.offline(ports.alone, &inputs.store, inputs.settings);
    way.ended(&remembered.pods);
    way.pods(ports.pods, inputs.settings, remembered.pods);
    way.node_status(ports.node, publish, (inputs.settings, inputs.reporters));
    way.volumes((ports.csi_node, ports.claims), &object, inputs.settings);
    way.life(&object, inputs.settings);
    way.node_informer(&object, inputs.certificate);
    let sources = node_health::HealthPeers {
        runtime: inputs.runtime,
        pleg: node.pleg.clone(),
        volumes: node.volumes.clone(),
        pods: node.pod_manager.clone(),
        root: node.root.clone(),
    };
    let facts = Recipient::new(addrs.node.clone(), node::Msg::Learned);
    group.spawn(
        ChildSpec::permanent("node-health"),
        ports.node_health,
        move || NodeHealthMonitor::new(sources.clone(), facts.clone()),
    );
}

/// What every cluster actor is spawned with.
struct ClusterContext<'a> {
    group: &'a Supervisor,
    node: &'a NodeHandle,
    client: &'a ApiClient,
    addrs: &'a ClusterAddrs,
}

impl ClusterContext<'_> {
    fn object_manager(
        &self,
        port: Port<manager::Msg>,
        inputs: &ClusterInputs<'_>,
        supplied: BTreeSet<PodUid>,
    ) {
        let subscribers = vec![
            Recipient::new(self.addrs.pods.clone(), |uids| api_pods::Msg::Supplied {
                uids,
            }),
            Recipient::new(self.addrs.alone.clone(), |uids| offline::Msg::Supplied {
                uids,
            }),
        ];
        let api = self.client.kube(RequestLane::Work);
        let peers = manager::Peers::new(
            api,
            inputs.writer.clone(),
            inputs.folder.clone(),
            subscribers,
        )
        .with_recorder(self.node.recorder.clone());
        let rules = inputs.settings.keeping(supplied);
        self.group
            .spawn(ChildSpec::permanent("objects"), port, move || {
                ObjectManager::new(peers.clone(), rules.clone())
            });
    }

    fn offline(&self, port: Port<offline::Msg>, shelf: &ObjectStore, settings: &AgentSettings) {
        let (folder, shelf) = (settings.folder.clone(), shelf.clone());
        let name = settings.config.node_name.clone();
        self.group
            .spawn(ChildSpec::permanent("offline"), port, move || {
                OfflineCheckpoint::new(&folder, name.clone(), shelf.clone())
            });
    }

    /// Reports pods that had ended before: no worker has them, and the API server may not know their last status.
    fn ended(&self, remembered: &[Arc<v1::Pod>]) {
        for pod in remembered
            .iter()
            .filter(|pod| classify_arrival(pod) != PodArrival::Live)
        {
            let (uid, status) = (pod.uid(), pod.status.clone().unwrap_or_default());
            let status = Arc::new(status);
            if let Err(full) = (self.node.statuses).tell(status::Msg::Changed { uid, status }) {
                tracing::warn!("how a remembered pod ended is not told: {full}");
            }
        }
    }

    fn pods(
        &self,
        port: Port<api_pods::Msg>,
        settings: &AgentSettings,
        remembered: Vec<Arc<v1::Pod>>,
    ) {
        let set = |pods| pod_manager::Msg::SetPods {
            source: PodSource::Api,
            pods,
        };
        let subscribers = api_pods::PodSubscribers {
            directory: Recipient::new(self.node.pod_manager.clone(), set),
            remembered: Recipient::new(self.node.pod_manager.clone(), |pods| {
                pod_manager::Msg::Restored { pods }
            }),
            objects: Recipient::new(self.addrs.object_manager.clone(), |pods| {
                manager::Msg::Pods { pods }
            }),
            alone: Recipient::new(self.addrs.alone.clone(), |pods| offline::Msg::Pods { pods }),
            statuses: Recipient::new(self.node.statuses.clone(), |pods| status::Msg::Pods {
                pods,
            }),
            kept: api_pods::KnownStaticPods::default(),
        };
        let name: Arc<str> = settings.config.node_name.as_str().into();
        let client = self.client.clone();
        self.group
            .spawn(ChildSpec::permanent("pods"), port, move || {
                ApiPods::new(
                    client.clone(),
                    name.clone(),
                    remembered.clone(),
                    subscribers.clone(),
                )
            });
    }

    fn node_status(
        &self,
        port: Port<node::Msg>,
        publish: watch::Sender<Option<Arc<v1::Node>>>,
        (settings, mut reporters): (&AgentSettings, Vec<Recipient<node::NodeResync>>),
    ) {
        reporters.extend([
            Recipient::new(self.node.volumes.clone(), |node::NodeResync| {
                volumes::Msg::Resync
            }),
            Recipient::new(self.addrs.csi_node.clone(), |node::NodeResync| {
                csi_node::Msg::TellAgain
            }),
            Recipient::new(self.addrs.node_health.clone(), |node::NodeResync| {
                node_health::Msg::Resync
            }),
        ]);
        let peers = node::Peers {
            client: self.client.clone(),
            recorder: self.node.recorder.clone(),
            object: publish,
            reported: Recipient::new(self.node.volumes.clone(), volumes::Msg::Reported),
            reporters,
        };
        let policy = settings.presence();
        self.group
            .spawn(ChildSpec::permanent("node"), port, move || {
                NodeStatusManager::new(policy.clone(), peers.clone())
            });
    }

    fn volumes(
        &self,
        (csi_port, claims_port): (Port<csi_node::Msg>, Port<pvc_resize::Msg>),
        object: &watch::Receiver<Option<Arc<v1::Node>>>,
        settings: &AgentSettings,
    ) {
        let peers = csi_node::Peers {
            client: self.client.clone(),
            object: object.clone(),
            node: self.addrs.node.clone(),
            volumes: Recipient::new(self.node.volumes.clone(), |node::NodeResync| {
                volumes::Msg::Resync
            }),
        };
        let name = settings.config.node_name.clone();
        self.group
            .spawn(ChildSpec::permanent("csi-node"), csi_port, move || {
                CsiNode::new(name.clone(), peers.clone())
            });
        let client = self.client.clone();
        self.group.spawn(
            ChildSpec::permanent("pvc-resizer"),
            claims_port,
            move || PvcResizer::new(client.clone()),
        );
    }

    fn life(&self, object: &watch::Receiver<Option<Arc<v1::Node>>>, settings: &AgentSettings) {
        let Some(holder) = settings.lease_holder() else {
            return;
        };
        let (client, object) = (self.client.clone(), object.clone());
        let (_, port) = mailbox(lease::MAILBOX);
        self.group
            .spawn(ChildSpec::permanent("lease"), port, move || {
                Heartbeat::new(holder.clone(), client.clone(), object.clone())
            });
    }

    fn node_informer(
        &self,
        object: &watch::Receiver<Option<Arc<v1::Node>>>,
        certificate: Option<Addr<certificates::Msg>>,
    ) {
        let mut listeners = vec![
            Recipient::new(self.addrs.pods.clone(), |node: Option<Arc<v1::Node>>| {
                let uid = node.and_then(|node| node.metadata.uid.clone());
                api_pods::Msg::Node { uid }
            }),
            Recipient::new(
                self.addrs.object_manager.clone(),
                |node: Option<Arc<v1::Node>>| {
                    let ttl = node.as_deref().and_then(object_ttl);
                    let uid = node.and_then(|node| node.metadata.uid.clone());
                    manager::Msg::Node { ttl, uid }
                },
            ),
            Recipient::new(self.node.pod_manager.clone(), |node| {
                pod_manager::Msg::Node(pod_manager::NodeChange::Object(node))
            }),
            Recipient::new(
                self.addrs.node_health.clone(),
                |node: Option<Arc<v1::Node>>| {
                    node_health::Msg::PodCidrs(node.as_deref().map(pod_ranges).unwrap_or_default())
                },
            ),
        ];
        if let Some(certificate) = certificate {
            listeners.push(Recipient::new(
                certificate,
                |node: Option<Arc<v1::Node>>| {
                    let subject = node.as_deref().and_then(identities);
                    certificates::Msg::Wanted { subject }
                },
            ));
        }
        let object = object.clone();
        let (_, port) = mailbox(node_informer::MAILBOX);
        self.group
            .spawn(ChildSpec::permanent("node-informer"), port, move || {
                NodeInformer::new(object.clone(), listeners.clone())
            });
    }
}

/// The pod CIDRs of a node's object, separated by commas.
fn pod_ranges(node: &v1::Node) -> String {
    let spec = node.spec.as_ref();
    let ranges = spec.and_then(|spec| spec.pod_cidrs.as_deref());
    ranges.unwrap_or_default().join(",")
}

/// How long ConfigMaps and Secrets may be cached: an annotation that the node controller sets by the cluster's size.
fn object_ttl(node: &v1::Node) -> Option<Duration> {
    let annotations = node.metadata.annotations.as_ref()?;
    let seconds = annotations.get("node.alpha.kubernetes.io/ttl")?;
    let seconds: i64 = seconds.parse().ok()?;
    // As upstream, an object is kept for no time at all where the annotation is negative.
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}
