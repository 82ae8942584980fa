//! The node's own object, its lease, its certificates.

use apiserver::{CallerIdentity, ServerOptions};
use integration::agent::Node;
use integration::cluster::{Cluster, ServerKind, condition};
use serde_json::json;

use super::*;

const OBJECT: &str = "/api/v1/nodes/node";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node";

#[tokio::test]
async fn a_node_registers_says_what_it_is_and_is_ready() {
    everywhere(
        || {
            Node::builder()
                .flag("--node-labels=example.com/zone=a")
                .config(&json!({ "registerWithTaints": [
                { "key": "example.com/fresh", "value": "yes", "effect": "PreferNoSchedule" }] }))
        },
        async |cluster| {
            let node = cluster.server.get(OBJECT).unwrap();
            let labels = &node["metadata"]["labels"];
            assert_eq!(labels["kubernetes.io/hostname"], "node");
            assert_eq!(labels["kubernetes.io/os"], "linux");
            assert_eq!(labels["example.com/zone"], "a");
            assert_eq!(node["spec"]["taints"][0]["key"], "example.com/fresh");
            let status = &node["status"];
            for kind in ["MemoryPressure", "DiskPressure", "PIDPressure"] {
                assert_eq!(condition(&node, kind), Some("False"), "{kind}");
            }
            for resource in ["cpu", "memory", "pods", "ephemeral-storage"] {
                assert!(status["capacity"][resource].is_string(), "{status:#}");
                assert!(status["allocatable"][resource].is_string(), "{status:#}");
            }
            let about = &status["nodeInfo"];
            assert!(
                about["kubeletVersion"]
                    .as_str()
                    .unwrap()
                    .starts_with("v1.36"),
                "{about}"
            );
            assert!(
                about["containerRuntimeVersion"]
                    .as_str()
                    .unwrap()
                    .contains("://"),
                "{about}"
            );
            let port = status["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64();
            assert_eq!(port, Some(u64::from(cluster.node.https_port())));
            let hostname = json!({ "type": "Hostname", "address": "node" });
            assert!(
                status["addresses"].as_array().unwrap().contains(&hostname),
                "{status:#}"
            );
            cluster
                .until(LEASE, CONVERGENCE_TIMEOUT, |lease| {
                    lease["spec"]["holderIdentity"] == "node"
                })
                .await
                .unwrap();
        },
    )
    .await;
}

#[tokio::test]
async fn a_node_that_is_there_already_keeps_what_others_gave_it() {
    for which in ServerKind::available() {
        let mut cluster = Cluster::prepare_on(which, Node::builder()).await.unwrap();
        cluster
            .server
            .post(
                "/api/v1/nodes",
                &json!({
                    "apiVersion": "v1", "kind": "Node",
                    "metadata": { "name": "node", "labels": { "example.com/kept": "yes" } },
                    "spec": { "unschedulable": true },
                }),
            )
            .unwrap();
        cluster.node.begin().await.unwrap();
        let node = cluster.until_ready(CONVERGENCE_TIMEOUT).await.unwrap();
        assert_eq!(node["metadata"]["labels"]["example.com/kept"], "yes");
        assert_eq!(node["metadata"]["labels"]["kubernetes.io/os"], "linux");
        assert_eq!(node["spec"]["unschedulable"], true);
    }
}

/// Its last transition shows every flip that anybody could have seen.
#[tokio::test]
async fn a_ready_node_stays_ready_while_its_agent_is_killed_or_ended_and_starts_again() {
    let since = |node: &Value| {
        let conditions = node["status"]["conditions"].as_array().cloned();
        let mut conditions = conditions.unwrap_or_default().into_iter();
        let ready = conditions.find(|condition| condition["type"] == "Ready");
        ready.unwrap()["lastTransitionTime"].clone()
    };
    everywhere(Node::builder, async |mut cluster| {
        let node = cluster.until_ready(CONVERGENCE_TIMEOUT).await.unwrap();
        for (name, is_killed) in [("one", true), ("two", false)] {
            if is_killed {
                cluster.node.kill9().unwrap();
            } else {
                cluster.node.terminate().await.unwrap();
            }
            cluster.node.begin().await.unwrap();
            cluster.apply(&pod(name)).unwrap();
            let runs = cluster.until_pod(name, CONVERGENCE_TIMEOUT, is_running);
            runs.await.unwrap();
            let now = cluster.server.get(OBJECT).unwrap();
            assert_eq!(since(&now), since(&node), "{:#}", now["status"]);
        }
    })
    .await;
}

#[tokio::test]
async fn a_node_with_a_bootstrap_token_alone_gets_a_certificate_and_registers() {
    for which in ServerKind::available() {
        let mut cluster = Cluster::prepare_on(which, Node::builder()).await.unwrap();
        let bootstrap = cluster.server.bootstrap_kubeconfig().unwrap();
        let file = cluster.folder().join("bootstrap.pem");
        std::fs::write(&file, bootstrap).unwrap();
        let kubeconfig = cluster.node.dir().join("kubeconfig");
        std::fs::remove_file(&kubeconfig).unwrap();
        cluster
            .node
            .add_flag(&format!("--bootstrap-kubeconfig={}", file.display()));
        cluster.node.begin().await.unwrap();
        cluster.until_ready(CONVERGENCE_TIMEOUT).await.unwrap();
        let current = cluster.node.dir().join("pki/kubelet-client-current.pem");
        assert!(std::fs::symlink_metadata(&current).unwrap().is_symlink());
        let text = std::fs::read_to_string(kubeconfig).unwrap();
        assert!(text.contains("kubelet-client-current.pem"), "{text}");

        // It is not to be replaced: started again, the node goes on with what it has.
        let before = std::fs::read_link(&current).unwrap();
        cluster.node.terminate().await.unwrap();
        let lease = cluster.server.get(LEASE).unwrap()["spec"]["renewTime"].clone();
        cluster.node.begin().await.unwrap();
        let is_new = |now: &Value| now["spec"]["renewTime"] != lease;
        cluster
            .until(LEASE, CONVERGENCE_TIMEOUT, is_new)
            .await
            .unwrap();
        assert_eq!(std::fs::read_link(&current).unwrap(), before);
        assert_eq!(joined(&cluster), 1);
    }
}

/// How many certificates were asked for with a bootstrap token.
fn joined(cluster: &Cluster) -> usize {
    let all = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let by_token = |request: &&Value| {
        let user = request["spec"]["username"].as_str().unwrap_or_default();
        user.starts_with("system:bootstrap:")
    };
    let all = cluster.server.list(all).unwrap();
    all.iter().filter(by_token).count()
}

#[tokio::test]
async fn a_node_whose_certificate_ended_while_it_was_away_joins_again_by_itself() {
    const SHORT: u64 = 30;
    let options = ServerOptions::default();
    let builder = Node::builder().config(&json!({ "rotateCertificates": true }));
    let mut cluster = Cluster::prepare(builder, options).await.unwrap();
    let file = cluster.folder().join("bootstrap.pem");
    std::fs::write(&file, cluster.server.bootstrap_kubeconfig().unwrap()).unwrap();
    std::fs::remove_file(cluster.node.dir().join("kubeconfig")).unwrap();
    let flag = format!("--bootstrap-kubeconfig={}", file.display());
    cluster.node.add_flag(&flag);
    cluster.double().issue_for(SHORT.cast_signed());
    cluster.node.begin().await.unwrap();
    cluster.until_ready(CONVERGENCE_TIMEOUT).await.unwrap();
    for name in ["one", "two"] {
        cluster.apply(&pod(name)).unwrap();
    }
    let mut before = Vec::new();
    for name in ["one", "two"] {
        let running = cluster
            .until_pod(name, CONVERGENCE_TIMEOUT, is_running)
            .await;
        before.push(running.unwrap());
    }
    assert_eq!(joined(&cluster), 1, "the next is asked for with the first");

    cluster.node.terminate().await.unwrap();
    let lease = cluster.server.get(LEASE).unwrap()["spec"]["renewTime"].clone();
    // Whatever was issued until now is over by then.
    let over = tokio::time::Instant::now() + Duration::from_secs(SHORT + 1);
    let is_over = async || tokio::time::Instant::now() > over;
    cluster
        .wait("its certificate is over", is_over)
        .await
        .unwrap();
    cluster.double().issue_for(3600);
    cluster.node.begin().await.unwrap();
    let is_new = |now: &Value| now["spec"]["renewTime"] != lease;
    cluster
        .until(LEASE, CONVERGENCE_TIMEOUT, is_new)
        .await
        .unwrap();
    cluster.until_ready(CONVERGENCE_TIMEOUT).await.unwrap();
    assert_eq!(joined(&cluster), 2, "it joined by its token again");
    cluster.apply(&pod("after")).unwrap();
    let after = cluster
        .until_pod("after", CONVERGENCE_TIMEOUT, is_running)
        .await;
    after.unwrap();
    for was in before {
        let name = was["metadata"]["name"].as_str().unwrap();
        let now = cluster
            .until_pod(name, CONVERGENCE_TIMEOUT, is_running)
            .await
            .unwrap();
        assert_eq!((uid(&now), restarts(&now)), (uid(&was), 0));
        let container = |pod: &Value| pod["status"]["containerStatuses"][0]["containerID"].clone();
        assert_eq!(container(&now), container(&was), "{name}");
    }
}

#[tokio::test]
async fn certificates_are_replaced_while_the_node_works() {
    let options = ServerOptions {
        certificate_seconds: 40,
        ..ServerOptions::default()
    };
    let builder = Node::builder().config(&json!({
        "rotateCertificates": true,
        "serverTLSBootstrap": true,
        "featureGates": { "RotateKubeletServerCertificate": true },
    }));
    let mut cluster = Cluster::prepare(builder, options).await.unwrap();
    cluster.node.begin().await.unwrap();
    cluster.until_ready(CONVERGENCE_TIMEOUT).await.unwrap();
    let current = |kind: &str| {
        let link = cluster
            .node
            .dir()
            .join(format!("pki/kubelet-{kind}-current.pem"));
        std::fs::read_link(link).ok()
    };
    cluster
        .wait("both certificates are there", async || {
            current("client").is_some() && current("server").is_some()
        })
        .await
        .unwrap();
    let before = (current("client"), current("server"));
    cluster
        .wait("both certificates are new ones", async || {
            current("client") != before.0 && current("server") != before.1
        })
        .await
        .unwrap();
    cluster.apply(&pod("after")).unwrap();
    cluster
        .until_pod("after", CONVERGENCE_TIMEOUT, is_running)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_node_that_rests_asks_for_less_than_one_thing_a_second() {
    let cluster = started().await;
    for n in 0..5 {
        cluster.apply(&pod(&format!("rests-{n}"))).unwrap();
    }
    for n in 0..5 {
        let name = format!("rests-{n}");
        cluster
            .until_pod(&name, CONVERGENCE_TIMEOUT, is_running)
            .await
            .unwrap();
    }
    // Events of the pods' starts are still under way, at their own rate.
    let mut heard = Vec::new();
    for _ in 0..6 {
        cluster.double().forget_requests();
        let rest = Duration::from_secs(12);
        let too_many = async || cluster.double().requests().len() > 12;
        let noisy = integration::wait_until(rest, "more than twelve requests", too_many).await;
        heard = cluster.double().requests();
        if noisy.is_err() {
            return;
        }
    }
    panic!("{heard:#?}");
}

#[tokio::test]
async fn who_has_no_right_is_not_answered() {
    let cluster = started().await;
    let url = |path: &str| format!("https://127.0.0.1:{}{path}", cluster.node.https_port());
    let curl = async |arguments: &[&str]| {
        let output = tokio::process::Command::new("curl")
            .args(["-sk", "-o", "/dev/null", "-w", "%{http_code}"])
            .args(arguments)
            .output()
            .await
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(curl(&[&url("/pods")]).await, "401");
    assert_eq!(
        curl(&["-H", "Authorization: Bearer nonsense", &url("/pods")]).await,
        "401"
    );
    cluster.double().token("knows-me", "somebody", &[]);
    let judged = |question: &apiserver::AccessAttributes| {
        question.resource == "nodes" && !question.user.starts_with("system:")
    };
    cluster
        .double()
        .judge(move |question| judged(question).then_some(false));
    assert_eq!(
        curl(&["-H", "Authorization: Bearer knows-me", &url("/pods")]).await,
        "403"
    );
    cluster.double().token("may", "operator", &[]);
    cluster
        .double()
        .judge(move |question| judged(question).then_some(question.user == "operator"));
    for path in [
        "/pods",
        "/metrics",
        "/stats/summary",
        "/configz",
        "/healthz",
        "/runningpods/",
        "/metrics/resource",
        "/metrics/probes",
        "/statusz",
        "/flagz",
    ] {
        assert_eq!(
            curl(&["-H", "Authorization: Bearer may", &url(path)]).await,
            "200",
            "{path}"
        );
    }
    let token = CallerIdentity::Token("may".to_owned());
    assert!(cluster.server.kubeconfig(&token).is_ok());
    for path in [
        "/logs/../../etc/shadow",
        "/logs/%2e%2e/%2e%2e/etc/shadow",
        "/nothing",
    ] {
        let code = curl(&[
            "--path-as-is",
            "-H",
            "Authorization: Bearer may",
            &url(path),
        ])
        .await;
        assert!(
            ["400", "404", "301"].contains(&code.as_str()),
            "{path}: {code}"
        );
    }
}
