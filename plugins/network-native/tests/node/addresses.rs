//! Addresses from the store that the program host-local shares.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tonic::Code;

use super::rig::{Doer, Node, PROGRAMS, addresses, programs};

/// One address from the program, as another runtime would ask for it.
fn by_program(configuration: &Value, id: &str) -> Vec<String> {
    let mut child = Command::new(format!("{PROGRAMS}/host-local"))
        .env("CNI_COMMAND", "ADD")
        .env("CNI_CONTAINERID", id)
        .env("CNI_NETNS", "/none")
        .env("CNI_IFNAME", "eth0")
        .env("CNI_PATH", PROGRAMS)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let input = configuration.to_string();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let ips = result["ips"]
        .as_array()
        .unwrap_or_else(|| panic!("{result}"))
        .iter();
    ips.map(|ip| {
        ip["address"]
            .as_str()
            .unwrap()
            .split('/')
            .next()
            .unwrap()
            .to_owned()
    })
    .collect()
}

#[tokio::test]
async fn no_address_is_given_twice_beside_the_program() {
    const MANY: usize = 20;
    if !programs(&["host-local"]) {
        return;
    }
    let node = Node::new();
    node.network(json!([node.bridge(json!({}))]));
    let configuration = json!({ "cniVersion": "1.0.0", "name": "net", "type": "bridge", "ipam": node.host_local() });
    let (_process, client) = node.start(Doer::BuiltIn).await;
    let others = std::thread::spawn(move || {
        let each =
            (0..MANY).flat_map(|number| by_program(&configuration, &format!("other{number}")));
        each.collect::<Vec<_>>()
    });
    let sandboxes: Vec<_> = (0..MANY)
        .map(|number| node.sandbox(&format!("p{number}")))
        .collect();
    let calls = sandboxes.iter().map(|sandbox| {
        let (mut client, request) = (client.clone(), sandbox.add());
        tokio::spawn(async move { client.add(request).await.unwrap().into_inner() })
    });
    let calls: Vec<_> = calls.collect();
    let mut all = Vec::new();
    for call in calls {
        all.extend(addresses(&call.await.unwrap().result.unwrap()));
    }
    all.extend(others.join().unwrap());
    assert_eq!(all.len(), 4 * MANY);
    assert_eq!(
        all.iter().collect::<BTreeSet<_>>().len(),
        4 * MANY,
        "{all:?}"
    );
}

#[tokio::test]
async fn a_network_without_free_addresses_says_so_and_leaves_nothing_of_the_pod() {
    let node = Node::new();
    let ipam = json!({ "type": "host-local", "dataDir": node.path("addresses"), "subnet": "10.78.0.0/30" });
    node.network(json!([node.bridge(json!({ "ipam": ipam }))]));
    let (_process, mut client) = node.start(Doer::BuiltIn).await;
    let (one, other) = (node.sandbox("one"), node.sandbox("other"));
    client.add(one.add()).await.unwrap();
    let refused = client.add(other.add()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Internal);
    let words = "failed to allocate for range 0: no IP addresses available in range set: 10.78.0.1-10.78.0.2";
    assert!(refused.message().contains(words), "{refused}");
    // Its turn ends when it is cleaned up.
    client.delete(other.delete()).await.unwrap();
    let links = node.output(&["ip", "-o", "link", "show", "type", "veth"]);
    assert_eq!(links.lines().count(), 1, "{links}");
    client.delete(one.delete()).await.unwrap();
    client.add(other.add()).await.unwrap();
    client.delete(other.delete()).await.unwrap();
    node.assert_nothing_left();
}
