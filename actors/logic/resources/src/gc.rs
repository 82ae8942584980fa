//! Which dead instances of a running pod may be removed.
//!
//! Upstream's defaults (kuberuntime_gc.go, `maximum-dead-containers-per-container=1`, 1.36): the newest
//! dead instance of each container stays, for its logs and its last state; so does the newest sandbox.

use std::collections::BTreeMap;

use logic_api::types::{ContainerInstance, ContainerState, RuntimePod, SandboxId, SandboxState};

/// Dead instances kept of each container.
const MAX_DEAD_PER_CONTAINER: usize = 1;

/// Dead containers and sandboxes that may be removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Garbage {
    /// Ended instances to remove, the oldest first.
    pub containers: Vec<ContainerInstance>,
    /// Sandboxes in which nothing is left.
    pub sandboxes: Vec<SandboxId>,
}

impl Garbage {
    pub fn is_empty(&self) -> bool {
        self.containers.is_empty() && self.sandboxes.is_empty()
    }
}

/// Finds what may be removed, older instances first to last as `runtime` orders them.
pub fn garbage(runtime: &RuntimePod) -> Garbage {
    let mut dead: BTreeMap<&str, usize> = BTreeMap::new();
    let mut containers = Vec::new();
    for container in &runtime.containers {
        if container.state == ContainerState::Exited {
            let count = dead.entry(&container.name).or_default();
            *count += 1;
            if *count > MAX_DEAD_PER_CONTAINER {
                containers.push(container.instance());
            }
        }
    }
    let newest = runtime.newest_sandbox().map(|sandbox| &sandbox.id);
    let in_use = |id: &SandboxId| {
        let mut left = runtime
            .containers
            .iter()
            .filter(|container| !containers.contains(&container.instance()));
        left.any(|container| container.sandbox == *id)
    };
    let dead = runtime
        .sandboxes
        .iter()
        .filter(|sandbox| sandbox.state == SandboxState::NotReady);
    let sandboxes = dead
        .map(|sandbox| &sandbox.id)
        .filter(|id| Some(*id) != newest && !in_use(id));
    Garbage {
        sandboxes: sandboxes.cloned().collect(),
        containers,
    }
}

#[cfg(test)]
mod tests {
    use logic_api::testing::bare;
    use logic_api::types::{RuntimeContainer, RuntimeSandbox};

    use super::*;

    fn container(
        name: &str,
        attempt: u32,
        state: ContainerState,
        sandbox: &str,
    ) -> RuntimeContainer {
        RuntimeContainer {
            attempt,
            restart_count: attempt,
            ..bare(&format!("{name}{attempt}"), sandbox, name, state)
        }
    }

    fn sandbox(id: &str, attempt: u32, state: SandboxState) -> RuntimeSandbox {
        RuntimeSandbox {
            id: id.into(),
            attempt,
            state,
            created_at: None,
            ips: Vec::new(),
            host_network: false,
            runtime_handler: String::new(),
        }
    }

    #[test]
    fn the_newest_dead_instance_and_sandbox_stay() {
        use ContainerState::{Exited, Running};
        let mut runtime = RuntimePod {
            sandboxes: vec![
                sandbox("s0", 0, SandboxState::NotReady),
                sandbox("s1", 1, SandboxState::Ready),
            ],
            containers: vec![
                container("a", 0, Exited, "s0"),
                container("a", 1, Exited, "s1"),
                container("a", 2, Running, "s1"),
                container("b", 0, Exited, "s1"),
            ],
            ..RuntimePod::default()
        };
        runtime.sort();
        let found = garbage(&runtime);
        let removed: Vec<&str> = found
            .containers
            .iter()
            .map(|instance| instance.id.as_str())
            .collect();
        assert_eq!(removed, ["a0"]);
        assert_eq!(found.sandboxes, [SandboxId::from("s0")]);
    }

    /// Upstream's TestContainerGC and TestSandboxGC, with the policy that the kubelet has unless its flags say otherwise.
    #[test]
    fn of_each_container_one_dead_instance_is_kept_and_of_dead_sandboxes_the_newest() {
        use ContainerState::{Exited, Running};
        use SandboxState::{NotReady, Ready};
        type Instances<'a> = &'a [(&'a str, u32, ContainerState, &'a str)];
        let ready = ("s0", 0, Ready);
        let dead = [("s1", 1, NotReady), ("s0", 0, NotReady)];
        let cases: [(Instances<'_>, &[_], &[&str], &[&str]); 9] = [
            (
                &[
                    ("a", 2, Exited, "s0"),
                    ("a", 1, Exited, "s0"),
                    ("a", 0, Exited, "s0"),
                ],
                &[ready],
                &["a1", "a0"],
                &[],
            ),
            (
                &[
                    ("a", 2, Exited, "s0"),
                    ("a", 1, Exited, "s0"),
                    ("a", 0, Running, "s0"),
                ],
                &[ready],
                &["a1"],
                &[],
            ),
            (&[("a", 0, Exited, "s0")], &[ready], &[], &[]),
            (
                &[
                    ("a", 1, Exited, "s0"),
                    ("a", 0, Exited, "s0"),
                    ("b", 1, Exited, "s0"),
                    ("b", 0, Exited, "s0"),
                ],
                &[ready],
                &["a0", "b0"],
                &[],
            ),
            (&[], &[("s0", 0, Ready)], &[], &[]),
            (&[], &[("s0", 0, NotReady)], &[], &[]),
            (&[], &dead, &[], &["s0"]),
            (&[("a", 0, Exited, "s0")], &dead, &[], &[]),
            (&[], &[("s1", 1, Ready), ("s0", 0, NotReady)], &[], &["s0"]),
        ];
        for (containers, sandboxes, old, empty) in cases {
            let mut runtime = RuntimePod {
                sandboxes: sandboxes
                    .iter()
                    .map(|(id, n, state)| sandbox(id, *n, *state))
                    .collect(),
                containers: containers
                    .iter()
                    .map(|(name, n, state, sandbox)| container(name, *n, *state, sandbox))
                    .collect(),
                ..RuntimePod::default()
            };
            runtime.sort();
            let found = garbage(&runtime);
            let removed: Vec<_> = found
                .containers
                .iter()
                .map(|dead| dead.id.as_str())
                .collect();
            assert_eq!(removed, old, "{containers:?}");
            let removed: Vec<_> = found.sandboxes.iter().map(SandboxId::as_str).collect();
            assert_eq!(removed, empty, "{sandboxes:?}");
        }
    }

    #[test]
    fn a_dead_sandbox_stays_while_a_kept_instance_lies_in_it() {
        let mut runtime = RuntimePod {
            sandboxes: vec![
                sandbox("s0", 0, SandboxState::NotReady),
                sandbox("s1", 1, SandboxState::Ready),
            ],
            containers: vec![container("a", 0, ContainerState::Exited, "s0")],
            ..RuntimePod::default()
        };
        runtime.sort();
        assert!(garbage(&runtime).is_empty());
    }
}
