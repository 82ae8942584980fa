//! The verbs over a chain: order, environment, results, capabilities, versions.

use std::fs;

use proto::network::{Capabilities, PortMapping};
use serde_json::{Value, json};

use super::rig::Node;

#[tokio::test]
async fn a_chain_is_run_forwards_with_results_and_taken_away_backwards() {
    let node = Node::new();
    node.conflist("10-net.conflist", "net", "1.0.0", &["first", "second"]);
    let (_plugin, mut client) = node.plugin().await;
    let sandbox = node.sandbox("a");
    let answer = client.add(sandbox.add()).await.unwrap().into_inner();
    client.check(sandbox.check()).await.unwrap();
    client.delete(sandbox.delete()).await.unwrap();
    assert_eq!(
        node.log(),
        [
            "ADD first a",
            "ADD second a",
            "CHECK first a",
            "CHECK second a",
            "DEL second a",
            "DEL first a"
        ]
    );
    let last = |call: &str| node.stdin(call)["prevResult"]["ips"][0]["address"].clone();
    assert_eq!(node.stdin("ADD.first.a")["prevResult"], Value::Null);
    assert_eq!(last("ADD.second.a"), "10.77.0.2/16");
    let told = answer.result.unwrap().ips[0].address.clone();
    assert_eq!(told, "10.77.0.3/16");
    for call in ["CHECK.first.a", "DEL.second.a", "DEL.first.a"] {
        assert_eq!(last(call), told.as_str(), "{call}");
        let conf = node.stdin(call);
        assert_eq!(
            (&conf["name"], &conf["cniVersion"]),
            (&json!("net"), &json!("1.0.0"))
        );
        assert_eq!(conf["prevResult"]["cniVersion"], "1.0.0");
    }
    assert!(node.made().is_empty());
}

#[tokio::test]
async fn plugins_see_the_pod_as_other_runtimes_show_it() {
    let node = Node::with_network("1.0.0");
    let (_plugin, mut client) = node.plugin().await;
    let sandbox = node.sandbox("a");
    let mut request = sandbox.add();
    request
        .cni_args
        .insert("IP".to_owned(), "10.77.0.9".to_owned());
    client.add(request).await.unwrap();
    let seen = fs::read_to_string(node.path("state/env.ADD.first.a")).unwrap();
    let expected = format!(
        "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=pod;K8S_POD_INFRA_CONTAINER_ID=a;K8S_POD_UID=uid;\
         IP=10.77.0.9\nCNI_COMMAND=ADD\nCNI_CONTAINERID=a\nCNI_IFNAME=eth0\nCNI_NETNS={}\nCNI_PATH={}\n",
        sandbox.netns(),
        node.path("bin").display()
    );
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_capability_is_given_to_those_that_declare_it_and_to_no_other() {
    let node = Node::new();
    node.conf(
        "10-net.conflist",
        &json!({ "cniVersion": "1.0.0", "name": "net", "plugins": [
            { "type": "first", "capabilities": { "portMappings": true, "mac": false } },
            { "type": "second", "capabilities": { "mac": true } },
        ] }),
    );
    let (_plugin, mut client) = node.plugin().await;
    let sandbox = node.sandbox("a");
    let mut request = sandbox.add();
    let mapping = PortMapping {
        host_port: 80,
        container_port: 8080,
        protocol: "TCP".to_owned(),
        host_ip: String::new(),
    };
    request.capabilities = Some(Capabilities {
        port_mappings: vec![mapping],
        mac: "c2:b0:57:49:47:f1".to_owned(),
        ips: vec!["10.77.0.9/16".to_owned()],
        ..Capabilities::default()
    });
    client.add(request).await.unwrap();
    client.delete(sandbox.delete()).await.unwrap();
    let mapping =
        json!([{ "hostPort": 80, "containerPort": 8080, "protocol": "tcp", "hostIP": "" }]);
    // DEL is told what ADD was told, though its caller said nothing.
    for verb in ["ADD", "DEL"] {
        let first = node.stdin(&format!("{verb}.first.a"))["runtimeConfig"].clone();
        assert_eq!(first, json!({ "portMappings": mapping }), "{verb}");
        let second = node.stdin(&format!("{verb}.second.a"))["runtimeConfig"].clone();
        assert_eq!(second, json!({ "mac": "c2:b0:57:49:47:f1" }), "{verb}");
    }
}

#[tokio::test]
async fn a_network_is_spoken_to_as_its_version_has_it() {
    for (version, calls) in [
        ("0.3.1", vec!["ADD", "DEL"]),
        ("0.4.0", vec!["ADD", "CHECK", "DEL"]),
        ("1.1.0", vec!["ADD", "CHECK", "DEL"]),
    ] {
        let node = Node::with_network(version);
        let (_plugin, mut client) = node.plugin().await;
        let sandbox = node.sandbox("a");
        client.add(sandbox.add()).await.unwrap();
        client.check(sandbox.check()).await.unwrap();
        client.delete(sandbox.delete()).await.unwrap();
        let log = node
            .log()
            .into_iter()
            .filter(|call| !call.starts_with("STATUS"));
        let verbs: Vec<_> = log
            .map(|call| call.split(' ').next().unwrap().to_owned())
            .collect();
        assert_eq!(verbs, calls, "{version}");
        let has_result = node.stdin("DEL.first.a").get("prevResult").is_some();
        assert_eq!(has_result, version != "0.3.1");
        if version == "0.4.0" {
            assert_eq!(
                node.stdin("DEL.first.a")["prevResult"]["ips"][0]["version"],
                "4"
            );
        }
    }
}

#[tokio::test]
async fn a_check_that_is_disabled_is_not_made() {
    let node = Node::new();
    node.conf(
        "10-net.conflist",
        &json!({ "cniVersion": "1.0.0", "name": "net", "disableCheck": "True", "plugins": [{ "type": "first" }] }),
    );
    node.tell("fail.CHECK", "");
    let (_plugin, mut client) = node.plugin().await;
    let sandbox = node.sandbox("a");
    client.add(sandbox.add()).await.unwrap();
    client.check(sandbox.check()).await.unwrap();
    assert_eq!(node.log(), ["ADD first a"]);
}

#[tokio::test]
async fn a_plugin_that_is_asked_about_a_changed_pod_is_heard() {
    let node = Node::with_network("1.0.0");
    let (_plugin, mut client) = node.plugin().await;
    let sandbox = node.sandbox("a");
    client.add(sandbox.add()).await.unwrap();
    node.tell(
        "fail.CHECK",
        r#"{"code": 130, "msg": "the address is gone"}"#,
    );
    let refusal = client.check(sandbox.check()).await.unwrap_err();
    assert_eq!(refusal.code(), tonic::Code::FailedPrecondition);
    assert_eq!(
        refusal.message(),
        "network \"net\": plugin \"first\" failed at CHECK: the address is gone"
    );
}

#[tokio::test]
async fn records_are_as_libcni_writes_them() {
    let node = Node::with_network("1.0.0");
    let (_plugin, mut client) = node.plugin().await;
    let sandbox = node.sandbox("a");
    client.add(sandbox.add()).await.unwrap();
    let text = fs::read(node.path("results/net-a-eth0")).unwrap();
    let record: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(record["kind"], "cniCacheV1");
    assert_eq!(
        (&record["containerId"], &record["ifName"]),
        (&json!("a"), &json!("eth0"))
    );
    assert_eq!(
        (&record["networkName"], &record["netns"]),
        (&json!("net"), &json!(sandbox.netns()))
    );
    assert_eq!(record["cniArgs"][1], json!(["K8S_POD_NAMESPACE", "ns"]));
    assert_eq!(record["result"]["cniVersion"], "1.0.0");
    assert!(
        record["config"].as_str().unwrap().starts_with("eyJ"),
        "base64 of a JSON object"
    );
    client.delete(sandbox.delete()).await.unwrap();
    assert!(!node.path("results/net-a-eth0").exists());
}
