//! The cluster's area: the way to the API server, what comes from it, what is told to it.
//!
//! Mailboxes and the client are made before anything else, because pods' keepers talk to both; the actors come last.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use cluster::alone::{self, Alone, Remembered};
use cluster::certificates::{self, Prepared};
use cluster::client::{Client, Identity, Lane};
use cluster::events;
use cluster::node::claims::{self, Claims};
use cluster::node::csi_node::{self, CsiNode};
use cluster::node::herald::{self, Herald};
use cluster::node::lease::{self, Heartbeat};
use cluster::node::{self, Presence};
use cluster::objects::keeper::{self, Keeper};
use cluster::objects::{Shelf, Supply};
use cluster::pods::{self, Pods};
use cluster::status::{self, Republish};
use k8s_openapi::api::core::v1;
use kernel::{Addr, ChildSpec, Port, Recipient, Strategy, Supervisor, mailbox};
use logic::admission::ShuttingDown;
use logic::arrival::{Arrival, arrival};
use logic::certificates::{Renewal, Subject};
use logic::node_status::Fact;
use logic::objects::StaticObjects;
use logic::pod::PodView;
use logic::pressure::Signal;
use logic::types::PodUid;
use tokio::sync::watch;

use super::certificates::{Offer, grow_client, reached_by};
use super::{Listeners, Node, PATIENCE};
use crate::directory::{self, Source};
use crate::runtime::Runtime;
use crate::settings::{self, ClientCertificate, Settings};
use crate::vitals::{self, Vitals};
use crate::volumes;

/// The way into the cluster, before its actors are there.
#[derive(Debug)]
pub struct Cluster {
    pub client: Client,
    pub addrs: Addrs,
    /// The node's object, once it is known.
    pub object: watch::Receiver<Option<Arc<v1::Node>>>,
    bootstrap: Option<Client>,
    certificate: Option<ClientCertificate>,
    offer: Offer,
    publish: watch::Sender<Option<Arc<v1::Node>>>,
    remembered: Remembered,
    ports: Ports,
}

/// Whom others tell.
#[derive(Debug, Clone)]
pub struct Addrs {
    pub pods: Addr<pods::Msg>,
    pub keeper: Addr<keeper::Msg>,
    pub alone: Addr<alone::Msg>,
    pub node: Addr<node::Msg>,
    pub csi_node: Addr<csi_node::Msg>,
    pub claims: Addr<claims::Msg>,
    pub vitals: Addr<vitals::Msg>,
}

#[derive(Debug)]
struct Ports {
    pods: Port<pods::Msg>,
    keeper: Port<keeper::Msg>,
    alone: Port<alone::Msg>,
    node: Port<node::Msg>,
    csi_node: Port<csi_node::Msg>,
    claims: Port<claims::Msg>,
    vitals: Port<vitals::Msg>,
}

impl Cluster {
    /// Reads the kubeconfig and what was remembered; asks nothing of the server yet. None for a node that is alone by
    /// design.
    pub fn find(settings: &Settings) -> anyhow::Result<Option<Cluster>> {
        let Some(mut section) = settings.cluster.clone() else {
            return Ok(None);
        };
        find_kubeconfig(&mut section)?;
        let (offer, identity) = watch::channel(None);
        let client = Client::new(section.access, identity).context("no way to the API server")?;
        let (_, nobody) = watch::channel(None);
        let bootstrap = section.bootstrap.map(|access| Client::new(access, nobody));
        let bootstrap = bootstrap.transpose().context("no way to the API server")?;
        let (publish, object) = watch::channel(None);
        let remembered = alone::load(&settings.folder);
        if let Some(trouble) = &remembered.trouble {
            tracing::error!("{trouble}");
        }
        let (addrs, ports) = mailboxes();
        Ok(Some(Cluster {
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

    /// What was remembered, for the shelf to begin with.
    pub fn remembered(&self) -> StaticObjects {
        self.remembered.objects.clone()
    }

    /// How statuses are sent.
    pub fn sending(&self) -> status::Sending {
        let pods = Recipient::new(self.addrs.pods.clone(), |Republish| pods::Msg::Again);
        status::Sending::new(&self.client, pods)
    }

    /// Who keeps every pod's newest status for a time without the server.
    pub fn kept(&self) -> Recipient<(PodUid, Arc<v1::PodStatus>)> {
        Recipient::new(self.addrs.alone.clone(), |(uid, status)| {
            alone::Msg::Status { uid, status }
        })
    }

    /// Whom the keeper of volumes tells.
    pub fn volumes(&self) -> volumes::Cluster {
        volumes::Cluster {
            node: self.addrs.node.clone(),
            csi_node: self.addrs.csi_node.clone(),
            claims: self.addrs.claims.clone(),
            object: self.object.clone(),
        }
    }

    /// Who hears what becomes of pods.
    pub fn listeners(&self) -> Listeners {
        let (pods, keeper) = (self.addrs.pods.clone(), self.addrs.keeper.clone());
        Listeners {
            mirrors: Some(Recipient::new(pods, pods::Msg::Static)),
            over: Some(Recipient::new(keeper, |uid| keeper::Msg::Ended { uid })),
        }
    }

    /// How events are sent.
    pub fn events(&self, node_name: &str) -> events::Sending {
        events::Sending::new(&self.client, node_name)
    }

    /// Who is told what the node runs short of.
    pub fn pressures(&self) -> Recipient<BTreeSet<Signal>> {
        Recipient::new(self.addrs.node.clone(), |signals: BTreeSet<Signal>| {
            let pressures = signals.into_iter().map(Into::into).collect();
            node::Msg::Learned(Fact::Pressures(pressures))
        })
    }

    /// Who is told that the node goes down.
    pub fn shutdown(&self) -> Recipient<ShuttingDown> {
        Recipient::new(self.addrs.node.clone(), |state| {
            let why = match state {
                ShuttingDown::Yes => Some("node is shutting down".to_owned()),
                ShuttingDown::No => None,
            };
            node::Msg::Learned(Fact::Shutdown(why))
        })
    }
}

/// Sees to it that there is a kubeconfig, where the bootstrap credentials are one's way to it. The certificate of one
/// that is good needs no keeper, unless it is to be replaced in time.
fn find_kubeconfig(section: &mut settings::Cluster) -> anyhow::Result<()> {
    let asked = section.client_certificate.as_ref();
    let (Some(bootstrap), Some(asked)) = (&section.bootstrap, asked) else {
        return Ok(());
    };
    let (own, given) = (&section.access.kubeconfig, &bootstrap.kubeconfig);
    let current = asked.store.current_path();
    let prepared = certificates::prepare(own, given, &current, super::timestamp())?;
    if (prepared, asked.renewal) == (Prepared::Kept, Renewal::Never) {
        section.access.identity = Identity::There;
        section.client_certificate = None;
    }
    Ok(())
}

fn mailboxes() -> (Addrs, Ports) {
    let (pods, pods_port) = mailbox(pods::MAILBOX);
    let (keeper, keeper_port) = mailbox(keeper::MAILBOX);
    let (alone, alone_port) = mailbox(alone::MAILBOX);
    let (node, node_port) = mailbox(node::MAILBOX);
    let (csi_node, csi_node_port) = mailbox(csi_node::MAILBOX);
    let (claims, claims_port) = mailbox(claims::MAILBOX);
    let (vitals, vitals_port) = mailbox(vitals::MAILBOX);
    let addrs = Addrs {
        pods,
        keeper,
        alone,
        node,
        csi_node,
        claims,
        vitals,
    };
    let ports = Ports {
        pods: pods_port,
        keeper: keeper_port,
        alone: alone_port,
        node: node_port,
        csi_node: csi_node_port,
        claims: claims_port,
        vitals: vitals_port,
    };
    (addrs, ports)
}

/// What the cluster's actors are wired with, besides one another.
#[derive(Debug)]
pub struct Around<'a> {
    pub settings: &'a Settings,
    pub runtime: Runtime,
    pub supply: Supply,
    pub shelf: Shelf,
    /// Objects of manifests, where there is a folder of them.
    pub folder: Option<Shelf>,
    /// Who is told where the node can be reached: its serving certificate says so.
    pub certificate: Option<Addr<certificates::Msg>>,
    /// Who of those before it tells facts of the node.
    pub tellers: Vec<Recipient<node::TellAgain>>,
}

/// Everybody who works for the node's place in its cluster.
pub fn grow(node: &Node, cluster: Cluster, around: Around<'_>) {
    let group = node
        .root
        .supervisor("cluster", Strategy::OneForOne, PATIENCE);
    let Cluster {
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
        let subject = Subject::node(&around.settings.config.node_name);
        grow_client(&group, subject, certificate, (peers, offer));
    }
    let way = Way {
        group: &group,
        node,
        client: &client,
        addrs: &addrs,
    };
    let supplied = remembered.supplied.clone();
    way.keeper(ports.keeper, &around, supplied);
    way.alone(ports.alone, &around.shelf, around.settings);
    way.ended(&remembered.pods);
    way.pods(ports.pods, around.settings, remembered.pods);
    way.presence(ports.node, publish, (around.settings, around.tellers));
    way.volumes((ports.csi_node, ports.claims), &object, around.settings);
    way.life(&object, around.settings);
    way.herald(&object, around.certificate);
    let sources = vitals::Sources {
        runtime: around.runtime,
        pleg: node.pleg.clone(),
        volumes: node.volumes.clone(),
        root: node.root.clone(),
    };
    let told = addrs.node.clone();
    group.spawn(ChildSpec::permanent("vitals"), ports.vitals, move || {
        Vitals::new(sources.clone(), told.clone())
    });
}

/// What every one of them is wired with.
struct Way<'a> {
    group: &'a Supervisor,
    node: &'a Node,
    client: &'a Client,
    addrs: &'a Addrs,
}

impl Way<'_> {
    fn keeper(&self, port: Port<keeper::Msg>, around: &Around<'_>, supplied: BTreeSet<PodUid>) {
        let told = vec![
            Recipient::new(self.addrs.pods.clone(), |uids| pods::Msg::Supplied { uids }),
            Recipient::new(self.addrs.alone.clone(), |uids| alone::Msg::Supplied {
                uids,
            }),
        ];
        let api = self.client.kube(Lane::Work);
        let peers = keeper::Peers::new(api, around.supply.clone(), around.folder.clone(), told)
            .with_recorder(self.node.recorder.clone());
        let rules = around.settings.keeping(supplied);
        self.group
            .spawn(ChildSpec::permanent("objects"), port, move || {
                Keeper::new(peers.clone(), rules.clone())
            });
    }

    fn alone(&self, port: Port<alone::Msg>, shelf: &Shelf, settings: &Settings) {
        let (folder, shelf) = (settings.folder.clone(), shelf.clone());
        let name = settings.config.node_name.clone();
        self.group
            .spawn(ChildSpec::permanent("alone"), port, move || {
                Alone::new(&folder, name.clone(), shelf.clone())
            });
    }

    /// Nobody works on pods that had ended before, and the API server may not know how they did.
    fn ended(&self, remembered: &[Arc<v1::Pod>]) {
        for pod in remembered
            .iter()
            .filter(|pod| arrival(pod) != Arrival::Live)
        {
            let (uid, status) = (pod.uid(), pod.status.clone().unwrap_or_default());
            let status = Arc::new(status);
            if let Err(full) = (self.node.statuses).tell(status::Msg::Changed { uid, status }) {
                tracing::warn!("how a remembered pod ended is not told: {full}");
            }
        }
    }

    fn pods(&self, port: Port<pods::Msg>, settings: &Settings, remembered: Vec<Arc<v1::Pod>>) {
        let set = |pods| directory::Msg::Set {
            source: Source::Api,
            pods,
        };
        let told = pods::Told {
            directory: Recipient::new(self.node.directory.clone(), set),
            remembered: Recipient::new(self.node.directory.clone(), |pods| {
                directory::Msg::Remembered { pods }
            }),
            objects: Recipient::new(self.addrs.keeper.clone(), |pods| keeper::Msg::Pods { pods }),
            alone: Recipient::new(self.addrs.alone.clone(), |pods| alone::Msg::Pods { pods }),
            statuses: Recipient::new(self.node.statuses.clone(), |pods| status::Msg::Pods {
                pods,
            }),
            kept: pods::Kept::default(),
        };
        let name: Arc<str> = settings.config.node_name.as_str().into();
        let client = self.client.clone();
        self.group
            .spawn(ChildSpec::permanent("pods"), port, move || {
                Pods::new(
                    client.clone(),
                    name.clone(),
                    remembered.clone(),
                    told.clone(),
                )
            });
    }

    fn presence(
        &self,
        port: Port<node::Msg>,
        publish: watch::Sender<Option<Arc<v1::Node>>>,
        (settings, mut tellers): (&Settings, Vec<Recipient<node::TellAgain>>),
    ) {
        tellers.extend([
            Recipient::new(self.node.volumes.clone(), |node::TellAgain| {
                volumes::Msg::TellAgain
            }),
            Recipient::new(self.addrs.csi_node.clone(), |node::TellAgain| {
                csi_node::Msg::TellAgain
            }),
            Recipient::new(self.addrs.vitals.clone(), |node::TellAgain| {
                vitals::Msg::TellAgain
            }),
        ]);
        let peers = node::Peers {
            client: self.client.clone(),
            recorder: self.node.recorder.clone(),
            object: publish,
            reported: Recipient::new(self.node.volumes.clone(), volumes::Msg::Reported),
            tellers,
        };
        let policy = settings.presence();
        self.group
            .spawn(ChildSpec::permanent("node"), port, move || {
                Presence::new(policy.clone(), peers.clone())
            });
    }

    fn volumes(
        &self,
        (csi_port, claims_port): (Port<csi_node::Msg>, Port<claims::Msg>),
        object: &watch::Receiver<Option<Arc<v1::Node>>>,
        settings: &Settings,
    ) {
        let peers = csi_node::Peers {
            client: self.client.clone(),
            object: object.clone(),
            node: self.addrs.node.clone(),
            volumes: Recipient::new(self.node.volumes.clone(), |node::TellAgain| {
                volumes::Msg::TellAgain
            }),
        };
        let name = settings.config.node_name.clone();
        self.group
            .spawn(ChildSpec::permanent("csi-node"), csi_port, move || {
                CsiNode::new(name.clone(), peers.clone())
            });
        let client = self.client.clone();
        self.group
            .spawn(ChildSpec::permanent("claims"), claims_port, move || {
                Claims::new(client.clone())
            });
    }

    fn life(&self, object: &watch::Receiver<Option<Arc<v1::Node>>>, settings: &Settings) {
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

    fn herald(
        &self,
        object: &watch::Receiver<Option<Arc<v1::Node>>>,
        certificate: Option<Addr<certificates::Msg>>,
    ) {
        let mut listeners = vec![
            Recipient::new(
                self.addrs.pods.clone(),
                |node: Option<Arc<v1::Node>>| match node.and_then(|node| node.metadata.uid.clone())
                {
                    Some(uid) => pods::Msg::Node { uid },
                    None => pods::Msg::NodeGone,
                },
            ),
            Recipient::new(self.addrs.keeper.clone(), |node: Option<Arc<v1::Node>>| {
                let ttl = node.as_deref().and_then(object_ttl);
                let uid = node.and_then(|node| node.metadata.uid.clone());
                keeper::Msg::Node { ttl, uid }
            }),
            Recipient::new(self.node.directory.clone(), |node| {
                directory::Msg::NodeChanged { node }
            }),
            Recipient::new(self.addrs.vitals.clone(), |node: Option<Arc<v1::Node>>| {
                vitals::Msg::PodRanges(node.as_deref().map(pod_ranges).unwrap_or_default())
            }),
        ];
        if let Some(certificate) = certificate {
            listeners.push(Recipient::new(
                certificate,
                |node: Option<Arc<v1::Node>>| {
                    let subject = node.as_deref().and_then(reached_by);
                    certificates::Msg::Wanted { subject }
                },
            ));
        }
        let object = object.clone();
        let (_, port) = mailbox(herald::MAILBOX);
        self.group
            .spawn(ChildSpec::permanent("herald"), port, move || {
                Herald::new(object.clone(), listeners.clone())
            });
    }
}

/// The addresses of the node's pods, as whoever gives them out says.
fn pod_ranges(node: &v1::Node) -> String {
    let spec = node.spec.as_ref();
    let ranges = spec.and_then(|spec| spec.pod_cidrs.as_deref());
    ranges.unwrap_or_default().join(",")
}

/// How long ConfigMaps and Secrets may be kept, as the node's controller says by the cluster's size.
fn object_ttl(node: &v1::Node) -> Option<Duration> {
    let annotations = node.metadata.annotations.as_ref()?;
    let seconds = annotations.get("node.alpha.kubernetes.io/ttl")?;
    seconds.parse().ok().map(Duration::from_secs)
}
