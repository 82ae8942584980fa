//! The supervision tree, and all wiring, on one page.
//!
//! Mailboxes come first, so that anyone may tell anyone. Then the actors, in an order that is law: **an
//! actor asks only those spawned above it**; everyone else it tells. So the asks form no cycle.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kernel::plugin::{Host, Line};
use kernel::{Addr, ChildSpec, Intensity, Strategy, Supervisor, mailbox};
use logic::objects::Objects;
use tokio::signal::unix::{SignalKind, signal};

use crate::credentials::{self, Credentials};
use crate::directory::{self, Directory, Source, Workers};
use crate::events::{self, Events, Recorder};
use crate::eviction::{self, Eviction};
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
use crate::status::{self, Statuses};
use crate::usage::Sampler;
use crate::user_namespaces::{self, UserNamespaces};
use crate::worker::{Peers, Rules};

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
    let (line, hosts) = plugins(&root, &settings);
    let runtime = Runtime::new(line, settings.runtime_within);
    let node = pods(&root, runtime.clone(), settings.sections());
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

/// One host a plugin. Callers hold the line, which follows restart and swap.
fn plugins(root: &Supervisor, settings: &Settings) -> (Line, Plugins) {
    let group = root.supervisor("plugins", Strategy::OneForOne, PATIENCE);
    let line = Line::new(RUNTIME);
    // Its own tasks' news, and an operator's orders, one at a time.
    let (host, port) = mailbox(64);
    let (declaration, folder) = (
        settings.runtimes[&settings.runtime].clone(),
        settings.folder.join("plugins"),
    );
    let hosted = line.clone();
    group.spawn(ChildSpec::permanent(RUNTIME), port, move || {
        Host::new(declaration.clone(), folder.clone(), hosted.clone())
    });
    let hosts = [(RUNTIME.to_owned(), host)].into();
    let choices = settings.runtimes.clone();
    (
        line,
        Plugins {
            group,
            hosts,
            choices,
        },
    )
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
    pub objects: Arc<dyn Objects>,
}

/// The keepers of what is known, and the pods' own area.
pub fn pods(root: &Supervisor, runtime: Runtime, sections: Sections) -> Node {
    let Sections {
        rules,
        folder,
        pulls,
        users: ids,
        logs: log_policy,
        sources,
        objects,
    } = sections;
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
        cgroups: PodCgroups::new(rules.node.cgroups.clone()),
        recorder: recorder.clone(),
        objects: objects.clone(),
        rules: rules.clone(),
    };

    let keepers = root.supervisor("keepers", Strategy::OneForOne, PATIENCE);
    keepers.spawn(ChildSpec::permanent("events"), events_port, Events::default);
    let file = folder.join("pods.checkpoint");
    keepers.spawn(ChildSpec::permanent("records"), records_port, move || {
        Records::new(file.clone())
    });
    keepers.spawn(ChildSpec::permanent("users"), users_port, move || {
        UserNamespaces::new(ids.clone())
    });
    let told = directory.clone();
    keepers.spawn(ChildSpec::permanent("status"), statuses_port, move || {
        Statuses::new(told.clone())
    });

    let pods = root.supervisor("pods", Strategy::OneForOne, PATIENCE);
    let section = pulls.credentials;
    pods.spawn(
        ChildSpec::permanent("credentials"),
        credentials_port,
        move || Credentials::new(section.clone()),
    );
    let keeper = images::Peers {
        runtime: runtime.clone(),
        credentials,
        recorder: recorder.clone(),
        objects,
    };
    let section = pulls.images;
    pods.spawn(ChildSpec::permanent("images"), images_port, move || {
        Images::new(section.clone(), keeper.clone())
    });
    let (asked, told) = (runtime.clone(), directory.clone());
    pods.spawn(ChildSpec::permanent("logs"), logs_port, move || {
        Logs::new(log_policy.clone(), asked.clone(), told.clone())
    });
    let probing = prober::Peers {
        runtime: runtime.clone(),
        reach: Reach::default(),
        recorder: recorder.clone(),
        directory: directory.clone(),
    };
    pods.spawn(ChildSpec::permanent("prober"), prober_port, move || {
        Prober::new(probing.clone())
    });
    let workers = Workers::new(
        pods.supervisor("workers", Strategy::OneForOne, Intensity::UNLIMITED),
        peers,
    );
    let told = pleg.clone();
    let (asked, facts) = (records, rules.facts.clone());
    pods.spawn(
        ChildSpec::permanent("directory"),
        directory_port,
        move || {
            Directory::new(
                told.clone(),
                asked.clone(),
                workers.clone(),
                sources.clone(),
                facts.clone(),
            )
        },
    );
    let told = directory.clone();
    pods.spawn(ChildSpec::permanent("pleg"), pleg_port, move || {
        Pleg::new(runtime.clone(), told.clone())
    });

    Node {
        root: root.clone(),
        directory,
        images,
        statuses,
        events,
        pleg,
        recorder,
    }
}

/// Where desired pods come from; each source repeats itself, so a directory that died hears them again.
fn sources(node: &Node, settings: &Settings) {
    let sources = node
        .root
        .supervisor("sources", Strategy::OneForOne, PATIENCE);
    let kubelet = &settings.config.kubelet;
    let name: Arc<str> = settings.config.node_name.as_str().into();
    if settings.sources.contains(&Source::File) {
        let (_, port) = mailbox(file::MAILBOX);
        let (path, period) = (
            PathBuf::from(&kubelet.static_pod_path),
            kubelet.file_check_frequency.into(),
        );
        let (directory, recorder, name) =
            (node.directory.clone(), node.recorder.clone(), name.clone());
        sources.spawn(ChildSpec::permanent("file"), port, move || {
            Files::new(
                path.clone(),
                period,
                name.clone(),
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
                name.clone(),
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
