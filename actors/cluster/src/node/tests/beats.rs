//! The lease.

use logic_node::node_status::lease::LeaseHolder;

use super::*;
use crate::node::lease::{self, Heartbeat};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/edge";

struct Beating {
    root: Supervisor,
    server: FakeNodeApi,
    object: channel::Sender<Option<Arc<Node>>>,
}

fn beating(server: FakeNodeApi) -> Beating {
    let object = channel::Sender::new(None);
    let (client, receiver) = (server.client(), object.subscribe());
    let root = Supervisor::root("test", Intensity::UNLIMITED);
    let (_, port) = mailbox(lease::MAILBOX);
    let holder = LeaseHolder {
        name: "edge".into(),
        seconds: 40,
    };
    root.spawn(ChildSpec::permanent("lease"), port, move || {
        Heartbeat::new(holder.clone(), client.clone(), receiver.clone())
    });
    Beating {
        root,
        server,
        object,
    }
}

impl Beating {
    fn register(&self) {
        let mut node = Node::default();
        node.metadata.uid = Some("uid-node".into());
        self.object.send_replace(Some(Arc::new(node)));
    }

    fn renewed(&self) -> Option<String> {
        let lease = self.server.get(LEASE)?;
        Some(lease["spec"]["renewTime"].as_str().unwrap().to_owned())
    }
}

/// Upstream's TestNewNodeLease, TestEnsureLease: a lease needs an owner to be made.
#[test]
fn the_lease_is_made_once_there_is_a_node_and_then_renewed_without_being_fetched() {
    run_paused(|| async {
        let beating = beating(FakeNodeApi::default());
        pass(SECOND).await;
        assert_eq!(beating.renewed(), None);
        beating.register();
        pass(MOMENT).await;
        assert!(beating.renewed().is_some());
        let owner = &beating.server.get(LEASE).unwrap()["metadata"]["ownerReferences"][0];
        assert_eq!(owner["uid"], "uid-node");
        beating.server.heard();
        pass(SECOND * 103).await;
        let heard = beating.server.heard();
        assert!((9..=10).contains(&heard.len()), "{heard:?}");
        assert!(heard.iter().all(|what| what.starts_with("PUT")));
    });
}

/// Upstream's TestRetryUpdateNodeLease, TestUpdateUsingLatestLease.
#[test]
fn a_conflict_is_solved_by_looking_and_failures_by_trying_again() {
    run_paused(|| async {
        let beating = beating(FakeNodeApi::default());
        beating.register();
        pass(MOMENT).await;
        let first = beating.renewed();
        beating.server.change(LEASE, |lease| {
            lease["metadata"]["labels"] = json!({"a": "b"})
        });
        beating.server.heard();
        pass(SECOND * 11).await;
        assert_ne!(beating.renewed(), first);
        let verbs: Vec<String> = beating
            .server
            .heard()
            .iter()
            .map(|what| what.split(' ').next().unwrap().to_owned())
            .collect();
        assert_eq!(verbs, ["PUT", "GET", "PUT"]);
        for _ in 0..4 {
            beating.server.fail("PUT", 500);
        }
        let before = beating.renewed();
        pass(SECOND * 11).await;
        assert_ne!(beating.renewed(), before);
        assert_eq!(beating.server.heard().len(), 5);
    });
}

/// Upstream's TestUpdateUsingLatestLease: a lease that was deleted is made again.
#[test]
fn a_deleted_lease_is_made_again_and_a_successor_goes_on() {
    run_paused(|| async {
        let beating = beating(FakeNodeApi::default());
        beating.register();
        pass(MOMENT).await;
        beating.server.delete(LEASE);
        pass(SECOND * 11).await;
        let before = beating.renewed();
        assert!(before.is_some());
        beating
            .root
            .inject("test/lease", InjectedFault::Panic)
            .unwrap();
        pass(SECOND).await;
        assert_ne!(beating.renewed(), before);
    });
}

#[test]
fn an_outage_is_waited_out_with_few_attempts_and_the_lease_lives_soon_after() {
    run_paused(|| async {
        let beating = beating(FakeNodeApi::default());
        beating.register();
        pass(MOMENT).await;
        beating.server.go_away(true);
        pass(SECOND * 3600).await;
        let before = beating.renewed();
        beating.server.heard();
        beating.server.go_away(false);
        pass(SECOND * 8).await;
        assert_ne!(beating.renewed(), before);
    });
}
