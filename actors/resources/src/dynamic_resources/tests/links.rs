//! Drivers that come, go, die, and speak one version or the other.

use super::*;

#[test]
fn a_driver_that_speaks_the_older_version_alone_is_spoken_to_in_that() {
    run_paused(|| async {
        let rig = Rig::start();
        let driver = rig.driver("gpu", NodeService::V1Beta1).await;
        rig.claim("claim", &["gpu"], &["web"]);
        let web = pod_of("web", &["claim"]);
        assert_eq!(rig.prepare(&web).await, Ok(()));
        assert_eq!(rig.devices(&web).await, ["vendor.com/claim=0"]);
        assert_eq!(rig.unprepare(&web).await, Ok(()));
        assert_eq!(driver.calls(), ["prepare claim", "unprepare claim"]);
        rig.root.shutdown().await;
    });
}

#[test]
fn a_driver_is_refused_without_a_version_that_is_known() {
    run_paused(|| async {
        let rig = Rig::start();
        let refused = rig.addr.ask(ANSWER_TIMEOUT, |reply| Msg::Registered {
            driver: "gpu".into(),
            socket: "/gpu.sock".into(),
            versions: vec!["1.0.0".to_owned()],
            reply,
        });
        assert!(refused.await.unwrap().is_err());
        assert_eq!(rig.snapshot().await["drivers"], json!({}));
        let _driver = rig.driver("gpu", NodeService::V1).await;
        let socket = rig.socket("gpu");
        let twice = rig
            .register("gpu", &socket, NodeService::V1)
            .await
            .unwrap_err();
        let taken = format!(
            "endpoint {} already registered for DRA driver plugin gpu",
            socket.display()
        );
        assert_eq!(twice.to_string(), taken);
        rig.root.shutdown().await;
    });
}

#[test]
fn a_driver_that_dies_in_the_middle_of_a_call_is_called_again_once_it_is_back() {
    run_paused(|| async {
        let rig = Rig::start();
        let driver = rig.driver("gpu", NodeService::V1).await;
        rig.claim("claim", &["gpu"], &["web"]);
        let web = pod_of("web", &["claim"]);
        driver.fault(DriverFault::Hang);
        let death = async {
            pass(SECOND).await;
            driver.die();
        };
        let begun = kernel::now();
        let (broken, ()) = futures_util::future::join(rig.prepare(&web), death).await;
        let broken = broken.unwrap_err();
        assert!(
            broken.starts_with("prepare dynamic resources: NodePrepareResources: rpc error"),
            "{broken}"
        );
        assert!(kernel::now().duration_since(begun) < 2 * SECOND);
        let absent = rig.prepare(&web).await.unwrap_err();
        assert!(absent.contains("code = Unavailable"), "{absent}");
        driver.serve(NodeService::V1);
        // At once: a call does not wait for the next attempt to connect.
        assert_eq!(rig.prepare(&web).await, Ok(()));
        assert_eq!(driver.calls(), ["prepare claim", "prepare claim"]);
        rig.root.shutdown().await;
    });
}

#[test]
fn the_instance_that_came_last_is_called_and_the_one_before_when_it_is_gone() {
    run_paused(|| async {
        let rig = Rig::start();
        let old = rig.driver("gpu", NodeService::V1).await;
        let socket = rig.socket("gpu-new");
        let new = FakeDriver::start(&socket, NodeService::V1);
        rig.register("gpu", &socket, NodeService::V1).await.unwrap();
        pass(SECOND).await;
        for claim in ["a", "b", "c"] {
            rig.claim(claim, &["gpu"], &["web"]);
        }
        assert_eq!(rig.prepare(&pod_of("web", &["a"])).await, Ok(()));
        new.die();
        pass(SECOND).await;
        assert_eq!(rig.prepare(&pod_of("web", &["b"])).await, Ok(()));
        let gone = Msg::Deregistered {
            driver: "gpu".into(),
            socket,
        };
        rig.addr.tell(gone).unwrap();
        assert_eq!(rig.prepare(&pod_of("web", &["c"])).await, Ok(()));
        assert_eq!(new.calls(), ["prepare a"]);
        assert_eq!(old.calls(), ["prepare b", "prepare c"]);
        rig.root.shutdown().await;
    });
}

#[test]
fn slices_of_all_drivers_go_at_the_start_and_those_of_one_that_is_gone_after_a_while() {
    run_paused(|| async {
        let rig = Rig::start();
        rig.with(|around| around.refusals = 2);
        let all = "spec.nodeName=worker";
        let own = "spec.driver=gpu,spec.nodeName=worker";
        let deleted = || rig.with(|around| std::mem::take(&mut around.deleted));
        pass(10 * SECOND).await;
        let seconds: Vec<(u64, String)> = deleted();
        let [(0, first), (1, second), (3, third)] = seconds.as_slice() else {
            panic!("after one second and after two more: {seconds:?}");
        };
        assert_eq!([first, second, third], [all; 3]);
        let driver = rig.driver("gpu", NodeService::V1).await;
        pass(60 * SECOND).await;
        assert_eq!(deleted(), []);
        // A restart of the driver is no end.
        driver.die();
        pass(20 * SECOND).await;
        driver.serve(NodeService::V1);
        pass(60 * SECOND).await;
        assert_eq!(deleted(), []);
        driver.die();
        pass(29 * SECOND).await;
        assert_eq!(deleted(), []);
        pass(2 * SECOND).await;
        let selectors: Vec<String> = deleted()
            .into_iter()
            .map(|(_, selector)| selector)
            .collect();
        assert_eq!(selectors, [own]);
        // Gone for good, it is told no second time before it was there again.
        rig.deregister("gpu");
        pass(31 * SECOND).await;
        let selectors: Vec<String> = deleted()
            .into_iter()
            .map(|(_, selector)| selector)
            .collect();
        assert_eq!(selectors, [own]);
        rig.root.shutdown().await;
    });
}
