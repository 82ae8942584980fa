//! Metrics of pods and containers, by cAdvisor's names, as runtimes make them for the kubelet's `/metrics/cadvisor`.
//!
//! A family whose figure this machine doesn't have, such as pressure on cgroup v1, is described and has no samples.

mod details;
mod disk;
mod families;
mod processes;

use std::path::Path;
use std::sync::Arc;

use proto::cri::{ContainerMetrics, Metric, MetricDescriptor, PodSandboxMetrics};

use self::details::Details;
use self::disk::Disk;
use self::families::{FAMILIES, Family, NETWORK};
use self::processes::Processes;
use super::cgroup::{self, CgroupUsage};
use super::network::{self, Interface};
use super::wire;
use crate::clock;
use crate::error::CallError;
use crate::node::Node;
use crate::record::{ContainerRecord, SandboxRecord};
use crate::sandbox::own_namespaces;

/// The labels of every sample; a family's own ones follow.
const LABELS: [&str; 4] = ["container", "id", "namespace", "pod"];

/// The values of a family's own labels, and the sample's.
type Sample = (Vec<String>, u64);

/// All that the samples of one container are made of.
#[derive(Debug, Default)]
struct Facts {
    usage: CgroupUsage,
    details: Details,
    processes: Processes,
    disk: Disk,
    /// What the container wrote, as it was last measured.
    written: Option<u64>,
    limits: Limits,
    /// Seconds since 1970, as `seen`.
    started: u64,
    seen: u64,
}

/// The limits that a container was made with, or that were changed since; 0 is none.
#[derive(Clone, Copy, Debug, Default)]
struct Limits {
    cpu_period: u64,
    cpu_quota: u64,
    cpu_shares: u64,
    memory: u64,
    memory_and_swap: u64,
}

impl Limits {
    fn of(record: &ContainerRecord) -> Limits {
        let linux = record.config.0.linux.as_ref();
        let asked = linux.and_then(|linux| linux.resources.as_ref());
        let Some(asked) = asked else {
            return Limits::default();
        };
        let positive = |value: i64| u64::try_from(value).unwrap_or(0);
        Limits {
            cpu_period: positive(asked.cpu_period),
            cpu_quota: positive(asked.cpu_quota),
            cpu_shares: positive(asked.cpu_shares),
            memory: positive(asked.memory_limit_in_bytes),
            memory_and_swap: positive(asked.memory_swap_limit_in_bytes),
        }
    }
}

impl Facts {
    /// Reads what is to be known of a container whose init this is. Blocks.
    fn read(record: &ContainerRecord, pid: i32, (folder, written): (&Path, Option<u64>)) -> Facts {
        let seconds = |nanos: i64| u64::try_from(nanos / 1_000_000_000).unwrap_or(0);
        Facts {
            usage: cgroup::of_container(pid, &record.id),
            details: Details::of_container(pid, &record.id),
            processes: Processes::of_container(pid, &record.id),
            disk: Disk::of_container(folder),
            written,
            limits: Limits::of(record),
            started: seconds(record.started),
            seen: seconds(clock::now()),
        }
    }
}

impl Node {
    /// Returns the metrics of a pod's network and of its running containers.
    pub(crate) async fn pod_metrics(
        self: &Arc<Node>,
        sandbox: &SandboxRecord,
    ) -> Result<PodSandboxMetrics, CallError> {
        let running: Vec<(i32, ContainerRecord)> = {
            let state = self.state();
            let records = state.records_of(&sandbox.id).into_iter();
            let pid = |id: &str| state.container(id).and_then(|entry| entry.pid);
            let running = records.filter(ContainerRecord::running);
            running
                .filter_map(|record| Some((pid(&record.id)?, record)))
                .collect()
        };
        let mut written = Vec::new();
        for (_, record) in &running {
            let layer = self.first_writable_layer(&record.id).await;
            written.push(layer.map(|layer| layer.bytes));
        }
        let (node, sandbox) = (self.clone(), sandbox.clone());
        self.blocking("reading metrics", move || {
            let own = own_namespaces(&sandbox.config.0).network;
            let first = running.first().filter(|_| own);
            let interfaces = first.map(|(pid, _)| network::interfaces(*pid));
            let containers = running.iter().zip(written);
            let containers = containers.map(|((pid, record), written)| {
                let folder = node.parts.layout.container(&record.id);
                let facts = Facts::read(record, *pid, (&folder, written));
                of_container(&sandbox, record, &facts)
            });
            Ok(PodSandboxMetrics {
                pod_sandbox_id: sandbox.id.clone(),
                container_metrics: containers.collect(),
                metrics: of_network(&sandbox, &interfaces.unwrap_or_default()),
            })
        })
        .await
    }
}

/// Returns the families.
pub(crate) fn descriptors() -> Vec<MetricDescriptor> {
    let labels = |own: &[&str]| -> Vec<String> {
        let all = LABELS.iter().chain(own);
        all.map(|label| (*label).to_owned()).collect()
    };
    let containers = FAMILIES.iter().map(|family| MetricDescriptor {
        name: family.name.to_owned(),
        help: family.help.to_owned(),
        label_keys: labels(family.labels),
    });
    let network = NETWORK.iter().map(|family| MetricDescriptor {
        name: family.name.to_owned(),
        help: family.help.to_owned(),
        label_keys: labels(&["interface"]),
    });
    containers.chain(network).collect()
}

/// The values of the labels that every sample has.
fn labels(sandbox: &SandboxRecord, container: &str, id: &str) -> Vec<String> {
    let pod = sandbox.config.0.metadata.clone().unwrap_or_default();
    vec![container.to_owned(), id.to_owned(), pod.namespace, pod.name]
}

fn of_container(
    sandbox: &SandboxRecord,
    record: &ContainerRecord,
    facts: &Facts,
) -> ContainerMetrics {
    let own = record.config.0.metadata.clone().unwrap_or_default();
    let labels = labels(sandbox, &own.name, &record.id);
    let timestamp = clock::now();
    let samples = |family: &'static Family| {
        let (labels, samples) = (labels.clone(), (family.samples)(facts));
        samples.into_iter().map(move |(own, value)| Metric {
            name: family.name.to_owned(),
            timestamp,
            metric_type: family.kind.into(),
            label_values: [labels.clone(), own].concat(),
            value: wire(Some(value)),
        })
    };
    ContainerMetrics {
        container_id: record.id.clone(),
        metrics: FAMILIES.iter().flat_map(samples).collect(),
    }
}

fn of_network(sandbox: &SandboxRecord, interfaces: &[Interface]) -> Vec<Metric> {
    let labels = labels(sandbox, "", &sandbox.id);
    let timestamp = clock::now();
    let mut metrics = Vec::new();
    for family in &NETWORK {
        metrics.extend(interfaces.iter().map(|interface| Metric {
            name: family.name.to_owned(),
            timestamp,
            metric_type: proto::cri::MetricType::Counter.into(),
            label_values: [labels.clone(), vec![interface.name.clone()]].concat(),
            value: wire(interface.counter(family.place)),
        }));
    }
    metrics
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_family_is_described_once_and_its_samples_have_its_labels() {
        let descriptors = descriptors();
        let names: BTreeSet<_> = descriptors.iter().map(|one| &one.name).collect();
        assert_eq!(names.len(), descriptors.len());
        let facts = Facts::read(
            &record(),
            std::process::id().cast_signed(),
            (Path::new("/"), Some(1)),
        );
        for family in &FAMILIES {
            for (own, _) in (family.samples)(&facts) {
                assert_eq!(own.len(), family.labels.len(), "{}", family.name);
            }
        }
    }

    #[test]
    fn a_process_of_this_machine_has_most_of_the_figures() {
        let facts = Facts::read(
            &record(),
            std::process::id().cast_signed(),
            (Path::new("/"), Some(1)),
        );
        let known = |name: &str| {
            let family = FAMILIES.iter().find(|family| family.name == name).unwrap();
            !(family.samples)(&facts).is_empty()
        };
        for name in [
            "container_file_descriptors",
            "container_fs_limit_bytes",
            "container_last_seen",
            "container_spec_cpu_shares",
            "container_start_time_seconds",
        ] {
            assert!(known(name), "{name}");
        }
    }

    fn record() -> ContainerRecord {
        let record = serde_json::json!({
            "id": "f".repeat(64), "sandbox": "s", "name": "n", "phase": "Made", "config": "", "image": "i", "image_ref": "",
            "log": "", "created": 1, "boot": "b", "stop_signal": 15,
        });
        serde_json::from_value(record).unwrap()
    }
}
