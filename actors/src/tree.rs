//! The supervision tree, and all wiring, on one page.
//!
//! Mailboxes come first, so that anyone may tell anyone. Then the actors, in an order that is law: **an
//! actor asks only those spawned above it**; everyone else it tells. So the asks form no cycle.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kernel::plugin::{Host, Line};
use kernel::{Addr, ChildSpec, Intensity, Strategy, Supervisor, mailbox};
use tokio::signal::unix::{SignalKind, signal};

use crate::directory::{self, Directory, Source, Workers};
use crate::events::{self, Events, Recorder};
use crate::images::{self, Images};
use crate::pleg::{self, Pleg};
use crate::records::{self, Records};
use crate::runtime::Runtime;
use crate::settings::{RUNTIME, Settings};
use crate::status::{self, Statuses};
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
    let line = plugins(&root, &settings);
    let runtime = Runtime::new(line, settings.runtime_within);
    let node = pods(&root, runtime, settings.rules(), &settings.folder, settings.pulls, &settings.sources);

    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("ending; pods live on");
    node.root.shutdown().await;
    Ok(())
}

/// One host a plugin. Callers hold the line, which follows restart and swap.
fn plugins(root: &Supervisor, settings: &Settings) -> Line {
    let plugins = root.supervisor("plugins", Strategy::OneForOne, PATIENCE);
    let line = Line::new(RUNTIME);
    let (_host, port) = mailbox(16);
    let (declaration, folder) = (settings.runtimes[&settings.runtime].clone(), settings.folder.join("plugins"));
    let hosted = line.clone();
    plugins.spawn(ChildSpec::permanent(RUNTIME), port, move || {
        Host::new(declaration.clone(), folder.clone(), hosted.clone())
    });
    line
}

/// The keepers of what is known, and the pods' own area.
pub fn pods(
    root: &Supervisor,
    runtime: Runtime,
    rules: Arc<Rules>,
    folder: &Path,
    pulls: Option<usize>,
    sources: &BTreeSet<Source>,
) -> Node {
    let (events, events_port) = mailbox(events::MAILBOX);
    let (records, records_port) = mailbox(records::MAILBOX);
    let (statuses, statuses_port) = mailbox(status::MAILBOX);
    let (images, images_port) = mailbox(images::MAILBOX);
    let (directory, directory_port) = mailbox(directory::MAILBOX);
    let (pleg, pleg_port) = mailbox(pleg::MAILBOX);
    let recorder = Recorder::new(events.clone());
    let peers = Peers {
        runtime: runtime.clone(),
        images,
        statuses: statuses.clone(),
        records,
        directory: directory.clone(),
        recorder: recorder.clone(),
        rules,
    };

    let keepers = root.supervisor("keepers", Strategy::OneForOne, PATIENCE);
    keepers.spawn(ChildSpec::permanent("events"), events_port, Events::default);
    let file = folder.join("pods.checkpoint");
    keepers.spawn(ChildSpec::permanent("records"), records_port, move || Records::new(file.clone()));
    let told = directory.clone();
    keepers.spawn(ChildSpec::permanent("status"), statuses_port, move || Statuses::new(told.clone()));

    let pods = root.supervisor("pods", Strategy::OneForOne, PATIENCE);
    let (asked, told) = (runtime.clone(), recorder.clone());
    pods.spawn(ChildSpec::permanent("images"), images_port, move || {
        Images::new(asked.clone(), told.clone(), pulls)
    });
    let workers = Workers::new(pods.supervisor("workers", Strategy::OneForOne, Intensity::UNLIMITED), peers);
    let (told, sources) = (pleg.clone(), sources.clone());
    pods.spawn(ChildSpec::permanent("directory"), directory_port, move || {
        Directory::new(told.clone(), workers.clone(), sources.clone())
    });
    let told = directory.clone();
    pods.spawn(ChildSpec::permanent("pleg"), pleg_port, move || Pleg::new(runtime.clone(), told.clone()));

    Node {
        root: root.clone(),
        directory,
        statuses,
        events,
        pleg,
        recorder,
    }
}
