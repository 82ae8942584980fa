//! On a real containerd: what the agent adds to containerd's own time, measured straight in the same run.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::StreamExt;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto::cri::{
    ContainerConfig, LinuxContainerConfig, LinuxContainerResources, LinuxContainerSecurityContext,
    LinuxPodSandboxConfig, LinuxSandboxSecurityContext, Mount, NamespaceMode, NamespaceOption,
    PodSandboxConfig, SecurityProfile,
};
use tokio::time::Instant;

use crate::agent::{Cri, Node};
use crate::bench::agent::wall;
use crate::bench::pods::{SCRIPT, manifest};
use crate::bench::samples::Samples;
use crate::bench::{AgentColumn, BenchPlan, BenchReport, process};
use crate::containerd::{Containerd, missing};
use crate::pods;

const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// Pods made at once.
const BURST_PODS: std::ops::Range<usize> = 0..50;
/// The callers that make as many without the agent.
const BURST_CALLERS: usize = 8;
const POLL_INTERVAL: Duration = Duration::from_millis(50);

pub(super) async fn measure(plan: &BenchPlan, report: &mut BenchReport) -> Result<()> {
    if let Some(why) = missing() {
        report.note(&format!("not measured on containerd: {why}"));
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let rig = Containerd::start(dir.path()).await?;
    let node = Node::builder()
        .runtime(&rig)
        .config(&serde_json::json!({ "cgroupRoot": rig.cgroup() }))
        .start()
        .await?;
    report.put(
        AgentColumn::Oxlet,
        "real-pss-none",
        at_rest(plan, &node).await?,
    );
    let cri = Cri::over(rig.channel());
    // Direct and by the agent alternately: other load of the machine slows both.
    let (mut direct, mut dropped) = (Samples::default(), Samples::default());
    let (mut again, mut restarted) = (Samples::default(), Samples::default());
    let mut sandboxes = Vec::new();
    for nth in 0..plan.real_pods {
        sandboxes.push(straight(&rig, nth, &mut direct).await?);
        dropped.add_nanos(drop_one(&node, &cri, nth).await?);
    }
    report.put(
        AgentColumn::Oxlet,
        "real-pss-some",
        at_rest(plan, &node).await?,
    );
    for (nth, (id, sandbox)) in sandboxes.iter().enumerate() {
        let before = Instant::now();
        pods::run_container(
            &rig.runtime(),
            id,
            sandbox,
            pods::container("second", SCRIPT),
        )
        .await?;
        again.add(before.elapsed());
        restarted.add_nanos(kill_one(&cri, nth).await?);
    }

    report.put(AgentColumn::Oxlet, "real-direct", direct.median());
    report.put(AgentColumn::Oxlet, "real-again", again.median());
    report.put(AgentColumn::Oxlet, "real-drop", dropped.median());
    report.put(
        AgentColumn::Oxlet,
        "real-drop-own",
        dropped.median() - direct.median(),
    );
    report.put(AgentColumn::Oxlet, "real-restart", restarted.median());
    report.put(
        AgentColumn::Oxlet,
        "real-restart-own",
        restarted.median() - again.median(),
    );
    let alone = abreast(&rig).await?;
    report.put(AgentColumn::Oxlet, "real-burst-direct", alone.median());
    report.put(AgentColumn::Oxlet, "real-burst-direct-last", alone.most());
    let burst = burst(&node, &cri).await?;
    report.put(AgentColumn::Oxlet, "real-burst", burst.median());
    report.put(AgentColumn::Oxlet, "real-burst-last", burst.most());
    Ok(())
}

/// Makes the pods of a burst without the agent, by so many callers abreast; returns when each of them ran.
async fn abreast(rig: &Containerd) -> Result<Samples> {
    let began = Instant::now();
    let pods = futures_util::stream::iter(BURST_PODS.map(async |nth| {
        straight(rig, 1000 + nth, &mut Samples::default()).await?;
        anyhow::Ok(began.elapsed())
    }));
    let mut ran = Samples::default();
    let mut pods = std::pin::pin!(pods.buffer_unordered(BURST_CALLERS));
    while let Some(after) = pods.next().await {
        ran.add(after?);
    }
    Ok(ran)
}

/// Drops the manifests of a burst at once; returns how long after it each container started, by containerd's clock.
async fn burst(node: &Node, cri: &Cri) -> Result<Samples> {
    let name = |nth| format!("burst-{nth}");
    let before = wall()?;
    for nth in BURST_PODS {
        let name = name(nth);
        node.drop_manifest(&format!("{name}.yaml"), &manifest(&name, 1))?;
    }
    let mut ran = Samples::default();
    for nth in BURST_PODS {
        ran.add_nanos(started(cri, &name(nth), 0).await? - before);
    }
    Ok(ran)
}

/// Makes a pod without the agent: sandbox, one container created and started, asked for as a kubelet asks: `like_ours`.
pub(super) async fn straight(
    rig: &Containerd,
    nth: usize,
    took: &mut Samples,
) -> Result<(String, PodSandboxConfig)> {
    let name = format!("straight-{nth}");
    let mut sandbox = pods::sandbox(rig, &name)?;
    let mut container = pods::container("first", SCRIPT);
    like_ours(rig, &name, (&mut sandbox, &mut container))?;
    let client = rig.runtime();
    let before = Instant::now();
    let id = pods::run_sandbox(&client, &sandbox).await?;
    pods::run_container(&client, &id, &sandbox, container).await?;
    took.add(before.elapsed());
    Ok((id, sandbox))
}

/// What a kubelet asks for besides, because it costs the runtime time: seccomp for the sandbox, process ids of the
/// container's own, a cgroup of the pod's class, a share of the processor, and three mounts.
fn like_ours(
    rig: &Containerd,
    name: &str,
    (sandbox, container): (&mut PodSandboxConfig, &mut ContainerConfig),
) -> Result<()> {
    let own_processes = NamespaceOption {
        pid: NamespaceMode::Container.into(),
        ..Default::default()
    };
    sandbox.linux = Some(LinuxPodSandboxConfig {
        cgroup_parent: format!("{}/kubepods/besteffort/{name}", rig.cgroup()),
        security_context: Some(LinuxSandboxSecurityContext {
            namespace_options: Some(own_processes.clone()),
            seccomp: Some(SecurityProfile::default()),
            ..Default::default()
        }),
        ..Default::default()
    });
    container.linux = Some(LinuxContainerConfig {
        resources: Some(LinuxContainerResources {
            cpu_shares: 2,
            oom_score_adj: 1000,
            ..Default::default()
        }),
        security_context: Some(LinuxContainerSecurityContext {
            namespace_options: Some(own_processes),
            ..Default::default()
        }),
    });
    let folder = rig.dir().join("volumes").join(name);
    fs::create_dir_all(folder.join("token"))?;
    fs::write(folder.join("hosts"), "127.0.0.1 localhost\n")?;
    fs::write(folder.join("log"), "")?;
    let mounts = [
        ("token", "/var/run/secrets/kubernetes.io/serviceaccount"),
        ("hosts", "/etc/hosts"),
        ("log", "/dev/termination-log"),
    ];
    container.mounts = mounts
        .map(|(lies, container_path)| Mount {
            host_path: folder.join(lies).display().to_string(),
            container_path: container_path.to_owned(),
            ..Default::default()
        })
        .to_vec();
    Ok(())
}

/// From the manifest's rename to the container's start by containerd's clock, in nanoseconds.
async fn drop_one(node: &Node, cri: &Cri, nth: usize) -> Result<i64> {
    let name = format!("real-{nth}");
    let before = wall()?;
    node.drop_manifest(&format!("{name}.yaml"), &manifest(&name, 1))?;
    Ok(started(cri, &name, 0).await? - before)
}

/// From SIGKILL of the container's process to its successor's start by containerd's clock, in nanoseconds.
async fn kill_one(cri: &Cri, nth: usize) -> Result<i64> {
    let name = format!("real-{nth}");
    let containers = cri.containers_of(&name).await?;
    let running = containers
        .first()
        .with_context(|| format!("pod {name} has no container"))?;
    let pid = pods::pid_of(&cri.runtime(), &running.id).await?;
    let before = wall()?;
    kill(Pid::from_raw(pid), Signal::SIGKILL)?;
    Ok(started(cri, &name, 1).await? - before)
}

/// Waits until the pod's container of this attempt has started; returns when that was. It looks seldom: looking is work
/// for containerd, and the time is containerd's own.
async fn started(cri: &Cri, pod: &str, attempt: u32) -> Result<i64> {
    let asked = async {
        loop {
            match start_of(cri, pod, attempt).await {
                Ok(at) if at > 0 => return at,
                Ok(_) | Err(_) => tokio::time::sleep(POLL_INTERVAL).await,
            }
        }
    };
    let started = tokio::time::timeout(CONVERGENCE_TIMEOUT, asked).await;
    started.with_context(|| format!("the container of {pod} does not run"))
}

async fn start_of(cri: &Cri, pod: &str, attempt: u32) -> Result<i64> {
    let containers = cri.containers_of(pod).await?.into_iter();
    let mut of_attempt = containers.filter(|container| {
        container
            .metadata
            .as_ref()
            .is_some_and(|metadata| metadata.attempt == attempt)
    });
    let container = of_attempt.next().context("no such container")?;
    Ok(cri.status(&container.id).await?.started_at)
}

async fn at_rest(plan: &BenchPlan, node: &Node) -> Result<f64> {
    tokio::time::sleep(plan.settle).await;
    let agent = node.pid().context("the agent does not run")?;
    let plugins = process::children(agent)?.into_iter().map(|(pid, _)| pid);
    process::memory(&std::iter::once(agent).chain(plugins).collect::<Vec<_>>())
}
