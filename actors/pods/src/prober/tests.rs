//! Invariants of the prober: real sockets and a runtime-fake in the test's process, on a paused clock.

use clients::probe_client::rig::{self, TestListener};
use kernel::testing::{Inbox, inbox, pass, run_paused};
use kernel::{Addr, ChildSpec, InjectedFault, Intensity, Supervisor, mailbox};
use logic_api::testing::yaml::pod;
use logic_pods::probes::initial_health;
use plugin_host::PluginClient;
use state::events::{self, Event};

use super::*;
use crate::{pod_manager, worker};

const SECOND: Duration = Duration::from_secs(1);
const GOOD: ProbeResult = ProbeResult::Success;
const BAD: ProbeResult = ProbeResult::Failure;

fn recipient(worker: &Addr<worker::Msg>) -> Recipient<ProbeUpdate> {
    Recipient::new(worker.clone(), |probed| {
        worker::Msg::Probed(Box::new(probed))
    })
}

/// The prober, with inboxes as its neighbours.
struct Rig {
    root: Supervisor,
    prober: Addr<Msg>,
    worker: Addr<worker::Msg>,
    told: Inbox<worker::Msg>,
    events: Inbox<events::Msg>,
    pod_manager: Inbox<pod_manager::Msg>,
    pod: Arc<Pod>,
    instance: ProbedInstance,
}

impl Rig {
    /// With a pod of one container, `app`, which has these probes and has just started.
    async fn start(probes: &str) -> Rig {
        Rig::over(
            RuntimeClient::new(PluginClient::new("runtime"), SECOND),
            "app-0",
            probes,
        )
        .await
    }

    async fn over(runtime: RuntimeClient, id: &str, probes: &str) -> Rig {
        let (events, recorded) = inbox(4096);
        let (pod_manager, asked) = inbox(16);
        let peers = Peers {
            runtime,
            probe_client: ProbeClient::default(),
            recorder: Recorder::new(events),
            pod_manager: Recipient::new(pod_manager, |PodResync| pod_manager::Msg::Resync),
        };
        let root = Supervisor::root("test", Intensity::UNLIMITED);
        let (prober, port) = mailbox(MAILBOX);
        root.spawn(ChildSpec::permanent("prober"), port, move || {
            Prober::new(peers.clone())
        });
        let (worker, told) = inbox(64);
        let pod = pod(&format!(
            "
metadata: {{name: web}}
spec:
  containers:
  - name: app
    image: localhost/busybox
{probes}"
        ));
        pass(Duration::from_millis(1)).await;
        let instance = ProbedInstance {
            id: id.into(),
            started: kernel::now(),
            health: initial_health(&pod.spec.as_ref().unwrap().containers[0]),
        };
        Rig {
            root,
            prober,
            worker,
            told,
            events: recorded,
            pod_manager: asked,
            pod,
            instance,
        }
    }

    fn watch_at(&self, stage: ProbeStage) {
        let watch = ProbedPod {
            uid: "web".into(),
            pod: self.pod.clone(),
            worker: recipient(&self.worker),
            ips: vec!["127.0.0.1".into()],
            instances: [("app".into(), self.instance.clone())].into(),
            stage,
        };
        self.prober.tell(Msg::Watch(Box::new(watch))).unwrap();
    }

    fn watch(&self) {
        self.watch_at(ProbeStage::Live);
    }

    /// The updates that the worker was sent since the last call.
    fn told(&mut self) -> Vec<(ProbeKind, ProbeResult)> {
        let probed = self.told.drain().into_iter().map(|msg| {
            let worker::Msg::Probed(probed) = msg else {
                panic!("{msg:?}");
            };
            let of = (probed.container.as_str(), &probed.id);
            assert_eq!(of, ("app", &self.instance.id));
            (probed.probe, probed.verdict())
        });
        probed.collect()
    }

    /// The texts of the events since the last call.
    fn texts(&mut self) -> Vec<String> {
        let text = |msg| {
            let events::Msg::Record(event) = msg else {
                panic!("{msg:?}");
            };
            let Event {
                reason,
                message,
                object,
                ..
            } = *event;
            assert_eq!(object.field_path, "spec.containers{app}");
            format!("{reason}: {message}")
        };
        self.events.drain().into_iter().map(text).collect()
    }
}

fn tcp(kind: &str, port: u16, rest: &str) -> String {
    format!("    {kind}Probe: {{tcpSocket: {{port: {port}}}{rest}}}\n")
}

fn exec(kind: &str, command: &str, rest: &str) -> String {
    format!("    {kind}Probe: {{exec: {{command: [{command}]}}{rest}}}\n")
}

/// A port without a listener.
async fn closed() -> u16 {
    TestListener::open(0).await.close().await
}

#[test]
fn readiness_follows_the_door_and_only_changes_are_told() {
    run_paused(|| async {
        let door = TestListener::open(0).await;
        let mut rig = Rig::start(&tcp("readiness", door.port, ", periodSeconds: 5")).await;
        rig.watch();
        pass(SECOND).await;
        assert_eq!(rig.told(), [(ProbeKind::Readiness, GOOD)]);
        pass(60 * SECOND).await;
        assert_eq!(rig.told(), []);
        assert_eq!(rig.texts(), Vec::<String>::new());
        let port = door.close().await;
        pass(10 * SECOND).await;
        assert_eq!(rig.told(), []);
        pass(5 * SECOND).await;
        assert_eq!(rig.told(), [(ProbeKind::Readiness, BAD)]);
        let text = format!(
            "Unhealthy: Readiness probe failed: dial tcp 127.0.0.1:{port}: connect: connection refused"
        );
        assert_eq!(rig.texts(), [text.clone(), text.clone(), text]);
        let _door = TestListener::open(port).await;
        pass(5 * SECOND).await;
        assert_eq!(rig.told(), [(ProbeKind::Readiness, GOOD)]);
    });
}

#[test]
fn liveness_fails_a_whole_threshold_of_periods_after_the_start_and_rests_then() {
    run_paused(|| async {
        let mut rig = Rig::start(&tcp("liveness", closed().await, ", periodSeconds: 10")).await;
        rig.watch();
        pass(29 * SECOND).await;
        assert_eq!((rig.told(), rig.texts().len()), (vec![], 2));
        pass(2 * SECOND).await;
        let told = (rig.told(), rig.texts().len());
        assert_eq!(told, (vec![(ProbeKind::Liveness, BAD)], 1));
        pass(1000 * SECOND).await;
        assert_eq!((rig.told(), rig.texts().len()), (vec![], 0));
    });
}

#[test]
fn what_is_told_again_goes_on_as_it_was_and_a_new_instance_begins_anew() {
    run_paused(|| async {
        let mut rig = Rig::start(&tcp("liveness", closed().await, ", periodSeconds: 10")).await;
        rig.watch();
        for _ in 0..6 {
            pass(5 * SECOND).await;
            rig.watch();
        }
        pass(SECOND).await;
        assert_eq!(rig.told(), [(ProbeKind::Liveness, BAD)]);
        rig.watch();
        pass(100 * SECOND).await;
        assert_eq!(rig.told(), []);
        rig.instance = ProbedInstance {
            id: "app-1".into(),
            started: kernel::now(),
            ..rig.instance.clone()
        };
        rig.watch();
        pass(29 * SECOND).await;
        assert_eq!(rig.told(), []);
        pass(2 * SECOND).await;
        assert_eq!(rig.told(), [(ProbeKind::Liveness, BAD)]);
    });
}

#[test]
fn the_others_wait_for_the_startup_probe_and_readiness_follows_it_at_once() {
    run_paused(|| async {
        let port = closed().await;
        let probes = [
            tcp("startup", port, ", periodSeconds: 2, failureThreshold: 30"),
            tcp("liveness", port, ", periodSeconds: 1, failureThreshold: 1"),
            tcp("readiness", port, ", periodSeconds: 20"),
        ];
        let mut rig = Rig::start(&probes.concat()).await;
        rig.watch();
        pass(11 * SECOND).await;
        assert_eq!(rig.told(), []);
        let texts = rig.texts();
        // The attempt at the very start is neither counted nor reported.
        assert_eq!(texts.len(), 5, "{texts:?}");
        assert!(
            texts
                .iter()
                .all(|text| text.contains("Startup probe failed"))
        );
        let door = TestListener::open(port).await;
        pass(2 * SECOND).await;
        let expected = [(ProbeKind::Startup, GOOD), (ProbeKind::Readiness, GOOD)];
        assert_eq!(rig.told(), expected);
        door.close().await;
        pass(2 * SECOND).await;
        assert_eq!(rig.told(), [(ProbeKind::Liveness, BAD)]);
    });
}

#[test]
fn a_container_that_never_starts_fails_after_its_threshold_of_periods() {
    run_paused(|| async {
        let port = closed().await;
        let probes = tcp("startup", port, ", periodSeconds: 10, failureThreshold: 2");
        let mut rig = Rig::start(&probes).await;
        rig.watch();
        pass(19 * SECOND).await;
        assert_eq!(rig.told(), []);
        pass(2 * SECOND).await;
        assert_eq!(rig.told(), [(ProbeKind::Startup, BAD)]);
        let _door = TestListener::open(port).await;
        pass(100 * SECOND).await;
        assert_eq!(rig.told(), []);
    });
}

#[test]
fn a_terminating_pod_is_probed_for_its_readiness_alone_and_a_forgotten_one_not_at_all() {
    run_paused(|| async {
        let door = TestListener::open(0).await;
        let probes = [
            tcp("liveness", door.port, ", periodSeconds: 1"),
            tcp("readiness", door.port, ", periodSeconds: 1"),
        ];
        let mut rig = Rig::start(&probes.concat()).await;
        rig.watch();
        pass(5 * SECOND).await;
        assert_eq!(rig.told(), [(ProbeKind::Readiness, GOOD)]);
        rig.watch_at(ProbeStage::Terminating);
        door.close().await;
        pass(5 * SECOND).await;
        assert_eq!(rig.told(), [(ProbeKind::Readiness, BAD)]);
        assert!(rig.texts().iter().all(|text| text.contains("Readiness")));
        rig.prober.tell(Msg::Forget { uid: "web".into() }).unwrap();
        pass(5 * SECOND).await;
        assert_eq!((rig.told(), rig.texts()), (vec![], vec![]));
    });
}

/// Upstream's TestCleanupPods, TestCleanupRepeated and TestCleanUp.
#[test]
fn a_forgotten_pod_takes_its_own_probes_with_it_however_often_it_is_forgotten() {
    run_paused(|| async {
        let door = TestListener::open(0).await;
        let probes = ["startup", "liveness", "readiness"].map(|kind| tcp(kind, door.port, ""));
        let rig = Rig::start(&probes.concat()).await;
        for index in 0..100 {
            let watch = ProbedPod {
                uid: format!("pod-{index}").as_str().into(),
                pod: rig.pod.clone(),
                worker: recipient(&rig.worker),
                ips: vec!["127.0.0.1".into()],
                instances: [("app".into(), rig.instance.clone())].into(),
                stage: ProbeStage::Live,
            };
            rig.prober.tell(Msg::Watch(Box::new(watch))).unwrap();
        }
        rig.watch();
        let shown = async || {
            let tree = rig.root.tree().await;
            let prober = &tree.children[0].snapshot;
            ["pods", "probes"].map(|name| prober[name].as_u64())
        };
        pass(SECOND).await;
        assert_eq!(shown().await, [Some(101), Some(303)]);
        for index in (0..100).cycle().take(1000) {
            let uid = format!("pod-{index}").as_str().into();
            rig.prober.tell(Msg::Forget { uid }).unwrap();
        }
        pass(SECOND).await;
        assert_eq!(shown().await, [Some(1), Some(3)]);
    });
}

#[test]
fn a_successor_has_everything_told_again_and_leaves_readiness_as_it_was() {
    run_paused(|| async {
        let door = TestListener::open(0).await;
        let mut rig = Rig::start(&tcp("readiness", door.port, ", periodSeconds: 10")).await;
        rig.watch();
        pass(SECOND).await;
        assert_eq!(rig.told(), [(ProbeKind::Readiness, GOOD)]);
        assert!(matches!(
            rig.pod_manager.drain()[..],
            [pod_manager::Msg::Resync]
        ));

        rig.root
            .inject("test/prober", InjectedFault::Panic)
            .unwrap();
        rig.prober.tell(Msg::Due).unwrap();
        pass(SECOND).await;
        assert!(matches!(
            rig.pod_manager.drain()[..],
            [pod_manager::Msg::Resync]
        ));
        rig.instance.health.readiness = GOOD;
        rig.watch();
        pass(100 * SECOND).await;
        assert_eq!((rig.told(), rig.texts()), (vec![], vec![]));
        door.close().await;
        pass(31 * SECOND).await;
        assert_eq!(rig.told(), [(ProbeKind::Readiness, BAD)]);
    });
}

#[test]
fn an_adopted_container_that_failed_for_good_is_not_probed_again() {
    run_paused(|| async {
        let mut rig = Rig::start(&tcp("liveness", closed().await, ", periodSeconds: 1")).await;
        rig.instance.health.liveness = BAD;
        rig.watch();
        pass(100 * SECOND).await;
        assert_eq!((rig.told(), rig.texts()), (vec![], vec![]));
    });
}

#[test]
fn a_verdict_for_which_the_worker_had_no_room_is_told_later_and_is_the_newest() {
    run_paused(|| async {
        let door = TestListener::open(0).await;
        let mut rig = Rig::start(&tcp("readiness", door.port, ", periodSeconds: 1")).await;
        (rig.worker, rig.told) = inbox(1);
        rig.worker.tell(worker::Msg::Retry).unwrap();
        rig.watch();
        pass(5 * SECOND).await;
        door.close().await;
        pass(5 * SECOND).await;
        assert!(matches!(rig.told.drain()[..], [worker::Msg::Retry]));
        pass(2 * SECOND).await;
        assert_eq!(rig.told(), [(ProbeKind::Readiness, BAD)]);
    });
}

#[test]
fn a_probe_that_cannot_be_made_is_told_and_judges_nothing() {
    run_paused(|| async {
        let probes = "    readinessProbe: {httpGet: {port: http}, periodSeconds: 1}\n";
        let mut rig = Rig::start(probes).await;
        rig.watch();
        pass(Duration::from_millis(500)).await;
        let text = "Unhealthy: Readiness probe errored and resulted in unknown state: strconv.Atoi: parsing \"http\": invalid syntax";
        assert_eq!(rig.texts(), [text]);
        pass(10 * SECOND).await;
        assert_eq!(rig.told(), []);
    });
}

#[test]
fn a_command_is_judged_by_its_exit_code_and_by_its_time() {
    run_paused(|| async {
        let runtime = rig::Rig::start().await;
        let cases = [
            ("'true'", GOOD, ""),
            ("sh, -c, 'echo sick; exit 3'", BAD, "sick\n"),
            (
                "sleep, '100'",
                BAD,
                "command timed out: \"sleep 100\" timed out after 1s",
            ),
        ];
        for (command, expected, said) in cases {
            let probes = exec(
                "readiness",
                command,
                ", failureThreshold: 1, periodSeconds: 3",
            );
            let mut rig = Rig::over(runtime.runtime.clone(), runtime.id.as_str(), &probes).await;
            rig.instance.health.readiness = ProbeResult::Unknown;
            rig.watch();
            pass(2 * SECOND).await;
            assert_eq!(rig.told(), [(ProbeKind::Readiness, expected)], "{command}");
            let texts = match expected {
                ProbeResult::Failure => vec![format!("Unhealthy: Readiness probe failed: {said}")],
                ProbeResult::Success | ProbeResult::Unknown => vec![],
            };
            assert_eq!(rig.texts(), texts);
        }
    });
}

#[test]
fn commands_that_hang_hold_up_neither_other_commands_for_long_nor_sockets_at_all() {
    run_paused(|| async {
        let (runtime, door) = (rig::Rig::start().await, TestListener::open(0).await);
        let mut rig = Rig::over(
            runtime.runtime.clone(),
            runtime.id.as_str(),
            &[
                exec("liveness", "'true'", ", periodSeconds: 1"),
                tcp("readiness", door.port, ", periodSeconds: 1"),
            ]
            .concat(),
        )
        .await;
        let hanging = pod(&format!(
            "
metadata: {{name: hanging}}
spec:
  containers:
  - name: app
    image: localhost/busybox
{}",
            exec(
                "readiness",
                "sleep, '1000'",
                ", timeoutSeconds: 60, periodSeconds: 60"
            )
        ));
        for index in 0..100 {
            let watch = ProbedPod {
                uid: format!("hanging-{index}").as_str().into(),
                pod: hanging.clone(),
                worker: recipient(&rig.worker),
                ips: Vec::new(),
                instances: [("app".into(), rig.instance.clone())].into(),
                stage: ProbeStage::Live,
            };
            rig.prober.tell(Msg::Watch(Box::new(watch))).unwrap();
        }
        // Liveness unknown to the worker, so that the first success is reported.
        rig.instance.health.liveness = ProbeResult::Unknown;
        rig.watch();
        pass(Duration::from_millis(100)).await;
        assert_eq!(rig.told(), [(ProbeKind::Readiness, GOOD)]);
        pass(5 * SECOND).await;
        assert_eq!(rig.told(), [(ProbeKind::Liveness, GOOD)]);
    });
}

#[test]
fn every_probe_of_a_full_node_keeps_its_beat() {
    run_paused(|| async {
        let (runtime, door) = (rig::Rig::start().await, TestListener::open(0).await);
        let probes = [
            exec("startup", "'true'", ""),
            exec("liveness", "'true'", ", periodSeconds: 1"),
            tcp("readiness", door.port, ", periodSeconds: 1"),
        ];
        let mut rig = Rig::over(runtime.runtime, runtime.id.as_str(), &probes.concat()).await;
        for index in 0..110 {
            let watch = ProbedPod {
                uid: format!("pod-{index}").as_str().into(),
                pod: rig.pod.clone(),
                worker: recipient(&rig.worker),
                ips: vec!["127.0.0.1".into()],
                instances: [("app".into(), rig.instance.clone())].into(),
                stage: ProbeStage::Live,
            };
            rig.prober.tell(Msg::Watch(Box::new(watch))).unwrap();
            rig.told.drain();
        }
        // Let them all begin.
        pass(2 * SECOND).await;
        let before = runtime.fake.calls(runtime_fake::Rpc::ExecSync);
        pass(5 * SECOND).await;
        let calls = runtime.fake.calls(runtime_fake::Rpc::ExecSync) - before;
        assert!((540..=560).contains(&calls), "{calls}");
    });
}
