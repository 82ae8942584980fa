//! A server that answers badly: pods go on, it is asked no more than is decent, and afterwards all is as it should be.

use apiserver::{ApiFault, Effect};
use integration::wait_until;

use super::*;

const PODS: &str = "/api/v1/pods";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node";
/// More than the requests that are ever hit.
const FAULTS: usize = 1000;
/// How long a server stays bad once it has been so in every way.
const BAD_FOR: Duration = Duration::from_secs(1);
/// Requests in that time: each watch and each sync request may be tried twice, the node's own status five times.
const MOST: usize = 60;

/// A cluster with a pod that nothing may happen to.
struct BadServerRig {
    cluster: Cluster,
    stays: Value,
}

impl BadServerRig {
    async fn begin() -> BadServerRig {
        let short = json!({ "nodeLeaseDurationSeconds": 4 });
        let cluster = start(Node::builder().config(&short)).await;
        cluster.apply(&pod("stays")).unwrap();
        let running = cluster
            .until_pod("stays", CONVERGENCE_TIMEOUT, is_running)
            .await;
        BadServerRig {
            stays: running.unwrap(),
            cluster,
        }
    }

    /// All is well: a pod comes and another goes, and the one that stays is what it was.
    async fn assert_well(&self, came: &str, goes: &str, what: &str) {
        let cluster = &self.cluster;
        let waited = cluster
            .until_pod(came, CONVERGENCE_TIMEOUT, is_running)
            .await;
        waited.unwrap_or_else(|error| panic!("{what}: {error:#}"));
        let waited = cluster
            .until_pod(goes, CONVERGENCE_TIMEOUT, Value::is_null)
            .await;
        waited.unwrap_or_else(|error| panic!("{what}: {error:#}"));
        let now = cluster
            .until_pod("stays", CONVERGENCE_TIMEOUT, is_running)
            .await
            .unwrap();
        let container = |pod: &Value| pod["status"]["containerStatuses"][0]["containerID"].clone();
        let is = (uid(&now), container(&now), restarts(&now));
        assert_eq!(is, (uid(&self.stays), container(&self.stays), 0), "{what}");
    }

    fn come_and_go(&self, comes: &str, goes: &str) {
        self.cluster.apply(&pod(comes)).unwrap();
        let path = format!("/api/v1/namespaces/default/pods/{goes}");
        self.cluster.server.delete(&path).unwrap();
    }
}

fn status(code: u16, retry_after: Option<u32>) -> Effect {
    Effect::Status { code, retry_after }
}

/// A server answers with these effects, one after the other, for a while.
async fn endure(what: &str, effects: &[Effect]) {
    let rig = BadServerRig::begin().await;
    let server = rig.cluster.double();
    rig.cluster.apply(&pod("goes")).unwrap();
    let running = rig
        .cluster
        .until_pod("goes", CONVERGENCE_TIMEOUT, is_running);
    running.await.unwrap();
    server.forget_requests();
    for effect in effects.iter().cycle().take(FAULTS) {
        server.fault(ApiFault::times(1, "/api", effect.clone()));
    }
    server.close_watches();
    rig.come_and_go("comes", "goes");
    let all_strike = async || server.faults().len() + effects.len() <= FAULTS;
    rig.cluster.wait(what, all_strike).await.unwrap();
    let too_many = async || server.requests().len() > MOST;
    let waited = wait_until(BAD_FOR, "too many requests", too_many).await;
    assert!(waited.is_err(), "{what}: {:#?}", server.requests());
    server.clear_faults();
    rig.assert_well("comes", "goes", what).await;
}

#[tokio::test]
async fn a_server_that_refuses_is_asked_with_patience_and_takes_nothing_away() {
    let effects = [
        status(500, None),
        status(503, Some(1)),
        status(429, Some(1)),
        status(504, None),
    ];
    endure("a server that refuses", &effects).await;
}

#[tokio::test]
async fn a_server_that_cuts_connections_is_asked_with_patience_and_takes_nothing_away() {
    let effects = [Effect::Refuse, Effect::Cut, Effect::Lose];
    endure("a server that cuts connections", &effects).await;
}

#[tokio::test]
async fn a_server_that_talks_nonsense_is_asked_with_patience_and_takes_nothing_away() {
    let effects = [
        Effect::Garbage,
        Effect::Nonsense,
        Effect::OtherList,
        status(410, None),
    ];
    endure("a server that talks nonsense", &effects).await;
}

#[tokio::test]
async fn a_heartbeat_that_is_never_answered_is_given_up_and_the_next_one_comes() {
    let rig = BadServerRig::begin().await;
    let server = rig.cluster.double();
    let lease = rig
        .cluster
        .until(LEASE, CONVERGENCE_TIMEOUT, Value::is_object)
        .await;
    let renewed = lease.unwrap()["spec"]["renewTime"].clone();
    server.fault(ApiFault::once("PUT", LEASE, Effect::Hang));
    let hangs = async || server.faults().is_empty();
    rig.cluster.wait("a beat hangs", hangs).await.unwrap();
    let again = |lease: &Value| lease["spec"]["renewTime"] != renewed;
    rig.cluster
        .until(LEASE, CONVERGENCE_TIMEOUT, again)
        .await
        .unwrap();
}

/// Each effect hits the watch of pods once, while a pod is added and another removed.
async fn lose_nothing(effects: &[Effect]) -> BadServerRig {
    let rig = BadServerRig::begin().await;
    let server = rig.cluster.double();
    rig.cluster.apply(&pod("turn-0")).unwrap();
    for (turn, effect) in effects.iter().enumerate() {
        let (goes, comes) = (format!("turn-{turn}"), format!("turn-{}", turn + 1));
        let running = rig
            .cluster
            .until_pod(&goes, CONVERGENCE_TIMEOUT, is_running);
        running.await.unwrap();
        server.forget_requests();
        server.fault(ApiFault::watch(PODS, effect.clone()));
        server.close_watches();
        let taken = async || server.faults().is_empty();
        rig.cluster.wait("the watch is open", taken).await.unwrap();
        rig.come_and_go(&comes, &goes);
        rig.assert_well(&comes, &goes, &format!("{effect:?}")).await;
        let asked = server.requests();
        let asked = asked
            .iter()
            .filter(|one| one.method == "GET" && one.path == PODS);
        assert!(asked.count() < 8, "{effect:?}: asked too often");
    }
    rig
}

#[tokio::test]
async fn a_watch_that_says_half_an_event_or_nonsense_loses_nothing() {
    lose_nothing(&[Effect::HalfEvent, Effect::GarbageEvent]).await;
}

#[tokio::test]
async fn a_watch_that_speaks_of_another_kind_or_has_expired_loses_nothing() {
    lose_nothing(&[Effect::OtherEvent, Effect::ExpireEvent]).await;
}

#[tokio::test]
async fn what_was_forgotten_while_nobody_watched_or_was_not_told_for_a_while_comes_all_the_same() {
    let rig = lose_nothing(&[]).await;
    let server = rig.cluster.double();
    let running = rig
        .cluster
        .until_pod("turn-0", CONVERGENCE_TIMEOUT, is_running);
    running.await.unwrap();
    server.stop();
    rig.come_and_go("turn-1", "turn-0");
    server.expire_history();
    server.resume().unwrap();
    rig.assert_well("turn-1", "turn-0", "forgotten").await;
    server.mute_watches(true);
    rig.come_and_go("turn-2", "turn-1");
    assert!(rig.cluster.node.is_healthy().await);
    server.mute_watches(false);
    rig.assert_well("turn-2", "turn-1", "stale").await;
}
