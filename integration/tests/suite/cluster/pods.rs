//! Pods that come from the API: run, shown, changed, ended.

use integration::agent::Node;

use super::super::node_rig::actor;
use super::*;

#[tokio::test]
async fn a_pod_of_the_api_runs_and_its_status_says_so() {
    everywhere(Node::builder, async |cluster| {
        cluster.apply(&pod("web")).unwrap();
        let web = cluster
            .until_pod("web", CONVERGENCE_TIMEOUT, is_running)
            .await
            .unwrap();
        let status = &web["status"];
        assert!(
            status["podIP"].is_string() && status["hostIP"].is_string(),
            "{status:#}"
        );
        assert!(status["startTime"].is_string(), "{status:#}");
        let container = &status["containerStatuses"][0];
        assert_eq!(container["ready"], true);
        assert!(
            container["containerID"].as_str().unwrap().contains("://"),
            "{status:#}"
        );
        assert_eq!(status["qosClass"], "BestEffort");
        let mounted = cluster.kubectl_ok(&["get", "events"]).await.unwrap();
        for reason in ["Pulled", "Created", "Started"] {
            assert!(mounted.contains(reason), "{mounted}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_deleted_pod_is_gone_within_its_grace_and_one_made_again_is_another() {
    everywhere(Node::builder, async |cluster| {
        cluster.apply(&pod("web")).unwrap();
        let first = cluster
            .until_pod("web", CONVERGENCE_TIMEOUT, is_running)
            .await
            .unwrap();
        cluster.kubectl_ok(&["delete", "pod", "web"]).await.unwrap();
        assert!(cluster.pod("web").is_none());
        cluster.apply(&pod("web")).unwrap();
        let second = cluster
            .until_pod("web", CONVERGENCE_TIMEOUT, is_running)
            .await
            .unwrap();
        assert_ne!(uid(&first), uid(&second));
    })
    .await;
}

#[tokio::test]
async fn a_pod_that_is_deleted_before_it_could_start_goes_as_well() {
    everywhere(Node::builder, async |cluster| {
        let mut web = pod("web");
        web["spec"]["containers"][0]["image"] = json!("localhost/nowhere:1");
        web["spec"]["containers"][0]["imagePullPolicy"] = json!("Never");
        cluster.apply(&web).unwrap();
        let waits =
            |pod: &Value| pod["status"]["containerStatuses"][0]["state"]["waiting"].is_object();
        cluster
            .until_pod("web", CONVERGENCE_TIMEOUT, waits)
            .await
            .unwrap();
        cluster.kubectl_ok(&["delete", "pod", "web"]).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_pod_removed_by_force_leaves_nothing_running() {
    everywhere(Node::builder, async |cluster| {
        cluster.apply(&pod("web")).unwrap();
        cluster
            .until_pod("web", CONVERGENCE_TIMEOUT, is_running)
            .await
            .unwrap();
        let force = ["delete", "pod", "web", "--force", "--grace-period=0"];
        cluster.kubectl_ok(&force).await.unwrap();
        cluster
            .wait("nothing of it is left", async || {
                let pods = cluster.node.pods().await;
                pods.is_ok_and(|pods| pods.is_empty())
            })
            .await
            .unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_pod_that_ends_well_has_succeeded_and_is_not_started_again() {
    everywhere(Node::builder, async |mut cluster| {
        let mut job = pod("job");
        job["spec"]["restartPolicy"] = json!("Never");
        job["spec"]["containers"][0]["command"] = json!(["sh", "-c", "sleep 0.1; exit 0"]);
        cluster.apply(&job).unwrap();
        let done = |pod: &Value| pod["status"]["phase"] == "Succeeded";
        cluster
            .until_pod("job", CONVERGENCE_TIMEOUT, done)
            .await
            .unwrap();
        cluster.node.kill9().unwrap();
        cluster.node.begin().await.unwrap();
        cluster.apply(&pod("other")).unwrap();
        cluster
            .until_pod("other", CONVERGENCE_TIMEOUT, is_running)
            .await
            .unwrap();
        let job = cluster.pod("job").unwrap();
        assert_eq!(job["status"]["phase"], "Succeeded");
        assert_eq!(restarts(&job), 0);
        cluster.kubectl_ok(&["delete", "pod", "job"]).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_static_pod_is_shown_by_its_mirror_and_a_deleted_mirror_comes_again() {
    everywhere(Node::builder, async |cluster| {
        let manifest = format!("{:#}", pod("fixed"));
        cluster.node.drop_manifest("fixed.yaml", &manifest).unwrap();
        let mirror = cluster
            .until_pod("fixed-node", CONVERGENCE_TIMEOUT, is_running)
            .await
            .unwrap();
        let annotations = &mirror["metadata"]["annotations"];
        assert!(
            annotations["kubernetes.io/config.mirror"].is_string(),
            "{mirror:#}"
        );
        let owner = &mirror["metadata"]["ownerReferences"][0];
        assert_eq!(
            (&owner["kind"], &owner["name"]),
            (&json!("Node"), &json!("node"))
        );
        let other = uid(&mirror);
        cluster
            .server
            .delete("/api/v1/namespaces/default/pods/fixed-node")
            .unwrap();
        let again = cluster
            .until_pod("fixed-node", CONVERGENCE_TIMEOUT, |pod| {
                is_running(pod) && uid(pod) != other
            })
            .await
            .unwrap();
        assert_eq!(restarts(&again), 0);
        cluster.node.remove_manifest("fixed.yaml").unwrap();
        cluster
            .until_pod("fixed-node", CONVERGENCE_TIMEOUT, Value::is_null)
            .await
            .unwrap();
    })
    .await;
}

#[tokio::test]
async fn what_a_pod_refers_to_comes_from_the_api_and_changes_with_it() {
    everywhere(Node::builder, async |cluster| {
        let map = |value: &str| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": { "name": "settings" }, "data": { "colour": value },
            })
        };
        let maps = "/api/v1/namespaces/default/configmaps";
        let mut web = pod("web");
        web["spec"]["volumes"] =
            json!([{ "name": "settings", "configMap": { "name": "settings" } }]);
        web["spec"]["containers"][0]["volumeMounts"] =
            json!([{ "name": "settings", "mountPath": "/settings" }]);
        cluster.apply(&web).unwrap();
        cluster
            .wait("the pod says what it lacks", async || {
                let events = cluster
                    .kubectl_ok(&["get", "events"])
                    .await
                    .unwrap_or_default();
                events.contains("FailedMount") && events.contains("settings")
            })
            .await
            .unwrap();
        cluster.server.post(maps, &map("red")).unwrap();
        let web = cluster
            .until_pod("web", CONVERGENCE_TIMEOUT, is_running)
            .await
            .unwrap();
        let file = cluster.node.root().join(format!(
            "pods/{}/volumes/kubernetes.io~configmap/settings/colour",
            uid(&web)
        ));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "red");
        cluster
            .server
            .put(&format!("{maps}/settings"), &map("blue"))
            .unwrap();
        cluster
            .wait("the change is seen", async || {
                std::fs::read_to_string(&file).is_ok_and(|text| text == "blue")
            })
            .await
            .unwrap();
        let token = cluster.node.root().join(format!(
            "pods/{}/volumes/kubernetes.io~projected",
            uid(&web)
        ));
        let volume = std::fs::read_dir(token)
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path();
        for name in ["token", "ca.crt", "namespace"] {
            assert!(
                std::fs::metadata(volume.join(name)).unwrap().len() > 0,
                "{name}"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn killed_at_any_moment_the_agent_starts_no_pod_twice_and_loses_none() {
    everywhere(Node::builder, async |mut cluster| {
        for n in 0..12 {
            cluster.apply(&pod(&format!("p{n}"))).unwrap();
            if n % 4 == 3 {
                cluster.node.kill9().unwrap();
                cluster.node.begin().await.unwrap();
            }
        }
        for n in 0..12 {
            let seen = cluster
                .until_pod(&format!("p{n}"), CONVERGENCE_TIMEOUT, is_running)
                .await
                .unwrap();
            assert_eq!(restarts(&seen), 0, "{seen:#}");
        }
    })
    .await;
}

#[tokio::test]
async fn an_agent_that_starts_again_writes_nothing_that_the_api_shows() {
    let mut cluster = start(Node::builder()).await;
    for name in ["one", "two", "three"] {
        cluster.apply(&pod(name)).unwrap();
        cluster
            .until_pod(name, CONVERGENCE_TIMEOUT, is_running)
            .await
            .unwrap();
    }
    cluster.node.terminate().await.unwrap();
    // Times in a status are whole seconds: those of the next life differ.
    let ended = kernel::wall();
    let wait = cluster.wait("seconds have gone by", async || {
        let gone = kernel::wall().duration_since(ended);
        gone.is_ok_and(|gone| gone.as_secs() >= 2)
    });
    wait.await.unwrap();
    let before = cluster.server.list("/api/v1/pods").unwrap();
    cluster.double().forget_requests();
    cluster.node.begin().await.unwrap();
    cluster.apply(&pod("after")).unwrap();
    cluster
        .until_pod("after", CONVERGENCE_TIMEOUT, is_running)
        .await
        .unwrap();
    let told = cluster.wait("everything is told", async || {
        let tree = cluster.node.admin("/tree").await.unwrap();
        let statuses = actor(&tree, "oxlet/state/status").unwrap();
        statuses["snapshot"]["untold"] == 0 && statuses["snapshot"]["pods"] == 4
    });
    told.await.unwrap();
    let requests = cluster.double().requests().into_iter();
    let written: Vec<_> = requests
        .filter(|heard| heard.method == "PATCH" && heard.path.contains("/pods/"))
        .filter(|heard| !heard.path.contains("/after"))
        .collect();
    assert!(written.is_empty(), "{written:#?}\n{before:#?}");
}
