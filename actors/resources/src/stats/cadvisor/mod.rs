//! `/metrics/cadvisor`: the machine and every cgroup that the kubelet's cAdvisor watches, by its metrics.
//!
//! Groups are read when they are asked for, and kept for as long as a summary is; where the runtime alone counts and
//! makes metrics itself, those stand in their place. Upstream: `containerPrometheusLabels` of
//! pkg/kubelet/server/server.go (1.36).

mod by_runtime;
mod families;
mod machine;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use host::block_devices::{self, BlockDevices, MountedFileSystem};
use host::group_stats::MACHINE;
use k8s_openapi::api::core::v1::Pod;
use logic_api::pod::PodView;
use logic_api::types::{PodUid, RuntimePod};
use logic_resources::group_stats::{GroupDetail, GroupIndex, GroupStats};
use metrics::exposition::{Exposition, LabelSet, MetricKind, SampleTime};
use tokio::time::timeout;

use self::families::{Family, GroupRow};
pub(super) use self::machine::MachineDescription;
use super::{CACHE_PERIOD, SummaryError, SummaryProvider, error_text};

/// How long the runtime's list is waited for; after that the last one names the groups' owners.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// The runtime whose sandboxes have a container's name too.
const CRIO: &str = "cri-o";
/// Groups that OpenShift's nodes have beside the others.
const EXTRA_GROUPS: &str = "/ovs.slice";

/// The last reading, and whose groups there were.
#[derive(Debug, Default)]
pub(super) struct CadvisorCache {
    last: Option<(Instant, Arc<Reading>)>,
    owners: Arc<Owners>,
}

/// The pods by which groups are named.
#[derive(Debug, Default)]
struct Owners {
    listed: BTreeMap<PodUid, RuntimePod>,
    pods: BTreeMap<PodUid, Arc<Pod>>,
    runtime: String,
}

/// Everything that one answer is written from.
#[derive(Debug)]
struct Reading {
    at: SystemTime,
    owners: Arc<Owners>,
    groups: Arc<[GroupStats]>,
    devices: BlockDevices,
    file_systems: Vec<MountedFileSystem>,
    machine: MachineDescription,
    pressure: Pressure,
}

/// Whether the kernel measures stalls of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pressure {
    Measured,
    Unknown,
}

impl SummaryProvider {
    /// `/metrics/cadvisor`: a group that vanishes is left out, and `container_scrape_error` tells of an error.
    pub async fn cadvisor_metrics(&self) -> String {
        if let Some(text) = self.runtime_metrics().await {
            return text;
        }
        let text = match self.reading().await {
            Ok(reading) => {
                let write = move || text(&reading);
                let written = self.0.machine_io.run(write).await;
                written.map_err(SummaryError::Machine)
            }
            Err(error) => Err(error),
        };
        text.unwrap_or_else(|error| {
            tracing::warn!("no metrics of cgroups: {}", error_text(&error));
            let mut text = Exposition::default();
            write_error(&mut text, 1.0);
            text.into_text()
        })
    }

    /// The groups as they are now, or were within the time that a summary is kept.
    async fn reading(&self) -> Result<Arc<Reading>, SummaryError> {
        let mut cache = self.0.cadvisor.lock().await;
        let now = kernel::now();
        let fresh = |at: &Instant| now.saturating_duration_since(*at) < CACHE_PERIOD;
        if let Some((_, reading)) = cache.last.as_ref().filter(|(at, _)| fresh(at)) {
            return Ok(reading.clone());
        }
        let owners = self.owners(&cache.owners).await;
        cache.owners = owners.clone();
        let at = kernel::wall();
        let prefixes = self.prefixes();
        let proc = self.0.machine.proc.clone();
        let root_dir = self.0.peers.rules.node.root_dir.display().to_string();
        let disks = self.0.mounts_io.run(move || {
            let devices = BlockDevices::read(&proc);
            let mut file_systems = block_devices::file_systems(&proc, &devices);
            file_systems.retain(|one| !belongs_to_pod(&one.device, &root_dir));
            (devices, file_systems)
        });
        let groups = self.groups(&owners.listed, GroupDetail::Everything, prefixes);
        let (groups, disks) = futures_util::future::join(groups, disks).await;
        let (devices, file_systems) = disks.unwrap_or_else(|error| {
            tracing::warn!("no metrics of file systems: {error}");
            Default::default()
        });
        let reader = self.0.machine.groups.as_ref();
        let reading = Arc::new(Reading {
            at,
            owners,
            groups: groups?,
            devices,
            file_systems,
            machine: self.0.description.clone(),
            pressure: match reader.is_some_and(|reader| reader.has_psi()) {
                true => Pressure::Measured,
                false => Pressure::Unknown,
            },
        });
        cache.last = Some((kernel::now(), reading.clone()));
        Ok(reading)
    }

    /// The pods of the runtime and of the pod manager; the last ones where either does not answer.
    async fn owners(&self, last: &Arc<Owners>) -> Arc<Owners> {
        let runtime = &self.0.peers.runtime;
        let listed = timeout(LIST_TIMEOUT, runtime.pods()).await;
        match (listed, self.pods().await) {
            (Ok(Ok(listed)), Ok(pods)) => Arc::new(Owners {
                listed,
                pods,
                runtime: runtime.name(),
            }),
            (Ok(Err(error)), _) => {
                tracing::warn!("cgroups are named by the last list: {}", error.describe());
                last.clone()
            }
            (Ok(Ok(_)) | Err(_), _) => {
                tracing::warn!("cgroups are named by the last list: no answer");
                last.clone()
            }
        }
    }

    /// The groups that upstream gives cAdvisor to watch.
    fn prefixes(&self) -> Vec<String> {
        let system = self.0.machine.system_groups(self.cgroup_driver());
        let mut prefixes = self.pod_prefixes();
        prefixes.extend(system);
        prefixes.push(EXTRA_GROUPS.to_owned());
        prefixes
    }
}

/// Whether a tmpfs, by where it is mounted, is a pod's: cAdvisor knows those that there were when it began, and no pod
/// ran then.
fn belongs_to_pod(mount: &str, root_dir: &str) -> bool {
    let runtimes = [
        "/run/containerd/",
        "/run/containers/",
        "/var/lib/containers/",
    ];
    let below = |folder: &str| mount.strip_prefix(folder).is_some();
    below(&format!("{}/pods/", root_dir.trim_end_matches('/'))) || runtimes.into_iter().any(below)
}

/// Whose a group is, as labels.
#[derive(Debug, Default)]
struct GroupOwner<'a> {
    container: &'a str,
    image: &'a str,
    name: String,
    namespace: &'a str,
    pod: &'a str,
}

impl Owners {
    fn ids(&self) -> BTreeSet<&str> {
        self.listed.values().flat_map(RuntimePod::ids).collect()
    }

    /// The owners of groups by the ids of containers and sandboxes.
    fn by_id(&self) -> BTreeMap<&str, GroupOwner<'_>> {
        let mut owners = BTreeMap::new();
        for pod in self.listed.values() {
            let owner = |container, image, name| GroupOwner {
                container,
                image,
                name,
                namespace: &pod.namespace,
                pod: &pod.name,
            };
            for one in &pod.sandboxes {
                let container = if self.runtime == CRIO { "POD" } else { "" };
                let name = self.name(pod, container, one.attempt, one.id.as_str());
                owners.insert(one.id.as_str(), owner(container, "", name));
            }
            for one in &pod.containers {
                let name = self.name(pod, &one.name, one.attempt, one.id.as_str());
                let image = self.image(pod, &one.name, &one.image);
                owners.insert(one.id.as_str(), owner(&one.name, image, name));
            }
        }
        owners
    }

    /// What cAdvisor calls a container: its id, with CRI-O the name that CRI-O makes.
    fn name(&self, pod: &RuntimePod, container: &str, attempt: u32, id: &str) -> String {
        if self.runtime != CRIO {
            return id.to_owned();
        }
        let (name, namespace, uid) = (&pod.name, &pod.namespace, &pod.uid);
        format!("k8s_{container}_{name}_{namespace}_{uid}_{attempt}")
    }

    /// The image's name: the pod's own word where the runtime lists a digest.
    fn image<'a>(&'a self, pod: &RuntimePod, container: &str, listed: &'a str) -> &'a str {
        if !listed.is_empty() && !listed.starts_with("sha256:") {
            return listed;
        }
        let desired = self.pods.get(&pod.uid).and_then(|pod| pod.spec());
        let mut containers = desired.into_iter().flat_map(|spec| {
            let inits = spec.init_containers.iter().flatten();
            inits.chain(&spec.containers)
        });
        let named = containers.find(|one| one.name == container);
        named.and_then(|one| one.image.as_deref()).unwrap_or(listed)
    }
}

/// The whole answer.
fn text(reading: &Reading) -> String {
    let mut text = Exposition::default();
    reading.machine.write_versions(&mut text);
    let rows = rows(reading);
    let samples = [
        families::cpu::CPU,
        families::memory::MEMORY,
        families::disk::DISK,
        families::network::NETWORK,
    ];
    let pressure: &[&[Family]] = match reading.pressure {
        Pressure::Measured => &[families::memory::PRESSURE],
        Pressure::Unknown => &[],
    };
    for family in samples.iter().chain(pressure).copied().flatten() {
        write(&mut text, family, &rows, |row| &row.at);
    }
    let of_scrape = SampleTime::default();
    for family in families::spec::SPEC {
        write(&mut text, family, &rows, |_| &of_scrape);
    }
    let help = "Last time a container was seen by the exporter";
    text.foreign_family(MetricKind::Gauge, "container_last_seen", help);
    let seen = reading.at.duration_since(SystemTime::UNIX_EPOCH);
    let seen = seen.unwrap_or_default().as_secs() as f64;
    let at = SampleTime::new(reading.at);
    for row in &rows {
        text.sample_of(&row.labels, &[], seen, &at);
    }
    write_error(&mut text, 0.0);
    reading.machine.write(&mut text, &at);
    text.into_text()
}

/// A group with what all its samples share.
struct SampleRow<'a> {
    labels: LabelSet,
    at: SampleTime,
    group: GroupRow<'a>,
}

fn rows(reading: &Reading) -> Vec<SampleRow<'_>> {
    let (ids, owners) = (reading.owners.ids(), reading.owners.by_id());
    let index = GroupIndex::new(&reading.groups, &ids);
    let mut by_name: BTreeMap<&str, &GroupOwner<'_>> = BTreeMap::new();
    for (id, owner) in &owners {
        if let Some(group) = index.container(id) {
            by_name.insert(&group.name, owner);
        }
    }
    let pods: BTreeMap<&str, GroupOwner<'_>> = reading
        .owners
        .listed
        .values()
        .filter_map(|pod| {
            let owner = GroupOwner {
                namespace: &pod.namespace,
                pod: &pod.name,
                ..GroupOwner::default()
            };
            Some((index.pod(&pod.uid)?.name.as_str(), owner))
        })
        .collect();
    let nobody = GroupOwner::default();
    let row = |group| {
        let owner = by_name.get(group_name(group)).copied();
        let owner = owner.or_else(|| pods.get(group_name(group)));
        let labels = labels(group, owner.unwrap_or(&nobody));
        let file_systems: &[MountedFileSystem] = match group_name(group) {
            MACHINE => &reading.file_systems,
            _ => &[],
        };
        let taken = group.at.map(SystemTime::from);
        SampleRow {
            labels,
            at: taken.map(SampleTime::new).unwrap_or_default(),
            group: GroupRow {
                group,
                devices: &reading.devices,
                file_systems,
            },
        }
    };
    reading.groups.iter().map(row).collect()
}

fn group_name(group: &GroupStats) -> &str {
    &group.name
}

fn labels(group: &GroupStats, owner: &GroupOwner<'_>) -> LabelSet {
    LabelSet::new(&[
        ("container", owner.container),
        ("id", &group.name),
        ("image", owner.image),
        ("name", &owner.name),
        ("namespace", owner.namespace),
        ("pod", owner.pod),
    ])
}

fn write<'a>(
    text: &mut Exposition,
    family: &Family,
    rows: &'a [SampleRow<'_>],
    at: impl Fn(&'a SampleRow<'_>) -> &'a SampleTime,
) {
    text.foreign_family(family.kind, family.name, family.help);
    for row in rows {
        (family.samples)(row.group, &mut |own, value| {
            text.sample_of(&row.labels, own, value, at(row));
        });
    }
}

fn write_error(text: &mut Exposition, value: f64) {
    let help = "1 if there was an error while getting container metrics, 0 otherwise";
    text.foreign_family(MetricKind::Gauge, "container_scrape_error", help);
    text.sample(&[], value);
}
