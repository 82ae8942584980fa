//! The views of the admin socket: plugins, pods, events.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use hyper::StatusCode;
use hyper::body::Bytes;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use kernel::{Addr, AskError};
use logic_api::pod::PodView;
use logic_api::types::PodUid;
use plugin_host::{Confined, group_usage};
use pods::pod_manager;
use pods::runtime::handover;
use pods::worker::{self, Explanation};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use serving::http::{HandlerResponse, json as json_answer, streamed};
use state::events::{self, Event};
use state::status;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::route::{AdminError, View};
use super::{AdminPeers, device_view, images, machine_view, volume_list};
use crate::settings::RUNTIME;

/// The actors that are asked answer from memory.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout for a busy worker, which is then shown without its stage.
const WORKER_TIMEOUT: Duration = Duration::from_millis(500);
/// Workers asked at the same time.
const MAX_WORKER_REQUESTS: usize = 32;

/// The agent's version and process id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentVersion {
    pub version: String,
    /// The agent's process.
    pub pid: u32,
}

impl AgentVersion {
    pub(super) fn this() -> Self {
        AgentVersion {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
        }
    }
}

/// A row of `oxctl pods`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodRow {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// Of its status.
    pub phase: String,
    /// The phase, or the waiting reason of a container, which says more.
    pub status: String,
    /// Containers that are ready.
    pub ready: usize,
    /// Its app containers.
    pub containers: usize,
    /// Of all its containers.
    pub restarts: i32,
    /// None before it has started.
    pub started: Option<Timestamp>,
    /// Empty before it has one.
    pub ip: String,
    /// The worker's state: Syncing, Terminating, Terminated; Unknown if it did not answer.
    pub stage: String,
}

/// Shows something of the node.
pub(super) async fn answer(peers: &AdminPeers, view: View) -> Result<HandlerResponse, AdminError> {
    let manager = &peers.pod_manager;
    Ok(match view {
        View::Version => shown(&AgentVersion::this()),
        View::Tree => shown(&peers.root.tree().await),
        View::Plugins => shown(&plugins(peers).await),
        View::Pods => shown(&pods(peers).await?),
        View::Cpus => shown(&machine_view::view(&peers.assignments, manager).await?),
        View::Devices => {
            let claims = peers.claims.borrow().clone();
            let held = (&peers.assignments, &*claims);
            shown(&device_view::view(held, manager).await?)
        }
        View::Images => shown(&images::list(&peers.images).await?),
        View::PresentImages => shown(&images::present(&peers.runtime).await?),
        View::Volumes => shown(&volume_list::view(&peers.volumes).await?),
        View::Events => shown(&events(&peers.events).await?),
        View::Why { pod } => shown(&why(manager, pod).await?),
    })
}

fn shown<T: Serialize>(view: &T) -> HandlerResponse {
    json_answer(StatusCode::OK, view)
}

/// The snapshots of the plugins' hosts; that of the runtime with the hand-over that is under way.
async fn plugins(peers: &AdminPeers) -> Vec<Value> {
    let tree = peers.plugins.group.tree().await;
    let progress = |reply| handover::Msg::Progress { reply };
    let progress = peers.handover.ask(ASK_TIMEOUT, progress).await;
    let handover = progress.ok().filter(|progress| progress.to.is_some());
    // A host without a snapshot is at least named.
    let shown = tree.children.into_iter().map(|child| match child.snapshot.is_null() {
        true => json!({ "name": child.id, "state": child.state, "reason": "its host does not answer" }),
        false => child.snapshot,
    });
    let shown = shown.map(|mut row| {
        if let Some(handover) = handover.as_ref().filter(|_| row["name"] == RUNTIME) {
            row["handover"] = json!(handover);
        }
        row
    });
    let shown: Vec<Value> = shown.collect();
    let measured = kernel::spawn_blocking(move || shown.into_iter().map(measured).collect());
    measured.await.unwrap_or_default()
}

/// Adds what the cgroup of a confined plugin holds now. Blocks.
fn measured(mut row: Value) -> Value {
    let confined = &mut row["confined"];
    if let Ok(known) = Confined::deserialize(&*confined) {
        confined["usage"] = json!(group_usage(&known.groups));
    }
    row
}

async fn pods(peers: &AdminPeers) -> Result<Vec<PodRow>, AdminError> {
    let silent = |source| AdminError::Silent {
        who: "the pod manager or the status manager",
        source,
    };
    let (pods, statuses) = known(&peers.pod_manager, &peers.statuses)
        .await
        .map_err(silent)?;
    let rows = stream::iter(pods).map(|pod| {
        let status = statuses
            .get(&pod.uid())
            .map(|status| PodStatus::clone(status));
        async move {
            let why = explanation(&peers.pod_manager, pod.uid().to_string(), WORKER_TIMEOUT).await;
            let stage = why.ok().flatten().map(|why| why.stage);
            let status = status.or_else(|| pod.status.clone()).unwrap_or_default();
            row(&pod, &status, stage.unwrap_or_else(|| "Unknown".to_owned()))
        }
    });
    let mut rows: Vec<PodRow> = rows.buffered(MAX_WORKER_REQUESTS).collect().await;
    let refused = peers
        .pod_manager
        .ask(ASK_TIMEOUT, pod_manager::Msg::refused);
    let refused = refused.await.map_err(silent)?;
    rows.extend(refused.into_keys().map(refused_row));
    Ok(rows)
}

/// The row of a manifest that does not run: its path stands for the pods that it may have.
fn refused_row(manifest: String) -> PodRow {
    PodRow {
        namespace: String::new(),
        name: manifest.clone(),
        uid: manifest,
        phase: String::new(),
        status: "InvalidManifest".to_owned(),
        ready: 0,
        containers: 0,
        restarts: 0,
        started: None,
        ip: String::new(),
        stage: "Refused".to_owned(),
    }
}

fn row(pod: &Pod, status: &PodStatus, stage: String) -> PodRow {
    let apps: &[ContainerStatus] = status.container_statuses.as_deref().unwrap_or_default();
    let inits: &[ContainerStatus] = status
        .init_container_statuses
        .as_deref()
        .unwrap_or_default();
    let phase = status.phase.clone().unwrap_or_else(|| "Unknown".to_owned());
    let waiting = inits
        .iter()
        .chain(apps)
        .find_map(|container| container.state.as_ref()?.waiting.as_ref()?.reason.clone());
    let telling = status
        .reason
        .clone()
        .or(waiting)
        .filter(|reason| !reason.is_empty());
    PodRow {
        namespace: pod.namespace().to_owned(),
        name: pod.name().to_owned(),
        uid: pod.uid().to_string(),
        status: telling.unwrap_or_else(|| phase.clone()),
        phase,
        ready: apps.iter().filter(|container| container.ready).count(),
        containers: pod.app_containers().len(),
        restarts: inits
            .iter()
            .chain(apps)
            .map(|container| container.restart_count)
            .sum(),
        started: status.start_time.as_ref().map(|time| time.0),
        ip: status.pod_ip.clone().unwrap_or_default(),
        stage,
    }
}

async fn why(pod_manager: &Addr<pod_manager::Msg>, pod: String) -> Result<Explanation, AdminError> {
    let silent = |source| AdminError::Silent {
        who: "the pod's worker",
        source,
    };
    let found = explanation(pod_manager, pod.clone(), ASK_TIMEOUT)
        .await
        .map_err(silent)?;
    if let Some(found) = found {
        return Ok(found);
    }
    let refused = pod_manager.ask(ASK_TIMEOUT, pod_manager::Msg::refused);
    let mut refused = refused.await.map_err(silent)?;
    let is_meant = |manifest: &String| {
        let name = Path::new(manifest).file_name();
        *manifest == pod || name.is_some_and(|name| name == pod.as_str())
    };
    let manifest = refused.keys().find(|manifest| is_meant(manifest)).cloned();
    match manifest {
        Some(manifest) => {
            let problems = refused.remove(&manifest).unwrap_or_default();
            Ok(Explanation::refused(manifest, problems))
        }
        None if refused.is_empty() => Err(AdminError::NoSuchPod { pod }),
        None => Err(AdminError::PerhapsRefused {
            pod,
            manifests: Vec::from_iter(refused.into_keys()).join(", "),
        }),
    }
}

async fn explanation(
    pod_manager: &Addr<pod_manager::Msg>,
    pod: String,
    within: Duration,
) -> Result<Option<Explanation>, AskError> {
    let worker = pod_manager
        .ask(within, |reply| pod_manager::Msg::worker_of(pod, reply))
        .await?;
    let worker = match worker {
        pod_manager::PodLookup::Worker(worker) => worker,
        pod_manager::PodLookup::Deferred(pod, why) => {
            return Ok(Some(Explanation::deferred(pod, why)));
        }
        pod_manager::PodLookup::Nobody => return Ok(None),
    };
    match worker.ask(within, |reply| worker::Msg::Why { reply }).await {
        Ok(why) => Ok(Some(why)),
        // The pod ended meanwhile.
        Err(AskError::Gone) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn events(events: &Addr<events::Msg>) -> Result<Vec<Event>, AdminError> {
    let silent = |source| AdminError::Silent {
        who: "the event recorder",
        source,
    };
    events
        .ask(ASK_TIMEOUT, |reply| events::Msg::List { reply })
        .await
        .map_err(silent)
}

/// New events, a line of JSON each; a slow client gets the number of lost ones as `{"missed": N}`.
pub(super) async fn events_to_come(
    events: &Addr<events::Msg>,
) -> Result<HandlerResponse, AdminError> {
    let silent = |source| AdminError::Silent {
        who: "the event recorder",
        source,
    };
    let receiver = events
        .ask(ASK_TIMEOUT, |reply| events::Msg::Follow { reply })
        .await
        .map_err(silent)?;
    let lines = stream::unfold(receiver, |mut receiver| async move {
        Some((line(&mut receiver).await?, receiver))
    });
    Ok(streamed(lines))
}

async fn line(receiver: &mut Receiver<Event>) -> Option<Bytes> {
    let mut line = match receiver.recv().await {
        Ok(event) => serde_json::to_vec(&event).ok()?,
        Err(RecvError::Lagged(missed)) => json!({ "missed": missed }).to_string().into_bytes(),
        Err(RecvError::Closed) => return None,
    };
    line.push(b'\n');
    Some(line.into())
}

/// Every pod of the node, and every status of the status manager.
async fn known(
    pod_manager: &Addr<pod_manager::Msg>,
    statuses: &Addr<status::Msg>,
) -> Result<(Vec<Arc<Pod>>, BTreeMap<PodUid, Arc<PodStatus>>), AskError> {
    let pods = pod_manager.ask(ASK_TIMEOUT, pod_manager::Msg::all).await?;
    let statuses = statuses
        .ask(ASK_TIMEOUT, |reply| status::Msg::All { reply })
        .await?;
    Ok((pods, statuses))
}
