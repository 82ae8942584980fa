//! What a sandbox is asked for with.

use k8s_openapi::api::core::v1::{PodSecurityContext, SELinuxOptions, SecurityContext, Sysctl};
use logic_api::linux::{IdRange, Seccomp};
use logic_api::objects::StaticObjects;
use logic_api::testing::*;
use logic_resources::node::policy::NodePolicy;

use super::*;

fn request(
    pod: &Pod,
    change: impl FnOnce(&mut SandboxInput<'_>),
) -> Result<SandboxRequest, SandboxConfigError> {
    let node = NodePolicy {
        cluster_domain: "cluster.local".into(),
        cluster_dns: vec!["10.96.0.10".into()],
        ..NodePolicy::default()
    };
    let mut input = SandboxInput {
        pod,
        attempt: 3,
        node: &node,
        objects: &StaticObjects::default(),
        resolver: &ResolverConfig::default(),
        users: UserNamespace::Node,
        cgroup_parent: "",
    };
    change(&mut input);
    sandbox_config(&input)
}

fn config(pod: &Pod) -> SandboxConfig {
    request(pod, |_| {}).unwrap().config
}

fn secured(change: impl FnOnce(&mut PodSecurityContext)) -> Pod {
    let mut security = PodSecurityContext::default();
    change(&mut security);
    pod("p")
        .app("c")
        .spec_with(|spec| spec.security_context = Some(security))
}

/// Upstream's TestGeneratePodSandboxConfig and TestCreatePodSandbox (its log directory).
#[test]
fn a_plain_pod_gets_upstreams_sandbox() {
    let made = request(&pod("web").app("c"), |_| {}).unwrap();
    assert!(made.why.is_empty() && made.node_why.is_empty());
    let config = made.config;
    let identity = (config.name.as_str(), config.uid.as_str(), config.attempt);
    assert_eq!(identity, ("web", "web-uid", 3));
    assert_eq!(config.hostname, "web");
    assert_eq!(
        config.log_directory.to_str(),
        Some("/var/log/pods/default_web_web-uid")
    );
    assert_eq!(
        (config.seccomp, config.privileged),
        (Seccomp::RuntimeDefault, false)
    );
    assert_eq!(
        (
            config.cgroup_parent.as_str(),
            config.runtime_handler.as_str()
        ),
        ("", "")
    );
    assert_eq!(config.dns.servers, ["10.96.0.10"]);
    assert_eq!(config.namespaces.users, UserNamespace::Node);
}

#[test]
fn what_was_found_for_the_pod_goes_in() {
    let users = UserNamespace::Pod(IdRange {
        first: 65_536,
        length: 65_536,
    });
    let made = request(&pod("p").app("c"), |input| {
        input.users = users;
        input.cgroup_parent = "/kubepods/podp-uid";
    });
    let config = made.unwrap().config;
    assert_eq!(config.namespaces.users, users);
    assert_eq!(config.cgroup_parent, "/kubepods/podp-uid");
}

/// Upstream's TestNamespacesForPod, TestIpcNamespaceForPod, TestPidNamespaceForPod and
/// TestNetworkNamespaceForPod.
#[test]
fn namespaces_follow_the_spec() {
    use logic_api::linux::NamespaceMode::{Container, Node, Pod as Shared};
    let cases = [
        (false, false, false, false, (Shared, Container, Shared)),
        (true, false, false, false, (Node, Container, Shared)),
        (false, true, false, true, (Shared, Node, Shared)),
        (false, true, true, false, (Shared, Node, Node)),
        (false, false, true, true, (Shared, Shared, Node)),
        (true, true, true, false, (Node, Node, Node)),
    ];
    for (network, pid, ipc, share, expected) in cases {
        let pod = pod("p").app("c").spec_with(|spec| {
            spec.host_network = Some(network);
            spec.host_pid = Some(pid);
            spec.host_ipc = Some(ipc);
            spec.share_process_namespace = Some(share);
        });
        let config = config(&pod);
        let modes = config.namespaces;
        assert_eq!((modes.network, modes.pid, modes.ipc), expected);
        assert_eq!(config.hostname.is_empty(), network);
    }
}

/// Upstream's TestGeneratePodSandboxLinuxConfigSeccomp.
#[test]
fn the_sandbox_itself_always_runs_under_the_runtimes_profile() {
    use k8s_openapi::api::core::v1::SeccompProfile;
    let profile = |kind: &str| SeccompProfile {
        type_: kind.into(),
        localhost_profile: None,
    };
    for kind in ["Unconfined", "RuntimeDefault"] {
        let pod = secured(|s| s.seccomp_profile = Some(profile(kind)));
        assert_eq!(config(&pod).seccomp, Seccomp::RuntimeDefault);
    }
}

#[test]
fn the_pods_security_reaches_the_sandbox() {
    let sysctl = |name: &str| Sysctl {
        name: name.into(),
        value: "1".into(),
    };
    let pod = secured(|s| {
        s.sysctls = Some(vec![sysctl("kernel.shm"), sysctl("net/ipv4/conf/eth0.1/x")]);
        s.run_as_user = Some(5);
        s.run_as_group = Some(7);
        s.fs_group = Some(6);
        s.supplemental_groups = Some(vec![8, 9]);
        s.supplemental_groups_policy = Some("Strict".into());
        s.se_linux_options = Some(SELinuxOptions {
            level: Some("s0".into()),
            ..SELinuxOptions::default()
        });
    });
    let config = config(&pod);
    let names: Vec<_> = config.sysctls.keys().map(String::as_str).collect();
    assert_eq!(names, ["kernel.shm", "net.ipv4.conf.eth0/1.x"]);
    assert_eq!(
        (config.run_as_user, config.run_as_group),
        (Some(5), Some(7))
    );
    assert_eq!(config.supplemental_groups, [6, 8, 9]);
    assert_eq!(config.groups_policy, GroupsPolicy::Strict);
    assert_eq!(config.se_linux.unwrap().level, "s0");
    assert!(!config.privileged);
}

/// Upstream's TestHasPrivilegedContainer, of app and of init containers.
#[test]
fn one_privileged_container_makes_the_sandbox_so() {
    let context = |privileged| {
        Some(SecurityContext {
            privileged,
            ..SecurityContext::default()
        })
    };
    let cases = [
        (None, false),
        (context(None), false),
        (context(Some(false)), false),
        (context(Some(true)), true),
    ];
    for (context, expected) in cases {
        let app = pod("p")
            .app("a")
            .app_with("b", |c| c.security_context.clone_from(&context));
        let init = pod("p").init("a").app("b").spec_with(|spec| {
            spec.init_containers.as_mut().unwrap()[0].security_context = context.clone();
        });
        for pod in [app, init] {
            assert_eq!(config(&pod).privileged, expected, "{context:?}");
        }
    }
}

#[test]
fn what_cannot_be_asked_for_is_refused_in_upstreams_words() {
    let told = |pod: &Pod| {
        let error = request(pod, |_| {}).unwrap_err();
        let message = creation_failed(&error.to_string()).message;
        let text = message
            .strip_prefix("Failed to create pod sandbox: ")
            .unwrap();
        (text.to_owned(), error.transient())
    };
    let classless = pod("p").spec_with(|spec| spec.runtime_class_name = Some("none".into()));
    let expected = r#"runtimeclass.node.k8s.io "none" not found"#.to_owned();
    assert_eq!(told(&classless), (expected, false));
    let odd = secured(|s| s.supplemental_groups_policy = Some("Odd".into()));
    let expected = "unsupported supplementalGroupsPolicy: Odd".to_owned();
    assert_eq!(told(&odd), (expected, false));
    let long = pod("p").spec_with(|spec| {
        spec.subdomain = Some("x".repeat(60));
        spec.set_hostname_as_fqdn = Some(true);
    });
    assert!(
        told(&long)
            .0
            .starts_with("failed to construct FQDN from pod hostname")
    );
}
