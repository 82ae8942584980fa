//! Spawns the pods' area: the managers that serve all pods, the pod manager with its workers, and PLEG.

use std::collections::BTreeSet;
use std::sync::Arc;

use clients::probe_client::ProbeClient;
use clients::runtime::RuntimeClient;
use kernel::{Addr, ChildSpec, Intensity, Port, Recipient, Strategy, Supervisor, mailbox};
use logic_api::types::PodUid;
use logic_pods::PodWorkerConfig;
use logic_pods::api::mirrors::StaticPodSet;
use logic_pods::logs::LogRotationPolicy;
use state::area::StateAddrs;
use state::assignments::Assignments;
use state::events::Recorder;
use state::objects::ObjectStore;
use state::status::PodResync;

use crate::cgroups::CgroupManager;
use crate::cgroups::pod_cgroups::PodCgroups;
use crate::images::credentials::{self, DockerKeyring};
use crate::images::{self, ImageManager};
use crate::logs::{self, ContainerLogManager};
use crate::pod_manager::claims::PodClaims;
use crate::pod_manager::devices::DevicePlugins;
use crate::pod_manager::{self, PodManager, PodSource, PodWorkers, PodsChanged};
use crate::prober::{self, Prober};
use crate::runtime::handover::RuntimeGate;
use crate::runtime::pleg::{self, Pleg};
use crate::worker;

/// The addresses of the area's actors.
#[derive(Debug, Clone)]
pub struct PodAddrs {
    pub pod_manager: Addr<pod_manager::Msg>,
    pub pleg: Addr<pleg::Msg>,
    pub images: Addr<images::Msg>,
    credentials: Addr<credentials::Msg>,
    prober: Addr<prober::Msg>,
    logs: Addr<logs::Msg>,
}

/// The mailboxes' other ends.
#[derive(Debug)]
pub struct PodPorts {
    pod_manager: Port<pod_manager::Msg>,
    pleg: Port<pleg::Msg>,
    images: Port<images::Msg>,
    credentials: Port<credentials::Msg>,
    prober: Port<prober::Msg>,
    logs: Port<logs::Msg>,
}

/// The area's section of the settings.
#[derive(Debug, Clone)]
pub struct PodSettings {
    pub rules: Arc<PodWorkerConfig>,
    /// What pods have to themselves: exclusive CPUs, memory, devices.
    pub assignments: Assignments,
    pub pulls: PullSettings,
    pub logs: LogRotationPolicy,
    /// The sources of which each must have sent its pods once before others are ended.
    pub sources: BTreeSet<PodSource>,
}

/// How images are pulled, and with which credentials.
#[derive(Debug, Clone)]
pub struct PullSettings {
    pub images: images::ImageConfig,
    pub credentials: credentials::CredentialConfig,
}

/// Actors outside the area that are told what happens to pods; the cluster's are none on a standalone node.
#[derive(Debug, Clone, Default)]
pub struct PodListeners {
    /// Hears that pods have come, gone or changed: the container manager.
    pub changed: Option<Recipient<PodsChanged>>,
    /// Gets the static pods: the mirror pod manager.
    pub mirrors: Option<Recipient<StaticPodSet>>,
    /// Gets the pods that need no objects any more: the object manager.
    pub over: Option<Recipient<PodUid>>,
    /// Gets the pods that have a worker: the object manager.
    pub workers: Option<Recipient<BTreeSet<PodUid>>>,
}

/// What the area stands on.
#[derive(Debug)]
pub struct PodPeers {
    pub runtime: RuntimeClient,
    pub gate: RuntimeGate,
    pub cgroups: CgroupManager,
    pub state: StateAddrs,
    pub volumes: Addr<volumes::Msg>,
    pub objects: ObjectStore,
    /// The device manager.
    pub devices: DevicePlugins,
    /// The manager of dynamic resources.
    pub claims: PodClaims,
    pub listeners: PodListeners,
}

/// The area's mailboxes, so that other areas may be told before its actors run.
pub fn mailboxes() -> (PodAddrs, PodPorts) {
    let (pod_manager, pod_manager_port) = mailbox(pod_manager::MAILBOX);
    let (pleg, pleg_port) = mailbox(pleg::MAILBOX);
    let (images, images_port) = mailbox(images::MAILBOX);
    let (credentials, credentials_port) = mailbox(credentials::MAILBOX);
    let (prober, prober_port) = mailbox(prober::MAILBOX);
    let (logs, logs_port) = mailbox(logs::MAILBOX);
    let addrs = PodAddrs {
        pod_manager,
        pleg,
        images,
        credentials,
        prober,
        logs,
    };
    let ports = PodPorts {
        pod_manager: pod_manager_port,
        pleg: pleg_port,
        images: images_port,
        credentials: credentials_port,
        prober: prober_port,
        logs: logs_port,
    };
    (addrs, ports)
}

/// Spawns the area's actors.
pub fn spawn(
    root: &Supervisor,
    (addrs, ports): (&PodAddrs, PodPorts),
    settings: PodSettings,
    peers: PodPeers,
) {
    let area = PodArea {
        group: root.supervisor("pods", Strategy::OneForOne, Intensity::MANAGERS),
        recorder: peers.state.recorder(),
        addrs,
        peers,
    };
    area.credentials(ports.credentials, settings.pulls.credentials);
    area.images(ports.images, settings.pulls.images);
    area.logs(ports.logs, settings.logs);
    area.prober(ports.prober);
    area.pod_manager(
        ports.pod_manager,
        settings.rules,
        settings.assignments,
        settings.sources,
    );
    area.pleg(ports.pleg);
}

struct PodArea<'a> {
    group: Supervisor,
    recorder: Recorder,
    addrs: &'a PodAddrs,
    peers: PodPeers,
}

impl PodArea<'_> {
    /// Has the pod manager told `T`, wrapped as its message.
    fn told_by<T>(
        &self,
        wrap: impl Fn(T) -> pod_manager::Msg + Send + Sync + 'static,
    ) -> Recipient<T> {
        Recipient::new(self.addrs.pod_manager.clone(), wrap)
    }

    fn resync(&self) -> Recipient<PodResync> {
        self.told_by(|PodResync| pod_manager::Msg::Resync)
    }

    fn credentials(&self, port: Port<credentials::Msg>, config: credentials::CredentialConfig) {
        let spec = ChildSpec::permanent("credentials");
        self.group
            .spawn(spec, port, move || DockerKeyring::new(config.clone()));
    }

    fn images(&self, port: Port<images::Msg>, config: images::ImageConfig) {
        let peers = images::Peers {
            runtime: self.peers.runtime.clone(),
            credentials: self.addrs.credentials.clone(),
            recorder: self.recorder.clone(),
            objects: Arc::new(self.peers.objects.clone()),
        };
        let spec = ChildSpec::permanent("images");
        self.group.spawn(spec, port, move || {
            ImageManager::new(config.clone(), peers.clone())
        });
    }

    fn logs(&self, port: Port<logs::Msg>, policy: LogRotationPolicy) {
        let (runtime, pod_manager) = (self.peers.runtime.clone(), self.resync());
        let spec = ChildSpec::permanent("logs");
        self.group.spawn(spec, port, move || {
            ContainerLogManager::new(policy.clone(), runtime.clone(), pod_manager.clone())
        });
    }

    fn prober(&self, port: Port<prober::Msg>) {
        let peers = prober::Peers {
            runtime: self.peers.runtime.clone(),
            probe_client: ProbeClient::default(),
            recorder: self.recorder.clone(),
            pod_manager: self.resync(),
        };
        let spec = ChildSpec::permanent("prober");
        self.group
            .spawn(spec, port, move || Prober::new(peers.clone()));
    }

    fn pod_manager(
        &self,
        port: Port<pod_manager::Msg>,
        rules: Arc<PodWorkerConfig>,
        assignments: Assignments,
        sources: BTreeSet<PodSource>,
    ) {
        let facts = rules.facts.clone();
        let workers = self
            .group
            .supervisor("workers", Strategy::OneForOne, Intensity::UNLIMITED);
        let workers = PodWorkers::new(workers, self.worker_peers(rules, assignments));
        let peers = pod_manager::Peers {
            pleg: self.addrs.pleg.clone(),
            checkpoints: self.peers.state.checkpoints.clone(),
            mirrors: self.peers.listeners.mirrors.clone(),
            changed: self.peers.listeners.changed.clone(),
            workers: self.peers.listeners.workers.clone(),
        };
        let spec = ChildSpec::permanent("pod-manager");
        self.group.spawn(spec, port, move || {
            PodManager::new(
                peers.clone(),
                workers.clone(),
                sources.clone(),
                facts.clone(),
            )
        });
    }

    fn worker_peers(&self, rules: Arc<PodWorkerConfig>, assignments: Assignments) -> worker::Peers {
        worker::Peers {
            runtime: self.peers.runtime.clone(),
            images: self.addrs.images.clone(),
            state: self.peers.state.clone(),
            pod_manager: self.told_by(pod_manager::Msg::Worker),
            prober: self.addrs.prober.clone(),
            logs: self.addrs.logs.clone(),
            volumes: self.peers.volumes.clone(),
            cgroups: PodCgroups::new(rules.node.cgroups.clone(), self.peers.cgroups.clone()),
            gate: self.peers.gate.clone(),
            recorder: self.recorder.clone(),
            objects: Arc::new(self.peers.objects.clone()),
            over: self.peers.listeners.over.clone(),
            assignments,
            devices: self.peers.devices.clone(),
            claims: self.peers.claims.clone(),
            rules,
        }
    }

    fn pleg(&self, port: Port<pleg::Msg>) {
        let runtime = self.peers.runtime.clone();
        let pod_manager = self.told_by(pod_manager::Msg::Runtime);
        let spec = ChildSpec::permanent("pleg");
        self.group.spawn(spec, port, move || {
            Pleg::new(runtime.clone(), pod_manager.clone())
        });
    }
}
