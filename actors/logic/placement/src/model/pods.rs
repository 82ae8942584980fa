//! Random pods of every quality of service, with init containers and sidecars.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use logic_api::testing::{PodBuilder, pod, spec_container};
use logic_resources::qos::Qos;
use proptest::prelude::*;
use proptest::sample::select;

use super::machine::RESOURCES;

/// What a pod asks for.
#[derive(Clone, Debug)]
pub(super) struct PodPlan {
    pub(super) qos: Qos,
    /// The last one is an app container whatever it says.
    pub(super) containers: Vec<ContainerPlan>,
    /// CPUs beyond those of its containers, for a pod with resources of its own.
    pub(super) whole: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ContainerPlan {
    pub(super) kind: Kind,
    pub(super) milli_cpus: u32,
    pub(super) mib: u64,
    /// Of 1 GiB.
    pub(super) huge_pages: u64,
    /// Of each resource.
    pub(super) devices: [u32; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Init,
    Sidecar,
    App,
}

type Amounts = BTreeMap<String, Quantity>;

pub(super) fn pods() -> impl Strategy<Value = PodPlan> {
    let qos = vec![
        Qos::Guaranteed,
        Qos::Guaranteed,
        Qos::Burstable,
        Qos::BestEffort,
    ];
    let containers = prop::collection::vec(containers(), 1..5);
    let whole = prop::option::weighted(0.2, 0..3_u32);
    (select(qos), containers, whole).prop_map(|(qos, containers, whole)| PodPlan {
        qos,
        containers,
        whole,
    })
}

fn containers() -> impl Strategy<Value = ContainerPlan> {
    let kind = select(vec![Kind::Init, Kind::Sidecar, Kind::App, Kind::App]);
    let milli_cpus = select(vec![500, 1000, 1000, 1500, 2000, 3000, 4000]);
    let devices = prop_oneof![
        3 => Just([0, 0]),
        2 => (0..3_u32, 0..2_u32).prop_map(|(gpus, nics)| [gpus, nics]),
    ];
    let huge_pages = select(vec![0, 0, 0, 1, 2]);
    (kind, milli_cpus, 1..1000_u64, huge_pages, devices).prop_map(
        |(kind, milli_cpus, mib, huge_pages, devices)| ContainerPlan {
            kind,
            milli_cpus,
            mib,
            huge_pages,
            devices,
        },
    )
}

impl PodPlan {
    /// Its containers in the order in which they start: by their kind, the last one an app.
    pub(super) fn ordered(&self) -> Vec<ContainerPlan> {
        let mut containers = self.containers.clone();
        if let Some(last) = containers.last_mut() {
            last.kind = Kind::App;
        }
        containers.sort_by_key(|container| container.kind == Kind::App);
        containers
    }

    /// The pod; its containers are named by their kinds and places.
    pub(super) fn pod(&self, name: &str) -> Pod {
        let containers = self.ordered();
        let mut made = pod(name);
        if let Some(more) = self.whole {
            let milli_cpus: u32 = containers.iter().map(|own| own.milli_cpus).sum();
            let whole = ContainerPlan {
                kind: Kind::App,
                milli_cpus: milli_cpus.next_multiple_of(1000) + more * 1000,
                mib: sum(&containers, |own| own.mib) + u64::from(more),
                huge_pages: sum(&containers, |own| own.huge_pages),
                devices: [0, 0],
            };
            let resources = whole.resources(self.qos);
            made = made.spec_with(|spec| spec.resources = Some(resources));
        }
        for (place, plan) in containers.iter().enumerate() {
            let container = Container {
                resources: Some(plan.resources(self.qos)),
                restart_policy: (plan.kind == Kind::Sidecar).then(|| "Always".to_owned()),
                ..spec_container(&format!("{:?}-{place}", plan.kind).to_lowercase())
            };
            made = made.spec_with(|spec| match plan.kind {
                Kind::App => spec.containers.push(container),
                Kind::Init | Kind::Sidecar => {
                    spec.init_containers.get_or_insert_default().push(container);
                }
            });
        }
        made
    }

    /// The same pod with other amounts of CPU and memory for its app containers.
    pub(super) fn resized(&self, milli_cpus: u32, mib: u64) -> Self {
        let mut resized = self.clone();
        for own in &mut resized.containers {
            (own.milli_cpus, own.mib) = (milli_cpus, mib);
        }
        resized
    }
}

fn sum(containers: &[ContainerPlan], of: impl Fn(&ContainerPlan) -> u64) -> u64 {
    containers.iter().map(of).sum()
}

impl ContainerPlan {
    fn resources(&self, qos: Qos) -> ResourceRequirements {
        let (mut requests, mut limits) = (Amounts::new(), Amounts::new());
        let mut both = |name: &str, amount: String| {
            requests.insert(name.to_owned(), Quantity(amount.clone()));
            limits.insert(name.to_owned(), Quantity(amount));
        };
        for (resource, count) in RESOURCES.iter().zip(self.devices) {
            if count > 0 {
                both(resource, count.to_string());
            }
        }
        if qos != Qos::BestEffort {
            both("cpu", format!("{}m", self.milli_cpus));
            both("memory", format!("{}Mi", self.mib));
            if self.huge_pages > 0 {
                both("hugepages-1Gi", format!("{}Gi", self.huge_pages));
            }
        }
        if qos == Qos::Burstable {
            limits.insert("cpu".to_owned(), Quantity("64".to_owned()));
        }
        ResourceRequirements {
            requests: Some(requests),
            limits: Some(limits),
            ..ResourceRequirements::default()
        }
    }
}
