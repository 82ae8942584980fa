//! The supervision tree, and all wiring, on one page.
//!
//! Mailboxes come first, so that anyone may tell anyone. Then the actors, in an order that is law: **an
//! actor asks only those spawned above it**; everyone else it tells. So the asks form no cycle.

mod certificates;
pub mod cluster;
mod plugins;
mod serving;
mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kernel::plugin;
use kernel::{Addr, ChildSpec, Intensity, Port, Recipient, Strategy, Supervisor, mailbox};
use logic::types::PodUid;
use tokio::signal::unix::{SignalKind, signal};

use self::cluster::Cluster;
use crate::credentials::{self, Credentials};
use crate::directory::{self, Directory, Source, Workers};
use crate::eviction::{self, Eviction};
use crate::hosts;
use crate::images::{self, Images};
use crate::logs::{self, Logs};
use crate::pleg::{self, Pleg};
use crate::pod_cgroups::PodCgroups;
use crate::prober::{self, Prober};
use crate::reach::Reach;
use crate::records::{self, Records};
use crate::runtime::Runtime;
use crate::settings::{Pulls, Settings};
use crate::shutdown::{self, Shutdown};
use crate::storage::Storage;
use crate::usage::Sampler;
use crate::user_namespaces::{self, UserNamespaces};
use crate::volumes::{self, Volumes};
use crate::worker::{Peers, Rules};
use ::cluster::events::{self, Events, Recorder};
use ::cluster::node::TellAgain;
use ::cluster::objects::{self, Folder, Shelf, Supply};
use ::cluster::pods::Statics;
use ::cluster::status::{self, Republish, Statuses};

/// A manager that fails more often than this is degraded: shown, and tried again at leisure.
const PATIENCE: Intensity = Intensity {
    restarts: 5,
    within: Duration::from_secs(60),
};

/// Whom the outside talks to.
#[derive(Debug, Clone)]
pub struct Node {
    pub root: Supervisor,
    pub directory: Addr<directory::Msg>,
    pub images: Addr<images::Msg>,
    pub volumes: Addr<volumes::Msg>,
    pub statuses: Addr<status::Msg>,
    pub events: Addr<events::Msg>,
    pub pleg: Addr<pleg::Msg>,
    pub recorder: Recorder,
}

/// Grows the tree and lives in it until it is told to end. Pods live on.
pub async fn run(settings: Settings) -> anyhow::Result<()> {
    for warning in &settings.config.warnings {
        tracing::warn!("{warning}");
    }
    metrics::node::introduce(&settings.node.node_name, &settings.config.version);
    metrics::component::features(settings.config.gates.all());
    let root = Supervisor::root("oxlet", PATIENCE);
    let cluster = Cluster::find(&settings)?;
    let (lines, hosts) = plugins::grow(&root, &settings);
    let runtime = Runtime::new(lines.runtime, settings.runtime_within);
    let objects = objects(&root, &settings, cluster.as_ref());
    let backends = Backends {
        runtime: runtime.clone(),
        storage: Storage::new(lines.local, lines.csi),
        storage_hosts: hosts.hosts.clone(),
    };
    let listeners = cluster.as_ref().map(Cluster::listeners);
    let sections = Sections {
        listeners: listeners.unwrap_or_default(),
        ..settings.sections(objects.shelf.clone())
    };
    let node = pods(&root, backends, sections, cluster.as_ref());
    node.recorder.begin(timestamp(), &settings.node.node_name);
    hosts::complain(&node.recorder, &settings.node).await;
    sources::grow(&node, &settings);
    let tellers = resources(&node, runtime.clone(), &settings, cluster.as_ref());
    let certificate = serving::grow(&node, runtime.clone(), hosts, (&settings, cluster.as_ref()))?;
    if let Some(cluster) = cluster {
        let around = cluster::Around {
            settings: &settings,
            runtime,
            supply: objects.supply,
            shelf: objects.shelf,
            folder: objects.folder,
            certificate,
            tellers,
        };
        cluster::grow(&node, cluster, around);
    }

    let (mut terminate, mut interrupt) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("ending; pods live on");
    node.root.shutdown().await;
    Ok(())
}

/// Where objects of the API lie at hand.
struct AtHand {
    supply: Supply,
    shelf: Shelf,
    /// What a folder of manifests holds, where the API fills the shelf.
    folder: Option<Shelf>,
}

/// Objects of the API: from the API itself, from a folder that is watched, or from both.
fn objects(root: &Supervisor, settings: &Settings, cluster: Option<&Cluster>) -> AtHand {
    let group = root.supervisor("objects", Strategy::OneForOne, PATIENCE);
    let path = PathBuf::from(&settings.config.flags.object_manifests);
    let (filled, folder) = Shelf::new(objects::load(&settings.config.flags.object_manifests));
    let is_given = !path.as_os_str().is_empty();
    if is_given {
        let (_, port) = mailbox(objects::MAILBOX);
        let supply = filled.clone();
        group.spawn(ChildSpec::permanent("folder"), port, move || {
            Folder::new(path.clone(), supply.clone())
        });
    }
    let Some(cluster) = cluster else {
        return AtHand {
            supply: filled,
            shelf: folder,
            folder: None,
        };
    };
    let mut remembered = cluster.remembered();
    drop(remembered.merge((*folder.snapshot()).clone()));
    let (supply, shelf) = Shelf::new(remembered);
    AtHand {
        supply,
        shelf,
        folder: is_given.then_some(folder),
    }
}

/// Who does the work outside this process.
#[derive(Debug)]
pub struct Backends {
    pub runtime: Runtime,
    pub storage: Storage,
    /// By the plugin's name; who is told that a process is worn.
    pub storage_hosts: BTreeMap<String, Addr<plugin::Msg>>,
}

/// The pods' sections of the configuration.
#[derive(Debug)]
pub struct Sections {
    pub rules: Arc<Rules>,
    /// The agent's own folder.
    pub folder: PathBuf,
    pub pulls: Pulls,
    pub users: user_namespaces::Policy,
    pub logs: logic::logs::Policy,
    pub sources: BTreeSet<Source>,
    pub objects: Shelf,
    pub volumes: volumes::Policy,
    pub listeners: Listeners,
}

/// Who hears what becomes of pods, besides those who work for them; nobody on a node that is alone.
#[derive(Debug, Clone, Default)]
pub struct Listeners {
    /// Of static pods, for their mirrors.
    pub mirrors: Option<Recipient<Statics>>,
    /// Of pods that need nothing any more.
    pub over: Option<Recipient<PodUid>>,
}

/// The keepers of what is known, and the pods' own area.
pub fn pods(
    root: &Supervisor,
    backends: Backends,
    sections: Sections,
    cluster: Option<&Cluster>,
) -> Node {
    let runtime = backends.runtime.clone();
    let (keepers, keepers_ports) = keepers_mailboxes();
    let (credentials, credentials_port) = mailbox(credentials::MAILBOX);
    let (images, images_port) = mailbox(images::MAILBOX);
    let (directory, directory_port) = mailbox(directory::MAILBOX);
    let (pleg, pleg_port) = mailbox(pleg::MAILBOX);
    let (prober, prober_port) = mailbox(prober::MAILBOX);
    let (logs, logs_port) = mailbox(logs::MAILBOX);
    let (volumes, volumes_port) = mailbox(volumes::MAILBOX);
    let recorder = Recorder::new(keepers.events.clone());
    let peers = Peers {
        runtime: runtime.clone(),
        images: images.clone(),
        statuses: keepers.statuses.clone(),
        records: keepers.records.clone(),
        directory: directory.clone(),
        prober,
        logs,
        users: keepers.users,
        volumes: volumes.clone(),
        cgroups: PodCgroups::new(sections.rules.node.cgroups.clone()),
        recorder: recorder.clone(),
        objects: Arc::new(sections.objects.clone()),
        over: sections.listeners.over.clone(),
        rules: sections.rules.clone(),
    };

    let file = sections.folder.join("pods.checkpoint");
    let told = Told {
        directory: &directory,
        node_name: &sections.rules.node.node_name,
        cluster,
    };
    let files = (
        [file.as_path(), &sections.rules.node.root_dir],
        sections.users,
    );
    grow_keepers(root, keepers_ports, files, &told);
    let keeping = keeping(backends, (&sections.objects, &peers), cluster);
    mounts(root, volumes_port, sections.volumes, keeping);
    let pods = root.supervisor("pods", Strategy::OneForOne, PATIENCE);
    let ports = ServantPorts {
        credentials: credentials_port,
        images: images_port,
        logs: logs_port,
        prober: prober_port,
    };
    let policies = (sections.pulls, sections.logs);
    servants(&pods, ports, policies, (credentials, &peers));
    let group = pods.supervisor("workers", Strategy::OneForOne, Intensity::UNLIMITED);
    let workers = Workers::new(group, peers);
    let centre = Centre {
        peers: directory::Peers {
            pleg: pleg.clone(),
            records: keepers.records,
            mirrors: sections.listeners.mirrors.clone(),
        },
        workers,
        sources: sections.sources,
        rules: sections.rules,
        runtime,
        directory: directory.clone(),
    };
    centre.grow(&pods, directory_port, pleg_port);

    Node {
        root: root.clone(),
        directory,
        images,
        volumes,
        statuses: keepers.statuses,
        events: keepers.events,
        pleg,
        recorder,
    }
}

/// The directory, and who tells it what the runtime has.
struct Centre {
    peers: directory::Peers,
    workers: Workers,
    sources: BTreeSet<Source>,
    rules: Arc<Rules>,
    runtime: Runtime,
    directory: Addr<directory::Msg>,
}

impl Centre {
    fn grow(self, pods: &Supervisor, directory: Port<directory::Msg>, pleg: Port<pleg::Msg>) {
        let facts = self.rules.facts.clone();
        let (peers, workers, sources) = (self.peers, self.workers, self.sources);
        pods.spawn(ChildSpec::permanent("directory"), directory, move || {
            Directory::new(
                peers.clone(),
                workers.clone(),
                sources.clone(),
                facts.clone(),
            )
        });
        let (runtime, told) = (self.runtime, self.directory);
        pods.spawn(ChildSpec::permanent("pleg"), pleg, move || {
            Pleg::new(runtime.clone(), told.clone())
        });
    }
}

struct KeeperAddrs {
    events: Addr<events::Msg>,
    records: Addr<records::Msg>,
    users: Addr<user_namespaces::Msg>,
    statuses: Addr<status::Msg>,
}

struct KeeperPorts {
    events: Port<events::Msg>,
    records: Port<records::Msg>,
    users: Port<user_namespaces::Msg>,
    statuses: Port<status::Msg>,
}

fn keepers_mailboxes() -> (KeeperAddrs, KeeperPorts) {
    let (events, events_port) = mailbox(events::MAILBOX);
    let (records, records_port) = mailbox(records::MAILBOX);
    let (users, users_port) = mailbox(user_namespaces::MAILBOX);
    let (statuses, statuses_port) = mailbox(status::MAILBOX);
    let addrs = KeeperAddrs {
        events,
        records,
        users,
        statuses,
    };
    let ports = KeeperPorts {
        events: events_port,
        records: records_port,
        users: users_port,
        statuses: statuses_port,
    };
    (addrs, ports)
}

/// Whom the keepers tell.
struct Told<'a> {
    directory: &'a Addr<directory::Msg>,
    node_name: &'a str,
    cluster: Option<&'a Cluster>,
}

/// Who remembers; they tell the directory and the API server.
fn grow_keepers(
    root: &Supervisor,
    ports: KeeperPorts,
    ([file, root_dir], ids): ([&Path; 2], user_namespaces::Policy),
    told: &Told<'_>,
) {
    let keepers = root.supervisor("keepers", Strategy::OneForOne, PATIENCE);
    let sending = told.cluster.map(|cluster| cluster.events(told.node_name));
    keepers.spawn(ChildSpec::permanent("events"), ports.events, move || {
        Events::new(sending.clone())
    });
    let (file, root_dir) = (file.to_owned(), root_dir.to_owned());
    keepers.spawn(ChildSpec::permanent("records"), ports.records, move || {
        Records::new(file.clone(), &root_dir)
    });
    keepers.spawn(ChildSpec::permanent("users"), ports.users, move || {
        UserNamespaces::new(ids.clone())
    });
    let peers = status::Peers {
        republish: Recipient::new(told.directory.clone(), |Republish| {
            directory::Msg::Republish
        }),
        api: told.cluster.map(Cluster::sending),
        kept: told.cluster.map(Cluster::kept),
    };
    keepers.spawn(ChildSpec::permanent("status"), ports.statuses, move || {
        Statuses::new(peers.clone())
    });
}

/// Whom the keeper of volumes works with.
fn keeping(
    backends: Backends,
    (objects, peers): (&Shelf, &Peers),
    cluster: Option<&Cluster>,
) -> volumes::Peers {
    volumes::Peers {
        storage: backends.storage,
        hosts: backends.storage_hosts,
        objects: objects.clone(),
        directory: peers.directory.clone(),
        recorder: peers.recorder.clone(),
        rules: peers.rules.clone(),
        cluster: cluster.map(Cluster::volumes),
    }
}

/// Who keeps the volumes.
fn mounts(
    root: &Supervisor,
    port: Port<volumes::Msg>,
    policy: volumes::Policy,
    peers: volumes::Peers,
) {
    let group = root.supervisor("volumes", Strategy::OneForOne, PATIENCE);
    group.spawn(ChildSpec::permanent("volumes"), port, move || {
        Volumes::new(policy.clone(), peers.clone())
    });
}

struct ServantPorts {
    credentials: Port<credentials::Msg>,
    images: Port<images::Msg>,
    logs: Port<logs::Msg>,
    prober: Port<prober::Msg>,
}

/// Who works for all pods.
fn servants(
    pods: &Supervisor,
    ports: ServantPorts,
    (pulls, policy): (Pulls, logic::logs::Policy),
    (credentials, peers): (Addr<credentials::Msg>, &Peers),
) {
    let section = pulls.credentials;
    pods.spawn(
        ChildSpec::permanent("credentials"),
        ports.credentials,
        move || Credentials::new(section.clone()),
    );
    let keeper = images::Peers {
        runtime: peers.runtime.clone(),
        credentials,
        recorder: peers.recorder.clone(),
        objects: peers.objects.clone(),
    };
    let section = pulls.images;
    pods.spawn(ChildSpec::permanent("images"), ports.images, move || {
        Images::new(section.clone(), keeper.clone())
    });
    let (asked, told) = (peers.runtime.clone(), peers.directory.clone());
    pods.spawn(ChildSpec::permanent("logs"), ports.logs, move || {
        Logs::new(policy.clone(), asked.clone(), told.clone())
    });
    let probing = prober::Peers {
        runtime: peers.runtime.clone(),
        reach: Reach::default(),
        recorder: peers.recorder.clone(),
        directory: peers.directory.clone(),
    };
    pods.spawn(ChildSpec::permanent("prober"), ports.prober, move || {
        Prober::new(probing.clone())
    });
}

/// Who keeps the node alive; returns who of them tells the node's object something.
fn resources(
    node: &Node,
    runtime: Runtime,
    settings: &Settings,
    cluster: Option<&Cluster>,
) -> Vec<Recipient<TellAgain>> {
    let resources = node
        .root
        .supervisor("resources", Strategy::OneForOne, PATIENCE);
    let (addr, port) = mailbox(eviction::MAILBOX);
    let mut tellers = vec![Recipient::new(addr, |TellAgain| eviction::Msg::TellAgain)];
    let sampler = Sampler::new(runtime, node.directory.clone());
    let (policy, name) = (settings.eviction.clone(), settings.config.node_name.clone());
    let peers = eviction::Peers {
        directory: node.directory.clone(),
        node: cluster.map(Cluster::pressures),
        recorder: node.recorder.clone(),
    };
    resources.spawn(ChildSpec::permanent("eviction"), port, move || {
        Eviction::new(policy.clone(), sampler.clone(), peers.clone(), name.clone())
    });
    if settings.shutdown.order.groups.is_empty() {
        return tellers;
    }
    let (addr, port) = mailbox(shutdown::MAILBOX);
    tellers.push(Recipient::new(addr, |TellAgain| shutdown::Msg::TellAgain));
    let peers = shutdown::Peers {
        directory: node.directory.clone(),
        volumes: node.volumes.clone(),
        node: cluster.map(Cluster::shutdown),
        recorder: node.recorder.clone(),
    };
    let policy = settings.shutdown.clone();
    resources.spawn(ChildSpec::permanent("shutdown"), port, move || {
        Shutdown::new(policy.clone(), peers.clone())
    });
    tellers
}

/// What time it is, for what is no actor.
fn timestamp() -> jiff::Timestamp {
    jiff::Timestamp::try_from(kernel::wall()).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
}
