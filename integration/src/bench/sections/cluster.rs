//! The agent as a node of a cluster: how soon the API knows what the runtime knows, and what the node costs at rest.
//!
//! The API server is its double, in the bench's own process; what it takes to answer counts as ours. Every pod has the
//! volume of its service account's token, as an API server adds it.

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result};
use apiserver::ServerOptions;
use proto::cri::{ContainerEventType, ExecSyncRequest};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::containerd::straight;
use super::memory;
use crate::agent::Node;
use crate::bench::agent::{processes, wall};
use crate::bench::pods::SCRIPT;
use crate::bench::samples::Samples;
use crate::bench::watch::EventWatch;
use crate::bench::{AgentColumn, BenchPlan, BenchReport, process};
use crate::cluster::{Cluster, condition};
use crate::containerd::{Containerd, missing};
use crate::images::BUSYBOX_IMAGE;

const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two things that happen to the node one by one: 50 requests a second are all that `kubeAPIQPS` allows it.
const REQUEST_INTERVAL: Duration = Duration::from_millis(100);
/// How many times a node settles until it is quiet: events of the usual node take a minute.
const MAX_SETTLES: u32 = 60;
const FOLLOWERS: usize = 10;
/// Between two looks at the agent's memory.
const LOG_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Lines of a log that are written at once.
const LINES_AT_ONCE: usize = 100;

/// Measures our agent on runtime-fake.
pub(super) async fn measure(plan: &BenchPlan, report: &mut BenchReport) -> Result<()> {
    ready(plan, report).await?;
    let cluster = started(Node::builder()).await?;
    let agent = processes(&cluster.node)?;
    let (pss, _) = memory::at_rest(plan, &agent).await?;
    report.put(AgentColumn::Oxlet, "api-pss-none", pss);
    let took = one_by_one(&cluster, plan.drops).await?;
    report.put(AgentColumn::Oxlet, "api-start-median", took.median());
    report.put(AgentColumn::Oxlet, "api-start-p99", took.p99());
    let left = plan.many.saturating_sub(plan.drops);
    at_once(&cluster, "more", left).await?;
    rest(plan, &cluster, report).await?;
    requests(plan, &cluster, report).await?;
    exits(plan, &cluster, report).await?;
    let took = at_once(&cluster, "crowd", plan.api_crowd).await?;
    report.put(AgentColumn::Oxlet, "api-crowd", took);
    logs(plan, &cluster, report).await
}

/// Measures it on a real containerd, and containerd alone.
pub(super) async fn real(plan: &BenchPlan, report: &mut BenchReport) -> Result<()> {
    if let Some(why) = missing() {
        report.note(&format!(
            "a cluster's node not measured on containerd: {why}"
        ));
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let rig = Containerd::start(dir.path()).await?;
    let root = json!({ "cgroupRoot": rig.cgroup() });
    let cluster = started(Node::builder().runtime(&rig).config(&root)).await?;
    let (mut direct, mut made) = (Samples::default(), Samples::default());
    for nth in 0..plan.real_pods {
        straight(&rig, nth, &mut direct).await?;
        made.add(start(&cluster, &format!("one-{nth}")).await?);
    }
    report.put(AgentColumn::Oxlet, "api-real-direct", direct.median());
    report.put(AgentColumn::Oxlet, "api-real-start", made.median());
    report.put(
        AgentColumn::Oxlet,
        "api-real-own",
        made.median() - direct.median(),
    );
    let began = Instant::now();
    let mut ignored = Samples::default();
    let names = plan.real_pods..plan.real_pods + plan.api_crowd;
    let alone = names.map(|nth| {
        let (rig, mut took) = (&rig, ignored.clone());
        async move { straight(rig, nth, &mut took).await }
    });
    futures_util::future::try_join_all(alone).await?;
    ignored.add(began.elapsed());
    report.put(AgentColumn::Oxlet, "api-real-crowd-direct", ignored.most());
    let took = at_once(&cluster, "crowd", plan.api_crowd).await?;
    report.put(AgentColumn::Oxlet, "api-real-crowd", took);
    Ok(())
}

pub(super) async fn started(builder: crate::agent::Builder) -> Result<Cluster> {
    let cluster = Cluster::start(builder).await?;
    cluster.until_ready(CONVERGENCE_TIMEOUT).await?;
    Ok(cluster)
}

/// From the process's start to the condition Ready in the API, each time of a node that is not registered yet.
async fn ready(plan: &BenchPlan, report: &mut BenchReport) -> Result<()> {
    let mut cluster = Cluster::prepare(Node::builder(), ServerOptions::default()).await?;
    let mut took = Samples::default();
    for _ in 0..plan.starts {
        let before = Instant::now();
        cluster.node.begin().await?;
        cluster.until_ready(CONVERGENCE_TIMEOUT).await?;
        took.add(before.elapsed());
        cluster.node.terminate().await?;
        let node = cluster.server.delete("/api/v1/nodes/node");
        node.map_err(|failure| anyhow::anyhow!("{failure:?}"))?;
    }
    report.put(AgentColumn::Oxlet, "api-ready-median", took.median());
    report.put(AgentColumn::Oxlet, "api-ready-most", took.most());
    Ok(())
}

/// The node with its pods, left alone.
async fn rest(plan: &BenchPlan, cluster: &Cluster, report: &mut BenchReport) -> Result<()> {
    let agent = processes(&cluster.node)?;
    until_quiet(plan, cluster).await?;
    let before = Instant::now();
    let (pss, processor) = memory::at_rest(plan, &agent).await?;
    let asked = u32::try_from(cluster.double().requests().len())?;
    let rate = f64::from(asked) / before.elapsed().as_secs_f64();
    report.put(AgentColumn::Oxlet, "api-pss-many", pss);
    report.put(AgentColumn::Oxlet, "api-cpu-many", processor);
    report.put(AgentColumn::Oxlet, "api-requests", rate);
    let children = process::children(agent[0])?.into_iter();
    let storage = children.filter(|(_, name)| name.starts_with("storage-"));
    let storage: Vec<_> = storage.map(|(pid, _)| pid).collect();
    report.put(
        AgentColumn::Oxlet,
        "api-pss-plugins",
        process::memory(&storage)?,
    );
    Ok(())
}

/// Waits until the node has said all that it had to, hundreds of events being rate-limited; how many requests that were,
/// leases apart.
async fn until_quiet(plan: &BenchPlan, cluster: &Cluster) -> Result<usize> {
    let mut all = 0;
    for _ in 0..MAX_SETTLES {
        let before = cluster.double().requests().len();
        tokio::time::sleep(plan.settle).await;
        let (now, heard) = (cluster.double().requests().len(), beyond_leases(cluster));
        cluster.double().forget_requests();
        all += heard;
        if now == before || heard == 0 {
            return Ok(all);
        }
    }
    anyhow::bail!("the node is never quiet: {all} requests");
}

/// How many requests the server has heard, the node's leases apart.
fn beyond_leases(cluster: &Cluster) -> usize {
    let requests = cluster.double().requests().into_iter();
    requests
        .filter(|request| !request.path.contains("/leases/"))
        .count()
}

/// What the server hears of a pod, events included, from its making until it runs and from its deletion until it is gone;
/// and of a node that does nothing, for as long as it takes until its report is due.
async fn requests(plan: &BenchPlan, cluster: &Cluster, report: &mut BenchReport) -> Result<()> {
    let name = "counted";
    until_quiet(plan, cluster).await?;
    start(cluster, name).await?;
    let heard = until_quiet(plan, cluster).await?;
    report.count(AgentColumn::Oxlet, "api-requests-start", heard);
    let path = format!("/api/v1/namespaces/default/pods/{name}");
    let deleted: Result<Value, _> = cluster.server.delete(&path);
    deleted.map_err(|failure| anyhow::anyhow!("{failure:?}"))?;
    cluster
        .until_pod(name, CONVERGENCE_TIMEOUT, Value::is_null)
        .await?;
    let heard = until_quiet(plan, cluster).await?;
    report.count(AgentColumn::Oxlet, "api-requests-end", heard);
    tokio::time::sleep(plan.report).await;
    let heard = beyond_leases(cluster);
    let watches = renewed_watches(cluster);
    report.count(
        AgentColumn::Oxlet,
        "api-requests-idle",
        heard.saturating_sub(watches),
    );
    report.count(AgentColumn::Oxlet, "api-watches-idle", watches);
    Ok(())
}

/// A watch lasts five to ten minutes, as client-go's, and is then renewed.
fn renewed_watches(cluster: &Cluster) -> usize {
    let requests = cluster.double().requests().into_iter();
    requests
        .filter(|request| request.query.contains("watch="))
        .count()
}

async fn one_by_one(cluster: &Cluster, pods: usize) -> Result<Samples> {
    let mut took = Samples::default();
    for nth in 0..pods {
        tokio::time::sleep(REQUEST_INTERVAL).await;
        took.add(start(cluster, &format!("one-{nth}")).await?);
    }
    Ok(took)
}

/// Makes a pod and waits until it is Running.
pub(super) async fn start(cluster: &Cluster, name: &str) -> Result<Duration> {
    let before = Instant::now();
    cluster.apply(&pod(name))?;
    cluster
        .until_pod(name, CONVERGENCE_TIMEOUT, is_running)
        .await?;
    Ok(before.elapsed())
}

/// Makes so many pods, then waits for all; milliseconds.
pub(super) async fn at_once(cluster: &Cluster, prefix: &str, pods: usize) -> Result<f64> {
    let mut took = Samples::default();
    let before = Instant::now();
    let name = |nth| format!("{prefix}-{nth}");
    for nth in 0..pods {
        cluster.apply(&pod(&name(nth)))?;
    }
    for nth in 0..pods {
        cluster
            .until_pod(&name(nth), CONVERGENCE_TIMEOUT, is_running)
            .await?;
    }
    took.add(before.elapsed());
    Ok(took.most())
}

/// From a container's end by the runtime's clock to its pod's status; each is killed once, as its restart is then
/// immediate.
async fn exits(plan: &BenchPlan, cluster: &Cluster, report: &mut BenchReport) -> Result<()> {
    let cri = cluster.node.cri().await?;
    let mut watch = EventWatch::start(&cri).await?;
    let mut took = Samples::default();
    for ((pod, _), container_id) in cri.running().await?.into_iter().take(plan.many) {
        tokio::time::sleep(REQUEST_INTERVAL).await;
        let mut runtime = cri.runtime();
        let question = ExecSyncRequest {
            container_id,
            cmd: ["kill", "-9", "1"].map(str::to_owned).to_vec(),
            timeout: 5,
        };
        // The answer may be swallowed by the end that it asks for.
        tokio::spawn(async move { drop(runtime.exec_sync(question).await) });
        let told = cluster
            .until_pod(&pod, CONVERGENCE_TIMEOUT, has_ended)
            .await;
        let told = told.and_then(|_| wall())?;
        let what = format!("{pod} ends");
        let ended = watch.until(CONVERGENCE_TIMEOUT, &what, |happened| {
            happened.pod == pod && happened.kind == ContainerEventType::ContainerStoppedEvent
        });
        took.add_nanos(told - ended.await?.at);
    }
    report.put(AgentColumn::Oxlet, "api-exit-median", took.median());
    report.put(AgentColumn::Oxlet, "api-exit-p99", took.p99());
    Ok(())
}

/// How much the agent grows while ten kubectl follow a log that grows fast.
async fn logs(plan: &BenchPlan, cluster: &Cluster, report: &mut BenchReport) -> Result<()> {
    let made = cluster.apply(&pod("talker"))?;
    cluster
        .until_pod("talker", CONVERGENCE_TIMEOUT, is_running)
        .await?;
    let uid = made["metadata"]["uid"]
        .as_str()
        .context("a pod without UID")?;
    let folder = format!("default_talker_{uid}/c0/0.log");
    let path = cluster.node.pod_logs().join(folder);
    let mut log = File::options().append(true).create(true).open(path)?;
    log.write_all(line(0).as_bytes())?;
    let mut followers = JoinSet::new();
    for _ in 0..FOLLOWERS {
        let mut child = cluster.kubectl_child(&["logs", "-f", "talker"])?;
        first_line(&mut child).await?;
        followers.spawn(count(child, plan.log_lines));
    }
    let agent = [cluster.node.pid().context("the agent does not run")?];
    let before = process::memory(&agent)?;
    let mut most = before;
    let mut written = 0;
    while written < plan.log_lines {
        let next = plan.log_lines.min(written + LINES_AT_ONCE);
        let lines: String = (written..next).map(line).collect();
        log.write_all(lines.as_bytes())?;
        written = next;
        tokio::task::yield_now().await;
        most = most.max(process::memory(&agent)?);
    }
    let deadline = Instant::now() + CONVERGENCE_TIMEOUT;
    while !followers.is_empty() {
        anyhow::ensure!(
            Instant::now() < deadline,
            "a follower has not read all lines"
        );
        match tokio::time::timeout(LOG_POLL_INTERVAL, followers.join_next()).await {
            Ok(Some(read)) => read??,
            Ok(None) => break,
            Err(_) => most = most.max(process::memory(&agent)?),
        }
    }
    report.put(AgentColumn::Oxlet, "api-logs", most - before);
    Ok(())
}

async fn first_line(child: &mut Child) -> Result<()> {
    let stdout = child.stdout.take().context("no output")?;
    let mut reader = BufReader::with_capacity(1, stdout);
    let mut text = String::new();
    tokio::time::timeout(CONVERGENCE_TIMEOUT, reader.read_line(&mut text))
        .await
        .context("a follower sees nothing")??;
    child.stdout = Some(reader.into_inner());
    Ok(())
}

/// Reads so many lines, in their order, then ends the follower.
async fn count(mut child: Child, lines: usize) -> Result<()> {
    let stdout = child.stdout.take().context("no output")?;
    let mut reader = BufReader::new(stdout).lines();
    for nth in 0..lines {
        let read = reader.next_line().await?.context("the follower ended")?;
        anyhow::ensure!(read == text(nth), "line {nth} is {read}");
    }
    child.kill().await?;
    Ok(())
}

fn text(nth: usize) -> String {
    format!("line {nth} of a log that is followed by many at once")
}

fn line(nth: usize) -> String {
    format!("2026-01-01T00:00:00.000000000Z stdout F {}\n", text(nth))
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "c0",
                "image": BUSYBOX_IMAGE,
                "imagePullPolicy": "IfNotPresent",
                "command": ["sh", "-c", SCRIPT],
            }],
        },
    })
}

fn is_running(pod: &Value) -> bool {
    pod["status"]["phase"] == "Running" && condition(pod, "Ready") == Some("True")
}

fn has_ended(pod: &Value) -> bool {
    let status = &pod["status"]["containerStatuses"][0];
    !status["state"]["terminated"].is_null() || !status["lastState"]["terminated"].is_null()
}
