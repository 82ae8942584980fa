//! Pods on containerd survive kills of the adapter, of containerd and of the agent.

use std::time::Duration;

use apiserver::ServerOptions;
use integration::agent::Runtime;
use integration::chaos::Chaos;
use integration::cluster::Cluster;
use integration::wait_until;
use serde_json::json;

use crate::suite::node_rig::*;

const PODS: usize = 20;
/// The agent, counted from the start of its process: a release build is held to one second in the benches.
const ADOPTION_TIMEOUT: Duration = Duration::from_secs(3);

fn two(name: &str) -> String {
    let side = "  - {name: side, image: 'localhost/oxlet/busybox:1', command: [sleep, '1000']}\n";
    let init = "  initContainers:\n  - {name: first, image: 'localhost/oxlet/busybox:1', command: ['true']}\n";
    format!("{}{side}{init}", server(name))
}

async fn with_pods(node_rig: &NodeRig) -> Vec<k8s_openapi::api::core::v1::Pod> {
    for number in 0..PODS {
        let name = format!("pod-{number:02}");
        node_rig
            .node
            .drop_manifest(&format!("{name}.yaml"), &server(&name))
            .unwrap();
    }
    until_all_ready(&node_rig.node, PODS, CONVERGENCE_TIMEOUT).await
}

#[tokio::test]
async fn an_adapter_killed_in_the_middle_of_pod_starts_makes_nothing_twice() {
    let Some(node_rig) = TestRuntime::Containerd
        .start_with(|builder| builder.with_patience())
        .await
    else {
        return;
    };
    const ROUNDS: usize = 24;
    let mut chaos = Chaos::new(2_026);
    let mut kills = 0;
    for round in 0..ROUNDS {
        let name = format!("pod-{round:02}");
        node_rig
            .node
            .drop_manifest(&format!("{name}.yaml"), &two(&name))
            .unwrap();
        // A pod starts within half a second here: the kill meets its sandbox, a creation or a start.
        chaos.moment(Duration::from_millis(500)).await;
        kills += usize::from(node_rig.node.kill_plugin());
        if round % 4 == 3 {
            until_all_ready(&node_rig.node, round + 1, CONVERGENCE_TIMEOUT).await;
        }
    }
    let pods = until_all_ready(&node_rig.node, ROUNDS, CONVERGENCE_TIMEOUT).await;
    let plugin = node_rig.node.plugin().await.unwrap();
    println!(
        "{kills} kills of the adapter, {} restarts",
        plugin["restarts"]
    );
    assert!(kills >= 20, "{kills}");
    let cri = node_rig.cri().await;
    assert_nothing_twice(&cri).await;
    // A call that creates outlives the adapter: no start is broken off.
    let counts = identities(&pods);
    let again: i32 = counts.values().map(|(_, restarts)| *restarts).sum();
    assert_eq!(again, 0, "{counts:?}");
    assert_eq!(cri.running().await.unwrap().len(), ROUNDS * 2);
    let ready = cri.sandboxes().await.unwrap().len();
    assert_eq!(ready, ROUNDS, "no sandbox is left behind");
}

#[tokio::test]
async fn containerd_killed_and_restarted_under_pods_loses_nothing() {
    let Some(mut node_rig) = TestRuntime::Containerd.start().await else {
        return;
    };
    let before = with_pods(&node_rig).await;
    let running = node_rig.cri().await.running().await.unwrap();
    assert_eq!(running.len(), PODS);
    for kill in [true, false] {
        let relists = relists(&node_rig).await;
        let rig = node_rig.containerd.as_mut().unwrap();
        match kill {
            true => rig.kill9().unwrap(),
            false => rig.stop().await.unwrap(),
        }
        rig.begin().await.unwrap();
        node_rig
            .node
            .until_plugin_ready(CONVERGENCE_TIMEOUT)
            .await
            .unwrap();
        wait_until(
            CONVERGENCE_TIMEOUT,
            "the agent has looked at containerd again",
            async || self::relists(&node_rig).await > relists,
        )
        .await
        .unwrap();
        assert_eq!(node_rig.cri().await.running().await.unwrap(), running);
        let after = until_all_ready(&node_rig.node, PODS, CONVERGENCE_TIMEOUT).await;
        assert_eq!(identities(&after), identities(&before));
    }
    node_rig
        .node
        .drop_manifest("late.yaml", &server("late"))
        .unwrap();
    node_rig.until_running("late").await;
    assert_nothing_twice(&node_rig.cri().await).await;
    assert_eq!(
        node_rig.cri().await.running().await.unwrap().len(),
        PODS + 1
    );
}

async fn relists(node_rig: &NodeRig) -> u64 {
    let tree = node_rig.node.admin("/tree").await.unwrap();
    let pleg = actor(&tree, "oxlet/pods/pleg").unwrap();
    pleg["snapshot"]["relists"].as_u64().unwrap_or_default()
}

#[tokio::test]
async fn an_agent_killed_with_pods_restarts_no_container() {
    let Some(mut node_rig) = TestRuntime::Containerd.start().await else {
        return;
    };
    with_pods(&node_rig).await;
    let victim = node_rig.node.pod("pod-07").await.unwrap().unwrap();
    node_rig
        .kill_container(&id_of(container(&victim, "app").unwrap()))
        .await;
    node_rig
        .until("pod-07", "runs its container again", |pod| {
            is_ready(pod) && container(pod, "app").is_some_and(|app| app.restart_count == 1)
        })
        .await;
    let before = until_all_ready(&node_rig.node, PODS, CONVERGENCE_TIMEOUT).await;
    let running = node_rig.cri().await.running().await.unwrap();

    node_rig.node.kill9().unwrap();
    let (healthy, took) = adopted(&mut node_rig.node, &before).await;
    println!(
        "agent killed with {PODS} pods on containerd: healthy after {healthy:?}, all adopted after {took:?}"
    );
    assert!(took < ADOPTION_TIMEOUT, "{took:?}");
    assert_eq!(node_rig.cri().await.running().await.unwrap(), running);

    // Ended by SIGTERM, it leaves the pods as well; its successor sees what happened meanwhile.
    node_rig.node.terminate().await.unwrap();
    assert_eq!(node_rig.cri().await.running().await.unwrap(), running);
    node_rig.node.remove_manifest("pod-03.yaml").unwrap();
    let gone = running[&("pod-05-node".to_owned(), "app".to_owned())].clone();
    node_rig.kill_container(&gone).await;
    node_rig.node.begin().await.unwrap();
    node_rig.until_gone("pod-03").await;
    node_rig
        .until("pod-05", "runs its container again", |pod| {
            is_ready(pod) && container(pod, "app").is_some_and(|app| app.restart_count == 1)
        })
        .await;
    let after = until_all_ready(&node_rig.node, PODS - 1, CONVERGENCE_TIMEOUT).await;
    let (before, after) = (identities(&before), identities(&after));
    for (name, identity) in after.iter().filter(|((pod, _), _)| pod != "pod-05-node") {
        assert_eq!(identity, &before[name], "{name:?}");
    }
    assert_nothing_twice(&node_rig.cri().await).await;
}

/// The unit that kubeadm installs, right after `kubeadm join` wrote its bootstrap file and the cluster's CA.
#[tokio::test]
async fn the_agent_starts_as_kubeadms_unit_starts_the_kubelet() {
    let dir = tempfile::tempdir().unwrap();
    let Some(rig) = integration::containerd::Containerd::for_test(dir.path()).await else {
        return;
    };
    let builder = integration::agent::Node::builder()
        .runtime(Runtime::Undeclared("unix:///nowhere/containerd.sock".to_owned()))
        .config(&json!({ "cgroupDriver": "cgroupfs", "clusterDNS": ["10.96.0.10"], "rotateCertificates": true, "cgroupRoot": rig.cgroup() }))
        .flag(format!("--container-runtime-endpoint={}", rig.endpoint()))
        .flag("--pod-infra-container-image=example.org/pause:3.10")
        .manifest("web.yaml", &server("web"));
    let mut cluster = Cluster::prepare(builder, ServerOptions::default())
        .await
        .unwrap();
    let bootstrap = cluster.folder().join("bootstrap-kubelet.conf.pem");
    std::fs::write(&bootstrap, cluster.server.bootstrap_kubeconfig().unwrap()).unwrap();
    std::fs::remove_file(cluster.node.dir().join("kubeconfig")).unwrap();
    let flag = format!("--bootstrap-kubeconfig={}", bootstrap.display());
    cluster.node.add_flag(&flag);
    cluster.node.begin().await.unwrap();
    let node = &cluster.node;
    node.until("web", CONVERGENCE_TIMEOUT, "is ready", is_ready)
        .await
        .unwrap();
    cluster.until_ready(CONVERGENCE_TIMEOUT).await.unwrap();
    cluster
        .until_pod("web-node", CONVERGENCE_TIMEOUT, |mirror| {
            mirror["status"]["phase"] == "Running"
        })
        .await
        .unwrap();
    let plugin = node.plugin().await.unwrap();
    assert!(
        plugin["program"].as_str().unwrap().contains("containerd"),
        "{plugin}"
    );
}

/// Whatever speaks CRI is a runtime plugin: here containerd's own socket, with no adapter before it.
#[tokio::test]
async fn a_plain_cri_endpoint_runs_pods_without_events() {
    let dir = tempfile::tempdir().unwrap();
    let Some(rig) = integration::containerd::Containerd::for_test(dir.path()).await else {
        return;
    };
    let node = integration::agent::Node::builder()
        .runtime(Runtime::External(rig.endpoint()))
        .config(&json!({ "cgroupRoot": rig.cgroup() }))
        .manifest("web.yaml", &server("web"))
        .start()
        .await;
    let node = node.unwrap_or_else(|error| panic!("{error:#}"));
    let before = node
        .until("web", CONVERGENCE_TIMEOUT, "is ready", is_ready)
        .await
        .unwrap();
    let pid = integration::pods::pid_of(&rig.runtime(), &id_of(containers(&before)[0]))
        .await
        .unwrap();
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(pid),
        nix::sys::signal::Signal::SIGKILL,
    )
    .unwrap();
    node.until("web", CONVERGENCE_TIMEOUT, "runs again", |pod| {
        is_ready(pod) && containers(pod)[0].restart_count == 1
    })
    .await
    .unwrap();
    node.remove_manifest("web.yaml").unwrap();
    node.until_gone("web", CONVERGENCE_TIMEOUT).await.unwrap();
}
