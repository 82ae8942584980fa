//! Claims of a pod: prepared before its sandbox, undone after its last container.

use std::collections::BTreeSet;
use std::time::Duration;

use kernel::Recipient;
use kernel::testing::{Inbox, inbox, pass, run_paused};
use logic_api::testing::yaml::pod;
use logic_api::types::PodUid;
use logic_placement::claims::{CallFailure, ClaimsError, JobFailure};
use runtime_fake::Rpc;

use crate::pod_manager::claims::{ClaimRequest, PodClaims};
use crate::pod_manager::{Msg, PodQuery};
use crate::testing::TestNode;
use crate::worker::tests::phase;

const SOON: Duration = Duration::from_secs(20);

const POD: &str = "
metadata: {name: web}
spec:
  restartPolicy: Always
  terminationGracePeriodSeconds: 1
  resourceClaims: [{name: device, resourceClaimName: gpu}]
  containers:
  - name: app
    image: localhost/busybox
    command: [sleep, infinity]
    resources: {claims: [{name: device}]}
";

async fn start() -> (TestNode, Inbox<ClaimRequest>) {
    let (manager, requests) = inbox(16);
    let claims = PodClaims::new(Recipient::new(manager, |request| request), None);
    (TestNode::with_claims(claims).await, requests)
}

fn failure() -> JobFailure {
    JobFailure::Call(CallFailure::Call {
        rpc: "NodePrepareResources",
        why: "busy".to_owned(),
    })
}

/// Answers that the pod's claims are to be prepared.
async fn prepare(requests: &mut Inbox<ClaimRequest>, answer: Result<(), ClaimsError>) {
    match requests.next(SOON).await {
        Some(ClaimRequest::Prepare { reply, .. }) => reply.send(answer),
        other => panic!("{other:?}"),
    }
}

/// Answers which devices the container gets.
async fn give(requests: &mut Inbox<ClaimRequest>) {
    match requests.next(SOON).await {
        Some(ClaimRequest::Devices {
            container, reply, ..
        }) => {
            assert_eq!(container, "app");
            reply.send(Ok(vec!["vendor.com/gpu=0".to_owned()]));
        }
        other => panic!("{other:?}"),
    }
}

/// Answers that the pod's claims are to be undone.
async fn unprepare(requests: &mut Inbox<ClaimRequest>, answer: Result<(), ClaimsError>) {
    match requests.next(SOON).await {
        Some(ClaimRequest::Unprepare { reply, .. }) => reply.send(answer),
        other => panic!("{other:?}"),
    }
}

#[derive(Debug, strum::IntoStaticStr)]
enum Answer {
    Pods(Option<BTreeSet<PodUid>>),
}

/// The pods that are not over, as the manager of dynamic resources is told.
async fn unended(node: &TestNode) -> BTreeSet<PodUid> {
    let (asker, mut answers) = inbox(1);
    let asker = Recipient::new(asker, Answer::Pods);
    let question = Msg::Query(PodQuery::Unended { asker });
    node.node.pod_manager.tell(question).unwrap();
    let Some(Answer::Pods(pods)) = answers.next(SOON).await else {
        panic!("the pod manager answers");
    };
    pods.unwrap()
}

#[test]
fn claims_are_prepared_before_the_sandbox_and_undone_after_the_last_container() {
    run_paused(|| async {
        let (node, mut requests) = start().await;
        node.desire(&[pod(POD)]);
        match requests.next(SOON).await {
            Some(ClaimRequest::Prepare { pod, reply }) => {
                assert_eq!(pod.metadata.uid.as_deref(), Some("web"));
                assert_eq!(node.fake.calls(Rpc::RunPodSandbox), 0);
                reply.send(Ok(()));
            }
            other => panic!("{other:?}"),
        }
        give(&mut requests).await;
        node.until("web", phase("Running")).await;
        assert_eq!(unended(&node).await, ["web".into()].into());
        node.desire(&[]);
        match requests.next(SOON).await {
            Some(ClaimRequest::Unprepare { pod, reply }) => {
                assert_eq!(pod.metadata.uid.as_deref(), Some("web"));
                let now = node.runtime.pod(&"web".into()).await.unwrap();
                assert!(now.is_stopped(), "{now:?}");
                assert_eq!(unended(&node).await, ["web".into()].into());
                reply.send(Ok(()));
            }
            other => panic!("{other:?}"),
        }
        node.until_gone("web").await;
        assert_eq!(unended(&node).await, [].into());
        assert!(requests.drain().is_empty(), "nothing is asked twice");
    });
}

/// Upstream's event of kuberuntime_manager.go (SyncPod).
#[test]
fn a_pod_whose_claims_are_not_prepared_says_so_and_waits() {
    run_paused(|| async {
        let (node, mut requests) = start().await;
        node.desire(&[pod(POD)]);
        prepare(&mut requests, Err(ClaimsError::Prepare(failure()))).await;
        pass(Duration::from_secs(5)).await;
        assert!(requests.drain().is_empty(), "drivers are left in peace");
        assert_eq!(node.fake.calls(Rpc::RunPodSandbox), 0);
        let events = node.events().await;
        let told = events
            .iter()
            .find(|event| event.reason == "FailedPrepareDynamicResources");
        let words = "Failed to prepare dynamic resources: prepare dynamic resources: ";
        let told = told.map(|event| event.message.clone()).unwrap_or_default();
        assert!(
            told.starts_with(words) && told.contains("busy"),
            "{told}: {events:?}"
        );
        prepare(&mut requests, Ok(())).await;
        give(&mut requests).await;
        node.until("web", phase("Running")).await;
    });
}

#[test]
fn a_pod_is_not_over_before_its_claims_are_undone() {
    run_paused(|| async {
        let (node, mut requests) = start().await;
        node.desire(&[pod(POD)]);
        prepare(&mut requests, Ok(())).await;
        give(&mut requests).await;
        node.until("web", phase("Running")).await;
        node.desire(&[]);
        unprepare(&mut requests, Err(ClaimsError::Unprepare(failure()))).await;
        pass(Duration::from_secs(5)).await;
        assert!(requests.drain().is_empty(), "drivers are left in peace");
        assert!(node.statuses().await.contains_key(&PodUid::from("web")));
        let reasons = node.reasons().await;
        let reason = "FailedUnprepareDynamicResources".to_owned();
        assert!(reasons.contains(&reason), "{reasons:?}");
        unprepare(&mut requests, Ok(())).await;
        node.until_gone("web").await;
    });
}

#[test]
fn a_pod_that_goes_while_its_claims_are_prepared_is_not_begun() {
    run_paused(|| async {
        let (node, mut requests) = start().await;
        node.desire(&[pod(POD)]);
        let asked = requests.next(SOON).await;
        let Some(ClaimRequest::Prepare { reply, .. }) = asked else {
            panic!("{asked:?}");
        };
        node.desire(&[]);
        unprepare(&mut requests, Ok(())).await;
        node.until_gone("web").await;
        reply.send(Ok(()));
        assert_eq!(node.fake.calls(Rpc::RunPodSandbox), 0);
    });
}
