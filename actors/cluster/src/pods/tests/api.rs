//! The source against an API server, on the machine's clock: pods that come, change and go, and mirrors.

use std::sync::Arc;

use api_client::plain;
use apiserver::{ApiFault, Effect, Server, ServerOptions};
use k8s_openapi::api::core::v1::Pod;
use logic_pods::api::mirrors::StaticPodSet;
use serde_json::{Value, json};

use super::super::Msg;
use super::{NODE, PodsRig, SOON, begin, names, pod, typed, until, wanted};

const PODS: &str = "/api/v1/namespaces/default/pods";

struct PodsFixture {
    server: Server,
    scene: PodsRig,
}

fn play<F: Future>(play: impl FnOnce(PodsFixture) -> F) {
    kernel::system::run(async {
        let server = Server::start(ServerOptions {
            service_accounts: false,
            ..ServerOptions::default()
        })
        .await
        .unwrap();
        let scene = begin(plain(server.url().parse().unwrap()), &[]);
        play(PodsFixture { server, scene }).await;
    })
    .unwrap();
}

/// Upstream's TestNewSourceApiserver_UpdatesAndMultiplePods and TestNewSourceApiserver_TwoNamespacesSameName.
#[test]
fn pods_come_change_and_go_as_the_api_says() {
    play(|mut stage| async move {
        assert!(stage.scene.run().await.is_empty());
        stage.server.post(PODS, &pod("a")).unwrap();
        let first = stage.scene.run().await;
        assert_eq!(names(&first), ["a"]);
        let annotations = first[0].metadata.annotations.clone().unwrap();
        assert_eq!(annotations["kubernetes.io/config.source"], "api");
        assert!(
            annotations["kubernetes.io/config.seen"]
                .parse::<jiff::Timestamp>()
                .is_ok()
        );
        assert_eq!(first[0].metadata.managed_fields, None);

        stage.server.post(PODS, &pod("b")).unwrap();
        let second = stage.scene.run().await;
        assert_eq!(names(&second), ["a", "b"]);
        assert!(Arc::ptr_eq(&first[0], &second[0]));

        stage
            .server
            .patch(
                &format!("{PODS}/a"),
                &json!({"metadata": {"labels": {"x": "y"}}}),
            )
            .unwrap();
        let third = stage.scene.run().await;
        assert!(!Arc::ptr_eq(&second[0], &third[0]) && Arc::ptr_eq(&second[1], &third[1]));
        assert_eq!(third[0].metadata.annotations, first[0].metadata.annotations);

        stage.server.delete(&format!("{PODS}/b")).unwrap();
        let ending = stage.scene.run().await;
        assert!(ending[1].metadata.deletion_timestamp.is_some());
        stage
            .server
            .delete(&format!("{PODS}/b?gracePeriodSeconds=0"))
            .unwrap();
        // Its grace becomes none before it is gone.
        while names(&stage.scene.run().await) != ["a"] {}
    });
}

#[test]
fn what_the_node_wrote_itself_is_told_to_the_keeper_of_statuses_alone() {
    play(|mut stage| async move {
        stage.server.post(PODS, &pod("a")).unwrap();
        while stage.scene.run().await.is_empty() {}
        stage.scene.alone.drain();
        let status = json!({"status": {"phase": "Running"}});
        stage
            .server
            .patch(&format!("{PODS}/a/status"), &status)
            .unwrap();
        let running = |pods: &[Arc<Pod>]| {
            let status = pods.first().and_then(|pod| pod.status.as_ref());
            status.is_some_and(|status| status.phase.as_deref() == Some("Running"))
        };
        until(&mut stage.scene.statuses, running).await;
        assert!(stage.scene.nothing_for_the_directory());
        assert!(stage.scene.alone.drain().is_empty());
        assert!(stage.scene.objects.drain().is_empty());
    });
}

#[test]
fn a_list_after_an_expired_watch_disturbs_nobody() {
    play(|mut stage| async move {
        stage.server.post(PODS, &pod("a")).unwrap();
        while stage.scene.run().await.is_empty() {}
        stage.server.expire_history();
        stage.server.close_watches();
        stage
            .server
            .fault(ApiFault::watch("/api/v1/pods", Effect::ExpireEvent));
        stage.server.post(PODS, &pod("b")).unwrap();
        let pods = stage.scene.run().await;
        assert_eq!(names(&pods), ["a", "b"]);
    });
}

/// A static pod as its source sends it.
fn fixed(hash: &str) -> Arc<Pod> {
    let mut pod = pod("web-worker-1");
    pod["metadata"]["uid"] = hash.into();
    pod["metadata"]["annotations"] = json!({
        "kubernetes.io/config.hash": hash, "kubernetes.io/config.source": "file", "kubernetes.io/config.seen": "now",
    });
    Arc::new(typed(pod))
}

fn node(server: &Server) -> String {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}});
    let made = server.post("/api/v1/nodes", &node).unwrap();
    made["metadata"]["uid"].as_str().unwrap().to_owned()
}

async fn mirror(server: &Server, wanted: impl Fn(&Value) -> bool) -> Value {
    let path = format!("{PODS}/web-worker-1");
    let found = server
        .wait(&path, SOON, |pod| pod.is_some_and(&wanted))
        .await;
    found.flatten().expect("there is such a mirror in time")
}

fn hash(mirror: &Value) -> &str {
    mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"]
        .as_str()
        .unwrap_or_default()
}

/// Upstream's TestCreateMirrorPod, TestDeleteOutdatedMirrorPod and TestDeleteOrphanedMirrorPods.
#[test]
fn a_mirror_is_made_renewed_and_deleted_with_its_static_pod() {
    play(|mut stage| async move {
        let PodsFixture { server, scene } = &mut stage;
        scene.pods.tell(wanted(vec![fixed("one")])).unwrap();
        scene.run().await;
        assert!(
            server.get(&format!("{PODS}/web-worker-1")).is_err(),
            "not before the node is there"
        );
        let uid = node(server);
        scene
            .pods
            .tell(Msg::Node {
                uid: Some(uid.clone()),
            })
            .unwrap();
        let made = mirror(server, |_| true).await;
        assert_eq!(hash(&made), "one");
        assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], uid);
        let shown = until(&mut scene.statuses, |pods| !pods.is_empty()).await;
        assert_eq!(names(&shown), ["web-worker-1"]);
        assert!(scene.nothing_for_the_directory());

        scene.pods.tell(wanted(vec![fixed("two")])).unwrap();
        let other = mirror(server, |pod| hash(pod) == "two").await;
        assert_ne!(other["metadata"]["uid"], made["metadata"]["uid"]);

        server.delete(&format!("{PODS}/web-worker-1")).unwrap();
        let again = mirror(server, |pod| {
            pod["metadata"]["uid"] != other["metadata"]["uid"]
        })
        .await;
        assert_eq!(hash(&again), "two");

        scene.pods.tell(wanted(Vec::new())).unwrap();
        let path = format!("{PODS}/web-worker-1");
        server
            .wait(&path, SOON, |pod| pod.is_none())
            .await
            .expect("the orphan is deleted");
    });
}

#[test]
fn a_mirror_that_is_refused_is_tried_again() {
    play(|mut stage| async move {
        let PodsFixture { server, scene } = &mut stage;
        server.fault(ApiFault::once(
            "POST",
            PODS,
            Effect::Status {
                code: 403,
                retry_after: None,
            },
        ));
        let uid = node(server);
        scene.pods.tell(Msg::Node { uid: Some(uid) }).unwrap();
        scene.pods.tell(wanted(vec![fixed("one")])).unwrap();
        scene.run().await;
        mirror(server, |_| true).await;
        let tries = server
            .requests()
            .into_iter()
            .filter(|heard| heard.method == "POST")
            .count();
        assert_eq!(tries, 2);
    });
}

/// Upstream's HandlePodCleanups: a mirror shows its static pod until that has ended.
#[test]
fn a_mirror_stays_until_its_static_pod_has_ended() {
    play(|mut stage| async move {
        let PodsFixture { server, scene } = &mut stage;
        let uid = node(server);
        scene.pods.tell(Msg::Node { uid: Some(uid) }).unwrap();
        scene.pods.tell(wanted(vec![fixed("one")])).unwrap();
        scene.run().await;
        let made = mirror(server, |_| true).await;
        let ending = StaticPodSet {
            pods: Vec::new(),
            ending: ["default/web-worker-1".to_owned()].into(),
        };
        scene.pods.tell(Msg::Static(ending)).unwrap();
        // What comes after it in the mailbox has been done when this one has an answer.
        let all = |reply| Msg::All { reply };
        scene.pods.ask(SOON, all).await.unwrap();
        let deletes = |server: &Server| {
            let requests = server.requests().into_iter();
            requests.filter(|heard| heard.method == "DELETE").count()
        };
        assert_eq!(deletes(server), 0);
        assert_eq!(
            mirror(server, |_| true).await["metadata"]["uid"],
            made["metadata"]["uid"]
        );
        scene.pods.tell(wanted(Vec::new())).unwrap();
        let path = format!("{PODS}/web-worker-1");
        server
            .wait(&path, SOON, |pod| pod.is_none())
            .await
            .expect("the orphan is deleted");
        assert_eq!(deletes(server), 1);
    });
}

#[test]
fn a_successor_knows_static_pods_and_the_node_without_being_told() {
    play(|mut stage| async move {
        let PodsFixture { server, scene } = &mut stage;
        let uid = node(server);
        scene
            .pods
            .tell(Msg::Node {
                uid: Some(uid.clone()),
            })
            .unwrap();
        scene.pods.tell(wanted(vec![fixed("one")])).unwrap();
        scene.run().await;
        let made = mirror(server, |_| true).await;
        let panic = kernel::InjectedFault::Panic;
        scene.supervisor.inject("test/pods", panic).unwrap();
        server.delete(&format!("{PODS}/web-worker-1")).unwrap();
        let again = mirror(server, |pod| {
            pod["metadata"]["uid"] != made["metadata"]["uid"]
        })
        .await;
        assert_eq!(again["metadata"]["ownerReferences"][0]["uid"], uid);
    });
}
