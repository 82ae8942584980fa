//! A pod's host name, and the lines of its managed hosts file (upstream's kubelet_pods.go and
//! pkg/kubelet/util at v1.36).

use std::fmt::Write;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::{Container, HostAlias, Pod};
use logic_api::pod::PodView;
use logic_api::pod::labels;
use logic_resources::node::policy::NodePolicy;
use thiserror::Error;

/// The path of the hosts file, in a container and on the node.
pub const PATH: &str = "/etc/hosts";
/// The managed file's permission bits.
pub const MODE: u32 = 0o644;

/// The kernel takes 64 characters; a label has one less.
const MAX_NAME_LENGTH: usize = 63;
/// Characters of a host name with its domain (`setHostnameAsFQDN`): the kernel takes 64.
const MAX_FULL_NAME_LENGTH: usize = 64;

/// A pod's host name and domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostName {
    /// Without the domain.
    pub name: String,
    /// Empty without a subdomain.
    pub domain: String,
}

/// Why a pod has no host name.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum HostNameError {
    #[error("pod {field} {value:?} is not a valid DNS {kind}: {why}")]
    Malformed {
        field: &'static str,
        value: String,
        kind: &'static str,
        why: String,
    },
    #[error("hostname for pod {pod:?} was invalid: {name:?}")]
    Nothing { pod: String, name: String },
    #[error(
        "failed to construct FQDN from pod hostname and cluster domain, FQDN {name} is too long ({MAX_FULL_NAME_LENGTH} characters is the max, {length} characters requested)"
    )]
    TooLong { name: String, length: usize },
}

/// A pod's name and domain: from `hostnameOverride`, `hostname` and `subdomain`, or its own name.
pub fn host_name(pod: &Pod, cluster_domain: &str) -> Result<HostName, HostNameError> {
    let spec = pod.spec();
    if let Some(name) = spec.and_then(|spec| spec.hostname_override.as_ref()) {
        check("HostnameOverride", name, HostNamePart::Subdomain)?;
        return Ok(HostName {
            name: cut(pod, name)?,
            domain: String::new(),
        });
    }
    let given = |text: Option<&String>| text.filter(|text| !text.is_empty()).cloned();
    let name = match given(spec.and_then(|spec| spec.hostname.as_ref())) {
        Some(name) => {
            check("Hostname", &name, HostNamePart::Label)?;
            name
        }
        None => pod.name().to_owned(),
    };
    let name = cut(pod, &name)?;
    let domain = match given(spec.and_then(|spec| spec.subdomain.as_ref())) {
        Some(subdomain) => {
            check("Subdomain", &subdomain, HostNamePart::Label)?;
            format!("{subdomain}.{}.svc.{cluster_domain}", pod.namespace())
        }
        None => String::new(),
    };
    Ok(HostName { name, domain })
}

/// The host name that the kernel gets: the name, or with `setHostnameAsFQDN` the name with its domain.
pub fn kernel_name(pod: &Pod, host: &HostName) -> Result<String, HostNameError> {
    let full = pod
        .spec()
        .is_some_and(|spec| spec.set_hostname_as_fqdn == Some(true));
    if !full || host.domain.is_empty() {
        return Ok(host.name.clone());
    }
    let name = format!("{}.{}", host.name, host.domain);
    match name.len() {
        length if length > MAX_FULL_NAME_LENGTH => Err(HostNameError::TooLong { name, length }),
        _ => Ok(name),
    }
}

fn cut(pod: &Pod, name: &str) -> Result<String, HostNameError> {
    if name.len() <= MAX_NAME_LENGTH {
        return Ok(name.to_owned());
    }
    let mut short = name.to_owned();
    labels::truncate(&mut short, MAX_NAME_LENGTH);
    short.truncate(short.trim_end_matches(['-', '.']).len());
    if short.is_empty() {
        return Err(HostNameError::Nothing {
            pod: pod.name().to_owned(),
            name: name.to_owned(),
        });
    }
    Ok(short)
}

#[derive(Clone, Copy)]
enum HostNamePart {
    Label,
    Subdomain,
}

fn check(field: &'static str, value: &str, kind: HostNamePart) -> Result<(), HostNameError> {
    use logic_api::text::names;
    let (kind, complaints) = match kind {
        HostNamePart::Label => ("label", names::label(value)),
        HostNamePart::Subdomain => ("subdomain", names::subdomain(value)),
    };
    if complaints.is_empty() {
        return Ok(());
    }
    Err(HostNameError::Malformed {
        field,
        value: value.to_owned(),
        kind,
        why: complaints.join(";"),
    })
}

/// Whether a container gets the managed file: the pod has an address, and no volume lies in its place.
pub fn is_mounted(pod: &Pod, container: &Container, pod_ips: &[String]) -> bool {
    let mut mounts = container.volume_mounts.iter().flatten();
    let covered = mounts.any(|mount| mount.mount_path == PATH);
    (pod.host_network() || !pod_ips.is_empty()) && !covered
}

/// `ROOT/pods/UID/etc-hosts`. A UID that is no plain name leads nowhere else.
pub fn file(node: &NodePolicy, pod: &Pod) -> PathBuf {
    let uid = pod.uid().as_str().replace('/', "_");
    node.root_dir.join("pods").join(uid).join("etc-hosts")
}

/// The file of a pod with a network of its own.
pub fn managed(pod: &Pod, host: &HostName, pod_ips: &[String]) -> String {
    let HostName { name, domain } = host;
    let mut text = String::from(
        "# Kubernetes-managed hosts file.\n\
         127.0.0.1\tlocalhost\n\
         ::1\tlocalhost ip6-localhost ip6-loopback\n\
         fe00::0\tip6-localnet\n\
         fe00::0\tip6-mcastprefix\n\
         fe00::1\tip6-allnodes\n\
         fe00::2\tip6-allrouters\n",
    );
    for ip in pod_ips {
        text += &match domain.as_str() {
            "" => format!("{ip}\t{name}\n"),
            domain => format!("{ip}\t{name}.{domain}\t{name}\n"),
        };
    }
    text + &aliases(pod)
}

/// The file of a pod on the node's network: the node's own file, which need not be text, and the aliases.
pub fn of_node(pod: &Pod, node_file: &[u8]) -> Vec<u8> {
    let header: &[u8] = b"# Kubernetes-managed hosts file (host network).\n";
    [header, node_file, aliases(pod).as_bytes()].concat()
}

fn aliases(pod: &Pod) -> String {
    let listed = pod.spec().and_then(|spec| spec.host_aliases.as_deref());
    let listed = listed.unwrap_or_default();
    if listed.is_empty() {
        return String::new();
    }
    let mut text = String::from("\n# Entries added by HostAliases.\n");
    for HostAlias { ip, hostnames } in listed {
        let names = hostnames.as_deref().unwrap_or_default().join("\t");
        // Writing to a string does not fail.
        let _written = writeln!(text, "{ip}\t{names}");
    }
    text
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{PodSpec, VolumeMount};
    use logic_api::testing::*;

    use super::*;

    type SpecChange = fn(&mut PodSpec);

    fn named(change: SpecChange) -> Result<(HostName, String), HostNameError> {
        let pod = pod("test-pod").spec_with(change);
        let host = host_name(&pod, "kubernetes.test")?;
        let kernel = kernel_name(&pod, &host)?;
        Ok((host, kernel))
    }

    /// Upstream's TestGeneratePodHostNameAndDomain, TestGetNodenameForKernel and
    /// TestTruncatePodHostname.
    #[test]
    fn host_names_come_from_the_spec_and_fit_the_kernel() {
        let long: SpecChange = |s| s.hostname = Some(format!("{}-y", "x".repeat(61)));
        let x61 = "x".repeat(61) + "-y";
        let cases: [(SpecChange, &str, &str, &str); 10] = [
            (|_| {}, "test-pod", "", "test-pod"),
            (|s| s.hostname = Some("foo".into()), "foo", "", "foo"),
            (long, &x61, "", &x61),
            (
                |s| s.subdomain = Some("sub".into()),
                "test-pod",
                "sub.default.svc.kubernetes.test",
                "test-pod",
            ),
            (
                |s| {
                    s.hostname = Some("foo".into());
                    s.subdomain = Some("sub".into());
                    s.set_hostname_as_fqdn = Some(true);
                },
                "foo",
                "sub.default.svc.kubernetes.test",
                "foo.sub.default.svc.kubernetes.test",
            ),
            (
                |s| s.set_hostname_as_fqdn = Some(true),
                "test-pod",
                "",
                "test-pod",
            ),
            (
                |s| {
                    s.hostname_override = Some("override".into());
                    s.subdomain = Some("ignored".into());
                    s.set_hostname_as_fqdn = Some(true);
                },
                "override",
                "",
                "override",
            ),
            (
                |s| s.hostname_override = Some("a.b.c".into()),
                "a.b.c",
                "",
                "a.b.c",
            ),
            (
                |s| s.hostname = Some(String::new()),
                "test-pod",
                "",
                "test-pod",
            ),
            (
                |s| s.subdomain = Some(String::new()),
                "test-pod",
                "",
                "test-pod",
            ),
        ];
        for (change, name, domain, kernel) in cases {
            let host = HostName {
                name: name.into(),
                domain: domain.into(),
            };
            assert_eq!(named(change), Ok((host, kernel.to_owned())));
        }
    }

    #[test]
    fn a_long_pod_name_is_cut_and_ends_well() {
        let cut = |name: &str| host_name(&pod(name), "x").map(|host| host.name);
        assert_eq!(cut(&"x".repeat(63)), Ok("x".repeat(63)));
        assert_eq!(cut(&"x".repeat(64)), Ok("x".repeat(63)));
        assert_eq!(cut(&format!("{}-.-yy", "x".repeat(61))), Ok("x".repeat(61)));
        let nothing = HostNameError::Nothing {
            pod: "-".repeat(70),
            name: "-".repeat(70),
        };
        assert_eq!(cut(&"-".repeat(70)), Err(nothing));
        let long =
            pod("p").spec_with(|s| s.hostname_override = Some(format!("{}.a", "x".repeat(62))));
        assert_eq!(host_name(&long, "x").unwrap().name, "x".repeat(62));
    }

    #[test]
    fn a_name_that_is_none_is_refused_in_upstreams_words() {
        let told = |change: SpecChange| named(change).unwrap_err().to_string();
        let hostname = told(|s| s.hostname = Some("Bad".into()));
        assert!(hostname.starts_with(
            "pod Hostname \"Bad\" is not a valid DNS label: a lowercase RFC 1123 label"
        ));
        let long = told(|s| s.hostname = Some("x".repeat(64)));
        assert!(
            long.ends_with("is not a valid DNS label: must be no more than 63 bytes"),
            "{long}"
        );
        assert!(told(|s| s.subdomain = Some("-".into())).starts_with("pod Subdomain \"-\" is not"));
        let other = told(|s| s.hostname_override = Some("_".into()));
        assert!(other.starts_with("pod HostnameOverride \"_\" is not a valid DNS subdomain: "));
        let full = told(|s| {
            s.hostname = Some("a-very-long-host-name-as-it-seems".into());
            s.subdomain = Some("sub".into());
            s.set_hostname_as_fqdn = Some(true);
        });
        assert_eq!(
            full,
            "failed to construct FQDN from pod hostname and cluster domain, FQDN a-very-long-host-name-as-it-seems.sub.default.svc.kubernetes.test is too long (64 characters is the max, 65 characters requested)"
        );
    }

    const LOCAL: &str = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n";

    fn with_aliases(list: &[(&str, &[&str])]) -> Pod {
        let alias = |(ip, names): &(&str, &[&str])| HostAlias {
            ip: (*ip).into(),
            hostnames: Some(names.iter().map(|name| (*name).into()).collect()),
        };
        let aliases = list.iter().map(alias).collect();
        pod("p").spec_with(|spec| spec.host_aliases = Some(aliases))
    }

    /// Upstream's TestManagedHostsFileContent.
    #[test]
    fn a_pods_own_hosts_file_is_upstreams_to_the_letter() {
        type Aliases<'a> = &'a [(&'a str, &'a [&'a str])];
        let cases: [(&[&str], &str, Aliases<'_>, &str); 5] = [
            (&["123.45.67.89"], "", &[], "123.45.67.89\tpodFoo\n"),
            (
                &["203.0.113.1"],
                "domainFoo",
                &[],
                "203.0.113.1\tpodFoo.domainFoo\tpodFoo\n",
            ),
            (
                &["203.0.113.1"],
                "domainFoo",
                &[
                    ("123.45.67.89", &["foo", "bar", "baz"]),
                    ("456.78.90.123", &["park"]),
                ],
                "203.0.113.1\tpodFoo.domainFoo\tpodFoo\n\n# Entries added by HostAliases.\n123.45.67.89\tfoo\tbar\tbaz\n456.78.90.123\tpark\n",
            ),
            (
                &["203.0.113.1", "fd00::6"],
                "",
                &[],
                "203.0.113.1\tpodFoo\nfd00::6\tpodFoo\n",
            ),
            (
                &["203.0.113.1", "fd00::6"],
                "domainFoo",
                &[],
                "203.0.113.1\tpodFoo.domainFoo\tpodFoo\nfd00::6\tpodFoo.domainFoo\tpodFoo\n",
            ),
        ];
        for (ips, domain, aliases, lines) in cases {
            let host = HostName {
                name: "podFoo".into(),
                domain: domain.into(),
            };
            let ips: Vec<_> = ips.iter().map(|ip| (*ip).to_owned()).collect();
            assert_eq!(
                managed(&with_aliases(aliases), &host, &ips),
                format!("{LOCAL}{lines}")
            );
        }
    }

    /// Upstream's TestNodeHostsFileContent.
    #[test]
    fn on_the_nodes_network_the_nodes_hosts_file_comes_first() {
        let node = b"# hosts file for testing.\n127.0.0.1\tlocalhost\n\xff\n";
        let plain = of_node(&pod("p"), node);
        let header = b"# Kubernetes-managed hosts file (host network).\n".as_slice();
        assert_eq!(plain, [header, node].concat());
        let aliased = of_node(&with_aliases(&[("1.2.3.4", &["a", "b"])]), node);
        let entries = b"\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n".as_slice();
        assert_eq!(aliased, [header, node, entries].concat());
    }

    /// The hosts cases of upstream's TestMakeMounts.
    #[test]
    fn the_file_is_mounted_unless_a_volume_lies_there_or_there_is_no_address() {
        let covering = pod("p").app_with("c", |c| {
            c.volume_mounts = Some(vec![VolumeMount {
                mount_path: PATH.into(),
                ..VolumeMount::default()
            }]);
        });
        let own = pod("p").app("c");
        let on_node = own.clone().spec_with(|spec| spec.host_network = Some(true));
        let ips = ["10.0.0.1".to_owned()];
        let cases: [(&Pod, &[String], bool); 5] = [
            (&own, &ips, true),
            (&own, &[], false),
            (&on_node, &[], true),
            (&covering, &ips, false),
            (&covering, &[], false),
        ];
        for (pod, ips, mounted) in cases {
            assert_eq!(is_mounted(pod, &pod.app_containers()[0], ips), mounted);
        }
        let file = file(&NodePolicy::default(), &own);
        assert_eq!(file.to_str(), Some("/var/lib/kubelet/pods/p-uid/etc-hosts"));
    }
}
