//! What a container is asked for with.

use k8s_openapi::api::core::v1::{
    EnvVar, ImageVolumeSource, Lifecycle, SeccompProfile, SecurityContext, Volume, VolumeMount,
};
use logic_api::objects::StaticObjects;
use logic_api::testing::*;
use logic_volumes::{MountedVolume, Relabel, VolumeMode};

use logic_placement::devices::ContainerDevices;

use super::*;
use crate::sandbox::namespaces;

/// What the caller adds to the pod's first container.
#[derive(Clone, Copy)]
struct Given<'a> {
    user: &'a ImageUser,
    hosts: Option<&'a str>,
    images: &'a [(&'a str, &'a str)],
    volumes: Option<&'a MountedVolumes>,
    subpaths: Option<&'a PreparedSubpaths>,
    features: HandlerFeatures,
    claims: &'a [String],
    devices: Option<&'a ContainerDevices>,
}

const NOTHING: Given<'_> = Given {
    user: &ImageUser::Unset,
    hosts: None,
    images: &[],
    volumes: None,
    subpaths: None,
    features: HandlerFeatures {
        recursive_read_only_mounts: false,
        user_namespaces: false,
    },
    claims: &[],
    devices: None,
};

fn made_with(pod: &Pod, given: Given<'_>) -> Result<ContainerConfig, ContainerConfigError> {
    with_input(pod, given, container_config)
}

fn with_input<T>(pod: &Pod, given: Given<'_>, make: impl Fn(&ContainerInput<'_>) -> T) -> T {
    make(&ContainerInput {
        pod,
        container: &pod.app_containers()[0],
        kind: ContainerKind::App,
        restart_count: 2,
        image: "sha256:1",
        image_user: given.user,
        pod_ips: &[],
        node: &NodePolicy::default(),
        objects: &StaticObjects::default(),
        env_files: &EnvFiles::default(),
        image_volumes: &string_map(given.images),
        volumes: &given.volumes.cloned().unwrap_or_default(),
        subpaths: &given.subpaths.cloned().unwrap_or_default(),
        features: given.features,
        hosts_file: given.hosts.map(Path::new),
        namespaces: &namespaces(pod),
        target: None,
        placement: &ContainerPlacement::default(),
        claim_devices: given.claims,
        plugin_devices: given.devices,
    })
}

/// Upstream's GetResources of cm/container_manager_linux.go: those of claims come first.
#[test]
fn devices_of_claims_and_of_plugins_are_named_to_the_runtime() {
    let web = pod("web").app("c");
    let claims = ["vendor.com/gpu=0".to_owned()];
    let devices = ContainerDevices {
        cdi_devices: vec!["vendor.com/nic=1".to_owned()],
        ..ContainerDevices::default()
    };
    let given = Given {
        claims: &claims,
        ..NOTHING
    };
    let made = made_with(&web, given).unwrap();
    assert_eq!(made.cdi_devices, ["vendor.com/gpu=0"]);
    let given = Given {
        claims: &claims,
        devices: Some(&devices),
        ..NOTHING
    };
    let made = made_with(&web, given).unwrap();
    assert_eq!(made.cdi_devices, ["vendor.com/gpu=0", "vendor.com/nic=1"]);
}

/// The configuration of a container with these devices.
pub(super) fn made_with_devices(
    pod: &Pod,
    devices: &ContainerDevices,
) -> Result<ContainerConfig, ContainerConfigError> {
    let devices = Some(devices);
    made_with(pod, Given { devices, ..NOTHING })
}

fn made(pod: &Pod) -> Result<ContainerConfig, ContainerConfigError> {
    made_with(pod, NOTHING)
}

/// Upstream's TestGenerateContainerConfig and TestExpandCommandAndArgs.
#[test]
fn a_container_gets_upstreams_config() {
    let pod = pod("web").app_with("main", |c| {
        c.command = Some(vec!["run".into(), "$(WHO)".into(), "$(NOBODY)".into()]);
        c.args = Some(vec!["$$(WHO)".into()]);
        c.env = Some(vec![EnvVar {
            name: "WHO".into(),
            value: Some("me".into()),
            value_from: None,
        }]);
        c.working_dir = Some("/work".into());
        c.termination_message_path = Some("/dev/termination-log".into());
        c.tty = Some(true);
        c.lifecycle = Some(Lifecycle {
            stop_signal: Some("SIGUSR1".into()),
            ..Lifecycle::default()
        });
    });
    let config = made(&pod).unwrap();
    assert_eq!((config.name.as_str(), config.attempt), ("main", 2));
    assert_eq!(
        (config.image.as_str(), config.image_user_spec.as_str()),
        ("sha256:1", "localhost/main:1")
    );
    assert_eq!(config.command, ["run", "me", "$(NOBODY)"]);
    assert_eq!(config.args, ["$(WHO)"]);
    assert_eq!(config.log_path, Path::new("main/2.log"));
    assert_eq!(
        (config.stdin, config.stdin_once, config.tty),
        (false, false, true)
    );
    assert_eq!(config.stop_signal.as_deref(), Some("SIGUSR1"));
    assert_eq!(
        config.annotations["io.kubernetes.container.restartCount"],
        "2"
    );
    let mount = &config.mounts[0];
    let file = Path::new("/var/lib/kubelet/pods/web-uid/containers/main/00000002");
    assert_eq!(
        (mount.host_path.as_path(), mount.container_path.as_str()),
        (file, "/dev/termination-log")
    );
    assert_eq!(mount.origin, MountOrigin::TerminationMessage);
}

#[test]
fn a_container_without_a_place_for_last_words_has_no_mount() {
    let pod = pod("web").app("main");
    assert!(made(&pod).unwrap().mounts.is_empty());
}

/// Upstream's TestStartSpec.
#[test]
fn a_debug_container_joins_the_one_that_it_names_or_is_not_made() {
    use k8s_openapi::api::core::v1::EphemeralContainer;
    let debug = |name: &str, target: Option<&str>| EphemeralContainer {
        name: name.into(),
        target_container_name: target.map(str::to_owned),
        ..EphemeralContainer::default()
    };
    let pod = pod("p").app("test").spec_with(|spec| {
        spec.ephemeral_containers = Some(vec![
            debug("plain", None),
            debug("empty", Some("")),
            debug("joined", Some("target")),
            debug("lost", Some("nobody")),
        ]);
    });
    let newest = [("target".to_owned(), ContainerId::from("something"))].into();
    let found = |name: &str| {
        let found = target(&pod, name, &newest);
        found
            .map(|id| id.map(ContainerId::as_str))
            .map_err(|error| (error.message(), error.transient()))
    };
    for name in ["test", "plain", "empty"] {
        assert_eq!(found(name), Ok(None), "{name}");
    }
    assert_eq!(found("joined"), Ok(Some("something")));
    let missing = "unable to find target container nobody".to_owned();
    assert_eq!(found("lost"), Err((missing, true)));
}

#[test]
fn what_cannot_be_asked_for_says_why() {
    let profile = SeccompProfile {
        type_: "Localhost".into(),
        localhost_profile: None,
    };
    let context = SecurityContext {
        seccomp_profile: Some(profile),
        ..SecurityContext::default()
    };
    let pod = pod("web").app_with("main", |c| c.security_context = Some(context));
    let error = made(&pod).unwrap_err();
    assert_eq!(
        error.to_string(),
        "container main: security context cannot be honoured"
    );
    assert_eq!(
        error.message(),
        "localhostProfile must be set if seccompProfile type is Localhost."
    );
    assert!(!error.transient());
}

/// Upstream's TestGenerateContainerConfig: run as non-root.
#[test]
fn an_image_that_would_run_as_root_is_refused_where_it_must_not() {
    let pod = pod("web").app_with("main", |c| {
        c.security_context = Some(SecurityContext {
            run_as_non_root: Some(true),
            ..SecurityContext::default()
        });
    });
    let named = ImageUser::Name("test".into());
    for user in [&ImageUser::Unset, &named] {
        assert!(
            made_with(&pod, Given { user, ..NOTHING }).is_err(),
            "{user:?}"
        );
    }
    let user = &ImageUser::Uid(7);
    let config = made_with(&pod, Given { user, ..NOTHING }).unwrap();
    assert_eq!(config.security.run_as_user, Some(7));
}

fn mounting(mounts: Vec<VolumeMount>) -> Pod {
    pod("web").app_with("main", |c| c.volume_mounts = Some(mounts))
}

fn mount(name: &str, path: &str) -> VolumeMount {
    VolumeMount {
        name: name.into(),
        mount_path: path.into(),
        ..VolumeMount::default()
    }
}

/// Upstream's TestMakeMounts: the hosts file.
#[test]
fn the_hosts_file_is_mounted_unless_the_container_mounts_one() {
    let file = "/var/lib/kubelet/pods/web-uid/etc-hosts";
    let images: &[(&str, &str)] = &[("data", "sha256:2")];
    let given = Given {
        hosts: Some(file),
        images,
        ..NOTHING
    };
    let config = made_with(&mounting(vec![]), given).unwrap();
    let expected = ContainerMount {
        host_path: file.into(),
        container_path: "/etc/hosts".into(),
        access: MountAccess::ReadWrite,
        propagation: MountPropagation::Private,
        relabel: Relabel::No,
        origin: MountOrigin::Hosts,
    };
    assert_eq!(config.mounts, [expected]);
    let own = made_with(&mounting(vec![mount("data", "/etc/hosts")]), given).unwrap();
    assert_eq!(own.mounts.len(), 1);
    assert_ne!(own.mounts[0].origin, MountOrigin::Hosts);
    assert!(made(&mounting(vec![])).unwrap().mounts.is_empty());
}

/// Upstream's TestMakeMounts: image volumes.
#[test]
fn an_image_is_mounted_read_only_and_by_its_sub_path() {
    let images: &[(&str, &str)] = &[("data", "sha256:2")];
    let given = Given { images, ..NOTHING };
    let plain = mount("data", "data");
    let within = VolumeMount {
        sub_path: Some("a/b".into()),
        read_only: Some(false),
        ..mount("data", "/b")
    };
    let by_name = VolumeMount {
        sub_path_expr: Some("$(WHO)/$$(WHO)".into()),
        ..mount("data", "/c")
    };
    let mut pod = mounting(vec![plain, within, by_name]);
    pod.spec.as_mut().unwrap().containers[0].env = Some(vec![EnvVar {
        name: "WHO".into(),
        value: Some("me".into()),
        value_from: None,
    }]);
    pod.spec.as_mut().unwrap().volumes = Some(vec![Volume {
        name: "data".into(),
        image: Some(ImageVolumeSource {
            reference: Some("localhost/data:1".into()),
            pull_policy: None,
        }),
        ..Volume::default()
    }]);
    let config = made_with(&pod, given).unwrap();
    let expected = [("/data", ""), ("/b", "a/b"), ("/c", "me/$(WHO)")];
    for (mount, (path, sub_path)) in config.mounts.iter().zip(expected) {
        let origin = MountOrigin::Image {
            image: "sha256:2".into(),
            user_spec: "localhost/data:1".into(),
            sub_path: sub_path.into(),
        };
        assert_eq!(
            (mount.container_path.as_str(), &mount.origin),
            (path, &origin)
        );
        assert_eq!(mount.access, MountAccess::ReadOnly);
    }
    assert_eq!(config.mounts.len(), 3);
}

/// A variable of a hundred thousand bytes, and what each field makes of it.
#[test]
fn what_is_expanded_ends_at_the_kernels_bounds() {
    let variable = |name: &str, value: String| EnvVar {
        name: name.into(),
        value: Some(value),
        value_from: None,
    };
    let big = || variable("B", "b".repeat(100_000));
    let thousand = || "$(B)".repeat(1_000);
    type Change = fn(&mut core::Container, String);
    let cases: [(Change, &str); 5] = [
        (
            |c, thousand| c.args = Some(vec![thousand; 50]),
            "args[0] is too long: reached 200001 bytes, at most 131072 can be passed to a program",
        ),
        (
            |c, thousand| c.command = Some(vec!["a".into(), thousand]),
            "command[1] is too long: reached 200001 bytes, at most 131072 can be passed to a program",
        ),
        (
            |c, _| c.args = Some(vec!["$(B)".into(); 50]),
            "environment and arguments up to args[19] are too long: \
             reached 2100191 bytes, at most 2097152 can be passed to a program",
        ),
        (
            |c, _| c.args = Some(vec!["c".repeat(131_072)]),
            "args[0] is too long: reached 131073 bytes, at most 131072 can be passed to a program",
        ),
        (
            |c, thousand| {
                c.volume_mounts = Some(vec![VolumeMount {
                    sub_path_expr: Some(thousand),
                    ..mount("data", "/d")
                }]);
            },
            "subPathExpr of volumeMount \"data\" is too long: \
             reached 100000 bytes, at most 4095 are a path",
        ),
    ];
    for (change, expected) in cases {
        let mut pod = mounting(Vec::new());
        pod.spec.as_mut().unwrap().volumes = Some(vec![Volume {
            name: "data".into(),
            ..Volume::default()
        }]);
        let container = &mut pod.spec.as_mut().unwrap().containers[0];
        container.env = Some(vec![big()]);
        change(container, thousand());
        let access = logic_volumes::VolumeAccess::ReadWrite;
        let volumes = mounted("data", access, VolumeMode::FileSystem);
        let given = Given {
            volumes: Some(&volumes),
            ..NOTHING
        };
        let refused = made_with(&pod, given).unwrap_err();
        assert_eq!(refused.message(), expected);
        assert!(refused.transient() || expected.starts_with("subPathExpr"));
    }
}

/// Upstream's TestMakeMounts and TestExpandVolumeMountsWithSubpath: what is refused.
#[test]
fn a_mount_that_cannot_be_says_why() {
    let with = |sub_path: &str, expression: &str| VolumeMount {
        sub_path: Some(sub_path.into()),
        sub_path_expr: Some(expression.into()),
        ..mount("data", "/d")
    };
    let cases = [
        (
            mount("none", "/d"),
            "cannot find volume \"none\" to mount into container \"main\"",
        ),
        (
            with("/etc", ""),
            "error SubPath `/etc` must not be an absolute path",
        ),
        (
            with("a/../../b", ""),
            "unable to provision SubPath `a/../../b`: must not contain '..'",
        ),
        (
            with("", "$(NOBODY)/$(EMPTY)"),
            "missing value for EMPTY, NOBODY",
        ),
    ];
    let images: &[(&str, &str)] = &[("data", "sha256:2")];
    for (mount, expected) in cases {
        let error = made_with(&mounting(vec![mount]), Given { images, ..NOTHING }).unwrap_err();
        assert_eq!(error.message(), expected);
    }
}

fn mounted(name: &str, access: logic_volumes::VolumeAccess, mode: VolumeMode) -> MountedVolumes {
    let volume = MountedVolume {
        path: format!("/pods/u/volumes/{name}").into(),
        mode,
        access,
        relabel: Relabel::Yes,
    };
    MountedVolumes {
        volumes: [(name.to_owned(), volume)].into(),
    }
}

type SecurityRow<'a> = (bool, Option<&'a str>, Option<&'a str>);

/// Access and propagation of a mount that asks so, on a runtime that can or cannot mount recursively read-only.
fn shared(
    (read_only, recursive, propagation): SecurityRow<'_>,
    volume: logic_volumes::VolumeAccess,
    recursive_read_only_mounts: bool,
) -> Result<(MountAccess, MountPropagation), String> {
    let asked = VolumeMount {
        read_only: Some(read_only),
        recursive_read_only: recursive.map(str::to_owned),
        mount_propagation: propagation.map(str::to_owned),
        ..mount("data", "data")
    };
    let volumes = mounted("data", volume, VolumeMode::FileSystem);
    let given = Given {
        volumes: Some(&volumes),
        features: HandlerFeatures {
            recursive_read_only_mounts,
            user_namespaces: false,
        },
        ..NOTHING
    };
    let made = made_with(&mounting(vec![asked]), given);
    let made = made.map(|config| (config.mounts[0].access, config.mounts[0].propagation));
    made.map_err(|error| error.message())
}

/// Upstream's TestMakeMounts.
#[test]
fn a_volume_is_mounted_as_the_container_asks_and_as_the_volume_allows() {
    use MountPropagation::{Bidirectional, HostToContainer, Private};
    use logic_volumes::VolumeAccess::{ReadOnly, ReadWrite};
    let none = Some("None");
    let cases: [(SecurityRow<'_>, _, _); 5] = [
        (
            (false, None, None),
            ReadWrite,
            (MountAccess::ReadWrite, Private),
        ),
        (
            (false, None, none),
            ReadOnly,
            (MountAccess::ReadOnly, Private),
        ),
        (
            (true, None, Some("Bidirectional")),
            ReadWrite,
            (MountAccess::ReadOnly, Bidirectional),
        ),
        (
            (false, None, Some("HostToContainer")),
            ReadWrite,
            (MountAccess::ReadWrite, HostToContainer),
        ),
        (
            (true, Some("Disabled"), None),
            ReadWrite,
            (MountAccess::ReadOnly, Private),
        ),
    ];
    for (asked, volume, expected) in cases {
        assert_eq!(shared(asked, volume, true), Ok(expected), "{asked:?}");
    }
    let unknown = "invalid MountPropagation mode: \"Up\"".to_owned();
    assert_eq!(
        shared((true, None, Some("Up")), ReadWrite, true),
        Err(unknown)
    );
}

/// Upstream's TestResolveRecursiveReadOnly.
#[test]
fn a_mount_is_recursively_read_only_where_asked_and_possible() {
    use logic_volumes::VolumeAccess::ReadWrite;
    let (enabled, both) = (Some("Enabled"), Some("Bidirectional"));
    let ok = |access| Ok((access, MountPropagation::Private));
    let no = |why: &str| {
        let asked = "volume \"data\" requested recursive read-only mode, but it is";
        Err(format!(
            "failed to resolve recursive read-only mode: {asked} {why}"
        ))
    };
    let odd =
        "failed to resolve recursive read-only mode: unknown recursive read-only mode \"Perhaps\"";
    let cases: [(SecurityRow<'_>, bool, _); 7] = [
        (
            (true, Some("IfPossible"), None),
            false,
            ok(MountAccess::ReadOnly),
        ),
        (
            (true, Some("IfPossible"), None),
            true,
            ok(MountAccess::RecursiveReadOnly),
        ),
        (
            (true, enabled, None),
            true,
            ok(MountAccess::RecursiveReadOnly),
        ),
        (
            (true, enabled, None),
            false,
            no("not supported by the runtime"),
        ),
        ((false, enabled, None), true, no("not read-only")),
        (
            (true, enabled, both),
            true,
            no("not compatible with propagation \"Bidirectional\""),
        ),
        ((true, Some("Perhaps"), None), true, Err(odd.to_owned())),
    ];
    for (asked, can, expected) in cases {
        assert_eq!(shared(asked, ReadWrite, can), expected, "{asked:?}");
    }
}

/// Upstream's TestMakeMounts and TestExpandVolumeMountsWithSubpath.
#[test]
fn a_path_within_a_volume_is_prepared_before_it_is_mounted() {
    let within = VolumeMount {
        sub_path_expr: Some("$(WHO)/logs".into()),
        ..mount("data", "/logs")
    };
    let mut pod = mounting(vec![mount("data", "/all"), within]);
    pod.spec.as_mut().unwrap().containers[0].env = Some(vec![EnvVar {
        name: "WHO".into(),
        value: Some("me".into()),
        value_from: None,
    }]);
    let volumes = mounted(
        "data",
        logic_volumes::VolumeAccess::ReadOnly,
        VolumeMode::FileSystem,
    );
    let given = Given {
        volumes: Some(&volumes),
        ..NOTHING
    };
    let asked = with_input(&pod, given, subpaths).unwrap();
    let expected = Subpath {
        volume: "data".into(),
        index: 1,
        path: "me/logs".into(),
        access: logic_volumes::VolumeAccess::ReadOnly,
    };
    assert_eq!(asked, [expected]);
    let error = made_with(&pod, given).unwrap_err();
    assert_eq!(
        error.message(),
        "failed to prepare subPath for volumeMount \"data\" of container \"main\""
    );
    let prepared = [(1, "/pods/u/volume-subpaths/data/main/1".into())].into();
    let config = made_with(
        &pod,
        Given {
            subpaths: Some(&prepared),
            ..given
        },
    )
    .unwrap();
    let paths: Vec<_> = config
        .mounts
        .iter()
        .map(|mount| mount.host_path.to_str().unwrap())
        .collect();
    assert_eq!(
        paths,
        [
            "/pods/u/volumes/data",
            "/pods/u/volume-subpaths/data/main/1"
        ]
    );
}

/// Upstream's TestMakeBlockVolumes.
#[test]
fn a_raw_device_is_passed_with_the_rights_that_its_volume_allows() {
    use logic_volumes::VolumeAccess::{ReadOnly, ReadWrite};
    let device = |path: &str| {
        pod("web").app_with("main", |c| {
            c.volume_devices = Some(vec![k8s_openapi::api::core::v1::VolumeDevice {
                name: "disk".into(),
                device_path: path.into(),
            }]);
        })
    };
    let of = |pod: &Pod, volumes: &MountedVolumes| {
        let given = Given {
            volumes: Some(volumes),
            ..NOTHING
        };
        let made = made_with(pod, given).map(|config| config.devices);
        made.map_err(|error| error.message())
    };
    for (access, permissions) in [(ReadWrite, "mrw"), (ReadOnly, "r")] {
        let made = of(
            &device("/dev/sda"),
            &mounted("disk", access, VolumeMode::Block),
        )
        .unwrap();
        assert_eq!(made[0].permissions, permissions);
        assert_eq!(made[0].container_path, "/dev/sda");
    }
    let missing = "cannot find volume \"disk\" to pass into container \"main\"";
    let plain = mounted("disk", ReadWrite, VolumeMode::FileSystem);
    assert_eq!(of(&device("/dev/sda"), &plain), Err(missing.to_owned()));
    let relative = "error DevicePath `sda` must be an absolute path";
    assert_eq!(of(&device("sda"), &plain), Err(relative.to_owned()));
}
