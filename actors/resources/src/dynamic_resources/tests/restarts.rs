//! What outlives the agent, and what is made good later.

use super::*;

impl Rig {
    /// Waits until the pod manager is asked, and has it answer: these pods are not over.
    async fn next_look(&mut self, pods: Option<&[&str]>) {
        let answer = loop {
            match self.told.next(61 * SECOND).await {
                Some(PeerMessage::Pods(PodsQuery(answer))) => break answer,
                Some(PeerMessage::Drivers | PeerMessage::Health(_)) => {}
                None => panic!("the pod manager is asked each minute"),
            }
        };
        let pods = pods.map(|pods| pods.iter().map(|pod| (*pod).into()).collect());
        answer.tell(pods).unwrap();
        pass(SECOND).await;
    }
}

#[test]
fn claims_outlive_the_agent_and_are_prepared_once_more() {
    run_paused(|| async {
        let rig = Rig::start();
        let driver = rig.driver("gpu", NodeService::V1).await;
        rig.claim("claim", &["gpu"], &["web"]);
        let web = pod_of("web", &["claim"]);
        assert_eq!(rig.prepare(&web).await, Ok(()));
        let mut rig = rig.restart().await;
        pass(SECOND).await;
        assert!(matches!(
            rig.told.drain().as_slice(),
            [PeerMessage::Drivers]
        ));
        // Containers may be made again before any driver is back.
        assert_eq!(rig.devices(&web).await, ["vendor.com/claim=0"]);
        assert!(rig.is_referenced("web"));
        rig.register("gpu", &rig.socket("gpu"), NodeService::V1)
            .await
            .unwrap();
        assert_eq!(rig.prepare(&web).await, Ok(()));
        assert_eq!(driver.calls(), ["prepare claim", "prepare claim"]);
        assert_eq!(rig.devices(&web).await, ["vendor.com/claim=0"]);
        assert_eq!(rig.unprepare(&web).await, Ok(()));
        rig.root.shutdown().await;
    });
}

#[test]
fn a_claim_that_was_being_prepared_at_the_end_is_undone_with_its_pod() {
    run_paused(|| async {
        let rig = Rig::start();
        let driver = rig.driver("gpu", NodeService::V1).await;
        rig.claim("claim", &["gpu"], &["web"]);
        driver.fault(DriverFault::Hang);
        let (addr, pod) = (rig.addr.clone(), pod_of("web", &["claim"]));
        let asking = tokio::task::spawn_local(async move {
            let asked = addr.ask(ANSWER_TIMEOUT, |reply| Msg::Prepare { pod, reply });
            asked.await.is_err()
        });
        pass(SECOND).await;
        // The file names the claim before the driver has answered.
        assert!(rig.state().contains("claim-uid"));
        let mut rig = rig.restart().await;
        let unanswered = asking.await.unwrap();
        assert!(unanswered, "the asker learns that no answer comes");
        let socket = rig.socket("gpu");
        let registered = rig.register("gpu", &socket, NodeService::V1).await;
        registered.unwrap();
        driver.calls();
        // As long as not every source has told its pods, none is gone.
        rig.next_look(None).await;
        rig.next_look(Some(&["web-uid"])).await;
        assert_eq!(driver.calls(), [""; 0]);
        driver.fault(DriverFault::Claims("busy"));
        rig.next_look(Some(&[])).await;
        assert_eq!(driver.calls(), ["unprepare claim"]);
        assert!(rig.is_referenced("web"));
        rig.next_look(Some(&[])).await;
        assert_eq!(driver.calls(), ["unprepare claim"]);
        assert!(!rig.is_referenced("web"));
        rig.root.shutdown().await;
    });
}

#[test]
fn a_driver_that_hangs_is_not_asked_twice_for_a_pod_that_is_gone() {
    run_paused(|| async {
        let rig = Rig::start();
        let driver = rig.driver("gpu", NodeService::V1).await;
        rig.claim("claim", &["gpu"], &["web"]);
        assert_eq!(rig.prepare(&pod_of("web", &["claim"])).await, Ok(()));
        driver.calls();
        let pods = || Msg::Pods(Some(BTreeSet::new()));
        driver.fault(DriverFault::Hang);
        rig.addr.tell(pods()).unwrap();
        pass(SECOND).await;
        rig.addr.tell(pods()).unwrap();
        pass(SECOND).await;
        assert_eq!(driver.calls(), ["unprepare claim"]);
        assert_eq!(rig.snapshot().await["jobs"], 1);
        rig.root.shutdown().await;
    });
}

#[test]
fn a_damaged_state_file_is_set_aside_and_named() {
    run_paused(|| async {
        let rig = Rig::start();
        let _driver = rig.driver("gpu", NodeService::V1).await;
        rig.claim("claim", &["gpu"], &["web"]);
        let web = pod_of("web", &["claim"]);
        assert_eq!(rig.prepare(&web).await, Ok(()));
        let damaged = rig.state().replace("web-uid", "other");
        std::fs::write(rig.folder.path().join(STATE_FILE), &damaged).unwrap();
        let rig = rig.restart().await;
        pass(SECOND).await;
        let why = rig.snapshot().await["damaged"].clone();
        assert!(
            why.as_str().unwrap().starts_with("checkpoint is corrupted"),
            "{why}"
        );
        let aside = std::fs::read_to_string(rig.folder.path().join("dra_manager_state.set-aside"));
        assert_eq!(aside.unwrap(), damaged);
        // The pod is prepared again.
        rig.register("gpu", &rig.socket("gpu"), NodeService::V1)
            .await
            .unwrap();
        assert_eq!(rig.prepare(&web).await, Ok(()));
        assert!(rig.state().contains("web-uid"));
        rig.root.shutdown().await;
    });
}

#[test]
fn without_its_state_file_no_driver_is_called() {
    run_paused(|| async {
        let rig = Rig::start();
        let driver = rig.driver("gpu", NodeService::V1).await;
        rig.claim("claim", &["gpu"], &["web"]);
        let web = pod_of("web", &["claim"]);
        let blocked = rig.folder.path().join("dra_manager_state.new");
        std::fs::create_dir(&blocked).unwrap();
        let refused = rig.prepare(&web).await.unwrap_err();
        assert!(
            refused.starts_with("prepare dynamic resources: checkpoint ResourceClaim state: "),
            "{refused}"
        );
        assert_eq!(driver.calls(), [""; 0]);
        std::fs::remove_dir(&blocked).unwrap();
        assert_eq!(rig.prepare(&web).await, Ok(()));
        assert_eq!(driver.calls(), ["prepare claim"]);
        rig.root.shutdown().await;
    });
}
