//! Without the API server: outages, restarts and reboots in the middle of them.

use integration::agent::Node;

use super::*;

#[tokio::test]
async fn what_happens_during_an_outage_is_told_after_it() {
    everywhere(Node::builder, async |cluster| {
        let mut web = pod("web");
        web["spec"]["containers"][0]["command"] = json!(["sh", "-c", "sleep 1; exit 3"]);
        cluster.apply(&web).unwrap();
        cluster.apply(&pod("stays")).unwrap();
        cluster
            .until_pod("web", CONVERGENCE_TIMEOUT, is_running)
            .await
            .unwrap();
        let stays = cluster
            .until_pod("stays", CONVERGENCE_TIMEOUT, is_running)
            .await
            .unwrap();
        cluster.server.stop();
        cluster
            .wait("the container is started again", async || {
                let pods = cluster.node.pods().await.unwrap_or_default();
                pods.iter().any(|pod| {
                    let statuses = pod
                        .status
                        .as_ref()
                        .and_then(|s| s.container_statuses.as_deref());
                    statuses.is_some_and(|all| all.iter().any(|one| one.restart_count > 0))
                })
            })
            .await
            .unwrap();
        cluster.server.resume().unwrap();
        let web = cluster
            .until_pod("web", CONVERGENCE_TIMEOUT, |pod| restarts(pod) > 0)
            .await
            .unwrap();
        assert_eq!(
            web["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"],
            3
        );
        let after = cluster
            .until_pod("stays", CONVERGENCE_TIMEOUT, is_running)
            .await
            .unwrap();
        assert_eq!(uid(&stays), uid(&after));
        assert_eq!(restarts(&after), 0);
        assert_eq!(
            stays["status"]["containerStatuses"][0]["containerID"],
            after["status"]["containerStatuses"][0]["containerID"]
        );
    })
    .await;
}

#[tokio::test]
async fn a_node_restarted_during_an_outage_keeps_its_pods() {
    everywhere(Node::builder, async |mut cluster| {
        cluster.apply(&pod("web")).unwrap();
        let before = cluster
            .until_pod("web", CONVERGENCE_TIMEOUT, is_running)
            .await
            .unwrap();
        let kept = cluster.node.root().join("oxlet/alone.checkpoint");
        cluster
            .wait("the pod is kept", async || {
                std::fs::metadata(&kept).is_ok_and(|file| file.len() > 1000)
            })
            .await
            .unwrap();
        cluster.server.stop();
        cluster.node.kill9().unwrap();
        cluster.node.begin().await.unwrap();
        cluster
            .wait("the pod is worked on", async || {
                let pods = cluster.node.pods().await.unwrap_or_default();
                pods.iter()
                    .any(|pod| pod.metadata.name.as_deref() == Some("web"))
            })
            .await
            .unwrap();
        cluster.server.resume().unwrap();
        cluster.until_ready(CONVERGENCE_TIMEOUT).await.unwrap();
        let after = cluster
            .until_pod("web", CONVERGENCE_TIMEOUT, is_running)
            .await
            .unwrap();
        assert_eq!(uid(&before), uid(&after));
        assert_eq!(
            before["status"]["containerStatuses"][0]["containerID"],
            after["status"]["containerStatuses"][0]["containerID"]
        );
    })
    .await;
}

#[tokio::test]
async fn a_machine_that_reboots_without_its_server_brings_every_pod_back_with_its_secrets() {
    everywhere(Node::builder, async |mut cluster| {
        cluster
            .server
            .post(
                "/api/v1/namespaces/default/secrets",
                &json!({
                    "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "key" },
                    "stringData": { "word": "abracadabra-77" },
                    "data": { "word": "YWJyYWNhZGFicmEtNzc=" },
                }),
            )
            .unwrap();
        let mut web = pod("web");
        web["spec"]["volumes"] = json!([{ "name": "key", "secret": { "secretName": "key" } }]);
        web["spec"]["containers"][0]["volumeMounts"] =
            json!([{ "name": "key", "mountPath": "/key" }]);
        cluster.apply(&web).unwrap();
        let before = cluster
            .until_pod("web", CONVERGENCE_TIMEOUT, is_running)
            .await
            .unwrap();
        let kept = cluster.node.root().join("oxlet/alone.checkpoint");
        cluster
            .wait("the pod and its secret are kept", async || {
                std::fs::metadata(&kept).is_ok_and(|file| file.len() > 1000)
            })
            .await
            .unwrap();
        let bytes = std::fs::read(&kept).unwrap();
        let word = b"abracadabra-77";
        assert!(!bytes.windows(word.len()).any(|part| part == word));
        cluster.server.stop();
        cluster.node.kill9().unwrap();
        cluster.node.forget_containers().unwrap();
        cluster.node.begin().await.unwrap();
        cluster
            .wait("the pod runs again", async || {
                let pods = cluster.node.pods().await.unwrap_or_default();
                pods.iter().any(|pod| {
                    let phase = pod
                        .status
                        .as_ref()
                        .and_then(|status| status.phase.as_deref());
                    pod.metadata.name.as_deref() == Some("web") && phase == Some("Running")
                })
            })
            .await
            .unwrap();
        let file = cluster.node.root().join(format!(
            "pods/{}/volumes/kubernetes.io~secret/key/word",
            uid(&before)
        ));
        assert_eq!(std::fs::read(&file).unwrap(), word);
        cluster.server.resume().unwrap();
        cluster.until_ready(CONVERGENCE_TIMEOUT).await.unwrap();
        let after = cluster
            .until_pod("web", CONVERGENCE_TIMEOUT, |pod| {
                is_running(pod)
                    && pod["status"]["containerStatuses"][0]["containerID"]
                        != before["status"]["containerStatuses"][0]["containerID"]
            })
            .await
            .unwrap();
        assert_eq!(uid(&before), uid(&after));
    })
    .await;
}

#[tokio::test]
async fn a_pod_deleted_while_the_node_was_away_goes_when_it_is_back() {
    everywhere(Node::builder, async |mut cluster| {
        cluster.apply(&pod("web")).unwrap();
        cluster
            .until_pod("web", CONVERGENCE_TIMEOUT, is_running)
            .await
            .unwrap();
        cluster.node.kill9().unwrap();
        cluster
            .server
            .delete("/api/v1/namespaces/default/pods/web")
            .unwrap();
        cluster.node.begin().await.unwrap();
        cluster
            .until_pod("web", CONVERGENCE_TIMEOUT, Value::is_null)
            .await
            .unwrap();
        cluster
            .wait("nothing of it is left", async || {
                cluster.node.pods().await.is_ok_and(|pods| pods.is_empty())
            })
            .await
            .unwrap();
    })
    .await;
}
