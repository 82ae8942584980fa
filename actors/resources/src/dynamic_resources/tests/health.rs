//! The health of devices, from the drivers to the pods' statuses.

use super::*;

impl Rig {
    /// The pods that the status manager was told of, since last time.
    fn changed(&mut self) -> Vec<Vec<String>> {
        let told = self.told.drain().into_iter();
        told.filter_map(|told| match told {
            PeerMessage::Health(pods) => Some(pods.iter().map(ToString::to_string).collect()),
            PeerMessage::Drivers | PeerMessage::Pods(_) => None,
        })
        .collect()
    }

    /// What the status of the pod's container shows of its devices.
    fn shown(&self, pod: &Arc<Pod>) -> Value {
        let status =
            json!({"name": "app", "image": "", "imageID": "", "ready": true, "restartCount": 0});
        let mut statuses = [read(status)];
        let known = self.known.borrow();
        known.show(&mut statuses, pod, kernel::timestamp());
        let status = serde_json::to_value(&statuses[0]).unwrap();
        status["allocatedResourcesStatus"][0]["resources"][0].clone()
    }
}

#[test]
fn pods_show_the_health_of_their_devices_and_are_told_of_changes_alone() {
    run_paused(|| async {
        let mut rig = Rig::start();
        let driver = rig.driver("gpu", NodeService::V1).await;
        assert_eq!(driver.watchers(), 1);
        rig.claim("claim", &["gpu"], &["web", "db"]);
        let (web, db) = (pod_of("web", &["claim"]), pod_of("db", &["claim"]));
        assert_eq!(rig.prepare(&web).await, Ok(()));
        assert_eq!(rig.prepare(&db).await, Ok(()));
        let id = "vendor.com/claim=0";
        assert_eq!(
            rig.shown(&web),
            json!({"resourceID": id, "health": "Unknown"})
        );
        driver.report(&[("claim", 2, "too hot")]);
        pass(SECOND).await;
        assert_eq!(rig.changed(), [["db-uid", "web-uid"]]);
        let hot = json!({"resourceID": id, "health": "Unhealthy", "message": "too hot"});
        assert_eq!(rig.shown(&web), hot);
        // The same again, and a device that no pod has.
        driver.report(&[("claim", 2, "too hot"), ("other", 2, "")]);
        pass(SECOND).await;
        assert_eq!(rig.changed(), [[""; 0]; 0]);
        assert_eq!(rig.shown(&web), hot);
        pass(31 * SECOND).await;
        assert_eq!(rig.shown(&web)["health"], "Unknown");
        rig.root.shutdown().await;
    });
}

#[test]
fn what_a_driver_said_is_forgotten_when_it_dies_and_heard_again_when_it_is_back() {
    run_paused(|| async {
        let mut rig = Rig::start();
        let driver = rig.driver("gpu", NodeService::V1).await;
        rig.claim("claim", &["gpu"], &["web"]);
        let web = pod_of("web", &["claim"]);
        assert_eq!(rig.prepare(&web).await, Ok(()));
        driver.report(&[("claim", 1, "")]);
        pass(SECOND).await;
        assert_eq!(rig.shown(&web)["health"], "Healthy");
        assert_eq!(rig.changed(), [["web-uid"]]);
        driver.die();
        pass(SECOND).await;
        assert_eq!(rig.shown(&web)["health"], "Unknown");
        assert_eq!(rig.changed(), [["web-uid"]]);
        driver.serve(NodeService::V1);
        pass(40 * SECOND).await;
        driver.report(&[("claim", 1, "")]);
        pass(SECOND).await;
        assert_eq!(rig.shown(&web)["health"], "Healthy");
        rig.deregister("gpu");
        pass(SECOND).await;
        assert_eq!(rig.shown(&web)["health"], "Unknown");
        assert_eq!(driver.watchers(), 0);
        rig.root.shutdown().await;
    });
}

#[test]
fn what_was_said_before_a_restart_holds_no_longer_than_it_did() {
    run_paused(|| async {
        let rig = Rig::start();
        let driver = rig.driver("gpu", NodeService::V1).await;
        rig.claim("claim", &["gpu"], &["web"]);
        let web = pod_of("web", &["claim"]);
        assert_eq!(rig.prepare(&web).await, Ok(()));
        driver.report(&[("claim", 1, "fine")]);
        pass(SECOND).await;
        let rig = rig.restart().await;
        pass(SECOND).await;
        assert_eq!(rig.shown(&web)["message"], "fine");
        pass(30 * SECOND).await;
        assert_eq!(rig.shown(&web)["health"], "Unknown");
        rig.root.shutdown().await;
        let file = rig.folder.path().join(HEALTH_FILE);
        std::fs::write(file, "{").unwrap();
        let rig = Rig::start_in(rig.folder, rig.surroundings);
        pass(SECOND).await;
        assert_eq!(rig.shown(&web)["health"], "Unknown");
        rig.root.shutdown().await;
    });
}
