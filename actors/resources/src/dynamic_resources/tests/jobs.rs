//! Claims prepared and undone.

use futures_util::future::{join, join_all};
use tonic::Status;

use super::*;

#[test]
fn a_claim_is_prepared_once_for_all_its_pods_and_undone_after_the_last() {
    run_paused(|| async {
        let rig = Rig::start();
        let driver = rig.driver("gpu", NodeService::V1).await;
        rig.claim("shared", &["gpu"], &["web", "db"]);
        let (web, db) = (pod_of("web", &["shared"]), pod_of("db", &["shared"]));
        let both = join(rig.prepare(&web), rig.prepare(&db)).await;
        assert_eq!(both, (Ok(()), Ok(())));
        assert_eq!(driver.calls(), ["prepare shared"]);
        assert_eq!(rig.devices(&web).await, ["vendor.com/shared=0"]);
        assert!(rig.is_referenced("web") && rig.is_referenced("db"));
        assert_eq!(rig.unprepare(&web).await, Ok(()));
        assert_eq!(driver.calls(), [""; 0]);
        assert!(!rig.is_referenced("web") && rig.is_referenced("db"));
        assert!(rig.state().contains("db-uid") && !rig.state().contains("web-uid"));
        assert_eq!(rig.unprepare(&db).await, Ok(()));
        assert_eq!(driver.calls(), ["unprepare shared"]);
        assert_eq!(rig.unprepare(&db).await, Ok(()));
        assert_eq!(driver.calls(), [""; 0]);
        assert!(!rig.state().contains("shared"));
        rig.root.shutdown().await;
    });
}

#[test]
fn what_is_prepared_already_is_not_asked_for_with_the_pods_next_claim() {
    run_paused(|| async {
        let rig = Rig::start();
        let driver = rig.driver("gpu", NodeService::V1).await;
        rig.claim("first", &["gpu"], &["web", "db"]);
        rig.claim("second", &["gpu"], &["db"]);
        assert_eq!(rig.prepare(&pod_of("web", &["first"])).await, Ok(()));
        let db = pod_of("db", &["first", "second"]);
        assert_eq!(rig.prepare(&db).await, Ok(()));
        assert_eq!(driver.calls(), ["prepare first", "prepare second"]);
        assert_eq!(
            rig.devices(&db).await,
            ["vendor.com/first=0", "vendor.com/second=0"]
        );
        let claims = rig.snapshot().await["claims"].clone();
        for claim in claims.as_array().unwrap() {
            assert_eq!(claim["preparation"], "Prepared");
        }
        rig.root.shutdown().await;
    });
}

#[test]
fn a_pod_that_may_not_have_its_claims_reaches_no_driver_and_no_file() {
    run_paused(|| async {
        let rig = Rig::start();
        let driver = rig.driver("gpu", NodeService::V1).await;
        rig.claim("stranger", &["gpu"], &["db"]);
        rig.claim("driverless", &["unknown"], &["web"]);
        let cases = [
            (
                "absent",
                "prepare dynamic resources: fetch ResourceClaim absent: resourceclaims.resource.k8s.io \"absent\" not found",
            ),
            (
                "stranger",
                "prepare dynamic resources: pod web (web-uid) is not allowed to use ResourceClaim stranger (stranger-uid)",
            ),
            (
                "driverless",
                "prepare dynamic resources: DRA driver unknown is not registered",
            ),
        ];
        for (claim, expected) in cases {
            let pod = pod_of("web", &[claim]);
            assert_eq!(rig.prepare(&pod).await, Err(expected.to_owned()));
            assert_eq!(rig.unprepare(&pod).await, Ok(()));
        }
        assert_eq!(driver.calls(), [""; 0]);
        assert!(!rig.is_referenced("web"));
        assert!(!rig.state().contains("-uid"));
        let mut waiting = Pod::clone(&pod_of("web", &[]));
        waiting.spec.as_mut().unwrap().resource_claims =
            read(json!([{"name": "a", "resourceClaimTemplateName": "t"}]));
        let refused = rig.prepare(&Arc::new(waiting)).await.unwrap_err();
        let expected = "prepare dynamic resources: pod \"ns/web\": ResourceClaim not created yet";
        assert_eq!(refused, expected);
        assert_eq!(rig.prepare(&pod_of("idle", &[])).await, Ok(()));
        rig.root.shutdown().await;
    });
}

#[test]
fn what_a_driver_fails_at_is_asked_for_again() {
    run_paused(|| async {
        let rig = Rig::start();
        let driver = rig.driver("gpu", NodeService::V1).await;
        rig.claim("claim", &["gpu"], &["web"]);
        let web = pod_of("web", &["claim"]);
        let cases = [
            (
                DriverFault::Status(Status::internal("no GPU")),
                "NodePrepareResources: rpc error: code = Internal desc = no GPU",
            ),
            (
                DriverFault::Claims("too hot"),
                "NodePrepareResources failed for ResourceClaim claim: too hot",
            ),
            (
                DriverFault::AlsoAbout("strange-uid"),
                "NodePrepareResources returned result for unknown claim UID strange-uid",
            ),
            (
                DriverFault::Silent,
                "NodePrepareResources skipped 1 ResourceClaims",
            ),
        ];
        for (fault, expected) in cases.clone() {
            driver.fault(fault);
            let expected = format!("prepare dynamic resources: {expected}");
            assert_eq!(rig.prepare(&web).await, Err(expected));
            assert!(rig.is_referenced("web"));
            assert_eq!(driver.calls(), ["prepare claim"]);
        }
        assert_eq!(rig.prepare(&web).await, Ok(()));
        for (fault, expected) in cases {
            driver.fault(fault);
            let expected = expected.replace("NodePrepare", "NodeUnprepare");
            let expected = format!("unprepare dynamic resources: {expected}");
            assert_eq!(rig.unprepare(&web).await, Err(expected));
            assert!(rig.is_referenced("web"));
        }
        assert_eq!(rig.unprepare(&web).await, Ok(()));
        assert!(!rig.is_referenced("web"));
        rig.root.shutdown().await;
    });
}

#[test]
fn a_driver_that_hangs_delays_its_own_pods_until_its_deadline() {
    run_paused(|| async {
        let rig = Rig::start();
        let hung = rig.driver("hung", NodeService::V1).await;
        let _well = rig.driver("well", NodeService::V1).await;
        rig.claim("slow", &["hung"], &["web"]);
        rig.claim("quick", &["well"], &["db"]);
        rig.claim("other", &["hung"], &["last"]);
        hung.fault(DriverFault::Hang);
        let begun = kernel::now();
        let web = pod_of("web", &["slow"]);
        let slow = rig.prepare(&web);
        let quick = async {
            pass(SECOND).await;
            let quick = rig.prepare(&pod_of("db", &["quick"])).await;
            // Nor does one call keep the driver's next one waiting.
            let other = rig.prepare(&pod_of("last", &["other"])).await;
            (quick, other, kernel::now().duration_since(begun))
        };
        let (slow, (quick, other, took)) = join(slow, quick).await;
        assert_eq!((quick, other), (Ok(()), Ok(())));
        assert!(took < 2 * SECOND, "{took:?}");
        let expected = "prepare dynamic resources: NodePrepareResources: rpc error: code = DeadlineExceeded desc = context deadline exceeded";
        assert_eq!(slow, Err(expected.to_owned()));
        let took = kernel::now().duration_since(begun);
        assert!((45..=46).contains(&took.as_secs()), "{took:?}");
        hung.fault(DriverFault::Hang);
        let late = rig.unprepare(&web).await.unwrap_err();
        let expected = expected
            .replace("Prepare", "Unprepare")
            .replace("prepare dynamic", "unprepare dynamic");
        assert_eq!(late, expected);
        rig.root.shutdown().await;
    });
}

#[test]
fn a_pod_that_goes_while_it_is_prepared_is_undone_after_that() {
    run_paused(|| async {
        let rig = Rig::start();
        let driver = rig.driver("gpu", NodeService::V1).await;
        rig.claim("claim", &["gpu"], &["web"]);
        let web = pod_of("web", &["claim"]);
        driver.fault(DriverFault::Hang);
        let (prepared, undone) = join(rig.prepare(&web), rig.unprepare(&web)).await;
        assert!(prepared.is_err());
        assert_eq!(undone, Ok(()));
        assert_eq!(driver.calls(), ["prepare claim", "unprepare claim"]);
        assert!(!rig.is_referenced("web"));
        rig.root.shutdown().await;
    });
}

#[test]
fn many_pods_at_once_are_each_prepared_and_undone() {
    run_paused(|| async {
        let rig = Rig::start();
        let driver = rig.driver("gpu", NodeService::V1).await;
        let names: Vec<String> = (0..30).map(|number| format!("pod{number}")).collect();
        for name in &names {
            rig.claim(name, &["gpu"], &[name]);
        }
        let lives = names.iter().map(async |name| {
            let pod = pod_of(name, &[name]);
            rig.prepare(&pod).await.unwrap();
            rig.unprepare(&pod).await.unwrap();
        });
        join_all(lives).await;
        assert_eq!(driver.calls().len(), 60);
        let snapshot = rig.snapshot().await;
        assert_eq!(
            (&snapshot["claims"], &snapshot["jobs"]),
            (&json!([]), &json!(0))
        );
        rig.root.shutdown().await;
    });
}

#[test]
fn a_driver_that_is_gone_fails_the_end_of_its_pods_until_it_is_back() {
    run_paused(|| async {
        let rig = Rig::start();
        let driver = rig.driver("gpu", NodeService::V1).await;
        rig.claim("claim", &["gpu"], &["web"]);
        let web = pod_of("web", &["claim"]);
        assert_eq!(rig.prepare(&web).await, Ok(()));
        rig.deregister("gpu");
        let expected = "unprepare dynamic resources: DRA driver gpu is not registered";
        assert_eq!(rig.unprepare(&web).await, Err(expected.to_owned()));
        // Also what is prepared is not prepared without its driver.
        let expected = "prepare dynamic resources: DRA driver gpu is not registered";
        assert_eq!(rig.prepare(&web).await, Err(expected.to_owned()));
        rig.register("gpu", &rig.socket("gpu"), NodeService::V1)
            .await
            .unwrap();
        assert_eq!(rig.unprepare(&web).await, Ok(()));
        assert_eq!(driver.calls(), ["prepare claim", "unprepare claim"]);
        rig.root.shutdown().await;
    });
}

#[test]
fn the_pod_resources_api_is_shown_a_containers_claims() {
    run_paused(|| async {
        let rig = Rig::start();
        let _driver = rig.driver("gpu", NodeService::V1).await;
        rig.claim("claim", &["gpu"], &["web"]);
        let web = pod_of("web", &["claim"]);
        let shown = || {
            let known = rig.known.borrow();
            known.dynamic_resources(&web, &web.app_containers()[0])
        };
        assert!(shown().is_err(), "nothing is prepared yet");
        assert_eq!(rig.prepare(&web).await, Ok(()));
        let resources = shown().unwrap();
        assert_eq!(resources[0].claim, ClaimKey::new("ns", "claim"));
        assert_eq!(
            resources[0].devices[0].device.share.as_deref(),
            Some("share")
        );
        rig.root.shutdown().await;
    });
}
