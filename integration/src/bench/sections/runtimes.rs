//! The same node of a cluster on containerd and on the native runtime, in one run: what a whole node costs, and how soon
//! things happen.
//!
//! Whole means the agent, its plugins, and the runtime's processes: containerd and its shims, or the monitors. Pods
//! have an address by the same chain of the standard plugins, which network-native has built in.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto::cri::{Container, ContainerState, ExecSyncRequest, ImageSpec, PullImageRequest};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::cluster::{at_once, start, started};
use super::memory;
use crate::agent::{Cri, Node, Runtime};
use crate::bench::samples::Samples;
use crate::bench::{AgentColumn, BenchPlan, BenchReport, process};
use crate::cluster::Cluster;
use crate::containerd::{Containerd, missing};
use crate::doubles::registry::ImageRegistry;
use crate::images::{BUSYBOX_IMAGE, Image};
use crate::pods;

const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Bytes of each file of a large layer.
const LARGE_FILE: u64 = 64 << 10;

/// The keys of one runtime's figures.
struct FigureKeys {
    pss_none: &'static str,
    start: &'static str,
    exec: &'static str,
    restart: &'static str,
    crowd: &'static str,
    deletion_median: &'static str,
    deletion: &'static str,
    pss_many: &'static str,
    cpu_many: &'static str,
    unpack: &'static str,
}

const CONTAINERD: FigureKeys = FigureKeys {
    pss_none: "containerd-pss-none",
    start: "containerd-start",
    exec: "containerd-exec",
    restart: "containerd-restart",
    crowd: "containerd-crowd",
    deletion_median: "containerd-deletion-median",
    deletion: "containerd-deletion",
    pss_many: "containerd-pss-many",
    cpu_many: "containerd-cpu-many",
    unpack: "containerd-unpack",
};

const NATIVE: FigureKeys = FigureKeys {
    pss_none: "native-pss-none",
    start: "native-start",
    exec: "native-exec",
    restart: "native-restart",
    crowd: "native-crowd",
    deletion_median: "native-deletion-median",
    deletion: "native-deletion",
    pss_many: "native-pss-many",
    cpu_many: "native-cpu-many",
    unpack: "native-unpack",
};

pub(super) async fn measure(plan: &BenchPlan, report: &mut BenchReport) -> Result<()> {
    if let Some(why) = missing() {
        report.note(&format!("runtimes are not compared: {why}"));
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let rig = Containerd::start(dir.path()).await?;
    let root = json!({ "cgroupRoot": rig.cgroup() });
    let node = Node::builder().runtime(&rig).config(&root);
    let cluster = started(node).await?;
    let of_containerd = [dir.path().to_owned()];
    on(plan, &cluster, (&CONTAINERD, &of_containerd), report).await?;
    drop(cluster);
    // Their five hundred mounts would be read by every call of an OCI runtime. The bridge stays, and its addresses are free again.
    rig.end_pods();
    let conf_dir = dir.path().join("cni");
    let archive = dir.path().join("busybox.tar");
    Image::busybox(BUSYBOX_IMAGE).build()?.save(&archive)?;
    let node = Node::builder()
        .runtime(Runtime::Native(json!({ "import": [archive] })))
        .network_by(
            "network-native",
            &json!({ "confDir": conf_dir, "binDirs": ["/usr/lib/cni"] }),
        );
    let cluster = started(node).await?;
    let of_native = [cluster.node.root()];
    on(plan, &cluster, (&NATIVE, &of_native), report).await
}

/// So many times a node settles after it was busy.
const SETTLES: u32 = 12;

/// Measures a node whose processes name one of these folders in their command lines, as do the runtime's.
async fn on(
    plan: &BenchPlan,
    cluster: &Cluster,
    (keys, folders): (&FigureKeys, &[std::path::PathBuf]),
    report: &mut BenchReport,
) -> Result<()> {
    let mut put = |key, value| report.put(AgentColumn::Oxlet, key, value);
    let node = || processes(&cluster.node, folders);
    put(keys.pss_none, memory::at_rest(plan, &node()?).await?.0);
    let mut took = Samples::default();
    for nth in 0..plan.real_pods {
        took.add(start(cluster, &format!("one-{nth}")).await?);
    }
    put(keys.start, took.median());
    let cri = cluster.node.cri().await?;
    put(keys.exec, exec_times(&cri, plan.real_pods).await?.median());
    put(
        keys.restart,
        restart_times(&cri, plan.real_pods).await?.median(),
    );
    put(keys.crowd, at_once(cluster, "crowd", plan.api_crowd).await?);
    let took = deletion(cluster, plan.api_crowd).await?;
    put(keys.deletion_median, took.median());
    put(keys.deletion, took.most());
    let left = plan.many.saturating_sub(plan.real_pods);
    at_once(cluster, "more", left).await?;
    // What fifty ends and a hundred starts have left behind is cleared within a minute, and is no rest.
    tokio::time::sleep(plan.settle * SETTLES).await;
    let (pss, processor) = memory::at_rest(plan, &node()?).await?;
    put(keys.pss_many, pss);
    put(keys.cpu_many, processor);
    put(keys.unpack, unpack_times(&cri, plan).await?.median());
    Ok(())
}

/// The agent, its plugins, and every other process of the runtime; no container's.
pub(super) fn processes(node: &Node, folders: &[std::path::PathBuf]) -> Result<Vec<u32>> {
    let agent = node.pid().context("the agent does not run")?;
    let mut pids = vec![agent];
    pids.extend(process::children(agent)?.into_iter().map(|(pid, _)| pid));
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        // A process that ended meanwhile does not count.
        let Ok(program) = fs::read_link(entry.path().join("exe")) else {
            continue;
        };
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        let names = |folder: &Path| line.contains(&*folder.to_string_lossy());
        if is_runtimes(&program)
            && folders.iter().any(|folder| names(folder))
            && !pids.contains(&pid)
        {
            pids.push(pid);
        }
    }
    Ok(pids)
}

fn is_runtimes(program: &Path) -> bool {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    ["containerd", "oxlet-monitor"]
        .iter()
        .any(|start| name.starts_with(start))
}

/// How long `true` takes in a running container, so many times.
async fn exec_times(cri: &Cri, times: usize) -> Result<Samples> {
    let running = cri.running().await?;
    let container_id = running.values().next().context("nothing runs")?;
    let mut took = Samples::default();
    for _ in 0..times {
        let request = ExecSyncRequest {
            container_id: container_id.clone(),
            cmd: vec!["true".to_owned()],
            timeout: 10,
        };
        let before = Instant::now();
        let answer = cri.runtime().exec_sync(request).await?.into_inner();
        took.add(before.elapsed());
        anyhow::ensure!(
            answer.exit_code == 0,
            "true ended with {}",
            answer.exit_code
        );
    }
    Ok(took)
}

/// How long an image takes to be pulled from loopback and unpacked, so many images of as many layers.
async fn unpack_times(cri: &Cri, plan: &BenchPlan) -> Result<Samples> {
    let registry = ImageRegistry::start().await?;
    let mut took = Samples::default();
    for nth in 0..plan.pulls {
        let mut image = Image::busybox(&format!("bench/large:{nth}"));
        image.files = (0..plan.layer_files)
            .map(|file| compressible(nth, file))
            .collect();
        let name = registry.push_built("bench/large", &nth.to_string(), image.build()?.gzipped()?);
        let request = PullImageRequest {
            image: Some(ImageSpec {
                image: name,
                ..ImageSpec::default()
            }),
            ..PullImageRequest::default()
        };
        let before = Instant::now();
        cri.images().pull_image(request).await?;
        took.add(before.elapsed());
    }
    Ok(took)
}

/// A file of 64 KiB that no other has, of which gzip leaves a half: its path and content.
fn compressible(image: usize, file: usize) -> (String, Vec<u8>) {
    let seed = (image as u64) << 32 | file as u64;
    let words = (0..LARGE_FILE / size_of::<u64>() as u64).map(|at| {
        let word =
            (seed ^ at.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        word & 0x0F0F_0F0F_0F0F_0F0F
    });
    let content = words.flat_map(u64::to_le_bytes).collect();
    (format!("data/{}/{file}", file % 32), content)
}

/// From SIGKILL of a container's process until its successor runs, each of so many pods once.
async fn restart_times(cri: &Cri, pods: usize) -> Result<Samples> {
    let mut took = Samples::default();
    for nth in 0..pods {
        let pod = format!("one-{nth}");
        let running = instance(cri, &pod, 0).await?.context("it does not run")?;
        let pid = pods::pid_of(&cri.runtime(), &running.id).await?;
        let before = Instant::now();
        kill(Pid::from_raw(pid), Signal::SIGKILL)?;
        let again = async {
            loop {
                let successor = instance(cri, &pod, 1).await?;
                let state = successor.map(|container| container.state());
                if state == Some(ContainerState::ContainerRunning) {
                    return anyhow::Ok(before.elapsed());
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        let again = tokio::time::timeout(CONVERGENCE_TIMEOUT, again).await;
        took.add(again.with_context(|| format!("{pod} is not started again"))??);
    }
    Ok(took)
}

async fn instance(cri: &Cri, pod: &str, attempt: u32) -> Result<Option<Container>> {
    let is_it = |one: &Container| {
        one.labels
            .get("io.kubernetes.pod.name")
            .is_some_and(|name| name == pod)
            && one
                .metadata
                .as_ref()
                .is_some_and(|metadata| metadata.attempt == attempt)
    };
    Ok(cri.containers().await?.into_iter().find(is_it))
}

/// Deletes the pods of the crowd at once, which let their grace of a second pass, and waits until the API has none of them.
async fn deletion(cluster: &Cluster, pods: usize) -> Result<Samples> {
    let mut left: Vec<String> = (0..pods).map(|nth| format!("crowd-{nth}")).collect();
    let mut took = Samples::default();
    let before = Instant::now();
    for name in &left {
        let path = format!("/api/v1/namespaces/default/pods/{name}");
        let deleted: Result<Value, _> = cluster.server.delete(&path);
        deleted.map_err(|failure| anyhow::anyhow!("{failure:?}"))?;
    }
    let gone = async || {
        let here = left.len();
        left.retain(|name| cluster.pod(name).is_some());
        (left.len()..here).for_each(|_| took.add(before.elapsed()));
        left.is_empty()
    };
    cluster.wait("the crowd is gone", gone).await?;
    Ok(took)
}
