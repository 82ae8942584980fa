//! Which dead instances of a running pod its worker may remove.
//!
//! Upstream's policy (kuberuntime_gc.go, 1.36): the newest dead instances of each container stay, for their logs and the last
//! state, as many as `--maximum-dead-containers-per-container` says; so does the newest sandbox. What concerns the whole
//! node is in `crate::container_gc`.

use std::collections::BTreeMap;

use logic_api::types::{ContainerInstance, ContainerState, RuntimePod, SandboxId, SandboxState};

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

/// Finds what may be removed, older instances first to last as `runtime` orders them. `kept` is the number of dead instances
/// that stay of each container (`ContainerGcPolicy::kept_by_worker`); the newest instance stays in any case.
pub fn garbage(runtime: &RuntimePod, kept: Option<usize>) -> Garbage {
    let most = kept.unwrap_or(usize::MAX);
    let mut dead: BTreeMap<&str, usize> = BTreeMap::new();
    let mut containers = Vec::new();
    for container in &runtime.containers {
        if container.state == ContainerState::Exited {
            let count = dead.entry(&container.name).or_default();
            *count += 1;
            let newest = runtime.newest(&container.name).map(|newest| &newest.id);
            if *count > most && newest != Some(&container.id) {
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
        let found = garbage(&runtime, Some(1));
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
            let found = garbage(&runtime, Some(1));
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
        assert!(garbage(&runtime, Some(1)).is_empty());
    }

    #[test]
    fn as_many_stay_as_the_flag_says_and_always_the_newest_instance() {
        use ContainerState::{Exited, Running};
        let dead = |name, newest| {
            let instance = |n: u32| container(name, n, if n == 3 { newest } else { Exited }, "s0");
            (0..4).map(instance).collect::<Vec<_>>()
        };
        let mut runtime = RuntimePod {
            sandboxes: vec![sandbox("s0", 0, SandboxState::Ready)],
            containers: [dead("a", Running), dead("b", Exited)].concat(),
            ..RuntimePod::default()
        };
        runtime.sort();
        let cases: [(Option<usize>, &[&str]); 4] = [
            (Some(0), &["a2", "a1", "a0", "b2", "b1", "b0"]),
            (Some(1), &["a1", "a0", "b2", "b1", "b0"]),
            (Some(3), &["b0"]),
            (None, &[]),
        ];
        for (kept, expected) in cases {
            let found = garbage(&runtime, kept).containers;
            let found: Vec<&str> = found.iter().map(|dead| dead.id.as_str()).collect();
            assert_eq!(found, expected, "{kept:?}");
        }
    }
}
