//! Laws of the container collector, on a whole node with the fake runtime.

use k8s_openapi::api::core::v1::PodStatus;
use kernel::testing::{pass, run_paused};
use kernel::{ChildSpec, mailbox};
use logic_api::testing::yaml::pod;
use pods::testing::TestNode;

use super::*;

const LONG: Duration = Duration::from_secs(3600);

const JOB: &str = "
metadata: {name: job, uid: job}
spec:
  restartPolicy: Never
  containers:
  - {name: app, image: localhost/busybox, command: [sh, -c, exit 0]}
";

const CRASHES: &str = "
metadata: {name: web, uid: web}
spec:
  containers:
  - {name: app, image: localhost/busybox, command: [sh, -c, exit 1]}
  - {name: other, image: localhost/busybox, command: [sleep, infinity]}
";

struct Rig {
    node: TestNode,
    addr: Addr<Msg>,
}

impl Rig {
    async fn start() -> Rig {
        let node = TestNode::start().await;
        let (addr, port) = mailbox(MAILBOX);
        let config = ContainerGcConfig {
            policy: ContainerGcPolicy::default(),
            period: Duration::ZERO,
            node: node.rules.node.clone(),
        };
        let peers = Peers {
            runtime: node.runtime.clone(),
            pod_manager: node.node.pod_manager.clone(),
            recorder: node.node.recorder.clone(),
        };
        let spec = ChildSpec::permanent("container-gc");
        node.node.root.spawn(spec, port, move || {
            ContainerGc::new(config.clone(), peers.clone())
        });
        Rig { node, addr }
    }

    async fn delete_all(&self) -> Result<(), ContainerGcError> {
        let ask = self.addr.ask(LONG, |reply| Msg::DeleteAllUnused { reply });
        ask.await.unwrap()
    }

    /// Containers and sandboxes of the pod in the runtime.
    async fn left(&self, uid: &str) -> (usize, usize) {
        let pods = self.node.runtime.pods().await.unwrap();
        let pod = pods.get(&PodUid::from(uid));
        pod.map_or((0, 0), |pod| (pod.containers.len(), pod.sandboxes.len()))
    }

    async fn failures(&self) -> Vec<String> {
        let events = self.node.events().await.into_iter();
        let failed = events.filter(|event| event.reason == FAILED);
        failed.map(|event| event.message).collect()
    }
}

fn succeeded(status: &PodStatus) -> bool {
    status.phase.as_deref() == Some("Succeeded")
}

#[test]
fn what_a_pod_that_has_ended_has_left_goes_when_the_disk_is_short_and_its_status_stays() {
    run_paused(|| async {
        let rig = Rig::start().await;
        rig.node.desire(&[pod(JOB), pod(CRASHES)]);
        let before = rig.node.until("job", succeeded).await;
        pass(DEFAULT_PERIOD * 3).await;
        assert_eq!(rig.left("job").await, (1, 1), "its logs may be read");
        let goes_on = rig.left("web").await;
        assert_eq!(rig.delete_all().await, Ok(()));
        assert_eq!(rig.left("job").await, (0, 0));
        let web = rig.left("web").await;
        assert!(web.1 == 1 && web.0 >= 2, "{web:?}, before {goes_on:?}");
        assert_eq!(rig.node.files("logs/default_job_job/app"), 0);
        pass(DEFAULT_PERIOD * 2).await;
        let after = rig.node.until("job", succeeded).await;
        assert_eq!(after.container_statuses, before.container_statuses);
        assert_eq!(rig.left("job").await, (0, 0), "it does not run again");
        assert_eq!(rig.failures().await, [""; 0]);
    });
}

#[test]
fn one_container_that_cannot_be_removed_is_named_and_keeps_no_other() {
    run_paused(|| async {
        let rig = Rig::start().await;
        let second = JOB.replace("job", "task");
        rig.node.desire(&[pod(JOB), pod(&second)]);
        for uid in ["job", "task"] {
            rig.node.until(uid, succeeded).await;
        }
        let fault =
            r#"{"faults": [{"call": "RemoveContainer", "subject": "/job/", "message": "busy"}]}"#;
        rig.node.script(fault);
        let error = rig.delete_all().await.unwrap_err().to_string();
        assert!(error.contains("RemoveContainer: busy"), "{error}");
        assert_eq!(rig.failures().await, [error]);
        assert_eq!(rig.left("job").await, (1, 1), "the sandbox has a container");
        assert_eq!(rig.left("task").await, (0, 0));
        rig.node.script("{}");
        assert_eq!(rig.delete_all().await, Ok(()));
        assert_eq!(rig.left("job").await, (0, 0));
    });
}

#[test]
fn a_runtime_that_hangs_costs_its_deadline_and_is_told() {
    run_paused(|| async {
        let rig = Rig::start().await;
        rig.node.desire(&[pod(JOB)]);
        rig.node.until("job", succeeded).await;
        rig.node
            .script(r#"{"faults": [{"call": "RemoveContainer", "hang": true}]}"#);
        assert!(rig.delete_all().await.is_err());
        rig.node.script("{}");
        assert_eq!(rig.delete_all().await, Ok(()));
        assert_eq!(rig.left("job").await, (0, 0));
    });
}

#[test]
fn a_thousand_containers_that_have_ended_are_all_collected() {
    run_paused(|| async {
        let rig = Rig::start().await;
        let jobs = (0..40).map(|n| {
            let containers = (0..25).map(|c| {
                format!("  - {{name: c{c}, image: localhost/busybox, command: [sh, -c, exit 0]}}\n")
            });
            let containers: String = containers.collect();
            let spec = "spec:\n  restartPolicy: Never\n  containers:\n";
            pod(&format!(
                "metadata: {{name: job{n}, uid: job{n}}}\n{spec}{containers}"
            ))
        });
        let jobs: Vec<_> = jobs.collect();
        rig.node.desire(&jobs);
        for n in 0..40 {
            rig.node.until(&format!("job{n}"), succeeded).await;
        }
        assert_eq!(rig.delete_all().await, Ok(()));
        let left = rig.node.runtime.pods().await.unwrap();
        assert_eq!(left.len(), 0);
        assert_eq!(rig.node.statuses().await.len(), 40);
    });
}
