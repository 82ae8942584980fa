//! Packets: ports of the node lead to the pod, and the pod's own packets leave under the node's address.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use serde_json::json;

use conformance::network::node::{TestSandbox, ip};

use super::rig::{Doer, Node, add_with, output, programs, within};

/// A packet that is lost is an answer as well.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// A neighbour of the node, on another network.
struct Neighbour(TestSandbox);

impl Neighbour {
    fn of(node: &Node) -> Self {
        let sandbox = node.sandbox("nb");
        let (name, there) = (node.name.as_str(), sandbox.name.as_str());
        ip(&[
            "-n", name, "link", "add", "up0", "type", "veth", "peer", "name", "up0", "netns", there,
        ]);
        for (namespace, v4, v6) in [
            (name, "192.0.2.1/24", "2001:db8::1/64"),
            (there, "192.0.2.2/24", "2001:db8::2/64"),
        ] {
            ip(&["-n", namespace, "addr", "add", v4, "dev", "up0"]);
            ip(&["-n", namespace, "addr", "add", v6, "dev", "up0", "nodad"]);
            ip(&["-n", namespace, "link", "set", "up0", "up"]);
        }
        // The node has a second address.
        ip(&["-n", name, "addr", "add", "192.0.2.9/24", "dev", "up0"]);
        Self(sandbox)
    }
}

/// Answers one caller after the other with the address by which it came; ends with the test's process.
fn serve_tcp(namespace: &str, port: u16) {
    let listener = within(namespace, move || TcpListener::bind(("::", port)).unwrap());
    let listener = listener.join().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let from = stream.peer_addr().unwrap().ip().to_canonical();
            // A caller that is gone already.
            drop(stream.write_all(from.to_string().as_bytes()));
        }
    });
}

fn serve_udp(namespace: &str, port: u16) {
    let socket = within(namespace, move || UdpSocket::bind(("::", port)).unwrap());
    let socket = socket.join().unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 64];
        while let Ok((_, from)) = socket.recv_from(&mut buffer) {
            let text = from.ip().to_canonical().to_string();
            drop(socket.send_to(text.as_bytes(), from));
        }
    });
}

/// As which address a server sees a caller; none where it is not reached.
fn by_tcp(namespace: &str, to: &str, port: u16) -> Option<IpAddr> {
    let to = SocketAddr::new(to.parse().unwrap(), port);
    let call = within(namespace, move || {
        let mut stream = TcpStream::connect_timeout(&to, ANSWER_TIMEOUT).ok()?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT)).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        text.parse().ok()
    });
    call.join().unwrap()
}

fn by_udp(namespace: &str, to: &str, port: u16) -> Option<IpAddr> {
    let to = SocketAddr::new(to.parse().unwrap(), port);
    let call = within(namespace, move || {
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any).unwrap();
        socket.set_read_timeout(Some(ANSWER_TIMEOUT)).unwrap();
        socket.connect(to).unwrap();
        socket.send(b"?").ok()?;
        let mut buffer = [0; 64];
        let length = socket.recv(&mut buffer).ok()?;
        std::str::from_utf8(&buffer[..length]).unwrap().parse().ok()
    });
    call.join().unwrap()
}

fn address(text: &str) -> Option<IpAddr> {
    Some(text.parse().unwrap())
}

async fn node_with_pod(
    first: serde_json::Value,
    doer: Doer,
) -> (
    Node,
    conformance::network::node::Process,
    conformance::network::node::Client,
    TestSandbox,
    Neighbour,
) {
    let node = Node::new();
    let mut plugin = first;
    plugin["ipam"] = node.host_local();
    node.network(json!([plugin, { "type": "portmap", "capabilities": { "portMappings": true } }]));
    let neighbour = Neighbour::of(&node);
    let (process, mut client) = node.start(doer).await;
    let sandbox = node.sandbox("pod");
    let ports = [
        (8078, 80, "TCP", ""),
        (8078, 81, "UDP", ""),
        (8079, 80, "TCP", "192.0.2.9"),
        (8080, 80, "TCP", "::"),
    ];
    client.add(add_with(&sandbox, &ports)).await.unwrap();
    serve_tcp(&sandbox.name, 80);
    serve_udp(&sandbox.name, 81);
    (node, process, client, sandbox, neighbour)
}

async fn ports_lead_to_the_pod(first: serde_json::Value) {
    let (node, _process, mut client, sandbox, neighbour) =
        node_with_pod(first, Doer::BuiltIn).await;
    let neighbour = neighbour.0.name.as_str();
    for (node_s, neighbour_s) in [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")] {
        assert_eq!(by_tcp(neighbour, node_s, 8078), address(neighbour_s));
        assert_eq!(by_udp(neighbour, node_s, 8078), address(neighbour_s));
    }
    // An address of the node that is named is the only one.
    assert_eq!(by_tcp(neighbour, "192.0.2.9", 8079), address("192.0.2.2"));
    assert_eq!(by_tcp(neighbour, "192.0.2.1", 8079), None);
    // An unspecified one is every one of its version.
    assert_eq!(
        by_tcp(neighbour, "2001:db8::1", 8080),
        address("2001:db8::2")
    );
    assert_eq!(by_tcp(neighbour, "192.0.2.1", 8080), None);
    // The node itself, by its loopback interface and by its address; and the pod itself.
    assert!(by_tcp(&node.name, "127.0.0.1", 8078).is_some());
    assert!(by_udp(&node.name, "127.0.0.1", 8078).is_some());
    assert!(by_tcp(&node.name, "192.0.2.1", 8078).is_some());
    assert!(by_tcp(&sandbox.name, "192.0.2.1", 8078).is_some());
    assert!(by_tcp(&sandbox.name, "2001:db8::1", 8078).is_some());

    client.check(sandbox.check()).await.unwrap();
    client.delete(sandbox.delete()).await.unwrap();
    assert_eq!(by_tcp(neighbour, "192.0.2.1", 8078), None);
    ip(&["-n", &node.name, "link", "delete", "up0"]);
    node.assert_nothing_left();
}

#[tokio::test]
async fn ports_of_the_node_lead_to_the_pod_on_a_bridge() {
    ports_lead_to_the_pod(json!({ "type": "bridge", "bridge": "testbridge", "isGateway": true, "ipMasq": true, "hairpinMode": true })).await;
}

#[tokio::test]
async fn ports_of_the_node_lead_to_the_pod_on_a_point_to_point_link() {
    ports_lead_to_the_pod(json!({ "type": "ptp", "ipMasq": true })).await;
}

/// Whether a packet that a pod sends through its link to 127.0.0.1 reaches a service of the node there.
fn reaches_the_node_s_loopback(node: &Node, pod: &TestSandbox) -> bool {
    let service = within(&node.name, || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(ANSWER_TIMEOUT)).unwrap();
        socket
    });
    let service = service.join().unwrap();
    let port = service.local_addr().unwrap().port();
    within(&pod.name, move || {
        let socket = UdpSocket::bind("10.78.0.2:0").unwrap();
        socket.send_to(b"?", ("127.0.0.1", port)).unwrap();
    })
    .join()
    .unwrap();
    service.recv_from(&mut [0; 64]).is_ok()
}

fn bridge() -> serde_json::Value {
    json!({ "type": "bridge", "bridge": "testbridge", "isGateway": true })
}

async fn a_host_port_opens_nothing_else(first: serde_json::Value, doer: Doer) {
    let (node, _process, mut client, sandbox, _neighbour) = node_with_pod(first, doer).await;
    let second = node.sandbox("second");
    client
        .add(add_with(&second, &[(8090, 80, "TCP", "")]))
        .await
        .unwrap();
    let guard = ["nft", "list", "table", "ip", "oxlet_localnet"];
    let rules = node.output(&guard);
    assert_eq!(rules.matches("iif != \"lo\"").count(), 1, "{rules}");
    // The pod's root may do this, in its own network namespace.
    output(
        &sandbox.name,
        &["ip", "-4", "route", "flush", "table", "local", "dev", "lo"],
    );
    output(
        &sandbox.name,
        &["ip", "route", "add", "127.0.0.1", "via", "10.78.0.1"],
    );
    assert!(!reaches_the_node_s_loopback(&node, &sandbox));
    assert!(by_tcp(&node.name, "127.0.0.1", 8078).is_some());

    if doer == Doer::BuiltIn {
        client.check(sandbox.check()).await.unwrap();
    }
    client.delete(second.delete()).await.unwrap();
    assert_eq!(node.output(&guard), rules, "the link of the first is open");
    // It is the guard that keeps them out.
    node.output(&["nft", "delete", "table", "ip", "oxlet_localnet"]);
    assert!(reaches_the_node_s_loopback(&node, &sandbox));
    client.delete(sandbox.delete()).await.unwrap();
}

#[tokio::test]
async fn a_host_port_opens_nothing_else_of_127_0_0_1_to_a_pod_on_a_bridge() {
    a_host_port_opens_nothing_else(bridge(), Doer::BuiltIn).await;
}

#[tokio::test]
async fn a_host_port_opens_nothing_else_of_127_0_0_1_where_the_program_makes_it() {
    if programs(&["bridge", "host-local", "portmap"]) {
        a_host_port_opens_nothing_else(bridge(), Doer::Programs).await;
    }
}

#[tokio::test]
async fn a_host_port_opens_nothing_else_of_127_0_0_1_to_a_pod_on_a_point_to_point_link() {
    a_host_port_opens_nothing_else(json!({ "type": "ptp" }), Doer::BuiltIn).await;
}

#[tokio::test]
async fn the_node_s_end_of_a_point_to_point_link_is_ready_with_the_pod() {
    let node = Node::new();
    node.network(json!([{ "type": "ptp", "ipam": node.host_local() }]));
    let (_process, mut client) = node.start(Doer::BuiltIn).await;
    let sandbox = node.sandbox("pod");
    client.add(sandbox.add()).await.unwrap();
    let gateway = node.output(&["ip", "-6", "-brief", "address"]);
    assert!(gateway.contains("fd00:78::1/128"), "{gateway}");
    assert_eq!(
        node.output(&["ip", "-6", "address", "show", "tentative"]),
        ""
    );
}

#[tokio::test]
async fn a_node_that_forwards_nothing_else_forwards_for_pods_behind_the_firewall_plugin() {
    for (firewall, reached) in [(true, address("192.0.2.1")), (false, None)] {
        let node = Node::new();
        node.output(&["iptables", "-P", "FORWARD", "DROP"]);
        let mut chain = vec![node.bridge(json!({ "ipMasq": true }))];
        if firewall {
            chain.push(json!({ "type": "firewall", "backend": "iptables" }));
        }
        node.network(json!(chain));
        let neighbour = Neighbour::of(&node);
        let (_process, mut client) = node.start(Doer::BuiltIn).await;
        let sandbox = node.sandbox("pod");
        client.add(sandbox.add()).await.unwrap();
        serve_tcp(&neighbour.0.name, 90);
        assert_eq!(by_tcp(&sandbox.name, "192.0.2.2", 90), reached);
        client.delete(sandbox.delete()).await.unwrap();
        ip(&["-n", &node.name, "link", "delete", "up0"]);
        node.assert_nothing_left();
    }
}

#[tokio::test]
async fn packets_of_the_pod_leave_under_the_node_s_address_only_with_masquerading() {
    for (masquerade, v4, v6) in [
        (true, "192.0.2.1", "2001:db8::1"),
        (false, "10.78.0.2", "fd00:78::2"),
    ] {
        let first = json!({ "type": "bridge", "bridge": "testbridge", "isGateway": true, "ipMasq": masquerade });
        let (node, _process, mut client, sandbox, neighbour) =
            node_with_pod(first, Doer::BuiltIn).await;
        let there = neighbour.0.name.as_str();
        ip(&[
            "-n",
            there,
            "route",
            "add",
            "10.78.0.0/24",
            "via",
            "192.0.2.1",
        ]);
        ip(&[
            "-n",
            there,
            "route",
            "add",
            "fd00:78::/64",
            "via",
            "2001:db8::1",
        ]);
        serve_tcp(there, 90);
        assert_eq!(by_tcp(&sandbox.name, "192.0.2.2", 90), address(v4));
        assert_eq!(by_tcp(&sandbox.name, "2001:db8::2", 90), address(v6));
        // Within the pod's own network nothing changes.
        let other = node.sandbox("other");
        client.add(other.add()).await.unwrap();
        serve_tcp(&other.name, 90);
        assert_eq!(by_tcp(&sandbox.name, "10.78.0.3", 90), address("10.78.0.2"));
        client.delete(other.delete()).await.unwrap();
        client.delete(sandbox.delete()).await.unwrap();
    }
}

#[tokio::test]
async fn a_udp_caller_reaches_the_new_pod_although_the_old_one_s_connection_is_remembered() {
    let (node, _process, mut client, sandbox, neighbour) =
        node_with_pod(bridge(), Doer::BuiltIn).await;
    let there = neighbour.0.name.as_str();
    let socket = within(there, || {
        let socket = UdpSocket::bind("192.0.2.2:7777").unwrap();
        socket.set_read_timeout(Some(ANSWER_TIMEOUT)).unwrap();
        socket
    });
    let socket = socket.join().unwrap();
    let mut buffer = [0; 64];
    let ask = || socket.send_to(b"?", "192.0.2.1:8078").unwrap();
    ask();
    socket.recv_from(&mut buffer).unwrap();
    client.delete(sandbox.delete()).await.unwrap();
    // Kept alive by the caller, who gets no answer.
    ask();
    let next = node.sandbox("next");
    client
        .add(add_with(&next, &[(8078, 81, "UDP", "")]))
        .await
        .unwrap();
    serve_udp(&next.name, 81);
    ask();
    let (length, _) = socket.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"192.0.2.2");
    client.delete(next.delete()).await.unwrap();
}
