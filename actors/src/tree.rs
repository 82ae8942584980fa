//! The supervision tree, and all wiring, on one page.
//!
//! Mailboxes come first, so that anyone may tell anyone. Then the actors, in an order that is law: **an
//! actor asks only those spawned above it**; everyone else it tells. So the asks form no cycle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kernel::plugin::{self, Declaration, Host, Line};
use kernel::{Addr, ChildSpec, Intensity, Port, Recipient, Strategy, Supervisor, mailbox};
use tokio::signal::unix::{SignalKind, signal};

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
use crate::serving;
use crate::serving::admin::{Admin, AdminPeers, Checkpoints, FaultInjection, Plugins};
use crate::serving::healthz::{Health, Healthz};
use crate::serving::read_only::ReadOnly;
use crate::settings::{Pulls, RUNTIME, Settings};
use crate::sources::file::{self, Files};
use crate::sources::http::{self, Url};
use crate::storage::{Plugin, Storage};
use crate::usage::Sampler;
use crate::user_namespaces::{self, UserNamespaces};
use crate::volumes::{self, Volumes};
use crate::worker::{Peers, Rules};
use cluster::events::{self, Events, Recorder};
use cluster::objects::{self, Folder, Shelf};
use cluster::status::{self, Republish, Statuses};

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
    let root = Supervisor::root("oxlet", PATIENCE);
    let (lines, hosts) = plugins(&root, &settings);
    let runtime = Runtime::new(lines.runtime, settings.runtime_within);
    let shelf = objects(&root, &settings);
    let backends = Backends {
        runtime: runtime.clone(),
        storage: Storage::new(lines.local, lines.csi),
        storage_hosts: hosts.hosts.clone(),
    };
    let node = pods(&root, backends, settings.sections(shelf));
    hosts::complain(&node.recorder, &settings.node).await;
    sources(&node, &settings);
    resources(&node, runtime.clone(), &settings);
    serving(&node, runtime, hosts, &settings);

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

/// How the plugins are called; a line follows restart and swap.
struct Lines {
    runtime: Line,
    local: Line,
    csi: Line,
}

/// One host a plugin.
fn plugins(root: &Supervisor, settings: &Settings) -> (Lines, Plugins) {
    let group = root.supervisor("plugins", Strategy::OneForOne, PATIENCE);
    let folder = settings.folder.join("plugins");
    let mut hosts = BTreeMap::new();
    let mut host = |name: &str, declaration: Declaration| {
        let line = Line::new(name);
        // Its own tasks' news, and an operator's orders, one at a time.
        let (host, port) = mailbox(64);
        let (folder, hosted) = (folder.clone(), line.clone());
        group.spawn(ChildSpec::permanent(name), port, move || {
            Host::new(declaration.clone(), folder.clone(), hosted.clone())
        });
        hosts.insert(name.to_owned(), host);
        line
    };
    let declared = |plugin: Plugin| settings.storage[plugin.name()].clone();
    let lines = Lines {
        runtime: host(RUNTIME, settings.runtimes[&settings.runtime].clone()),
        local: host(Plugin::Local.name(), declared(Plugin::Local)),
        csi: host(Plugin::Csi.name(), declared(Plugin::Csi)),
    };
    let choices = settings.runtimes.clone();
    let plugins = Plugins {
        group,
        hosts,
        choices,
    };
    (lines, plugins)
}

/// Objects of the API, from a folder that is watched.
fn objects(root: &Supervisor, settings: &Settings) -> Shelf {
    let group = root.supervisor("objects", Strategy::OneForOne, PATIENCE);
    let folder = PathBuf::from(&settings.config.flags.object_manifests);
    let (supply, shelf) = Shelf::new(objects::load(&settings.config.flags.object_manifests));
    if !folder.as_os_str().is_empty() {
        let (_, port) = mailbox(objects::MAILBOX);
        group.spawn(ChildSpec::permanent("folder"), port, move || {
            Folder::new(folder.clone(), supply.clone())
        });
    }
    shelf
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
}

/// The keepers of what is known, and the pods' own area.
pub fn pods(root: &Supervisor, backends: Backends, sections: Sections) -> Node {
    let runtime = backends.runtime.clone();
    let (events, events_port) = mailbox(events::MAILBOX);
    let (records, records_port) = mailbox(records::MAILBOX);
    let (statuses, statuses_port) = mailbox(status::MAILBOX);
    let (credentials, credentials_port) = mailbox(credentials::MAILBOX);
    let (images, images_port) = mailbox(images::MAILBOX);
    let (directory, directory_port) = mailbox(directory::MAILBOX);
    let (pleg, pleg_port) = mailbox(pleg::MAILBOX);
    let (users, users_port) = mailbox(user_namespaces::MAILBOX);
    let (prober, prober_port) = mailbox(prober::MAILBOX);
    let (logs, logs_port) = mailbox(logs::MAILBOX);
    let (volumes, volumes_port) = mailbox(volumes::MAILBOX);
    let recorder = Recorder::new(events.clone());
    let peers = Peers {
        runtime: runtime.clone(),
        images: images.clone(),
        statuses: statuses.clone(),
        records: records.clone(),
        directory: directory.clone(),
        prober,
        logs,
        users,
        volumes: volumes.clone(),
        cgroups: PodCgroups::new(sections.rules.node.cgroups.clone()),
        recorder: recorder.clone(),
        objects: Arc::new(sections.objects.clone()),
        rules: sections.rules.clone(),
    };

    let ports = KeeperPorts {
        events: events_port,
        records: records_port,
        users: users_port,
        statuses: statuses_port,
    };
    let file = sections.folder.join("pods.checkpoint");
    keepers(root, ports, &file, sections.users, &directory);
    let keeping = volumes::Peers {
        storage: backends.storage,
        hosts: backends.storage_hosts,
        objects: sections.objects,
        directory: directory.clone(),
        recorder: recorder.clone(),
        rules: sections.rules.clone(),
    };
    mounts(root, volumes_port, sections.volumes, keeping);

    let pods = root.supervisor("pods", Strategy::OneForOne, PATIENCE);
    let ports = ServantPorts {
        credentials: credentials_port,
        images: images_port,
        logs: logs_port,
        prober: prober_port,
    };
    let (pulls, policy) = (sections.pulls, sections.logs);
    servants(&pods, ports, pulls, policy, (credentials, &peers));
    let workers = Workers::new(
        pods.supervisor("workers", Strategy::OneForOne, Intensity::UNLIMITED),
        peers,
    );
    let (told, facts) = (pleg.clone(), sections.rules.facts.clone());
    let (asked, sources) = (records, sections.sources);
    let begin = move || {
        let (told, asked, sources) = (told.clone(), asked.clone(), sources.clone());
        Directory::new(told, asked, workers.clone(), sources, facts.clone())
    };
    pods.spawn(ChildSpec::permanent("directory"), directory_port, begin);
    let told = directory.clone();
    pods.spawn(ChildSpec::permanent("pleg"), pleg_port, move || {
        Pleg::new(runtime.clone(), told.clone())
    });

    Node {
        root: root.clone(),
        directory,
        images,
        volumes,
        statuses,
        events,
        pleg,
        recorder,
    }
}

struct KeeperPorts {
    events: Port<events::Msg>,
    records: Port<records::Msg>,
    users: Port<user_namespaces::Msg>,
    statuses: Port<status::Msg>,
}

/// Who remembers; they tell only the directory.
fn keepers(
    root: &Supervisor,
    ports: KeeperPorts,
    file: &Path,
    ids: user_namespaces::Policy,
    directory: &Addr<directory::Msg>,
) {
    let keepers = root.supervisor("keepers", Strategy::OneForOne, PATIENCE);
    keepers.spawn(
        ChildSpec::permanent("events"),
        ports.events,
        Events::default,
    );
    let file = file.to_owned();
    keepers.spawn(ChildSpec::permanent("records"), ports.records, move || {
        Records::new(file.clone())
    });
    keepers.spawn(ChildSpec::permanent("users"), ports.users, move || {
        UserNamespaces::new(ids.clone())
    });
    let told = Recipient::new(directory.clone(), |Republish| directory::Msg::Republish);
    keepers.spawn(ChildSpec::permanent("status"), ports.statuses, move || {
        Statuses::new(told.clone())
    });
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
    pulls: Pulls,
    policy: logic::logs::Policy,
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

/// Where desired pods come from; each source repeats itself, so a directory that died hears them again.
fn sources(node: &Node, settings: &Settings) {
    let sources = node
        .root
        .supervisor("sources", Strategy::OneForOne, PATIENCE);
    let kubelet = &settings.config.kubelet;
    let ground = settings.ground();
    if settings.sources.contains(&Source::File) {
        let (_, port) = mailbox(file::MAILBOX);
        let (path, period) = (
            PathBuf::from(&kubelet.static_pod_path),
            kubelet.file_check_frequency.into(),
        );
        let (directory, recorder, ground) = (
            node.directory.clone(),
            node.recorder.clone(),
            ground.clone(),
        );
        sources.spawn(ChildSpec::permanent("file"), port, move || {
            Files::new(
                path.clone(),
                period,
                ground.clone(),
                directory.clone(),
                recorder.clone(),
            )
        });
    }
    if settings.sources.contains(&Source::Http) {
        let (_, port) = mailbox(http::MAILBOX);
        let (url, headers) = (
            kubelet.static_pod_url.clone(),
            kubelet.static_pod_url_header.clone(),
        );
        let period = kubelet.http_check_frequency.into();
        let (directory, recorder) = (node.directory.clone(), node.recorder.clone());
        sources.spawn(ChildSpec::permanent("http"), port, move || {
            Url::new(
                url.as_str(),
                &headers,
                period,
                ground.clone(),
                directory.clone(),
                recorder.clone(),
            )
        });
    }
}

/// Who keeps the node alive.
fn resources(node: &Node, runtime: Runtime, settings: &Settings) {
    let resources = node
        .root
        .supervisor("resources", Strategy::OneForOne, PATIENCE);
    let (_, port) = mailbox(eviction::MAILBOX);
    let sampler = Sampler::new(runtime, node.directory.clone());
    let (policy, name) = (settings.eviction.clone(), settings.config.node_name.clone());
    let (directory, recorder) = (node.directory.clone(), node.recorder.clone());
    resources.spawn(ChildSpec::permanent("eviction"), port, move || {
        Eviction::new(
            policy.clone(),
            sampler.clone(),
            directory.clone(),
            recorder.clone(),
            name.clone(),
        )
    });
}

/// Who answers the outside.
fn serving(node: &Node, runtime: Runtime, plugins: Plugins, settings: &Settings) {
    let serving = node
        .root
        .supervisor("serving", Strategy::OneForOne, PATIENCE);
    let health = || Health::new(node.directory.clone(), node.pleg.clone(), node.root.clone());
    if let Some(address) = settings.healthz {
        let (_, port) = mailbox(serving::MAILBOX);
        let health = health();
        serving.spawn(ChildSpec::permanent("healthz"), port, move || {
            Healthz::new(address, health.clone())
        });
    }
    if let Some(address) = settings.read_only {
        let (_, port) = mailbox(serving::MAILBOX);
        let (directory, statuses, health) =
            (node.directory.clone(), node.statuses.clone(), health());
        serving.spawn(ChildSpec::permanent("read-only"), port, move || {
            ReadOnly::new(address, directory.clone(), statuses.clone(), health.clone())
        });
    }
    let (_, port) = mailbox(serving::MAILBOX);
    let peers = AdminPeers {
        root: node.root.clone(),
        plugins,
        directory: node.directory.clone(),
        images: node.images.clone(),
        volumes: node.volumes.clone(),
        statuses: node.statuses.clone(),
        events: node.events.clone(),
        checkpoints: Checkpoints::new(runtime, &settings.node.root_dir),
        faults: FaultInjection::from_environment(),
    };
    let path = settings.admin.clone();
    serving.spawn(ChildSpec::permanent("admin"), port, move || {
        Admin::new(path.clone(), peers.clone())
    });
}
