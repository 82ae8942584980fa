//! Upstream's tables on single container statuses.

use k8s_openapi::api::core::v1::{EphemeralContainer, VolumeMount};
use logic_api::types::{ContainerUser, LinuxContainerUser};

use super::*;

/// The first rows of upstream's TestConvertToAPIContainerStatuses on forgotten init containers.
#[test]
fn a_forgotten_init_container_succeeded_if_app_containers_were_made_and_a_sidecar_waits() {
    let mut scene = scene(with_sidecar(pod("p").init("i"), "s").app("a"));
    assert_eq!(
        waiting_reason(init(&scene.status(), "i")),
        Some("PodInitializing")
    );
    scene.runtime = scene.runtime.running(&scene.pod, "a");
    let status = scene.status();
    let end = state(init(&status, "i")).terminated.as_ref().unwrap();
    assert_eq!(
        (end.exit_code, end.reason.as_deref()),
        (0, Some("Completed"))
    );
    assert_eq!(
        end.message.as_deref(),
        Some(
            "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally"
        )
    );
    assert!(init(&status, "i").ready);
    assert_eq!(waiting_reason(init(&status, "s")), Some("PodInitializing"));
}

/// The row "currently running with lower restartCount" of upstream's TestConvertToAPIContainerStatuses.
#[test]
fn a_restart_count_never_goes_back() {
    let mut scene = scene(pod("p").app("c"));
    scene.previous = Some(PodStatus {
        container_statuses: Some(vec![ContainerStatus {
            restart_count: 5,
            ..said("c", ended(-1))
        }]),
        ..PodStatus::default()
    });
    assert_eq!(
        app(&scene.status(), "c").restart_count,
        5,
        "kept while nothing runs"
    );
    scene.runtime = scene.runtime.running(&scene.pod, "c");
    let status = scene.step();
    let c = app(&status, "c");
    assert_eq!(c.restart_count, 6);
    assert_eq!(c.last_state, Some(ended(-1)));
    assert_eq!(app(&scene.step(), "c").restart_count, 6);
}

/// Upstream makes statuses between syncs only, where no container is merely made; the node conformance suite fails at
/// another reason ("should not start app containers and fail the pod if init containers fail on a RestartNever pod").
#[test]
fn a_container_made_and_not_started_waits_as_one_not_made_yet() {
    for (pod, reason) in [
        (pod("p").app("c"), "ContainerCreating"),
        (pod("p").init("i").app("c"), "PodInitializing"),
    ] {
        let mut scene = scene(pod);
        let specs = ["i", "c"];
        for name in specs {
            scene.runtime = scene
                .runtime
                .with(instance(&scene.pod, name, Seen::Created));
            let status = scene.status();
            let made = [&status.init_container_statuses, &status.container_statuses];
            let mut made = made.into_iter().flatten().flatten();
            assert!(made.all(|status| waiting_reason(status) == Some(reason)));
        }
    }
}

#[test]
fn nobody_is_its_own_predecessor() {
    let mut scene = scene(pod("p").app("c"));
    scene.runtime = scene.runtime.exited(&scene.pod, "c", 1);
    let reason = WaitingReason {
        reason: "CrashLoopBackOff".into(),
        message: String::new(),
    };
    scene.waiting.insert("c".into(), reason);
    assert!(app(&scene.step(), "c").last_state.is_some());
    scene.waiting.clear();
    let status = scene.step();
    assert!(state(app(&status, "c")).terminated.is_some());
    assert_eq!(app(&status, "c").last_state, None);
}

/// Upstream's TestConvertToAPIContainerStatusesForUser.
#[test]
fn a_container_shows_its_user_and_its_stop_signal() {
    let mut scene = scene(pod("p").app("c"));
    scene.runtime = scene.runtime.running(&scene.pod, "c");
    assert_eq!(app(&scene.status(), "c").user, None);
    scene.runtime.containers[0].user = Some(ContainerUser::default());
    let untold = k8s_openapi::api::core::v1::ContainerUser::default();
    assert_eq!(app(&scene.status(), "c").user, Some(untold));
    let c = &mut scene.runtime.containers[0];
    c.user = Some(ContainerUser {
        linux: Some(LinuxContainerUser {
            uid: 0,
            gid: 0,
            supplemental_groups: vec![10],
        }),
    });
    c.stop_signal = Some("SIGUSR1".into());
    let status = scene.status();
    let c = app(&status, "c");
    let linux = c.user.as_ref().unwrap().linux.as_ref().unwrap();
    assert_eq!((linux.uid, linux.gid), (0, 0));
    assert_eq!(linux.supplemental_groups, Some(vec![10]));
    assert_eq!(c.stop_signal.as_deref(), Some("SIGUSR1"));
}

/// Upstream's TestConvertToAPIContainerStatuses... on recursive read-only mounts (resolveRecursiveReadOnly).
#[test]
fn a_container_shows_its_mounts() {
    let mount = |name: &str, recursive: Option<&str>, propagation: Option<&str>| VolumeMount {
        name: name.into(),
        mount_path: format!("/{name}"),
        read_only: (name != "writable").then_some(true),
        recursive_read_only: recursive.map(str::to_owned),
        mount_propagation: propagation.map(str::to_owned),
        ..VolumeMount::default()
    };
    let mounts = vec![
        mount("writable", None, None),
        mount("plain", None, None),
        mount("disabled", Some("Disabled"), None),
        mount("possible", Some("IfPossible"), Some("None")),
        mount("enabled", Some("Enabled"), None),
        mount("propagates", Some("IfPossible"), Some("HostToContainer")),
    ];
    for able in [false, true] {
        let mut scene = scene(pod("p").app_with("c", |c| c.volume_mounts = Some(mounts.clone())));
        scene.handler.recursive_read_only_mounts = able;
        let before = scene.status();
        scene.runtime = scene.runtime.running(&scene.pod, "c");
        let status = scene.status();
        let shown = app(&status, "c").volume_mounts.as_ref().unwrap();
        assert_eq!(
            Some(shown),
            app(&before, "c").volume_mounts.as_ref(),
            "from the first moment"
        );
        assert_eq!(
            (shown[0].mount_path.as_str(), shown[0].read_only),
            ("/writable", None)
        );
        assert_eq!(
            (shown[1].name.as_str(), shown[1].read_only),
            ("plain", Some(true))
        );
        let recursive: Vec<_> = shown
            .iter()
            .map(|m| m.recursive_read_only.as_deref())
            .collect();
        let can = if able { "Enabled" } else { "Disabled" };
        let no = Some("Disabled");
        assert_eq!(recursive, [None, no, no, Some(can), Some(can), no]);
    }
}

#[test]
fn last_words_come_after_what_the_runtime_says() {
    let cases = [
        ("", "", None),
        ("oom", "", Some("oom")),
        ("", "bye", Some("bye")),
        ("oom", "bye", Some("oom: bye")),
    ];
    for (said, words, expected) in cases {
        let mut scene = scene(pod("p").app("c"));
        scene.runtime = scene.runtime.exited(&scene.pod, "c", 1);
        scene.runtime.containers[0].message = said.into();
        scene.last_words = [("c-0".into(), words.to_owned())].into();
        let status = scene.status();
        let end = state(app(&status, "c")).terminated.as_ref().unwrap();
        assert_eq!(end.message.as_deref(), expected);
    }
}

#[test]
fn ephemeral_containers_have_statuses_by_name_that_nothing_depends_on() {
    let debug = |name: &str| EphemeralContainer {
        name: name.into(),
        image: Some("localhost/debug:1".into()),
        ..EphemeralContainer::default()
    };
    let list = vec![debug("e2"), debug("e1")];
    let mut scene = scene(
        pod("p")
            .app("c")
            .spec_with(|s| s.ephemeral_containers = Some(list)),
    );
    scene.runtime = scene
        .runtime
        .running(&scene.pod, "c")
        .running(&scene.pod, "e2");
    let status = scene.status();
    let shown = status.ephemeral_container_statuses.as_ref().unwrap();
    let names: Vec<_> = shown.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["e1", "e2"]);
    assert_eq!(waiting_reason(&shown[0]), Some("ContainerCreating"));
    assert!(state(&shown[1]).running.is_some());
    assert_eq!((shown[1].started, shown[1].ready), (None, false));
    assert_eq!(shown[1].container_id.as_deref(), Some("containerd://e2-0"));
    assert_eq!(status.phase.as_deref(), Some("Running"));
    assert_eq!(condition(&status, "Ready").status, "True");
}

/// Upstream's TestGenerateAPIPodStatusWithDifferentRestartPolicies, in short.
#[test]
fn a_sidecar_that_cannot_start_waits_unless_it_ended_well() {
    let reason = WaitingReason {
        reason: "CrashLoopBackOff".into(),
        message: "why".into(),
    };
    for (exit_code, expected) in [(1, Some("CrashLoopBackOff")), (0, None)] {
        let mut scene = scene(with_sidecar(pod("p"), "s").app("a"));
        scene.runtime = scene.runtime.exited(&scene.pod, "s", exit_code);
        scene.waiting.insert("s".into(), reason.clone());
        assert_eq!(
            waiting_reason(init(&scene.status(), "s")),
            expected,
            "{exit_code}"
        );
    }
}
