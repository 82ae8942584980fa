//! Laws of the hand-over, on a whole node whose plugin host is played by the test.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::FutureExt;
use kernel::testing::{Inbox, inbox, pass, run_paused};
use kernel::{ChildSpec, mailbox};
use logic_api::testing::yaml::pod;
use logic_api::types::PodUid;
use logic_resources::cgroups::{CgroupDriver, CgroupPolicy, Hierarchy};
use plugin_host::{LaunchMethod, Msg as HostMsg, ServiceKind};
use serde_json::json;

use super::*;
use crate::cgroups::CgroupManager;
use crate::cgroups::systemd::SystemdConnection;
use crate::testing::TestNode;

const SOON: Duration = Duration::from_secs(120);

struct Rig {
    node: TestNode,
    addr: Addr<Msg>,
    /// The pods that the new runtime runs.
    neighbours: Rc<RefCell<BTreeSet<PodUid>>>,
}

/// Of a machine whose only cgroup of pods has the processes that are written into [`PROCESSES`].
fn cgroups(node: &TestNode) -> PodCgroups {
    std::fs::create_dir_all(node.path("cgroup/kubepods/poda")).unwrap();
    let policy = CgroupPolicy {
        driver: CgroupDriver::Cgroupfs,
        root: "/".to_owned(),
        pids: None,
    };
    let hierarchy = Hierarchy::V2(node.path("cgroup"));
    let (_, reported) = watch::channel(None);
    let machine = (Some(hierarchy), Vec::new());
    let systemd = SystemdConnection::default();
    let manager = CgroupManager::on((policy.driver, reported), machine, systemd);
    PodCgroups::new(Some(policy), manager)
}

const PROCESSES: &str = "cgroup/kubepods/poda/cgroup.procs";

fn declared(endpoint: &str) -> Declaration {
    let start = LaunchMethod::External {
        endpoint: "/run/plugin.sock".into(),
    };
    Declaration {
        configuration: json!({ "endpoint": endpoint }),
        ..Declaration::new("runtime", ServiceKind::Runtime, start)
    }
}

fn choice(name: &str, endpoint: &str) -> RuntimeChoice {
    RuntimeChoice::of(name, &declared(endpoint))
}

fn on(current: RuntimeChoice, handover: Option<PendingHandover>) -> RuntimeRecord {
    RuntimeRecord {
        configured: "/old".to_owned(),
        current,
        handover,
    }
}

impl Rig {
    async fn start(record: RuntimeRecord) -> (Rig, Inbox<HostMsg>) {
        let node = TestNode::start().await;
        let (host, orders) = inbox(8);
        let config = Rc::new(HandoverConfig {
            node_name: "node".to_owned(),
            file: RecordFile::new(&node.path("")),
            host: "runtime".to_owned(),
            declared: [("old", "/old"), ("newer", "/old"), ("new", "/new")]
                .map(|(name, endpoint)| (name.to_owned(), declared(endpoint)))
                .into(),
        });
        let neighbours = Rc::new(RefCell::new(BTreeSet::new()));
        let running = neighbours.clone();
        let peers = Peers {
            neighbour: NeighbourRuntime::asked_by(move |_| {
                let running = running.borrow().clone();
                async { Ok(running) }.boxed_local()
            }),
            runtime: node.runtime.clone(),
            host,
            pod_manager: node.node.pod_manager.clone(),
            checkpoints: node.node.checkpoints.clone(),
            recorder: node.node.recorder.clone(),
            gate: node.gate.clone(),
            cgroups: cgroups(&node),
        };
        let (state, record) = (node.handover.clone(), Rc::new(RefCell::new(record)));
        let (addr, port) = mailbox(MAILBOX);
        node.node
            .root
            .spawn(ChildSpec::permanent("handover"), port, move || {
                let (state, record) = (state.clone(), record.clone());
                RuntimeHandover::new(config.clone(), peers.clone(), state, record)
            });
        let rig = Rig {
            node,
            addr,
            neighbours,
        };
        (rig, orders)
    }

    /// A rig with one pod that runs.
    async fn with_a_pod() -> (Rig, Inbox<HostMsg>) {
        let (rig, host) = Rig::start(on(choice("old", "/old"), None)).await;
        rig.run_pod().await;
        (rig, host)
    }

    async fn run_pod(&self) {
        self.node.desire(&[pod("
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 3
  containers: [{name: app, image: localhost/busybox, command: [sleep, infinity]}]
")]);
        self.until_running().await;
    }

    async fn until_running(&self) {
        self.node
            .until("web", |status| status.phase.as_deref() == Some("Running"))
            .await;
    }

    async fn swap(&self, to: &str, consent: PodConsent) -> Result<u64, SwapError> {
        let to = to.to_owned();
        let swap = |reply| Msg::Swap { to, consent, reply };
        self.addr.ask(SOON, swap).await.unwrap()
    }

    async fn is_empty(&self) -> bool {
        self.node.runtime.pods().await.unwrap().is_empty()
    }

    /// Lets the clock run until something of the pod is Ready again in the runtime.
    async fn until_back(&self) {
        for _ in 0..200 {
            let now = self.node.runtime.pod(&PodUid::from("web")).await.unwrap();
            if now
                .containers
                .iter()
                .any(|c| c.may_run() && c.restart_count == 1)
            {
                return;
            }
            pass(Duration::from_millis(100)).await;
        }
        panic!("the pod does not start again");
    }

    fn stored(&self) -> RuntimeRecord {
        let file = RecordFile::new(&self.node.path(""));
        let FoundRecord::Record(record) = file.load().unwrap() else {
            panic!("no record");
        };
        *record
    }
}

async fn next(host: &mut Inbox<HostMsg>) -> HostMsg {
    host.next(SOON).await.expect("an order to the host")
}

async fn tried(host: &mut Inbox<HostMsg>, outcome: Result<(), HostError>) {
    let HostMsg::Try { declaration, reply } = next(host).await else {
        panic!("no trial");
    };
    assert_eq!(declaration.configuration, json!({ "endpoint": "/new" }));
    reply.send(outcome);
}

async fn swapped(host: &mut Inbox<HostMsg>, outcome: Result<u64, HostError>) {
    let HostMsg::Swap { reply, .. } = next(host).await else {
        panic!("no swap");
    };
    reply.send(outcome);
}

fn not_ready() -> HostError {
    HostError::NotReady {
        plugin: "runtime".to_owned(),
        why: "nobody serves /new".to_owned(),
    }
}

#[test]
fn no_pod_is_ended_for_a_swap_that_nobody_asked_to_end_pods_for() {
    run_paused(|| async {
        let (rig, mut host) = Rig::with_a_pod().await;
        let plan = |reply| Msg::Plan {
            to: "new".to_owned(),
            reply,
        };
        let plan = rig.addr.ask(SOON, plan).await.unwrap().unwrap();
        let web = EndingPod {
            pod: "default/web".to_owned(),
            grace: 3,
            goes_on: true,
        };
        assert_eq!((plan.is_handover, plan.pods), (true, vec![web]));
        let refused = rig.swap("new", PodConsent::LeavePods).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "new does not know the 1 pods that run on old: they would have to end there first, \
             which has to be asked for by name (--end-pods)"
        );
        assert!(host.next(Duration::from_secs(1)).await.is_none());
        rig.until_running().await;
        let unknown = rig.swap("nobody", PodConsent::EndPods).await.unwrap_err();
        assert_eq!(
            unknown.to_string(),
            "there is no plugin nobody, expected one of new, newer, old"
        );
    });
}

#[test]
fn the_plugin_is_swapped_when_nothing_is_left_in_the_old_runtime_and_then_pods_start() {
    run_paused(|| async {
        let (rig, mut host) = Rig::with_a_pod().await;
        let host = async {
            tried(&mut host, Ok(())).await;
            let HostMsg::Swap { reply, .. } = next(&mut host).await else {
                panic!("no swap");
            };
            assert!(rig.is_empty().await);
            let begun = rig.stored().handover.unwrap();
            assert!(begun.begun && begun.to == choice("new", "/new"));
            let again = rig.swap("new", PodConsent::EndPods).await.unwrap_err();
            assert_eq!(
                again.to_string(),
                "the pods are being handed over from old to new"
            );
            reply.send(Ok(2));
        };
        let (outcome, ()) = tokio::join!(rig.swap("new", PodConsent::EndPods), host);
        assert_eq!(outcome.unwrap(), 2);
        assert_eq!(rig.stored(), on(choice("new", "/new"), None));
        rig.until_back().await;
    });
}

#[test]
fn pods_are_left_alone_if_the_new_runtime_is_not_well() {
    run_paused(|| async {
        let (rig, mut host) = Rig::with_a_pod().await;
        let host = tried(&mut host, Err(not_ready()));
        let (outcome, ()) = tokio::join!(rig.swap("new", PodConsent::EndPods), host);
        assert!(
            outcome
                .unwrap_err()
                .to_string()
                .contains("nobody serves /new")
        );
        pass(Duration::from_secs(5)).await;
        let now = rig.node.runtime.pod(&PodUid::from("web")).await.unwrap();
        assert!(
            now.containers
                .iter()
                .all(|c| c.restart_count == 0 && c.may_run())
        );
    });
}

#[test]
fn pods_go_on_where_they_were_if_the_swap_fails_at_last() {
    run_paused(|| async {
        let (rig, mut host) = Rig::with_a_pod().await;
        let host = async {
            tried(&mut host, Ok(())).await;
            swapped(&mut host, Err(not_ready())).await;
        };
        let (outcome, ()) = tokio::join!(rig.swap("new", PodConsent::EndPods), host);
        assert!(outcome.is_err());
        assert_eq!(rig.stored(), on(choice("old", "/old"), None));
        rig.until_back().await;
    });
}

#[test]
fn a_plugin_of_the_same_backend_is_swapped_under_running_pods() {
    run_paused(|| async {
        let (rig, mut host) = Rig::with_a_pod().await;
        let host = async {
            swapped(&mut host, Ok(2)).await;
        };
        let (outcome, ()) = tokio::join!(rig.swap("newer", PodConsent::LeavePods), host);
        assert_eq!(outcome.unwrap(), 2);
        assert_eq!(rig.stored().current.name, "newer");
        rig.until_running().await;
    });
}

#[test]
fn a_hand_over_that_an_earlier_life_began_is_finished_without_being_asked_again() {
    run_paused(|| async {
        let pending = PendingHandover {
            to: choice("new", "/new"),
            begun: true,
        };
        let (rig, mut host) = Rig::start(on(choice("old", "/old"), Some(pending))).await;
        swapped(&mut host, Ok(2)).await;
        for _ in 0..100 {
            pass(Duration::from_millis(100)).await;
        }
        assert_eq!(rig.stored(), on(choice("new", "/new"), None));
        rig.run_pod().await;
    });
}

#[test]
fn a_runtime_out_of_reach_is_left_only_when_no_pod_has_a_process() {
    run_paused(|| async {
        let (rig, mut host) = Rig::start(on(choice("old", "/old"), None)).await;
        rig.node.script(
            r#"{"faults": [{"call": "ListPodSandbox", "times": 100000, "code": "Internal", "message": "gone"}]}"#,
        );
        std::fs::write(rig.node.path(PROCESSES), "1\n").unwrap();
        let refused = rig.swap("new", PodConsent::EndPods).await.unwrap_err();
        assert!(
            refused.to_string().contains("could not be listed"),
            "{refused}"
        );
        std::fs::write(rig.node.path(PROCESSES), "").unwrap();
        let host = async {
            tried(&mut host, Ok(())).await;
            swapped(&mut host, Ok(2)).await;
        };
        let (outcome, ()) = tokio::join!(rig.swap("new", PodConsent::EndPods), host);
        assert_eq!(outcome.unwrap(), 2);
    });
}

#[test]
fn a_runtime_that_the_file_names_is_tried_until_it_is_well() {
    run_paused(|| async {
        let pending = PendingHandover {
            to: choice("new", "/new"),
            begun: false,
        };
        let record = RuntimeRecord {
            configured: "/new".to_owned(),
            ..on(choice("old", "/old"), Some(pending))
        };
        let (rig, mut host) = Rig::start(record).await;
        rig.run_pod().await;
        tried(&mut host, Err(not_ready())).await;
        rig.until_running().await;
        tried(&mut host, Ok(())).await;
        swapped(&mut host, Ok(2)).await;
        rig.until_back().await;
        assert_eq!(rig.stored().current, choice("new", "/new"));
    });
}

/// A kubelet ran meanwhile on the runtime that is configured now, and the old one was stopped.
#[test]
fn pods_that_the_new_runtime_runs_hold_nothing_up() {
    run_paused(|| async {
        let pending = PendingHandover {
            to: choice("old", "/new"),
            begun: false,
        };
        let record = RuntimeRecord {
            configured: "/new".to_owned(),
            ..on(choice("old", "/old"), Some(pending))
        };
        let (rig, mut host) = Rig::start(record).await;
        rig.node.script(
            r#"{"faults": [{"call": "ListPodSandbox", "times": 100000, "code": "Internal", "message": "gone"}]}"#,
        );
        std::fs::write(rig.node.path(PROCESSES), "1\n").unwrap();
        assert!(host.next(3 * RETRY_PERIOD).await.is_none());
        let progress = |reply| Msg::Progress { reply };
        let shown = rig.addr.ask(SOON, progress).await.unwrap();
        assert_eq!(
            (shown.runtime.as_str(), shown.to.as_deref()),
            ("old at /old", Some("old at /new"))
        );
        let why = "old at /new does not run these pods, which have processes: a";
        assert!(shown.step.contains(why), "{}", shown.step);
        let events = rig.node.events().await;
        let told = events
            .iter()
            .filter(|event| event.reason == "RuntimeHandover");
        let told: Vec<&str> = told.map(|event| event.message.as_str()).collect();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("start old at /old again"), "{told:?}");

        rig.neighbours.borrow_mut().insert(PodUid::from("a"));
        tried(&mut host, Ok(())).await;
        swapped(&mut host, Ok(2)).await;
        pass(Duration::from_secs(1)).await;
        assert_eq!(rig.stored().current, choice("old", "/new"));
        assert_eq!(rig.stored().handover, None);
    });
}
