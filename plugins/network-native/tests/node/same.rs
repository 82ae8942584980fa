//! The same conflist through the programs and built in: the same links, addresses, routes, parameters, files, result.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};

use conformance::network::node::TestSandbox;

use super::rig::{Doer, Node, merge, programs};
use super::view;

/// What one of both made of a network for a pod.
struct Made {
    node: Node,
    _sandbox: TestSandbox,
    view: Value,
}

async fn made(doer: Doer, plugins: impl Fn(&Node) -> Value) -> Made {
    let node = Node::new();
    node.network(plugins(&node));
    let sandbox = node.sandbox("pod");
    let (process, mut client) = node.start(doer).await;
    let answer = client.add(sandbox.add()).await.unwrap().into_inner();
    // The program's CHECK asks for an address management where there is none to ask, and misses routes of version 6.
    if doer == Doer::BuiltIn {
        client.check(sandbox.check()).await.unwrap();
    }
    let result = answer.result.unwrap();
    let text = String::from_utf8(result.json).unwrap();
    let mut files = Vec::new();
    for (name, text) in node.addresses() {
        files.push(format!("{name}: {text:?}"));
    }
    let backup = fs::read(node.path("tuning/pod_eth0.json")).unwrap_or(b"null".to_vec());
    let mut backup: Value = serde_json::from_slice(&backup).unwrap();
    if backup["mac"].is_string() {
        backup["mac"] = "drawn".into();
    }
    let view = json!({
        "backup": backup,
        "iptables": node.output(&["iptables-save", "-t", "filter"]).lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>(),
        "ip6tables": node.output(&["ip6tables-save", "-t", "filter"]).lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>(),
        "queueing": view::queueing(&node.name),
        "node": view::of(&node.name),
        "pod": view::of(&sandbox.name),
        "files": files,
        "result": told(&text),
    });
    let view = serde_json::from_str(&view.to_string().replace(&sandbox.name, "SANDBOX")).unwrap();
    client.delete(sandbox.delete()).await.unwrap();
    client.delete(sandbox.delete()).await.unwrap();
    assert!(!node.path("tuning/pod_eth0.json").exists());
    drop(process);
    Made {
        node,
        _sandbox: sandbox,
        view,
    }
}

/// A result without what differs by chance.
fn told(text: &str) -> Value {
    let mut result: Value = serde_json::from_str(text).unwrap();
    for interface in result["interfaces"].as_array_mut().unwrap() {
        let name = view::plain(interface["name"].as_str().unwrap());
        let has_mac = interface["mac"].as_str().unwrap().len() == 17;
        merge(interface, json!({ "name": name, "mac": has_mac }));
    }
    result
}

/// Line by line, so that what differs is seen. Lines with one of the words `besides` may be there only
/// built in, and one at least is.
fn assert_same(one: &Value, other: &Value, besides: &[&str]) {
    let text = |view: &Value| serde_json::to_string_pretty(view).unwrap();
    let (one, other) = (text(one), text(other));
    let (has, wants): (BTreeSet<_>, BTreeSet<_>) = (one.lines().collect(), other.lines().collect());
    let more: Vec<_> = has.difference(&wants).collect();
    let less: Vec<_> = wants.difference(&has).collect();
    let is_besides = |line: &str| besides.iter().any(|words| line.contains(words));
    let is_known = match besides {
        [] => one == other,
        _ => less.is_empty() && !more.is_empty() && more.iter().all(|line| is_besides(line)),
    };
    assert!(
        is_known,
        "only built in: {more:#?}\nonly by programs: {less:#?}"
    );
}

async fn same(plugins: impl Fn(&Node) -> Value + Copy) {
    same_besides(plugins, &[]).await;
}

async fn same_besides(plugins: impl Fn(&Node) -> Value + Copy, besides: &[&str]) {
    if !programs(&[
        "bridge",
        "host-local",
        "ptp",
        "tuning",
        "bandwidth",
        "portmap",
        "loopback",
        "firewall",
    ]) {
        return;
    }
    let by_programs = made(Doer::Programs, plugins).await;
    let built_in = made(Doer::BuiltIn, plugins).await;
    assert_same(&built_in.view, &by_programs.view, besides);
    built_in.node.assert_nothing_left();
}

#[tokio::test]
async fn a_bridge_with_both_versions_is_the_same() {
    same(|node| json!([node.bridge(json!({}))])).await;
}

#[tokio::test]
async fn a_bridge_with_every_setting_is_the_same() {
    same(|node| {
        let bridge = node.bridge(json!({
            "isDefaultGateway": true,
            "forceAddress": true,
            "hairpinMode": true,
            "mtu": 1400,
            "ipam": { "type": "host-local", "dataDir": node.path("addresses"), "subnet": "10.78.0.0/24" },
            "dns": { "nameservers": ["10.0.0.9"], "search": ["example"] },
        }));
        json!([bridge])
    })
    .await;
}

#[tokio::test]
async fn a_promiscuous_bridge_without_gateway_is_the_same() {
    same(|node| json!([node.bridge(json!({ "isGateway": false, "promiscMode": true }))])).await;
}

#[tokio::test]
async fn a_bridge_without_addresses_is_the_same() {
    same(|node| json!([node.bridge(json!({ "isGateway": false, "ipam": {} }))])).await;
}

#[tokio::test]
async fn a_point_to_point_link_is_the_same_but_the_gateway_is_there_at_once() {
    let link = |node: &Node| json!([{ "type": "ptp", "mtu": 1300, "ipam": node.host_local() }]);
    same_besides(link, &["accept_dad 0", "fd00:78::1 veth type="]).await;
}

#[tokio::test]
async fn rules_of_the_firewall_are_the_same_to_iptables() {
    same(|node| json!([node.bridge(json!({})), { "type": "firewall", "backend": "iptables" }]))
        .await;
}

#[tokio::test]
async fn loopback_is_the_same() {
    same(|_| json!([{ "type": "loopback" }])).await;
}

#[tokio::test]
async fn a_tuned_interface_is_the_same_and_so_is_what_is_kept_of_it() {
    same(|node| {
        let tuning = json!({
            "type": "tuning",
            "dataDir": node.path("tuning"),
            "sysctl": { "net.core.somaxconn": "500", "net.ipv4.conf.eth0.arp_filter": "1" },
            "mac": "c2:11:22:33:44:55",
            "promisc": true,
            "mtu": 1350,
            "allmulti": true,
        });
        json!([node.bridge(json!({})), tuning])
    })
    .await;
}

#[tokio::test]
async fn bandwidth_of_both_directions_is_the_same() {
    same(|node| {
        let bandwidth = json!({
            "type": "bandwidth",
            "ingressRate": 8_000_000, "ingressBurst": 2_000_000,
            "egressRate": 4_000_000, "egressBurst": 1_600_000,
        });
        json!([node.bridge(json!({})), bandwidth])
    })
    .await;
}

#[tokio::test]
async fn ranges_routes_and_gateways_of_host_local_are_the_same() {
    same(|node| {
        let ipam = json!({
            "type": "host-local",
            "dataDir": node.path("addresses"),
            "ranges": [
                [
                    { "subnet": "10.78.0.0/24", "rangeStart": "10.78.0.40", "rangeEnd": "10.78.0.50", "gateway": "10.78.0.254" },
                    { "subnet": "10.79.0.0/24" },
                ],
                [{ "subnet": "fd00:78::/64", "rangeStart": "fd00:78::1:0" }],
            ],
            "routes": [
                { "dst": "0.0.0.0/0" },
                { "dst": "192.0.2.0/24", "gw": "10.78.0.253" },
                { "dst": "2001:db8::/32" },
            ],
        });
        json!([node.bridge(json!({ "ipam": ipam }))])
    })
    .await;
}
