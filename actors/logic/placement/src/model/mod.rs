//! Whole lives of a node over all managers together: pods come, start, are resized and go, device plugins flap, the agent
//! restarts. The node keeps what `state::assignments` and the device manager keep; after each step [`laws`] hold.

mod laws;
mod machine;
mod pods;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use logic_api::pod::PodView;
use logic_api::types::PodUid;
use logic_resources::qos::Qos;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use self::machine::{MachinePlan, RESOURCES, machines};
use self::pods::{PodPlan, pods};
use crate::devices::checkpoint::{CheckpointEntry, DeviceCheckpoint, FILE_NAME};
use crate::devices::{
    AllocateAnswer, DeviceAllocation, DeviceAllocations, DeviceInventory, DevicePreferences,
    DevicesByNode, PluginOptions, PreferenceQuestion,
};
use crate::memory::release_ended;
use crate::topology::{
    Assignment, AssignmentError, HeldAssignments, PodLevelManagers, TopologyAdmission,
};
use crate::{NodePlacement, StateFile};

const LIVES: u32 = 600;
const STEPS: usize = 40;

/// One thing that happens. Which pod it is about is a number, counted around.
#[derive(Clone, Debug)]
enum Step {
    /// A pod is to be admitted; its plugins answer by these bits, and allocate or fail.
    Comes(PodPlan, u8, Allocate),
    Goes(usize),
    /// This container of a pod starts: those before it that end have ended.
    Starts(usize, usize),
    /// App containers are to have so many thousandths of a CPU and MiB.
    Resizes(usize, u32, u64),
    /// A plugin registers and lists devices, by bits: those that are there, and those that are healthy.
    Lists(usize, u8, u8, PluginOptions),
    Disconnects(usize),
    /// Seconds; plugins that are gone are forgotten.
    Passes(u64),
    /// The agent restarts, and pods whose bits are set have ended meanwhile.
    Restarts(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Allocate {
    Works,
    Fails,
}

fn steps() -> impl Strategy<Value = Step> {
    let allocate = prop_oneof![9 => Just(Allocate::Works), 1 => Just(Allocate::Fails)];
    let comes = (pods(), any::<u8>(), allocate);
    let healthy = prop_oneof![3 => Just(255), 1 => any::<u8>()];
    let options = any::<bool>().prop_map(|preferred_allocation| PluginOptions {
        preferred_allocation,
        ..PluginOptions::default()
    });
    let lists = (0..2_usize, healthy.clone(), healthy, options);
    let milli_cpus = prop::sample::select(vec![500, 1000, 2000]);
    let resizes = (0..8_usize, milli_cpus, 1..3000_u64);
    prop_oneof![
        10 => comes.prop_map(|(plan, answer, allocate)| Step::Comes(plan, answer, allocate)),
        4 => (0..8_usize).prop_map(Step::Goes),
        4 => (0..8_usize, 0..4_usize).prop_map(|(pod, container)| Step::Starts(pod, container)),
        2 => resizes.prop_map(|(pod, cpus, mib)| Step::Resizes(pod, cpus, mib)),
        4 => lists.prop_map(|(resource, there, healthy, options)| {
            Step::Lists(resource, there, healthy, options)
        }),
        1 => (0..2_usize).prop_map(Step::Disconnects),
        1 => (1..400_u64).prop_map(Step::Passes),
        2 => any::<u8>().prop_map(Step::Restarts),
    ]
}

/// What has happened in all lives, so that a law that holds for want of pods is seen.
#[derive(Debug, Default)]
struct Tally {
    refused: Cell<u32>,
    with_cpus: Cell<u32>,
    with_memory: Cell<u32>,
    with_devices: Cell<u32>,
    resized: Cell<u32>,
    restarts_with_pods: Cell<u32>,
}

fn count(counter: &Cell<u32>, is_counted: bool) {
    counter.set(counter.get() + u32::from(is_counted));
}

/// A node.
struct Life<'a> {
    machine: MachinePlan,
    placement: NodePlacement,
    pods: BTreeMap<PodUid, (PodPlan, Pod)>,
    held: HeldAssignments,
    inventory: DeviceInventory,
    allocations: DeviceAllocations,
    now: Instant,
    /// Pods that have come.
    came: usize,
    tally: &'a Tally,
}

impl<'a> Life<'a> {
    fn new(machine: MachinePlan, tally: &'a Tally) -> Self {
        let mut life = Life {
            placement: machine.placement(),
            machine,
            pods: BTreeMap::new(),
            held: HeldAssignments::new(),
            inventory: DeviceInventory::default(),
            allocations: DeviceAllocations::default(),
            now: moment(),
            came: 0,
            tally,
        };
        for resource in 0..RESOURCES.len() {
            life.lists(resource, (255, 255), PluginOptions::default());
        }
        life
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Comes(plan, answer, allocate) => self.comes(plan, answer, allocate),
            Step::Goes(number) => drop(self.uid(number).map(|uid| self.goes(&uid))),
            Step::Starts(pod, container) => self.starts(pod, container),
            Step::Resizes(pod, milli_cpus, mib) => self.resizes(pod, milli_cpus, mib),
            Step::Lists(resource, there, healthy, options) => {
                self.lists(resource, (there, healthy), options);
            }
            Step::Disconnects(resource) => {
                self.inventory.disconnected(RESOURCES[resource], self.now);
            }
            Step::Passes(seconds) => {
                self.now += Duration::from_secs(seconds);
                self.inventory.expire(self.now);
            }
            Step::Restarts(ended) => self.restarts(ended),
        }
    }

    fn uid(&self, number: usize) -> Option<PodUid> {
        let place = number.checked_rem(self.pods.len())?;
        self.pods.keys().nth(place).cloned()
    }

    /// Asks until the plugins have said all that they are asked.
    fn admit(&self, pod: &Pod, answer: u8) -> TopologyAdmission {
        let mut preferences = DevicePreferences::default();
        for _ in 0..=pod.all_containers().count() * RESOURCES.len() {
            let topology = &self.placement.topology;
            let (held, devices) = (&self.held, &self.inventory);
            let admission = topology.admit_with_devices(pod, held, devices, &preferences);
            let Err(AssignmentError::Undecided(questions)) = admission.outcome else {
                laws::counted(&admission);
                return admission;
            };
            assert_eq!(admission.counts, [], "it is asked again");
            for question in questions {
                let preferred = preferred(&question, answer);
                preferences.insert(question, preferred);
            }
        }
        panic!("plugins are asked again and again");
    }

    fn comes(&mut self, plan: PodPlan, answer: u8, allocate: Allocate) {
        let pod = plan.pod(&format!("pod-{}", self.came));
        self.came += 1;
        if self.lacks(&plan) {
            return count(&self.tally.refused, true);
        }
        let first = self.admit(&pod, answer);
        let assigned = match first.outcome {
            Ok(assigned) => assigned,
            Err(_) => return count(&self.tally.refused, true),
        };
        laws::admitted(self, &plan, &pod, &assigned);
        self.assign(&pod.uid(), assigned.clone());
        let again = self.admit(&pod, answer);
        assert_eq!(again.outcome, Ok(assigned.clone()), "it keeps what it has");
        let topology = &self.placement.topology;
        let running = topology.running_counts(&pod, &self.held, &self.inventory);
        laws::counted_again(&first.counts, &again.counts, &running);
        if allocate == Allocate::Fails {
            return self.assign(&pod.uid(), Assignment::default());
        }
        self.allocate(&pod.uid(), &assigned);
        let has = |has: fn(&crate::topology::AssignedResources) -> bool| {
            assigned.containers.values().chain([&assigned.pod]).any(has)
        };
        count(&self.tally.with_cpus, has(|own| !own.cpus.is_empty()));
        count(&self.tally.with_memory, has(|own| !own.memory.is_empty()));
        count(&self.tally.with_devices, has(|own| !own.devices.is_empty()));
        self.pods.insert(pod.uid(), (plan, pod));
    }

    /// Whether no plugin has what the pod asks for: the node's numbers refuse it.
    fn lacks(&self, plan: &PodPlan) -> bool {
        let asked = plan
            .containers
            .iter()
            .flat_map(|own| RESOURCES.iter().zip(own.devices));
        asked
            .into_iter()
            .any(|(resource, count)| count > 0 && self.inventory.resource(resource).is_none())
    }

    /// As the pod manager does.
    fn assign(&mut self, uid: &PodUid, assigned: Assignment) {
        match assigned.is_empty() {
            true => drop(self.held.remove(uid)),
            false => drop(self.held.insert(uid.clone(), Arc::new(assigned))),
        }
    }

    /// As the device manager does.
    fn allocate(&mut self, uid: &PodUid, assigned: &Assignment) {
        for (container, own) in &assigned.containers {
            for (resource, ids) in &own.devices {
                let allocation = DeviceAllocation {
                    devices: DevicesByNode::of(ids, resource, &self.inventory),
                    answer: AllocateAnswer::default(),
                };
                self.allocations
                    .insert(uid, container, resource, allocation);
            }
        }
    }

    fn goes(&mut self, uid: &PodUid) {
        self.pods.remove(uid);
        self.held.remove(uid);
        self.allocations.forget(uid);
    }

    fn starts(&mut self, pod: usize, container: usize) {
        let Some(uid) = self.uid(pod) else { return };
        let Some(own) = self.held.get(&uid) else {
            return;
        };
        let (_, pod) = &self.pods[&uid];
        let mut left = Assignment::clone(own);
        if let Some((_, started)) = pod.all_containers().nth(container) {
            release_ended(&mut left, pod, &started.name);
        }
        self.assign(&uid, left);
    }

    /// A resize of a guaranteed pod is refused where CPUs or memory are assigned, before anything is asked.
    fn resizes(&mut self, pod: usize, milli_cpus: u32, mib: u64) {
        let Some(uid) = self.uid(pod) else { return };
        let (plan, pod) = &self.pods[&uid];
        let (cpus, memory) = (self.machine.cpu_policy, self.machine.memory_policy);
        if plan.qos == Qos::Guaranteed && (cpus, memory) != ("none", "None") {
            return;
        }
        let plan = plan.resized(milli_cpus, mib);
        let pod = plan.pod(pod.name());
        if let Ok(assigned) = self.admit(&pod, 0).outcome {
            laws::resized(self, &uid, &assigned);
            self.assign(&uid, assigned);
            self.pods.insert(uid, (plan, pod));
            count(&self.tally.resized, true);
        }
    }

    fn lists(&mut self, resource: usize, (there, healthy): (u8, u8), options: PluginOptions) {
        let name = RESOURCES[resource];
        self.inventory.registered(name, options);
        let listed = self.machine.listed(resource, there, healthy);
        self.inventory.listed(name, listed).unwrap();
    }

    /// All that there is is what the files have; plugins are gone until they list again.
    fn restarts(&mut self, ended: u8) {
        count(&self.tally.restarts_with_pods, !self.held.is_empty());
        let files = self.placement.state_files(&self.held);
        let devices = self.device_checkpoint();
        self.placement = self.machine.placement();
        let restored = self
            .placement
            .restore(|name| match name.ends_with(FILE_NAME) {
                true => Some(devices.clone()),
                false => file(&files, name),
            });
        let (before, after) = (laws::placements(self), restored.unwrap());
        laws::restored(&self.held, &after);
        self.held = after;
        assert_eq!(
            laws::placements(self),
            before,
            "containers run where they ran"
        );
        self.inventory = DeviceInventory::default();
        for resource in RESOURCES {
            self.inventory.restored(resource, self.now);
        }
        let gone = self.pods.keys().enumerate();
        let gone = gone.filter(|(bit, _)| *bit < 8 && ended >> bit & 1 == 1);
        let gone: Vec<PodUid> = gone.map(|(_, uid)| uid.clone()).collect();
        gone.iter().for_each(|uid| self.goes(uid));
    }

    fn device_checkpoint(&self) -> Vec<u8> {
        let allocations = self.allocations.iter();
        let entry = |(pod, container, resource, allocation): (_, &str, &str, &DeviceAllocation)| {
            let pod: &PodUid = pod;
            CheckpointEntry {
                pod: pod.to_string(),
                container: container.to_owned(),
                resource: resource.to_owned(),
                devices: Some(allocation.devices.0.clone()),
                answer: Some(Vec::new()),
            }
        };
        let checkpoint = DeviceCheckpoint {
            allocations: allocations.map(entry).collect(),
            registered: BTreeMap::new(),
        };
        checkpoint.encode()
    }
}

fn file(files: &[StateFile], name: &str) -> Option<Vec<u8>> {
    let found = files.iter().find(|file| file.name == name)?;
    Some(found.bytes.clone())
}

/// Any of the devices, too many or too few; or no answer.
fn preferred(question: &PreferenceQuestion, bits: u8) -> Result<BTreeSet<String>, String> {
    if bits == u8::MAX {
        return Err("not now".to_owned());
    }
    let ids = question.available.iter().enumerate();
    let some = ids.filter(|(place, _)| bits >> (place % 8) & 1 == 1);
    Ok(some.map(|(_, id)| id.clone()).collect())
}

/// Of some moment: what matters is only what lies between two.
fn moment() -> Instant {
    static START: LazyLock<Instant> = LazyLock::new(start);
    *START
}

#[allow(
    clippy::disallowed_methods,
    reason = "a life needs some moment to count from"
)]
fn start() -> Instant {
    Instant::now()
}

fn live(machine: MachinePlan, steps: Vec<Step>, tally: &Tally) {
    let mut life = Life::new(machine, tally);
    let (shared, files) = laws::idle(&life);
    for step in steps {
        life.step(step);
        laws::check(&life);
    }
    while let Some(uid) = life.uid(0) {
        life.goes(&uid);
        laws::check(&life);
    }
    assert_eq!(life.held, HeldAssignments::new());
    assert_eq!(life.allocations, DeviceAllocations::default());
    assert_eq!(laws::idle(&life), (shared, files), "all is free again");
}

#[test]
fn exclusive_resources_are_never_shared_nor_lost_whatever_comes_and_goes() {
    let config = ProptestConfig {
        cases: LIVES,
        failure_persistence: None,
        max_shrink_iters: 4000,
        ..ProptestConfig::default()
    };
    let tally = Tally::default();
    let lives = (machines(), prop::collection::vec(steps(), 1..STEPS));
    let lived = TestRunner::new(config).run(&lives, |(machine, steps)| {
        live(machine, steps, &tally);
        Ok(())
    });
    lived.unwrap_or_else(|failure| panic!("{failure}"));
    for counted in [
        &tally.refused,
        &tally.with_cpus,
        &tally.with_memory,
        &tally.with_devices,
        &tally.resized,
        &tally.restarts_with_pods,
    ] {
        assert!(counted.get() > LIVES / 4, "{tally:?}");
    }
}

/// Two NUMA nodes of three CPUs on one socket, a device at the second one.
fn of_one_socket() -> MachinePlan {
    MachinePlan {
        memory: vec![(1000, 0); 2],
        cores: 3,
        threads: 1,
        nodes_a_socket: 2,
        caches_a_node: 1,
        reserved_cpus: 1,
        reserved_mib: 0,
        cpu_policy: "static",
        cpu_options: &["align-by-socket"],
        memory_policy: "None",
        topology: ("restricted", "pod"),
        pod_level: PodLevelManagers::On,
        devices: [vec![0b10], Vec::new()],
    }
}

/// A guaranteed pod of one container with one CPU and so many devices.
fn with_one_cpu(devices: u32) -> PodPlan {
    let container = pods::ContainerPlan {
        kind: pods::Kind::App,
        milli_cpus: 1000,
        mib: 1,
        huge_pages: 0,
        devices: [devices, 0],
    };
    PodPlan {
        qos: Qos::Guaranteed,
        containers: vec![container],
        whole: None,
    }
}

/// Which a random life finds once in about 1,500.
#[test]
fn cpus_of_another_node_of_the_socket_than_the_devices_are_kept() {
    let tally = Tally::default();
    let comes = Step::Comes(with_one_cpu(1), 0, Allocate::Works);
    live(of_one_socket(), vec![comes], &tally);
    assert_eq!((tally.with_cpus.get(), tally.refused.get()), (1, 0));
}

#[test]
fn a_pod_that_asks_for_more_cpus_than_it_holds_is_not_given_those_alone() {
    let tally = Tally::default();
    let mut life = Life::new(of_one_socket(), &tally);
    let plan = with_one_cpu(0);
    life.comes(plan.clone(), 0, Allocate::Works);
    let more = plan.resized(2000, 1).pod("pod-0");
    assert!(life.held.contains_key(&more.uid()));
    let refused = life.admit(&more, 0).outcome;
    assert!(
        matches!(refused, Err(AssignmentError::TopologyAffinity { .. })),
        "{refused:?}"
    );
}
