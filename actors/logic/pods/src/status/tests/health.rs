//! Upstream's prober_manager_test.go tables on statuses.

use k8s_openapi::api::core::v1::Probe;
use logic_api::types::ProbeResult::{self, Failure as Bad, Success, Unknown};

use super::*;

fn said_of(startup: ProbeResult, readiness: ProbeResult) -> ContainerHealth {
    ContainerHealth {
        startup,
        liveness: Success,
        readiness,
    }
}

fn probed(container: &mut core::Container) {
    container.startup_probe = Some(Probe::default());
    container.readiness_probe = Some(Probe::default());
}

/// Upstream's TestUpdatePodStatus.
#[test]
fn an_app_container_is_ready_when_its_probes_say_so() {
    let startup = |c: &mut core::Container| c.startup_probe = Some(Probe::default());
    let readiness = |c: &mut core::Container| c.readiness_probe = Some(Probe::default());
    let mut scene = scene(
        pod("p")
            .app("unprobed")
            .app_with("ready", readiness)
            .app_with("pending", readiness)
            .app_with("unready", readiness)
            .app_with("not-started", startup)
            .app_with("started", startup)
            .app_with("terminated", readiness),
    );
    let health = [
        ("ready", said_of(Success, Success)),
        ("unready", said_of(Success, Bad)),
        ("started", said_of(Success, Success)),
        ("terminated", said_of(Success, Success)),
    ];
    let health = health.map(|(name, health)| (format!("{name}-0").as_str().into(), health));
    scene.health = health.into();
    for name in [
        "unprobed",
        "ready",
        "pending",
        "unready",
        "not-started",
        "started",
    ] {
        scene.runtime = scene.runtime.running(&scene.pod, name);
    }
    scene.runtime = scene.runtime.exited(&scene.pod, "terminated", 0);
    let status = scene.status();
    let cases = [
        ("unprobed", true, true),
        ("ready", true, true),
        ("pending", true, false),
        ("unready", true, false),
        ("not-started", false, false),
        ("started", true, true),
        ("terminated", false, false),
    ];
    for (name, started, ready) in cases {
        let found = app(&status, name);
        assert_eq!(
            (found.started, found.ready),
            (Some(started), ready),
            "{name}"
        );
    }
}

/// Upstream's TestUpdatePodStatusWithInitContainers.
#[test]
fn an_init_container_is_ready_when_it_succeeded_and_a_sidecar_when_it_is_ready() {
    for is_sidecar in [false, true] {
        let change = |c: &mut core::Container| {
            c.restart_policy = is_sidecar.then(|| "Always".into());
            c.startup_probe = (c.name != "terminated").then(Probe::default);
        };
        let mut list = pod("p").app("a");
        for name in ["not-started", "started", "terminated"] {
            list = with_init(list, name, change);
        }
        let mut scene = scene(list);
        scene.runtime = scene
            .runtime
            .running(&scene.pod, "not-started")
            .running(&scene.pod, "started")
            .exited(&scene.pod, "terminated", 0);
        scene.health = [("started-0".into(), said_of(Success, Success))].into();
        let status = scene.status();
        let cases = [
            ("not-started", false, false),
            ("started", true, is_sidecar),
            ("terminated", false, !is_sidecar),
        ];
        for (name, started, ready) in cases {
            let found = init(&status, name);
            assert_eq!(
                (found.started, found.ready),
                (Some(started), ready),
                "{name} {is_sidecar}"
            );
        }
    }
}

/// Upstream's TestUpdatePodStatus rows behind ChangeContainerStatusOnKubeletRestart, which is off.
#[test]
fn an_agent_that_starts_anew_makes_no_container_unready_before_its_probes_speak() {
    let mut scene = scene(pod("p").app_with("c", probed));
    scene.runtime = scene.runtime.running(&scene.pod, "c");
    let shown = |status: PodStatus| {
        let c = app(&status, "c").clone();
        (c.started, c.ready)
    };
    assert_eq!(shown(scene.status()), (Some(false), false));
    scene.health = [("c-0".into(), said_of(Success, Success))].into();
    assert_eq!(shown(scene.step()), (Some(true), true));
    scene.health.clear();
    assert_eq!(
        shown(scene.step()),
        (Some(true), true),
        "nothing new is known of it"
    );
    scene.health = [("c-0".into(), said_of(Success, Bad))].into();
    assert_eq!(shown(scene.step()), (Some(true), false));
    scene.health = [("c-0".into(), said_of(Unknown, Bad))].into();
    assert_eq!(shown(scene.step()), (Some(false), false));

    scene.health = [("c-0".into(), said_of(Success, Success))].into();
    scene.step();
    scene.health.clear();
    let mut newer = instance(&scene.pod, "c", Seen::Running);
    (newer.id, newer.attempt, newer.restart_count) = ("c-1".into(), 1, 1);
    scene.runtime.containers[0].state = Seen::Exited;
    scene.runtime = scene.runtime.with(newer);
    assert_eq!(
        shown(scene.status()),
        (Some(false), false),
        "another instance proves itself"
    );
}
