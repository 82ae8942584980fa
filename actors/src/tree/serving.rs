//! Who answers the outside.

use std::rc::Rc;

use ::serving::read_only::ReadOnly;
use ::serving::{Alone, Https};
use anyhow::Context as _;
use cluster::certificates;
use cluster::reviews::Reviews;
use kernel::{Addr, ChildSpec, Strategy, Supervisor, mailbox};

use super::certificates::grow_serving;
use super::cluster::Cluster;
use super::{Node, PATIENCE};
use crate::pod_resources::{self, PodResources};
use crate::runtime::Runtime;
use crate::serving;
use crate::serving::admin::{Admin, AdminPeers, Checkpoints, FaultInjection, Plugins};
use crate::serving::answers::{self, Answers, Constant};
use crate::serving::healthz::{Health, Healthz};
use crate::settings::Settings;
use crate::summary::{self, Summaries};

/// Spawns the servers; returns who keeps the HTTPS API's certificate, if that must know the node's addresses.
pub(super) fn grow(
    node: &Node,
    runtime: Runtime,
    plugins: Plugins,
    (settings, cluster): (&Settings, Option<&Cluster>),
) -> anyhow::Result<Option<Addr<certificates::Msg>>> {
    let serving = node
        .root
        .supervisor("serving", Strategy::OneForOne, PATIENCE);
    let health = Health::new(node.directory.clone(), node.pleg.clone(), node.root.clone());
    if let Some(address) = settings.healthz {
        let (_, port) = mailbox(serving::MAILBOX);
        let health = health.clone();
        serving.spawn(ChildSpec::permanent("healthz"), port, move || {
            Healthz::new(address, health.clone())
        });
    }
    let checkpoints = Checkpoints::new(runtime.clone(), &settings.node.root_dir);
    let answers = Rc::new(Answers(answers::Sources {
        runtime: runtime.clone(),
        directory: node.directory.clone(),
        statuses: node.statuses.clone(),
        health,
        checkpoints: checkpoints.clone(),
        summaries: Summaries::new(summary::Peers {
            root: node.root.clone(),
            runtime,
            directory: node.directory.clone(),
            volumes: node.volumes.clone(),
            rules: settings.rules(),
            groups: settings.system_groups(),
        }),
        constant: Rc::new(Constant {
            config: answers::configz(&settings.config.kubelet),
            flags: answers::flags(&settings.config.flags),
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
    let (root_dir, directory) = (settings.node.root_dir.clone(), node.directory.clone());
    serving.spawn(ChildSpec::permanent("pod-resources"), port, move || {
        PodResources::new(&root_dir, directory.clone())
    });
    let (_, port) = mailbox(serving::MAILBOX);
    let peers = AdminPeers {
        root: node.root.clone(),
        plugins,
        directory: node.directory.clone(),
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
    answers: Rc<Answers>,
    settings: &Settings,
    cluster: Option<&Cluster>,
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
            let reviews = Rc::new(Reviews::new(client));
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
                Rc::new(Alone),
                identity.clone(),
            )
        }),
    }
    Ok(keeper)
}
