//! What a container is asked for with.

use k8s_openapi::api::core::v1::{EnvVar, Lifecycle, SeccompProfile, SecurityContext, VolumeMount};

use super::*;
use crate::objects::StaticObjects;
use crate::sandbox::namespaces;
use crate::testing::*;

/// What the caller adds to the pod's first container.
#[derive(Clone, Copy)]
struct Given<'a> {
    user: &'a ImageUser,
    hosts: Option<&'a str>,
    images: &'a [(&'a str, &'a str)],
}

const NOTHING: Given<'_> = Given {
    user: &ImageUser::Unset,
    hosts: None,
    images: &[],
};

fn made_with(pod: &Pod, given: Given<'_>) -> Result<ContainerConfig, ContainerConfigError> {
    container_config(&ContainerInput {
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
        image_volumes: &words(given.images),
        hosts_file: given.hosts.map(Path::new),
        namespaces: &namespaces(pod),
        target: None,
    })
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
    assert_eq!(mount.origin, Origin::TerminationMessage);
}

#[test]
fn a_container_without_a_place_for_last_words_has_no_mount() {
    let pod = pod("web").app("main");
    assert!(made(&pod).unwrap().mounts.is_empty());
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
    let expected = Mount {
        host_path: file.into(),
        container_path: "/etc/hosts".into(),
        access: Access::ReadWrite,
        origin: Origin::Hosts,
    };
    assert_eq!(config.mounts, [expected]);
    let own = made_with(&mounting(vec![mount("data", "/etc/hosts")]), given).unwrap();
    assert_eq!(own.mounts.len(), 1);
    assert_ne!(own.mounts[0].origin, Origin::Hosts);
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
    let config = made_with(&pod, given).unwrap();
    let expected = [("/data", ""), ("/b", "a/b"), ("/c", "me/$(WHO)")];
    for (mount, (path, sub_path)) in config.mounts.iter().zip(expected) {
        let origin = Origin::Image {
            image: "sha256:2".into(),
            sub_path: sub_path.into(),
        };
        assert_eq!(
            (mount.container_path.as_str(), &mount.origin),
            (path, &origin)
        );
        assert_eq!(mount.access, Access::ReadOnly);
    }
    assert_eq!(config.mounts.len(), 3);
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
