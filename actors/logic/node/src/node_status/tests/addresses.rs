//! Where the node can be reached.

use super::*;

fn shown(
    policy: &NodeStatusPolicy,
    known: &NodeAddresses,
    before: &Node,
) -> (String, Option<String>) {
    let mut facts = facts();
    facts.addresses = known.clone();
    let outcome = set(policy, &facts, moment(0), before);
    let addresses = status(&outcome.node).addresses.iter().flatten();
    let list: Vec<String> = addresses
        .map(|address| format!("{}={}", address.type_, address.address))
        .collect();
    let annotations = outcome.node.metadata.annotations;
    let provided = annotations.and_then(|all| all.get(PROVIDED_IP).cloned());
    match outcome.problems.is_empty() {
        true => (list.join(" "), provided),
        false => (outcome.problems.join("; "), provided),
    }
}

fn with(ips: &[&str]) -> NodeStatusPolicy {
    NodeStatusPolicy {
        node_ips: ips.iter().map(|ip| ip.parse().unwrap()).collect(),
        ..policy()
    }
}

fn route(ip: &str) -> NodeAddresses {
    let found = ip.parse().ok();
    let problem = match found {
        Some(_) => String::new(),
        None => "no route".to_owned(),
    };
    NodeAddresses { found, problem }
}

/// Upstream's TestNodeAddress, TestNodeAddress_NoCloudProvider.
#[test]
fn the_node_is_where_it_was_put_or_where_its_name_or_route_says() {
    let none = NodeAddresses::default();
    let rows: [(&[&str], &str, NodeAddresses, &str); 8] = [
        (
            &["10.0.0.1"],
            "edge",
            none.clone(),
            "InternalIP=10.0.0.1 Hostname=edge",
        ),
        (
            &["fd00::1"],
            "edge",
            none.clone(),
            "InternalIP=fd00::1 Hostname=edge",
        ),
        (
            &["10.0.0.1", "fd00::1"],
            "edge",
            none.clone(),
            "InternalIP=10.0.0.1 InternalIP=fd00::1 Hostname=edge",
        ),
        (
            &[],
            "10.9.9.9",
            none.clone(),
            "InternalIP=10.9.9.9 Hostname=10.9.9.9",
        ),
        (
            &[],
            "edge",
            route("10.1.1.1"),
            "InternalIP=10.1.1.1 Hostname=edge",
        ),
        (
            &["::"],
            "edge",
            route("fd00::7"),
            "InternalIP=fd00::7 Hostname=edge",
        ),
        (
            &[],
            "edge",
            route(""),
            "can't get ip address of node edge. error: no route",
        ),
        (
            &["10.0.0.1"],
            "edge",
            NodeAddresses {
                found: None,
                problem: "node IP: \"10.0.0.1\" not found".into(),
            },
            "failed to validate nodeIP: node IP: \"10.0.0.1\" not found",
        ),
    ];
    for (ips, hostname, known, expected) in rows {
        let policy = NodeStatusPolicy {
            hostname: hostname.into(),
            ..with(ips)
        };
        let (list, provided) = shown(&policy, &known, &Node::default());
        assert_eq!(
            (list.as_str(), provided),
            (expected, None),
            "{ips:?} {hostname}"
        );
    }
}

/// The external rows of upstream's TestNodeAddress.
#[test]
fn a_cloud_provider_tells_the_addresses_and_is_told_the_operators_choice() {
    let external = |ips: &[&str]| NodeStatusPolicy {
        cloud: CloudProvider::External,
        ..with(ips)
    };
    let empty = Node::default();
    let mut there = Node::default();
    there.metadata.annotations = Some(string_map(&[(PROVIDED_IP, "10.7.7.7"), ("other", "x")]));
    there.status = Some(NodeStatus {
        addresses: Some(vec![k8s_openapi::api::core::v1::NodeAddress {
            type_: "ExternalIP".into(),
            address: "192.0.2.1".into(),
        }]),
        ..NodeStatus::default()
    });
    let rows: [(&[&str], &Node, &str, Option<&str>); 6] = [
        (&[], &empty, "Hostname=edge", None),
        (
            &["10.0.0.1"],
            &empty,
            "InternalIP=10.0.0.1 Hostname=edge",
            Some("10.0.0.1"),
        ),
        (
            &["10.0.0.1", "fd00::1"],
            &empty,
            "InternalIP=10.0.0.1 InternalIP=fd00::1 Hostname=edge",
            Some("10.0.0.1,fd00::1"),
        ),
        (
            &["10.0.0.1"],
            &there,
            "ExternalIP=192.0.2.1",
            Some("10.0.0.1"),
        ),
        (&[], &there, "ExternalIP=192.0.2.1", None),
        (&["0.0.0.0"], &there, "ExternalIP=192.0.2.1", None),
    ];
    for (ips, before, expected, annotation) in rows {
        let shown = shown(&external(ips), &route("10.1.1.1"), before);
        assert_eq!(
            (shown.0.as_str(), shown.1.as_deref()),
            (expected, annotation)
        );
    }
    // Without a provider any more, the annotation goes and the others stay.
    let outcome = set(&with(&["10.0.0.1"]), &facts(), moment(0), &there);
    let annotations = outcome.node.metadata.annotations.unwrap();
    assert_eq!(annotations, string_map(&[("other", "x")]));
}

/// Upstream's TestValidateNodeIPParam.
#[test]
fn an_address_that_cannot_be_the_nodes_is_refused_with_upstreams_words() {
    let rows = [
        ("127.0.0.1", "nodeIP can't be loopback address"),
        ("::1", "nodeIP can't be loopback address"),
        ("224.0.0.1", "nodeIP can't be a multicast address"),
        (
            "169.254.0.1",
            "nodeIP can't be a link-local unicast address",
        ),
        (
            "fe80::0202:b3ff:fe1e:8329",
            "nodeIP can't be a link-local unicast address",
        ),
        ("0.0.0.0", "nodeIP can't be an all zeros address"),
        ("::", "nodeIP can't be an all zeros address"),
        (
            "1.2.3.4",
            "node IP: \"1.2.3.4\" not found in the host's network interfaces",
        ),
    ];
    for (ip, why) in rows {
        let ip: IpAddr = ip.parse().unwrap();
        assert_eq!(validate(ip, |_| false), Err(why.to_owned()), "{ip}");
    }
    let own: IpAddr = "10.0.0.5".parse().unwrap();
    assert_eq!(validate(own, |ip| ip == own), Ok(()));
}

/// Upstream's TestGetNodeHostIPs.
#[test]
fn pods_are_where_the_nodes_object_says_inside_before_outside_and_one_of_each_family() {
    let node = |list: &[(&str, &str)]| {
        let address = |(r#type, address): &(&str, &str)| k8s_openapi::api::core::v1::NodeAddress {
            type_: (*r#type).into(),
            address: (*address).into(),
        };
        Node {
            status: Some(NodeStatus {
                addresses: Some(list.iter().map(address).collect()),
                ..NodeStatus::default()
            }),
            ..Node::default()
        }
    };
    const IN: &str = "InternalIP";
    const OUT: &str = "ExternalIP";
    type Row<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str]);
    let rows: [Row<'_>; 8] = [
        (&[], &[]),
        (&[("Hostname", "edge")], &[]),
        (&[(OUT, "192.0.2.1")], &["192.0.2.1"]),
        (&[(OUT, "192.0.2.1"), (IN, "10.0.0.1")], &["10.0.0.1"]),
        (
            &[(IN, "10.0.0.1"), (IN, "10.0.0.2"), (OUT, "fd00::1")],
            &["10.0.0.1", "fd00::1"],
        ),
        (
            &[(IN, "fd00::1"), (IN, "fd00::2"), (IN, "10.0.0.1")],
            &["fd00::1", "10.0.0.1"],
        ),
        (
            &[(OUT, "192.0.2.1"), (OUT, "fd00::1"), (IN, "10.0.0.1")],
            &["10.0.0.1", "fd00::1"],
        ),
        (&[(IN, "no address"), (IN, "10.0.0.1")], &["10.0.0.1"]),
    ];
    for (addresses, expected) in rows {
        assert_eq!(host_ips(&node(addresses)), expected, "{addresses:?}");
    }
    assert!(host_ips(&Node::default()).is_empty());
}
