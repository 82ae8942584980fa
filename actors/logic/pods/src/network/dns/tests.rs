//! Resolver files and pods' policies.

use k8s_openapi::api::core::v1::PodDNSConfigOption;
use logic_api::testing::*;

use super::*;

fn list(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn dns(servers: &[&str], searches: &[&str], options: &[&str]) -> ResolverConfig {
    ResolverConfig {
        servers: list(servers),
        searches: list(searches),
        options: list(options),
    }
}

fn node() -> NodePolicy {
    NodePolicy {
        cluster_dns: list(&["10.96.0.10"]),
        cluster_domain: "cluster.local".into(),
        resolver_config: "/etc/resolv.conf".into(),
        ..NodePolicy::default()
    }
}

fn own() -> ResolverConfig {
    dns(&["1.1.1.1"], &["lan"], &[])
}

fn texts(why: &[HistoryEvent]) -> Vec<(&str, &str)> {
    why.iter()
        .map(|why| (why.reason.as_str(), why.message.as_str()))
        .collect()
}

/// Upstream's TestParseResolvConf.
#[test]
fn resolver_files_are_read_as_upstream() {
    let cases = [
        ("", dns(&[], &[], &[])),
        (" ", dns(&[], &[], &[])),
        ("\n", dns(&[], &[], &[])),
        ("\t\n\t", dns(&[], &[], &[])),
        ("#comment\n", dns(&[], &[], &[])),
        (" #comment\n", dns(&[], &[], &[])),
        ("#comment\n#comment", dns(&[], &[], &[])),
        ("#comment\nnameserver", dns(&[], &[], &[])),
        ("#comment\nnameserver\nsearch", dns(&[], &[], &[])),
        ("nameserver 1.2.3.4", dns(&["1.2.3.4"], &[], &[])),
        (" nameserver 1.2.3.4", dns(&["1.2.3.4"], &[], &[])),
        ("\tnameserver 1.2.3.4", dns(&["1.2.3.4"], &[], &[])),
        ("nameserver\t1.2.3.4", dns(&["1.2.3.4"], &[], &[])),
        ("nameserver \t 1.2.3.4", dns(&["1.2.3.4"], &[], &[])),
        (
            "nameserver 1.2.3.4\nnameserver 5.6.7.8",
            dns(&["1.2.3.4", "5.6.7.8"], &[], &[]),
        ),
        ("nameserver 1.2.3.4 #comment", dns(&["1.2.3.4"], &[], &[])),
        ("search ", dns(&[], &[], &[])),
        ("search .", dns(&[], &[], &[])),
        ("search foo", dns(&[], &["foo"], &[])),
        ("search foo bar", dns(&[], &["foo", "bar"], &[])),
        ("search foo. bar", dns(&[], &["foo", "bar"], &[])),
        ("search foo. bar .\nsearch baz.", dns(&[], &["baz"], &[])),
        (
            "search foo bar\nnameserver 1.2.3.4",
            dns(&["1.2.3.4"], &["foo", "bar"], &[]),
        ),
        ("options", dns(&[], &[], &[])),
        (
            "options ndots:5 attempts:2",
            dns(&[], &[], &["ndots:5", "attempts:2"]),
        ),
        (
            "options ndots:1\noptions ndots:5 attempts:3",
            dns(&[], &[], &["ndots:5", "attempts:3"]),
        ),
        (
            "nameserver 1.2.3.4\nsearch foo\noptions ndots:5",
            dns(&["1.2.3.4"], &["foo"], &["ndots:5"]),
        ),
        ("lookup file bind\nsortlist 1.2.3.4\n", dns(&[], &[], &[])),
    ];
    for (text, expected) in cases {
        let nameless = text.lines().any(|line| line.trim() == "nameserver");
        let expected = if nameless {
            Err(ResolverError::NoServer)
        } else {
            Ok(expected)
        };
        assert_eq!(ResolverConfig::parse(text), expected, "{text:?}");
    }
}

/// Policy, on the node's network, servers, searches.
type Row<'a> = (Option<&'a str>, bool, &'a [&'a str], &'a [&'a str]);

/// Upstream's TestGetPodDNS and TestGetPodDNSType.
#[test]
fn the_policy_decides_whose_resolver_a_pod_has() {
    let cluster: &[&str] = &[
        "default.svc.cluster.local",
        "svc.cluster.local",
        "cluster.local",
        "lan",
    ];
    let cases: [Row<'_>; 8] = [
        (None, false, &["10.96.0.10"], cluster),
        (Some("ClusterFirst"), false, &["10.96.0.10"], cluster),
        (Some("ClusterFirst"), true, &["1.1.1.1"], &["lan"]),
        (
            Some("ClusterFirstWithHostNet"),
            true,
            &["10.96.0.10"],
            cluster,
        ),
        (
            Some("ClusterFirstWithHostNet"),
            false,
            &["10.96.0.10"],
            cluster,
        ),
        (Some("invalidPolicy"), false, &["10.96.0.10"], cluster),
        (Some("Default"), false, &["1.1.1.1"], &["lan"]),
        (Some("None"), false, &[], &[]),
    ];
    for (policy, host_network, servers, searches) in cases {
        let pod = pod("p").spec_with(|spec| {
            spec.dns_policy = policy.map(str::to_owned);
            spec.host_network = Some(host_network);
        });
        let made = pod_dns(&pod, &node(), &own());
        let found = (made.dns.servers, made.dns.searches);
        assert_eq!(
            found,
            (list(servers), list(searches)),
            "{policy:?} {host_network}"
        );
        assert!(made.why.is_empty() && made.node_why.is_empty());
    }
    let nameless = NodePolicy {
        cluster_domain: String::new(),
        ..node()
    };
    assert_eq!(pod_dns(&pod("p"), &nameless, &own()).dns.searches, ["lan"]);
}

#[test]
fn a_cluster_without_dns_falls_back_to_the_nodes_and_says_so() {
    let alone = NodePolicy {
        cluster_dns: list(&["no address"]),
        ..node()
    };
    let made = pod_dns(&pod("p"), &alone, &own());
    assert_eq!(made.dns, own());
    let text = "kubelet does not have ClusterDNS IP configured and cannot create Pod using \"ClusterFirst\" policy. Falling back to \"Default\" policy.";
    assert_eq!(texts(&made.node_why), [("MissingClusterDNS", text)]);
    let of_pod = format!("pod: \"p_default(p-uid)\". {text}");
    assert_eq!(texts(&made.why), [("MissingClusterDNS", of_pod.as_str())]);
}

/// A warning at each start of each pod would only use up what the node may report.
#[test]
fn a_default_on_a_node_without_a_cluster_is_no_warning() {
    let cases: [(Option<&str>, &[&str], bool); 6] = [
        (None, &[], false),
        (Some("ClusterFirst"), &[], false),
        (Some("ClusterFirstWithHostNet"), &[], true),
        (Some("ClusterFirst"), &["no address"], true),
        (Some("Default"), &[], false),
        (Some("None"), &[], false),
    ];
    for (policy, servers, warns) in cases {
        let alone = NodePolicy {
            cluster_dns: list(servers),
            is_standalone: true,
            ..node()
        };
        let asking = pod("p").spec_with(|spec| spec.dns_policy = policy.map(str::to_owned));
        let made = pod_dns(&asking, &alone, &own());
        assert_eq!(made.why.is_empty(), !warns, "{policy:?} {servers:?}");
        assert_eq!(made.node_why.is_empty(), !warns, "{policy:?} {servers:?}");
    }
}

/// The second half of upstream's TestGetPodDNS: an empty resolver file.
#[test]
fn without_a_resolver_file_pods_ask_the_node_itself() {
    let cases: [(&[&str], &[&str]); 3] = [
        (&[], &["127.0.0.1"]),
        (&["192.0.2.1", "2001:db8::1"], &["127.0.0.1", "::1"]),
        (&["2001:db8::1"], &["::1"]),
    ];
    let default = pod("p").spec_with(|spec| spec.dns_policy = Some("Default".into()));
    for (ips, servers) in cases {
        let node = NodePolicy {
            resolver_config: "".into(),
            host_ips: list(ips),
            ..node()
        };
        assert_eq!(
            pod_dns(&default, &node, &ResolverConfig::default()).dns,
            dns(servers, &["."], &[])
        );
        let cluster = pod_dns(&pod("p"), &node, &ResolverConfig::default()).dns;
        assert_eq!(cluster.servers, ["10.96.0.10"]);
    }
}

/// Upstream's TestMergeDNSOptions and TestGetPodDNSCustom.
#[test]
fn the_pods_own_settings_are_merged_in() {
    let option = |name: &str, value: Option<&str>| PodDNSConfigOption {
        name: Some(name.into()),
        value: value.map(str::to_owned),
    };
    let config = PodDNSConfig {
        nameservers: Some(list(&["10.0.0.11", "10.96.0.10"])),
        searches: Some(list(&["lan", "my.domain"])),
        options: Some(vec![
            option("ndots", Some("3")),
            option("debug", None),
            option("x", Some("")),
        ]),
    };
    let with = |policy: &str| {
        pod("p").spec_with(|spec| {
            spec.dns_policy = Some(policy.into());
            spec.dns_config = Some(config.clone());
        })
    };
    let own = dns(&["1.1.1.1", "1.1.1.1"], &["lan"], &["ndots:5", "edns0"]);
    let cases = [
        (
            "None",
            dns(
                &["10.0.0.11", "10.96.0.10"],
                &["lan", "my.domain"],
                &["ndots:3", "debug", "x"],
            ),
        ),
        (
            "Default",
            dns(
                &["1.1.1.1", "10.0.0.11", "10.96.0.10"],
                &["lan", "my.domain"],
                &["ndots:3", "edns0", "debug", "x"],
            ),
        ),
        (
            "ClusterFirst",
            dns(
                &["10.96.0.10", "10.0.0.11"],
                &[
                    "default.svc.cluster.local",
                    "svc.cluster.local",
                    "cluster.local",
                    "lan",
                    "my.domain",
                ],
                &["ndots:3", "debug", "x"],
            ),
        ),
    ];
    for (policy, expected) in cases {
        assert_eq!(
            pod_dns(&with(policy), &node(), &own).dns,
            expected,
            "{policy}"
        );
    }
}

/// Upstream's TestFormDNSNameserversFitsLimits and TestFormDNSSearchFitsLimits.
#[test]
fn what_is_beyond_the_limits_is_left_out_and_told() {
    let with = |servers: Vec<String>, searches: Vec<String>| {
        let pod = pod("p").spec_with(|spec| {
            spec.dns_policy = Some("None".into());
            spec.dns_config = Some(PodDNSConfig {
                nameservers: Some(servers),
                searches: Some(searches),
                options: None,
            });
        });
        pod_dns(&pod, &node(), &own())
    };
    let made = with(list(&["1.0.0.1", "1.0.0.2", "1.0.0.3", "1.0.0.4"]), vec![]);
    assert_eq!(made.dns.servers, ["1.0.0.1", "1.0.0.2", "1.0.0.3"]);
    let text = "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: 1.0.0.1 1.0.0.2 1.0.0.3";
    assert_eq!(texts(&made.why), [("DNSConfigForming", text)]);

    let numbered = |count: usize, length: usize| -> Vec<String> {
        (0..count).map(|n| format!("{n:0length$}")).collect()
    };
    let cases = [
        (numbered(32, 3), 32),
        (numbered(33, 3), 32),
        (numbered(8, 253), 8),
        (numbered(9, 253), 8),
        (numbered(1, 254), 0),
        ([numbered(2, 254), numbered(2, 3)].concat(), 2),
        // 2048 characters with the spaces between, and one more.
        ([numbered(8, 253), numbered(1, 16)].concat(), 9),
        ([numbered(8, 253), numbered(1, 17)].concat(), 8),
    ];
    for (searches, kept) in cases {
        let asked = searches.len();
        let made = with(vec![], searches);
        assert_eq!(made.dns.searches.len(), kept);
        let applied = made.dns.searches.join(" ");
        assert!(applied.len() <= 2048);
        let text = format!(
            "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {applied}"
        );
        let told: &[_] = &[("DNSConfigForming", text.as_str())];
        assert_eq!(texts(&made.why), told[usize::from(kept == asked)..]);
    }
}

/// Upstream's `CheckLimitsForResolvConf`.
#[test]
fn a_resolver_file_that_leaves_no_room_is_told_of() {
    let searches = |count: usize, length: usize| ResolverConfig {
        searches: (0..count).map(|n| format!("{n:0length$}")).collect(),
        ..ResolverConfig::default()
    };
    let cases = [
        (searches(29, 3), "cluster.local", None),
        (
            searches(30, 3),
            "cluster.local",
            Some("Resolv.conf file '/r' contains search line consisting of more than 29 domains!"),
        ),
        (searches(32, 3), "", None),
        (
            searches(1, 254),
            "",
            Some(
                "Resolv.conf file \"/r\" contains a search path which length is more than allowed 253 chars!",
            ),
        ),
        (
            searches(9, 250),
            "",
            Some(
                "Resolv.conf file '/r' contains search line which length is more than allowed 2048 chars!",
            ),
        ),
    ];
    for (resolver, domain, expected) in cases {
        assert_eq!(complaint("/r", &resolver, domain).as_deref(), expected);
    }
}
