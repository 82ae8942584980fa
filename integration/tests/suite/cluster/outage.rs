//! An outage with everything in it: pods end, die, are deleted, replaced and made, static ones change, the agent is
//! killed, the machine reboots. Afterwards all is as the API wants it, and nothing was lost or done twice.

use proto::cri::ContainerState;

use super::*;

/// Exits with this code on SIGTERM.
fn told_to_end(name: &str, code: u8) -> Value {
    let mut pod = pod(name);
    let script = format!("trap 'exit {code}' USR1; while true; do sleep 0.1; done");
    pod["spec"]["containers"][0]["command"] = json!(["sh", "-c", script]);
    pod
}

fn job(name: &str, code: u8) -> Value {
    let mut pod = told_to_end(name, code);
    pod["spec"]["restartPolicy"] = json!("Never");
    pod
}

/// What a static pod's manifest says, as of this edition.
fn fixed(name: &str, edition: &str) -> String {
    let mut pod = pod(name);
    pod["metadata"]["labels"] = json!({ "edition": edition });
    pod["spec"]["containers"][0]["env"] = json!([{ "name": "EDITION", "value": edition }]);
    pod.to_string()
}

fn container_of(pod: &Value) -> Value {
    pod["status"]["containerStatuses"][0]["containerID"].clone()
}

fn ended_with(pod: &Value) -> Value {
    pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"].clone()
}

fn died_with(pod: &Value) -> Value {
    pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"].clone()
}

/// A cluster just before the outage, and what its pods were then.
struct OutageRig {
    cluster: Cluster,
    before: Vec<Value>,
}

const NAMES: [&str; 8] = [
    "stays", "ends", "fails", "dies", "deleted", "forced", "replaced", "late",
];

impl OutageRig {
    async fn begin() -> OutageRig {
        let node = Node::builder().manifest("edited.json", &fixed("edited", "first"));
        let node = node.manifest("removed.json", &fixed("removed", "first"));
        let cluster = start(node).await;
        for name in NAMES {
            let made = match name {
                "ends" => job(name, 0),
                "fails" => job(name, 7),
                "dies" => told_to_end(name, 3),
                "late" => job(name, 9),
                _ => pod(name),
            };
            cluster.apply(&made).unwrap();
        }
        let mut before = Vec::new();
        for name in NAMES {
            before.push(
                cluster
                    .until_pod(name, CONVERGENCE_TIMEOUT, is_running)
                    .await
                    .unwrap(),
            );
        }
        for name in ["edited-node", "removed-node"] {
            cluster
                .until_pod(name, CONVERGENCE_TIMEOUT, is_running)
                .await
                .unwrap();
        }
        let rig = OutageRig { cluster, before };
        rig.until_kept().await;
        rig
    }

    /// Waits until a crash would forget nothing that matters.
    async fn until_kept(&self) {
        let kept = async || {
            let tree = self.cluster.node.admin("/tree").await.unwrap();
            let offline = find(&tree, "offline").unwrap();
            offline["pods"] == NAMES.len() && offline["unwritten"] != "more"
        };
        self.cluster.wait("all pods are kept", kept).await.unwrap();
    }

    fn was(&self, name: &str) -> &Value {
        let at = NAMES.iter().position(|one| *one == name).unwrap();
        &self.before[at]
    }

    /// A pod as the API shows it.
    fn now(&self, name: &str) -> Value {
        self.cluster.pod(name).unwrap()
    }

    /// A pod as the node itself shows it; null if it does not.
    async fn here(&self, name: &str) -> Value {
        let pods = self.cluster.node.pods().await.unwrap_or_default();
        let mut pods = pods
            .into_iter()
            .map(|pod| serde_json::to_value(pod).unwrap());
        let found = pods.find(|pod| pod["metadata"]["name"] == name);
        found.unwrap_or_default()
    }

    async fn until_here(&self, name: &str, holds: impl Fn(&Value) -> bool) {
        let waited = self
            .cluster
            .wait(name, async || holds(&self.here(name).await));
        if waited.await.is_err() {
            panic!("{name}: {:#}", self.here(name).await["status"]);
        }
    }

    /// Sends a signal to the first process of a pod's container.
    async fn signal(&self, name: &str, signal: &str) {
        let id = container_of(&self.here(name).await);
        let (_, id) = id.as_str().unwrap().split_once("://").unwrap();
        let cri = self.cluster.node.cri().await.unwrap();
        // A container that ends may take the command along.
        drop(cri.exec(id, &["kill", signal, "1"]).await);
    }

    /// What happens on the node while the server is away.
    async fn suffer(&self) {
        for name in ["ends", "fails", "dies"] {
            self.signal(name, "-USR1").await;
        }
        self.until_here("ends", |pod| pod["status"]["phase"] == "Succeeded")
            .await;
        self.until_here("fails", |pod| ended_with(pod) == 7).await;
        self.until_here("dies", |pod| restarts(pod) == 1 && is_running(pod))
            .await;
        let node = &self.cluster.node;
        node.drop_manifest("edited.json", &fixed("edited", "second"))
            .unwrap();
        node.remove_manifest("removed.json").unwrap();
        node.drop_manifest("added.json", &fixed("added", "second"))
            .unwrap();
        let edited =
            |pod: &Value| pod["metadata"]["labels"]["edition"] == "second" && is_running(pod);
        self.until_here("edited-node", edited).await;
        self.until_here("added-node", is_running).await;
        self.until_here("removed-node", Value::is_null).await;
    }

    /// What others order meanwhile, of the server's store.
    fn order(&self) {
        let path = |name: &str| format!("/api/v1/namespaces/default/pods/{name}");
        let at_once = |name: &str| format!("{}?gracePeriodSeconds=0", path(name));
        let server = &self.cluster.server;
        server.delete(&path("deleted")).unwrap();
        server.delete(&at_once("forced")).unwrap();
        server.delete(&at_once("replaced")).unwrap();
        self.cluster.apply(&pod("replaced")).unwrap();
        self.cluster.apply(&pod("new")).unwrap();
    }

    /// What must be true once the server has been back for a moment.
    async fn settle(&self, late: &[&str]) {
        let cluster = &self.cluster;
        let is = async |name: &str, holds: fn(&Value) -> bool| {
            cluster
                .until_pod(name, CONVERGENCE_TIMEOUT, holds)
                .await
                .unwrap()
        };
        cluster.until_ready(CONVERGENCE_TIMEOUT).await.unwrap();
        is("deleted", Value::is_null).await;
        is("new", is_running).await;
        let replaced = is("replaced", is_running).await;
        assert_ne!(uid(&replaced), uid(self.was("replaced")));
        let ends = is("ends", |pod| pod["status"]["phase"] == "Succeeded").await;
        let fails = is("fails", |pod| pod["status"]["phase"] == "Failed").await;
        assert_eq!(
            (ended_with(&ends), ended_with(&fails)),
            (json!(0), json!(7))
        );
        let dies = is("dies", |pod| is_running(pod) && restarts(pod) > 0).await;
        let stays = is("stays", is_running).await;
        for pod in [&ends, &fails, &dies, &stays] {
            let name = pod["metadata"]["name"].as_str().unwrap();
            assert_eq!(uid(pod), uid(self.was(name)), "{name} was made again");
        }
        for pod in [&ends, &fails] {
            assert_eq!(restarts(pod), 0, "{pod:#}");
        }
        is("removed-node", Value::is_null).await;
        is("added-node", is_running).await;
        is("edited-node", |pod| {
            is_running(pod) && pod["metadata"]["labels"]["edition"] == "second"
        })
        .await;
        for name in ["forced", "deleted", "removed-node"] {
            self.until_here(name, Value::is_null).await;
        }
        let gone = uid(self.was("replaced"));
        self.until_here("replaced", |pod| is_running(pod) && uid(pod) != gone)
            .await;
        let cri = cluster.node.cri().await.unwrap();
        let mut wanted = vec![
            "added-node",
            "dies",
            "edited-node",
            "new",
            "replaced",
            "stays",
        ];
        wanted.extend(late);
        wanted.sort_unstable();
        let one_each = async || {
            let containers = cri.containers().await.unwrap_or_default();
            let running = containers
                .iter()
                .filter(|one| one.state() == ContainerState::ContainerRunning);
            let mut pods: Vec<_> = running
                .map(|one| &one.labels["io.kubernetes.pod.name"])
                .collect();
            pods.sort_unstable();
            pods == wanted
        };
        cluster
            .wait("each pod's container runs once", one_each)
            .await
            .unwrap();
    }
}

/// The snapshot of an actor, by the last part of its path.
fn find<'a>(tree: &'a Value, name: &str) -> Option<&'a Value> {
    let path = tree["path"].as_str().unwrap_or_default();
    if path.rsplit('/').next() == Some(name) {
        return Some(&tree["snapshot"]);
    }
    let mut children = tree["children"].as_array()?.iter();
    children.find_map(|child| find(child, name))
}

#[tokio::test]
async fn nothing_is_lost_or_done_twice_through_an_outage_in_which_the_agent_is_killed() {
    let mut rig = OutageRig::begin().await;
    rig.cluster.server.stop();
    rig.suffer().await;
    rig.order();
    rig.until_kept().await;
    rig.cluster.node.kill9().unwrap();
    rig.cluster.node.begin().await.unwrap();
    for name in ["stays", "dies", "deleted", "forced", "replaced"] {
        rig.until_here(name, is_running).await;
    }
    assert_eq!(rig.here("new").await, Value::Null, "nobody said so yet");
    rig.signal("late", "-USR1").await;
    rig.until_here("late", |pod| ended_with(pod) == 9).await;
    let died = container_of(&rig.here("dies").await);
    rig.cluster.server.resume().unwrap();
    let late = |pod: &Value| ended_with(pod) == 9;
    let late = rig
        .cluster
        .until_pod("late", CONVERGENCE_TIMEOUT, late)
        .await
        .unwrap();
    assert_eq!(uid(&late), uid(rig.was("late")));
    rig.settle(&[]).await;
    let (stays, dies) = (rig.now("stays"), rig.now("dies"));
    let was = container_of(rig.was("stays"));
    assert_eq!((container_of(&stays), restarts(&stays)), (was, 0));
    assert_eq!((container_of(&dies), restarts(&dies)), (died, 1));
    assert_eq!(died_with(&dies), 3);
}

#[tokio::test]
async fn nothing_is_lost_or_done_twice_through_an_outage_in_which_the_machine_reboots() {
    let mut rig = OutageRig::begin().await;
    rig.cluster.server.stop();
    rig.suffer().await;
    rig.order();
    rig.until_kept().await;
    rig.cluster.node.kill9().unwrap();
    rig.cluster.node.forget_containers().unwrap();
    rig.cluster.node.begin().await.unwrap();
    for name in ["stays", "dies", "late", "edited-node", "added-node"] {
        rig.until_here(name, is_running).await;
    }
    rig.cluster.server.resume().unwrap();
    rig.settle(&["late"]).await;
    let now = container_of(&rig.now("stays"));
    assert_ne!(now, container_of(rig.was("stays")));
}
