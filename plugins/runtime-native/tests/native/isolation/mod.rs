//! What a container sees and may do: by its configuration, and no more.

mod users;

use std::fs;

use proto::cri::security_profile::ProfileType;
use proto::cri::*;

use crate::rig::Rig;

fn secured(
    mut config: ContainerConfig,
    edit: impl FnOnce(&mut LinuxContainerSecurityContext),
) -> ContainerConfig {
    let mut context = LinuxContainerSecurityContext {
        namespace_options: Some(NamespaceOption {
            network: NamespaceMode::Node.into(),
            pid: NamespaceMode::Container.into(),
            ipc: NamespaceMode::Pod.into(),
            ..Default::default()
        }),
        ..Default::default()
    };
    edit(&mut context);
    let linux = config
        .linux
        .get_or_insert_with(LinuxContainerConfig::default);
    linux.security_context = Some(context);
    config
}

/// Runs a script to its end in a container of its own and returns its log and its code.
async fn outcome(
    rig: &Rig,
    pod: (&str, &PodSandboxConfig),
    name: &str,
    config: ContainerConfig,
) -> (Vec<String>, i32) {
    let id = rig.run(pod, config).await;
    let code = rig.ended(&id).await.exit_code;
    let pod = &pod.1.metadata.as_ref().unwrap().name;
    (rig.log(pod, name), code)
}

#[tokio::test]
async fn a_container_runs_as_its_user_with_its_capabilities_and_nothing_new() {
    let rig = Rig::start().await;
    let pod = rig.pod("a");
    let id = rig.run_pod(&pod).await;
    let script =
        "id -u; id -g; id -G; grep -E 'CapEff|CapBnd|NoNewPrivs|Seccomp:' /proc/self/status";
    let config = secured(rig.container("main", script), |context| {
        context.run_as_user = Some(Int64Value { value: 1000 });
        context.run_as_group = Some(Int64Value { value: 2000 });
        context.supplemental_groups = vec![3000];
        context.no_new_privs = true;
        context.capabilities = Some(Capability {
            drop_capabilities: vec!["ALL".to_owned()],
            add_capabilities: vec!["NET_BIND_SERVICE".to_owned()],
            ..Default::default()
        });
        context.seccomp = Some(SecurityProfile {
            profile_type: ProfileType::RuntimeDefault.into(),
            ..Default::default()
        });
    });
    let (log, code) = outcome(&rig, (&id, &pod), "main", config).await;
    assert_eq!(code, 0, "{log:?}");
    let expected = [
        "1000",
        "2000",
        "2000 3000",
        "CapEff:\t0000000000000000",
        "CapBnd:\t0000000000000400",
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
    ];
    assert_eq!(log, expected);
    rig.remove_pod(&id).await;
    rig.assert_nothing_left().await;
}

#[tokio::test]
async fn the_default_profile_refuses_namespaces_and_mounts() {
    let rig = Rig::start().await;
    let pod = rig.pod("a");
    let id = rig.run_pod(&pod).await;
    let script = "busybox unshare -U true && echo made; busybox mount -t tmpfs t /tmp && echo mounted; echo done";
    let config = secured(rig.container("main", script), |context| {
        context.seccomp = Some(SecurityProfile {
            profile_type: ProfileType::RuntimeDefault.into(),
            ..Default::default()
        });
    });
    let (log, _) = outcome(&rig, (&id, &pod), "main", config).await;
    assert!(log.iter().any(|line| line == "done"), "{log:?}");
    assert!(
        !log.iter().any(|line| line == "made" || line == "mounted"),
        "{log:?}"
    );
    rig.remove_pod(&id).await;
}

#[tokio::test]
async fn a_read_only_root_and_read_only_mounts_cannot_be_written() {
    let rig = Rig::start().await;
    let pod = rig.pod("a");
    let id = rig.run_pod(&pod).await;
    let folder = rig.home.path().join("volume");
    fs::create_dir(&folder).unwrap();
    let script = "touch /x && echo root; touch /ro/x && echo ro; touch /rw/x && echo rw; touch /etc/hosts && echo hosts";
    let mut config = secured(rig.container("main", script), |context| {
        context.readonly_rootfs = true;
    });
    for (path, readonly) in [("/ro", true), ("/rw", false)] {
        config.mounts.push(Mount {
            container_path: path.to_owned(),
            host_path: folder.display().to_string(),
            readonly,
            ..Default::default()
        });
    }
    let (log, _) = outcome(&rig, (&id, &pod), "main", config).await;
    let written: Vec<_> = log
        .iter()
        .filter(|line| ["root", "ro", "rw", "hosts"].contains(&line.as_str()))
        .collect();
    assert_eq!(written, ["rw"], "{log:?}");
    assert!(folder.join("x").exists());
    rig.remove_pod(&id).await;
}

#[tokio::test]
async fn a_containers_limits_are_its_cgroups_and_can_be_changed() {
    let rig = Rig::start().await;
    let pod = rig.pod("a");
    let id = rig.run_pod(&pod).await;
    let mut config = rig.container("main", "sleep 3600");
    let linux = config
        .linux
        .get_or_insert_with(LinuxContainerConfig::default);
    linux.resources = Some(LinuxContainerResources {
        memory_limit_in_bytes: 64 << 20,
        cpu_shares: 512,
        ..Default::default()
    });
    let container = rig.run((&id, &pod), config).await;
    let limit_of = |v1: &str, v2: &str| rig.cgroup_number(&container, v1, v2);
    let memory_limit = || limit_of("memory/memory.limit_in_bytes", "memory.max");
    assert_eq!(memory_limit(), 64 << 20);
    // 512 shares of version 1 are, as a weight, another number with each formula of runc's.
    let cpu = limit_of("cpu/cpu.shares", "cpu.weight");
    assert!([512, 20, 59].contains(&cpu), "{cpu}");
    let stats = rig
        .runtime()
        .container_stats(ContainerStatsRequest {
            container_id: container.clone(),
        })
        .await
        .unwrap()
        .into_inner()
        .stats
        .unwrap();
    let memory = stats.memory.unwrap();
    assert!(memory.usage_bytes.unwrap().value > 0);
    assert!(stats.cpu.unwrap().usage_core_nano_seconds.unwrap().value > 0);
    for limit in [128 << 20, 32 << 20] {
        let request = UpdateContainerResourcesRequest {
            container_id: container.clone(),
            linux: Some(LinuxContainerResources {
                memory_limit_in_bytes: limit,
                ..Default::default()
            }),
            ..Default::default()
        };
        rig.runtime()
            .update_container_resources(request)
            .await
            .unwrap();
        assert_eq!(memory_limit(), limit);
        let resources = rig.status(&container).await.resources.unwrap();
        assert_eq!(resources.linux.unwrap().memory_limit_in_bytes, limit);
    }
    rig.remove_pod(&id).await;
    rig.assert_nothing_left().await;
}

#[tokio::test]
async fn a_container_out_of_memory_says_so() {
    let rig = Rig::start().await;
    let pod = rig.pod("a");
    let id = rig.run_pod(&pod).await;
    let mut config = rig.container("main", "exec busybox tail /dev/zero");
    let linux = config
        .linux
        .get_or_insert_with(LinuxContainerConfig::default);
    linux.resources = Some(LinuxContainerResources {
        memory_limit_in_bytes: 16 << 20,
        ..Default::default()
    });
    let container = rig.run((&id, &pod), config).await;
    let status = rig.ended(&container).await;
    assert_eq!(
        (status.exit_code, status.reason.as_str()),
        (137, "OOMKilled")
    );
    rig.remove_pod(&id).await;
    rig.assert_nothing_left().await;
}

#[tokio::test]
async fn containers_of_a_pod_share_memory_and_name_and_no_processes() {
    let rig = Rig::start().await;
    let pod = rig.pod("a");
    let id = rig.run_pod(&pod).await;
    let one = rig
        .run(
            (&id, &pod),
            rig.container("one", "echo x > /dev/shm/x; sleep 3600"),
        )
        .await;
    let two = rig
        .run((&id, &pod), rig.container("two", "sleep 3600"))
        .await;
    assert_eq!(rig.exec(&two, "cat /dev/shm/x").await.0, "x\n");
    let namespace = |kind: &str| format!("readlink /proc/self/ns/{kind}");
    let (ipc, pid) = (namespace("ipc"), namespace("pid"));
    assert_eq!(rig.exec(&one, &ipc).await, rig.exec(&two, &ipc).await);
    assert_ne!(rig.exec(&one, &pid).await, rig.exec(&two, &pid).await);
    let other = rig.pod("b");
    let other_id = rig.run_pod(&other).await;
    let three = rig
        .run((&other_id, &other), rig.container("three", "sleep 3600"))
        .await;
    assert_ne!(rig.exec(&one, &ipc).await, rig.exec(&three, &ipc).await);
    rig.remove_pod(&id).await;
    rig.remove_pod(&other_id).await;
    rig.assert_nothing_left().await;
}

#[tokio::test]
async fn containers_share_processes_where_the_pod_says_so() {
    let mut rig = Rig::start().await;
    let mut pod = rig.pod("a");
    let linux = pod.linux.as_mut().unwrap();
    let context = linux.security_context.as_mut().unwrap();
    let options = context.namespace_options.as_mut().unwrap();
    options.set_pid(NamespaceMode::Pod);
    let id = rig.run_pod(&pod).await;
    let shared = |config| {
        secured(config, |context| {
            let options = context.namespace_options.as_mut().unwrap();
            options.set_pid(NamespaceMode::Pod);
        })
    };
    let one = rig
        .run((&id, &pod), shared(rig.container("one", "sleep 3601")))
        .await;
    rig.kill_and_restart().await;
    let two = rig
        .run((&id, &pod), shared(rig.container("two", "sleep 3602")))
        .await;
    let (seen, _) = rig.exec(&two, "busybox ps").await;
    for process in ["/pause", "sleep 3601", "sleep 3602"] {
        assert!(seen.contains(process), "{seen}");
    }
    // An orphan is reaped by the pod's first process.
    rig.exec(&one, "(sleep 0.1 &) ; sleep 0.5").await;
    let (states, _) = rig.exec(&one, "cat /proc/[0-9]*/stat").await;
    assert!(!states.contains(") Z "), "{states}");
    rig.remove_pod(&id).await;
    rig.assert_nothing_left().await;
}

#[tokio::test]
async fn a_containers_processes_have_no_descriptors_of_the_runtime() {
    let rig = Rig::start().await;
    let pod = rig.pod("a");
    let id = rig.run_pod(&pod).await;
    let container = rig
        .run((&id, &pod), rig.container("main", "sleep 3600"))
        .await;
    for process in ["1", "self"] {
        let script = format!("for fd in /proc/{process}/fd/*; do readlink $fd; done");
        let (out, _) = rig.exec(&container, &script).await;
        let open: Vec<_> = out.lines().collect();
        // Its log's pipes are files that a successor of the monitor can open again.
        let kinds: Vec<_> = open.iter().map(|path| path.rsplit('/').next()).collect();
        assert_eq!(kinds.len(), 3, "{open:?}");
        let known = [Some("null"), Some("stdin"), Some("stdout"), Some("stderr")];
        let plain = |kind: &Option<&str>| {
            known.contains(kind) || kind.is_some_and(|kind| kind.starts_with("pipe:"))
        };
        assert!(kinds.iter().all(plain), "{open:?}");
    }
    rig.remove_pod(&id).await;
}

#[tokio::test]
async fn the_runtimes_folders_are_roots_alone() {
    use std::os::unix::fs::PermissionsExt;
    let rig = Rig::start().await;
    let pod = rig.pod("a");
    let id = rig.run_pod(&pod).await;
    rig.run((&id, &pod), rig.container("main", "sleep 3600"))
        .await;
    for folder in ["", "sandboxes", "containers", "m", "oci"] {
        let meta = fs::metadata(rig.root().join(folder)).unwrap();
        assert_eq!(meta.permissions().mode() & 0o777, 0o700, "{folder:?}");
    }
    rig.remove_pod(&id).await;
}
