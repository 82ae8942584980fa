//! Builders for tests: `pod("a").app("main")`, `runtime(&pod).running("main")`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{self as core, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::pod::PodView;
use crate::pod::hash::container_hash;
use crate::types::{ContainerState, RuntimeContainer, RuntimePod, RuntimeSandbox, SandboxState};

pub mod yaml;

pub const NOW: i64 = 1_700_000_000;

/// Seconds after the tests' noon.
pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(NOW + second).expect("a test names a time that there is")
}

pub fn pod(name: &str) -> Pod {
    Pod {
        metadata: ObjectMeta {
            name: Some(name.into()),
            namespace: Some("default".into()),
            uid: Some(format!("{name}-uid")),
            generation: Some(1),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            restart_policy: Some("Always".into()),
            ..PodSpec::default()
        }),
        status: None,
    }
}

pub fn spec_container(name: &str) -> core::Container {
    core::Container {
        name: name.into(),
        image: Some(format!("localhost/{name}:1")),
        ..core::Container::default()
    }
}

/// Changes to a pod, one after the other.
pub trait PodBuilder: Sized {
    fn spec_with(self, change: impl FnOnce(&mut PodSpec)) -> Self;

    fn app(self, name: &str) -> Self {
        self.app_with(name, |_| {})
    }

    fn app_with(self, name: &str, change: impl FnOnce(&mut core::Container)) -> Self {
        let mut container = spec_container(name);
        change(&mut container);
        self.spec_with(|spec| spec.containers.push(container))
    }

    fn init(self, name: &str) -> Self {
        let container = spec_container(name);
        self.spec_with(|spec| spec.init_containers.get_or_insert_default().push(container))
    }

    fn policy(self, policy: &str) -> Self {
        self.spec_with(|spec| spec.restart_policy = Some(policy.into()))
    }
}

impl PodBuilder for Pod {
    fn spec_with(mut self, change: impl FnOnce(&mut PodSpec)) -> Self {
        change(self.spec.get_or_insert_default());
        self
    }
}

/// A runtime that knows the pod's ready sandbox, `s0` at 10.0.0.1, and nothing else.
pub fn runtime(pod: &Pod) -> RuntimePod {
    RuntimePod {
        uid: pod.uid(),
        name: pod.name().into(),
        namespace: pod.namespace().into(),
        sandboxes: vec![sandbox(0, SandboxState::Ready)],
        containers: Vec::new(),
    }
}

pub fn sandbox(attempt: u32, state: SandboxState) -> RuntimeSandbox {
    RuntimeSandbox {
        id: format!("s{attempt}").into(),
        attempt,
        state,
        created_at: Some(at(-100)),
        ips: vec!["10.0.0.1".into()],
        host_network: false,
        runtime_handler: String::new(),
    }
}

/// The first instance of a container, in sandbox `s0`, made as the pod's definition says.
pub fn instance(pod: &Pod, name: &str, state: ContainerState) -> RuntimeContainer {
    let ended = state == ContainerState::Exited;
    let spec = pod.container(name).map(|(_, spec)| spec);
    RuntimeContainer {
        created_at: Some(at(-90)),
        started_at: (state != ContainerState::Created).then(|| at(-89)),
        finished_at: ended.then(|| at(-5)),
        reason: if ended {
            "Completed".into()
        } else {
            String::new()
        },
        image: format!("localhost/{name}:1"),
        image_id: format!("localhost/{name}@sha256:1"),
        hash: spec.as_deref().map(container_hash),
        ..bare(&format!("{name}-0"), "s0", name, state)
    }
}

/// A container of which nothing more is known.
pub fn bare(id: &str, sandbox: &str, name: &str, state: ContainerState) -> RuntimeContainer {
    RuntimeContainer {
        id: id.into(),
        sandbox: sandbox.into(),
        name: name.into(),
        attempt: 0,
        state,
        created_at: None,
        started_at: None,
        finished_at: None,
        exit_code: 0,
        reason: String::new(),
        message: String::new(),
        image: String::new(),
        image_id: String::new(),
        hash: None,
        restart_count: 0,
        termination_grace: None,
        pre_stop: String::new(),
        ports: String::new(),
        resources: String::new(),
        log_path: String::new(),
        enforced: None,
        user: None,
        stop_signal: None,
    }
}

/// Additions to what a runtime knows.
pub trait ObservationBuilder: Sized {
    fn with(self, container: RuntimeContainer) -> Self;
    fn with_sandbox(self, state: SandboxState) -> Self;

    fn running(self, pod: &Pod, name: &str) -> Self {
        self.with(instance(pod, name, ContainerState::Running))
    }

    fn exited(self, pod: &Pod, name: &str, exit_code: i32) -> Self {
        let mut container = instance(pod, name, ContainerState::Exited);
        container.exit_code = exit_code;
        if exit_code != 0 {
            container.reason = "Error".into();
        }
        self.with(container)
    }
}

impl ObservationBuilder for RuntimePod {
    fn with(mut self, container: RuntimeContainer) -> Self {
        self.containers.push(container);
        self.sort();
        self
    }

    fn with_sandbox(mut self, state: SandboxState) -> Self {
        for sandbox in &mut self.sandboxes {
            sandbox.state = state;
        }
        self
    }
}

pub fn quantities(list: &[(&str, &str)]) -> BTreeMap<String, Quantity> {
    let entry = |(name, amount): &(&str, &str)| ((*name).into(), Quantity((*amount).into()));
    list.iter().map(entry).collect()
}

pub fn string_map(list: &[(&str, &str)]) -> BTreeMap<String, String> {
    list.iter()
        .map(|(k, v)| ((*k).into(), (*v).into()))
        .collect()
}
