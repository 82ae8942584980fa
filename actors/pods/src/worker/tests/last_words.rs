//! Termination messages are read from files, which takes time: no status depends on how long.

use std::time::Duration;

use k8s_openapi::api::core::v1::PodStatus;
use kernel::testing::run_paused;
use logic_api::testing::yaml::pod;
use logic_api::types::{PodFailure, PodUid};

use super::{container, phase};
use crate::pod_manager::Msg;
use crate::testing::{TestNode, keep_threads};

#[test]
fn the_last_status_has_the_ends_of_all_containers_however_late_their_last_words_are_read() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod("
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 5
  containers: [{name: app, image: localhost/busybox, command: [sleep, infinity]}]
")]);
        node.until("web", phase("Running")).await;
        let threads = keep_threads();
        let failure = PodFailure {
            reason: "Evicted".to_owned(),
            message: "no room".to_owned(),
            disruption: None,
            ..PodFailure::default()
        };
        let fail = Msg::Fail {
            uid: PodUid::from("web"),
            failure: Box::new(failure),
            grace: Duration::from_secs(5),
        };
        node.node.pod_manager.tell(fail).unwrap();
        let uid = PodUid::from("web");
        for _ in 0..1000 {
            node.runtime.pod(&uid).await.unwrap();
        }
        let now = node.runtime.pod(&uid).await.unwrap();
        assert!(now.is_stopped(), "everything but the reading is over");

        drop(threads);
        let ended = |status: &PodStatus| {
            let state = container(status, "app").state.clone();
            state.is_some_and(|state| state.terminated.is_some())
        };
        let last = node.until("web", ended).await;
        assert_eq!(last.phase.as_deref(), Some("Failed"));
    });
}
