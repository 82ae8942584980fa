//! Laws of the driver's client, against a driver at a real socket.

use std::collections::BTreeMap;

use kernel::testing::run_paused;
use logic_placement::claims::Connection;
use logic_placement::claims::health::Health;
use tempfile::TempDir;

use super::testing::{DriverFault, FakeDriver};
use super::*;

const TIMEOUT: Duration = Duration::from_secs(45);

/// A driver that serves one version, and a client that speaks another one.
async fn connected(
    serves: NodeService,
    speaks: NodeService,
) -> (TempDir, FakeDriver, DriverClient) {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("dra.sock");
    let driver = FakeDriver::start(&socket, serves);
    let endpoint = DriverEndpoint {
        socket,
        service: speaks,
        connection: Connection::Disconnected,
    };
    let client = DriverClient::connect(&"driver".into(), &endpoint, TIMEOUT).await;
    (folder, driver, client.unwrap())
}

fn claims() -> [ClaimIdentity; 1] {
    [ClaimIdentity {
        namespace: "ns".to_owned(),
        uid: "claim-uid".into(),
        name: "claim".to_owned(),
    }]
}

#[test]
fn both_versions_prepare_and_undo_and_only_the_newer_knows_shares() {
    run_paused(|| async {
        for (service, share) in [
            (NodeService::V1, Some("share".to_owned())),
            (NodeService::V1Beta1, None),
        ] {
            let (_folder, driver, client) = connected(service, service).await;
            let prepared = client.prepare(&claims(), TIMEOUT).await.unwrap();
            let device = ClaimDevice {
                pool: "pool".to_owned(),
                device: "claim".to_owned(),
                share,
                requests: Vec::new(),
                cdi_ids: vec!["vendor.com/claim=0".to_owned()],
            };
            assert_eq!(
                prepared,
                BTreeMap::from([("claim-uid".into(), Ok(vec![device]))])
            );
            driver.fault(DriverFault::Claims("busy"));
            let undone = client.unprepare(&claims(), TIMEOUT).await.unwrap();
            assert_eq!(
                undone,
                BTreeMap::from([("claim-uid".into(), Err("busy".to_owned()))])
            );
            let undone = client.unprepare(&claims(), TIMEOUT).await.unwrap();
            assert_eq!(undone, BTreeMap::from([("claim-uid".into(), Ok(()))]));
            let expected = ["prepare claim", "unprepare claim", "unprepare claim"];
            assert_eq!(driver.calls(), expected);
        }
    });
}

#[test]
fn a_version_that_the_driver_does_not_serve_is_refused() {
    run_paused(|| async {
        let (_folder, _driver, client) = connected(NodeService::V1, NodeService::V1Beta1).await;
        let refused = client.prepare(&claims(), TIMEOUT).await.unwrap_err();
        assert!(
            refused.is_unimplemented() && !refused.transient(),
            "{refused}"
        );
        let refused = client.unprepare(&claims(), TIMEOUT).await.unwrap_err();
        assert!(refused.is_unimplemented(), "{refused}");
    });
}

#[test]
fn errors_are_worded_as_gos_grpc_does() {
    run_paused(|| async {
        let (folder, driver, client) = connected(NodeService::V1, NodeService::V1).await;
        driver.fault(DriverFault::Status(Status::internal("no GPU")));
        let refused = client.prepare(&claims(), TIMEOUT).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "rpc error: code = Internal desc = no GPU"
        );
        driver.fault(DriverFault::Hang);
        let begun = kernel::now();
        let late = client.prepare(&claims(), TIMEOUT).await.unwrap_err();
        let expected = "rpc error: code = DeadlineExceeded desc = context deadline exceeded";
        assert_eq!(late.to_string(), expected);
        assert_eq!(
            kernel::now().duration_since(begun).as_secs(),
            TIMEOUT.as_secs()
        );
        let nobody = DriverEndpoint {
            socket: folder.path().join("nobody.sock"),
            service: NodeService::V1,
            connection: Connection::Disconnected,
        };
        let absent = DriverClient::connect(&"driver".into(), &nobody, TIMEOUT).await;
        let absent = absent.unwrap_err();
        assert!(
            absent
                .to_string()
                .starts_with("rpc error: code = Unavailable desc = connection error")
        );
        assert!(absent.transient());
    });
}

#[test]
fn the_end_of_a_connection_is_told_and_ends_its_calls() {
    run_paused(|| async {
        let (_folder, driver, client) = connected(NodeService::V1, NodeService::V1).await;
        driver.fault(DriverFault::Hang);
        let claims = claims();
        let call = client.prepare(&claims, TIMEOUT);
        let death = async {
            kernel::testing::pass(Duration::from_secs(1)).await;
            driver.die();
        };
        let begun = kernel::now();
        let (answer, ()) = futures_util::future::join(call, death).await;
        client.closed().await;
        assert_eq!(kernel::now().duration_since(begun).as_secs(), 1);
        let later = client.prepare(&claims, TIMEOUT).await;
        for broken in [answer, later] {
            let words = broken.unwrap_err().to_string();
            let expected = "rpc error: code = Unavailable desc = error reading from server: ";
            assert!(words.starts_with(expected), "{words}");
        }
    });
}

#[test]
fn health_is_followed_on_the_same_connection_until_the_driver_ends_it() {
    run_paused(|| async {
        let (_folder, driver, client) = connected(NodeService::V1, NodeService::V1).await;
        let mut reports = client.watch_health().await.unwrap();
        driver.report(&[
            ("a", 1, "fine"),
            ("b", 2, "hot"),
            ("c", 0, ""),
            ("d", 99, ""),
        ]);
        let report = reports.next().await.unwrap().unwrap();
        let health = |name: &str| report[&("pool".to_owned(), name.to_owned())].clone();
        assert_eq!(
            health("a"),
            DeviceHealth::reported(Health::Healthy, 0, "fine")
        );
        assert_eq!(
            health("b"),
            DeviceHealth::reported(Health::Unhealthy, 0, "hot")
        );
        assert_eq!(health("c").health, Health::Unknown);
        assert_eq!(health("d").health, Health::Unknown);
        assert!(client.prepare(&claims(), TIMEOUT).await.is_ok());
        driver.die();
        let end = reports.next().await;
        assert!(!matches!(end, Ok(Some(_))));
    });
}
