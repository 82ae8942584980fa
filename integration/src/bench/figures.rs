//! Every figure that is measured, in the order of the table, with what it should be.

use super::Plan;

/// The node at rest.
pub const MEMORY: &str = "memory";
/// One thing happens.
pub const LATENCY: &str = "latency";
/// Probes, second after second.
pub const PROBES: &str = "probes";
/// Volumes of many pods.
pub const VOLUMES: &str = "volumes";
/// Everything happens at once.
pub const BURST: &str = "burst";
/// The kernel alone.
pub const KERNEL: &str = "kernel";
/// On a real runtime.
pub const CONTAINERD: &str = "containerd";
/// A node of a cluster.
pub const CLUSTER: &str = "cluster";
/// A node of a cluster, on a real runtime.
pub const CLUSTER_REAL: &str = "cluster-containerd";

/// The sections, in the order in which they are measured.
pub const SECTIONS: [&str; 9] = [
    MEMORY,
    LATENCY,
    PROBES,
    VOLUMES,
    BURST,
    KERNEL,
    CONTAINERD,
    CLUSTER,
    CLUSTER_REAL,
];

/// What a figure should be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Aim {
    /// No more than this.
    AtMost(f64),
    /// Less than this.
    Under(f64),
    /// It is only told.
    None,
}

impl Aim {
    /// Whether a value is as it should be; none where nothing is asked of it.
    pub fn met(self, value: f64) -> Option<bool> {
        match self {
            Aim::AtMost(most) => Some(value <= most),
            Aim::Under(bound) => Some(value < bound),
            Aim::None => None,
        }
    }
}

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// What programs call it.
    pub key: &'static str,
    /// Where it stands.
    pub section: &'static str,
    /// What people call it; `{many}` and the like are the plan's counts.
    pub text: &'static str,
    /// What it is counted in.
    pub unit: &'static str,
    /// What it should be.
    pub aim: Aim,
}

impl Figure {
    /// Returns what people call it, in a run of this plan.
    pub fn name(&self, plan: &Plan) -> String {
        self.text
            .replace("{many}", &plan.many.to_string())
            .replace("{most}", &plan.most.to_string())
            .replace("{real}", &plan.real_pods.to_string())
            .replace("{crowd}", &plan.api_crowd.to_string())
    }
}

const fn figure(
    key: &'static str,
    section: &'static str,
    text: &'static str,
    unit: &'static str,
    aim: Aim,
) -> Figure {
    Figure {
        key,
        section,
        text,
        unit,
        aim,
    }
}

/// The table.
pub const FIGURES: &[Figure] = &[
    figure(
        "pss-none",
        MEMORY,
        "agent's memory (PSS), 0 pods",
        "MiB",
        Aim::AtMost(20.0),
    ),
    figure(
        "pss-many",
        MEMORY,
        "agent's memory, {many} pods",
        "MiB",
        Aim::AtMost(35.0),
    ),
    figure(
        "pss-most",
        MEMORY,
        "agent's memory, {most} pods",
        "MiB",
        Aim::AtMost(120.0),
    ),
    figure(
        "cpu-none",
        MEMORY,
        "agent's processor time, 0 pods",
        "% of a core",
        Aim::None,
    ),
    figure(
        "cpu-many",
        MEMORY,
        "agent's processor time, {many} idle pods",
        "% of a core",
        Aim::AtMost(0.5),
    ),
    figure(
        "cpu-most",
        MEMORY,
        "agent's processor time, {most} idle pods",
        "% of a core",
        Aim::None,
    ),
    figure(
        "fake-many",
        MEMORY,
        "apart: runtime-fake's memory, {many} pods",
        "MiB",
        Aim::None,
    ),
    figure(
        "fake-most",
        MEMORY,
        "apart: runtime-fake's memory, {most} pods",
        "MiB",
        Aim::None,
    ),
    figure(
        "start-median",
        LATENCY,
        "process start to healthz, median",
        "ms",
        Aim::Under(50.0),
    ),
    figure(
        "start-most",
        LATENCY,
        "process start to healthz, longest",
        "ms",
        Aim::None,
    ),
    figure(
        "drop-median",
        LATENCY,
        "manifest dropped to container started, median",
        "ms",
        Aim::AtMost(20.0),
    ),
    figure(
        "drop-p99",
        LATENCY,
        "manifest dropped to container started, p99",
        "ms",
        Aim::Under(50.0),
    ),
    figure(
        "crowd-median",
        LATENCY,
        "ten containers of 20 to 200 ms each: manifest dropped to all started, median",
        "ms",
        // A quarter more than the slowest, and the usual start of one.
        Aim::AtMost(270.0),
    ),
    figure(
        "crowd-most",
        LATENCY,
        "ten containers of 20 to 200 ms each: manifest dropped to all started, longest",
        "ms",
        Aim::None,
    ),
    figure(
        "restart-median",
        LATENCY,
        "container killed to its restart's CreateContainer, median",
        "ms",
        Aim::None,
    ),
    figure(
        "restart-p99",
        LATENCY,
        "container killed to its restart's CreateContainer, p99",
        "ms",
        Aim::Under(50.0),
    ),
    figure(
        "plugin-median",
        LATENCY,
        "plugin killed to next answered call, median",
        "ms",
        Aim::None,
    ),
    figure(
        "plugin-p99",
        LATENCY,
        "plugin killed to next answered call, p99",
        "ms",
        Aim::Under(100.0),
    ),
    figure(
        "probes-none-cpu",
        PROBES,
        "agent's processor time, {many} pods of two containers without probes",
        "% of a core",
        Aim::None,
    ),
    figure(
        "probes-cpu",
        PROBES,
        "agent's processor time, {many} such pods with three probes a second each",
        "% of a core",
        Aim::AtMost(15.0),
    ),
    figure(
        "probes-late",
        PROBES,
        "longest time without an attempt of one probe, beyond its period of 1 s",
        "ms",
        Aim::AtMost(100.0),
    ),
    figure(
        "probes-turn",
        PROBES,
        "by the agent's own word: longest wait of one probe behind its turn, commands' included",
        "ms",
        Aim::AtMost(100.0),
    ),
    figure(
        "probes-memory",
        PROBES,
        "agent's memory, for each probe",
        "KiB",
        Aim::AtMost(8.0),
    ),
    figure(
        "volumes-share-median",
        VOLUMES,
        "four volumes' share of a pod's start, median",
        "ms",
        Aim::None,
    ),
    figure(
        "volumes-share-p99",
        VOLUMES,
        "four volumes' share of a pod's start, p99",
        "ms",
        Aim::AtMost(30.0),
    ),
    figure(
        "volumes-change",
        VOLUMES,
        "changed configMap -> seen in {many} pods",
        "ms",
        Aim::AtMost(1_000.0),
    ),
    figure(
        "volumes-pss",
        VOLUMES,
        "agent's memory, {many} pods with four volumes each",
        "MiB",
        Aim::AtMost(35.0),
    ),
    figure(
        "volumes-plugins",
        VOLUMES,
        "of it the two storage plugins'",
        "MiB",
        Aim::None,
    ),
    figure(
        "volumes-cpu",
        VOLUMES,
        "agent's processor time, {many} idle pods with four volumes each",
        "% of a core",
        Aim::AtMost(0.5),
    ),
    figure(
        "volumes-reconstruct",
        VOLUMES,
        "agent started again -> all volumes of {many} pods known",
        "ms",
        Aim::AtMost(1_000.0),
    ),
    figure(
        "volumes-rewritten",
        VOLUMES,
        "agent started again: volumes written again",
        "volumes",
        Aim::AtMost(0.0),
    ),
    figure(
        "burst-started",
        BURST,
        "{most} pods at once: to the last container started",
        "ms",
        Aim::None,
    ),
    figure(
        "burst-running",
        BURST,
        "{most} pods at once: to all Running",
        "ms",
        Aim::None,
    ),
    figure(
        "burst-missing",
        BURST,
        "{most} pods at once: pods that are not Running",
        "pods",
        Aim::AtMost(0.0),
    ),
    figure(
        "burst-refused",
        BURST,
        "{most} pods at once: messages handed back by a full mailbox",
        "messages",
        Aim::None,
    ),
    figure(
        "adopt",
        BURST,
        "agent killed at {many} pods to all adopted",
        "ms",
        Aim::Under(1_000.0),
    ),
    figure(
        "adopt-restarts",
        BURST,
        "agent killed at {many} pods: containers restarted",
        "containers",
        Aim::AtMost(0.0),
    ),
    figure(
        "tells",
        KERNEL,
        "messages a second through one actor",
        "1/s",
        Aim::None,
    ),
    figure(
        "ask-median",
        KERNEL,
        "ask and answer, median",
        "ns",
        Aim::None,
    ),
    figure("ask-p99", KERNEL, "ask and answer, p99", "ns", Aim::None),
    figure(
        "actor-bytes",
        KERNEL,
        "an idle actor's memory",
        "bytes",
        Aim::None,
    ),
    figure(
        "actor-cpu",
        KERNEL,
        "1,000 idle actors' processor time",
        "% of a core",
        Aim::None,
    ),
    figure(
        "real-pss-none",
        CONTAINERD,
        "memory with the adapter, 0 pods",
        "MiB",
        Aim::AtMost(15.0),
    ),
    figure(
        "real-pss-some",
        CONTAINERD,
        "memory with the adapter, {real} pods",
        "MiB",
        Aim::None,
    ),
    figure(
        "real-direct",
        CONTAINERD,
        "containerd's own time: sandbox, create, start, median",
        "ms",
        Aim::None,
    ),
    figure(
        "real-drop",
        CONTAINERD,
        "on containerd: manifest dropped to container started, median",
        "ms",
        Aim::None,
    ),
    figure(
        "real-drop-own",
        CONTAINERD,
        "of it ours",
        "ms",
        Aim::AtMost(20.0),
    ),
    figure(
        "real-again",
        CONTAINERD,
        "containerd's own time: create, start, median",
        "ms",
        Aim::None,
    ),
    figure(
        "real-restart",
        CONTAINERD,
        "on containerd: container killed to started again, median",
        "ms",
        Aim::None,
    ),
    figure(
        "real-restart-own",
        CONTAINERD,
        "of it ours, and containerd's time to notice",
        "ms",
        Aim::Under(50.0),
    ),
    figure(
        "api-ready-median",
        CLUSTER,
        "process start to Node Ready in the API, median",
        "ms",
        Aim::Under(300.0),
    ),
    figure(
        "api-ready-most",
        CLUSTER,
        "process start to Node Ready in the API, longest",
        "ms",
        Aim::None,
    ),
    figure(
        "api-pss-none",
        CLUSTER,
        "node of a cluster: agent's memory, 0 pods",
        "MiB",
        Aim::None,
    ),
    figure(
        "api-pss-many",
        CLUSTER,
        "node of a cluster: agent's memory, {many} pods",
        "MiB",
        Aim::AtMost(35.0),
    ),
    figure(
        "api-pss-plugins",
        CLUSTER,
        "of it the storage plugins'",
        "MiB",
        Aim::None,
    ),
    figure(
        "api-cpu-many",
        CLUSTER,
        "node of a cluster: agent's processor time, {many} idle pods",
        "% of a core",
        Aim::AtMost(1.0),
    ),
    figure(
        "api-requests",
        CLUSTER,
        "node of a cluster: requests to the API, {many} idle pods",
        "1/s",
        Aim::Under(1.0),
    ),
    figure(
        "api-start-median",
        CLUSTER,
        "pod made in the API to Running in the API, median",
        "ms",
        Aim::AtMost(30.0),
    ),
    figure(
        "api-start-p99",
        CLUSTER,
        "pod made in the API to Running in the API, p99",
        "ms",
        Aim::None,
    ),
    figure(
        "api-exit-median",
        CLUSTER,
        "container's exit to its status in the API, median",
        "ms",
        Aim::None,
    ),
    figure(
        "api-exit-p99",
        CLUSTER,
        "container's exit to its status in the API, p99",
        "ms",
        Aim::Under(100.0),
    ),
    figure(
        "api-crowd",
        CLUSTER,
        "{crowd} pods made in the API at once to all Running in the API",
        "ms",
        Aim::None,
    ),
    figure(
        "api-logs",
        CLUSTER,
        "10,000 log lines followed by ten clients: the agent's memory grows by",
        "MiB",
        Aim::AtMost(2.0),
    ),
    figure(
        "api-real-direct",
        CLUSTER_REAL,
        "containerd's own time: sandbox, create, start, median",
        "ms",
        Aim::None,
    ),
    figure(
        "api-real-start",
        CLUSTER_REAL,
        "on containerd: pod made in the API to Running in the API, median",
        "ms",
        Aim::None,
    ),
    figure(
        "api-real-own",
        CLUSTER_REAL,
        "of it ours",
        "ms",
        Aim::AtMost(30.0),
    ),
    figure(
        "api-real-crowd-direct",
        CLUSTER_REAL,
        "containerd's own time: {crowd} pods at once",
        "ms",
        Aim::None,
    ),
    figure(
        "api-real-crowd",
        CLUSTER_REAL,
        "on containerd: {crowd} pods made in the API at once to all Running in the API",
        "ms",
        Aim::None,
    ),
];
