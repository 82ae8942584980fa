//! The plugins' hosts: one for each plugin; and which of the runtimes it is.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use anyhow::Context as _;
use clients::runtime::RuntimeClient;
use clients::storage::StoragePlugin;
use kernel::{Addr, ChildSpec, Intensity, Strategy, Supervisor, mailbox, watch};
use logic_resources::cgroups::CgroupPolicy;
use plugin_host::{Declaration, FailureListener, PluginClient, PluginHost};
use pods::cgroups::CgroupManager;
use pods::cgroups::pod_cgroups::PodCgroups;
use pods::runtime::handover::{
    self, FoundRecord, HandoverConfig, HandoverStep, NeighbourRuntime, RecordFile, RuntimeChoice,
    RuntimeGate, RuntimeHandover, RuntimeInUse, RuntimeRecord,
};

use state::events::{EventType, InvolvedObject, Recorder};

use super::NodeHandle;
use crate::endpoints::admin::Plugins;
use crate::settings::{AgentSettings, RUNTIME};

/// The plugins' clients; each follows restarts and swaps.
pub(super) struct PluginClients {
    pub(super) runtime: PluginClient,
    pub(super) local: PluginClient,
    pub(super) csi: PluginClient,
}

/// The runtime that the pods are on, which may be another one than the configuration names.
pub(super) struct RuntimeState {
    config: HandoverConfig,
    record: RuntimeRecord,
    in_use: Rc<watch::Sender<RuntimeInUse>>,
    cgroups: Option<CgroupPolicy>,
    pub(super) gate: RuntimeGate,
}

impl RuntimeState {
    /// Reads which runtime an earlier life left the pods on, and writes down what holds now.
    pub(super) fn load(settings: &AgentSettings) -> anyhow::Result<RuntimeState> {
        let file = RecordFile::new(&settings.folder);
        let earlier = match file.load().context("which runtime the pods are on")? {
            FoundRecord::Record(record) => Some(*record),
            FoundRecord::None => None,
            FoundRecord::Lost(why) => {
                tracing::error!(
                    "which runtime the pods are on is unknown, the configured one counts: {why}"
                );
                None
            }
        };
        let configured = &settings.runtimes[&settings.runtime];
        let configured = RuntimeChoice::of(&settings.runtime, configured);
        let record = RuntimeRecord::at_start(earlier, configured);
        file.save(&record)
            .context("which runtime the pods are on")?;
        let pending = record.handover.as_ref().filter(|pending| pending.begun);
        let in_use = Rc::new(watch::Sender::new(RuntimeInUse {
            name: record.current.name.clone(),
            handover: pending.map(|pending| {
                let to = pending.to.describe(&record.current);
                (HandoverStep::End, to)
            }),
        }));
        Ok(RuntimeState {
            config: HandoverConfig {
                node_name: settings.node.node_name.clone(),
                file,
                host: RUNTIME.to_owned(),
                declared: settings.runtimes.clone(),
            },
            record,
            cgroups: settings.node.cgroups.clone(),
            gate: RuntimeGate::new(in_use.subscribe()),
            in_use,
        })
    }

    fn declaration(&self) -> Declaration {
        let (host, declared) = (&self.config.host, &self.config.declared);
        self.record.current.declaration(host, declared)
    }

    /// Spawns the hand-over, which may go on with what an earlier life began.
    pub(super) fn spawn(
        self,
        node: &NodeHandle,
        (runtime, cgroups): (RuntimeClient, CgroupManager),
        hosts: &Plugins,
    ) -> Addr<handover::Msg> {
        let cgroups = PodCgroups::new(self.cgroups, cgroups);
        let peers = handover::Peers {
            neighbour: NeighbourRuntime::at_endpoint(runtime.clone()),
            runtime,
            cgroups,
            host: hosts.hosts[RUNTIME].clone(),
            pod_manager: node.pod_manager.clone(),
            checkpoints: node.checkpoints.clone(),
            recorder: node.recorder.clone(),
            gate: self.gate,
        };
        let (addr, port) = mailbox(handover::MAILBOX);
        let (config, in_use) = (Rc::new(self.config), self.in_use);
        let record = Rc::new(RefCell::new(self.record));
        let spec = ChildSpec::permanent("runtime-handover");
        node.root.spawn(spec, port, move || {
            let (config, peers) = (config.clone(), peers.clone());
            RuntimeHandover::new(config, peers, in_use.clone(), record.clone())
        });
        addr
    }
}

/// Where failures of plugins are recorded, once the recorder is there: the plugins are started before it.
pub(super) type LateRecorder = Rc<OnceCell<Recorder>>;

fn listener(recorder: LateRecorder, node: String) -> FailureListener {
    FailureListener::new(move |why| {
        let Some(recorder) = recorder.get() else {
            return;
        };
        let (now, object) = (kernel::timestamp(), InvolvedObject::node(&node));
        recorder.record(
            now,
            EventType::Warning,
            object,
            "PluginFailed",
            why.to_owned(),
        );
    })
}

/// Spawns the hosts.
pub(super) fn spawn(
    root: &Supervisor,
    settings: &AgentSettings,
    (runtime, recorder): (&RuntimeState, LateRecorder),
) -> (PluginClients, Plugins) {
    let group = root.supervisor("plugins", Strategy::OneForOne, Intensity::MANAGERS);
    let folder = settings.folder.join("plugins");
    let listener = listener(recorder, settings.node.node_name.clone());
    let mut hosts = BTreeMap::new();
    let mut host = |name: &str, declaration: Declaration| {
        let line = PluginClient::new(name);
        // Room for its own tasks' results and an operator's requests, one at a time.
        let (host, port) = mailbox(64);
        let (folder, hosted) = (folder.clone(), line.clone());
        let (confiner, listener) = (settings.confiner.clone(), listener.clone());
        group.spawn(ChildSpec::permanent(name), port, move || {
            PluginHost::new(declaration.clone(), folder.clone(), hosted.clone())
                .confined_by(confiner.clone())
                .heard_by(listener.clone())
        });
        hosts.insert(name.to_owned(), host);
        line
    };
    let declared = |plugin: StoragePlugin| settings.storage[plugin.name()].clone();
    let lines = PluginClients {
        runtime: host(RUNTIME, runtime.declaration()),
        local: host(StoragePlugin::Local.name(), declared(StoragePlugin::Local)),
        csi: host(StoragePlugin::Csi.name(), declared(StoragePlugin::Csi)),
    };
    for (name, declaration) in &settings.network {
        // Runtimes are its callers; its line shows in the host alone.
        drop(host(name, declaration.clone()));
    }
    let choices = settings.runtimes.clone();
    let plugins = Plugins {
        group,
        hosts,
        choices,
    };
    (lines, plugins)
}
