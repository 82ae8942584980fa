//! Devices are given to pods by their plugins.

use super::*;

/// Upstream's TestAllocate, and the calls of TestPodContainerDeviceAllocation and TestGetDeviceRunContainerOptions.
#[test]
fn a_container_gets_what_its_plugins_answer_and_each_is_asked_once() {
    run_paused(|| async {
        let rig = Rig::start().await;
        let gpu = rig.plugin(GPU, &["a", "b", "c"]).await;
        let nic = rig.plugin(NIC, &["n"]).await;
        gpu.calls();
        nic.calls();
        let devices: &[(&str, &str, &[&str])] = &[
            ("app", GPU, &["a", "b"]),
            ("app", NIC, &["n"]),
            ("other", GPU, &["c"]),
        ];
        assert_eq!(rig.allocate("pod", devices).await, Ok(()));
        assert_eq!(rig.allocate("pod", devices).await, Ok(()));
        assert_eq!(gpu.calls(), ["allocate a,b", "allocate c"]);
        assert_eq!(nic.calls(), ["allocate n"]);
        assert_eq!(rig.held().await, only("pod", devices));
        let app = rig.pre_start("pod", "app").await.unwrap().unwrap();
        let envs: Vec<_> = app
            .envs
            .iter()
            .map(|(n, v)| (n.as_str(), v.as_str()))
            .collect();
        assert_eq!(envs, [(GPU, "a,b"), (NIC, "n")]);
        let nodes: Vec<&str> = app
            .nodes
            .iter()
            .map(|node| node.host_path.as_str())
            .collect();
        assert_eq!(nodes, ["/dev/a", "/dev/b", "/dev/n"]);
        assert_eq!(
            (app.mounts.len(), app.annotations["note"].as_str()),
            (2, "a,b")
        );
        assert_eq!(
            app.cdi_devices,
            [
                "domain1.com/gpu=a",
                "domain1.com/gpu=b",
                "domain2.com/nic=n"
            ]
        );
        assert_eq!(
            app.conflicts,
            ["annotation \"note\" is \"a,b\", and \"n\" as well"]
        );
        assert_eq!(rig.pre_start("pod", "none").await, Ok(None));
        assert_eq!(rig.allocate("nothing", &[]).await, Ok(()));
        rig.forget("pod").await;
        assert_eq!(rig.pre_start("pod", "app").await, Ok(None));
        assert_eq!(rig.held().await, HeldAssignments::new());
        assert!(metrics::text().contains("kubelet_device_plugin_alloc_duration_seconds_count"));
    });
}

#[test]
fn of_a_pod_that_one_plugin_fails_nothing_is_kept() {
    run_paused(|| async {
        let rig = Rig::start().await;
        rig.plugin(GPU, &["a"]).await;
        let nic = rig.plugin(NIC, &["n"]).await;
        let devices: &[(&str, &str, &[&str])] = &[("app", GPU, &["a"]), ("app", NIC, &["n"])];
        nic.script().fails = Some("link is down".to_owned());
        let failed = rig.allocate("pod", devices).await.unwrap_err();
        assert_eq!(
            failed.to_string(),
            "rpc error: code = Unknown desc = link is down"
        );
        nic.script().fails = None;
        nic.script().forgets_containers = true;
        let failed = rig.allocate("pod", devices).await;
        assert_eq!(failed, Err(DeviceCallError::NoContainers));
        assert_eq!(rig.held().await, HeldAssignments::new());
        let stranger = rig
            .allocate("pod", &[("app", "a.com/x", &["a"])])
            .await
            .unwrap_err();
        assert_eq!(stranger.to_string(), "unknown Device Plugin a.com/x");
    });
}

#[test]
fn a_plugin_that_hangs_delays_its_own_pods_alone_and_those_not_for_ever() {
    run_paused(|| async {
        let rig = Rig::start().await;
        let gpu = rig.plugin(GPU, &["a", "b"]).await;
        rig.plugin(NIC, &["n"]).await;
        gpu.script().hangs = true;
        let (first, second) = (&[("app", GPU, &["a"][..])], &[("app", GPU, &["b"][..])]);
        let (first, second) = (rig.allocate("one", first), rig.allocate("two", second));
        let others = async {
            rig.allocate("three", &[("app", NIC, &["n"])])
                .await
                .unwrap();
            pass(SOON).await;
            assert_eq!(rig.snapshot().await["plugins"][GPU]["calls"], 2);
            pass(Duration::from_secs(60)).await;
            gpu.calls();
            gpu.script().hangs = false;
        };
        let (first, second, ()) = futures_util::join!(first, second, others);
        let late = "rpc error: code = DeadlineExceeded desc = context deadline exceeded";
        assert_eq!(first, Err(DeviceCallError::Failed(late.to_owned())));
        assert_eq!(second, Ok(()));
        assert_eq!(rig.held().await.len(), 2);
    });
}

#[test]
fn calls_that_a_plugin_is_behind_with_are_bounded() {
    run_paused(|| async {
        let rig = Rig::start().await;
        let gpu = rig.plugin(GPU, &["a"]).await;
        gpu.script().hangs = true;
        let asks = (0..112).map(|_| rig.prefer(&["a"], 1));
        let all = futures_util::future::join_all(asks);
        let end = async {
            pass(SOON).await;
            gpu.die();
        };
        let (answers, ()) = futures_util::join!(all, end);
        let busy = answers
            .iter()
            .filter(|answer| **answer == Err(DeviceCallError::Busy(GPU.to_owned()).to_string()));
        assert_eq!(busy.count(), 1);
        let stopped = Err("endpoint domain1.com/gpu has been stopped".to_owned());
        assert_eq!(
            answers.iter().filter(|answer| **answer == stopped).count(),
            110
        );
    });
}

#[test]
fn a_plugin_that_dies_in_the_midst_of_a_call_fails_it() {
    run_paused(|| async {
        let mut rig = Rig::start().await;
        let gpu = rig.plugin(GPU, &["a"]).await;
        gpu.script().hangs = true;
        let dies = async {
            pass(SOON).await;
            gpu.die();
        };
        let (failed, ()) = futures_util::join!(rig.allocate("pod", &[("app", GPU, &["a"])]), dies);
        let why = failed.unwrap_err();
        assert!(why.to_string().starts_with("rpc error: code = "), "{why}");
        assert!(why.transient());
        assert_eq!(rig.held().await, HeldAssignments::new());
        pass(SOON).await;
        assert_eq!(rig.counts(GPU), Some((1, 0)));
    });
}

#[test]
fn a_pod_that_ends_while_it_is_given_devices_holds_none() {
    run_paused(|| async {
        let rig = Rig::start().await;
        let gpu = rig.plugin(GPU, &["a"]).await;
        gpu.script().hangs = true;
        let ends = async {
            pass(SOON).await;
            rig.addr.tell(Msg::Forget { pod: "pod".into() }).unwrap();
        };
        let (failed, ()) = futures_util::join!(rig.allocate("pod", &[("app", GPU, &["a"])]), ends);
        assert_eq!(failed, Err(DeviceCallError::Forgotten));
        assert_eq!(rig.held().await, HeldAssignments::new());
    });
}

/// Upstream's TestGetPreferredAllocation.
#[test]
fn a_plugin_tells_which_devices_it_prefers() {
    run_paused(|| async {
        let rig = Rig::start().await;
        let gpu = rig.plugin(GPU, &["a", "b"]).await;
        gpu.calls();
        gpu.script().preferred = vec!["b".to_owned(), "elsewhere".to_owned()];
        assert_eq!(
            rig.prefer(&["a", "b"], 1).await,
            Ok(ids(&["b", "elsewhere"]))
        );
        assert_eq!(gpu.calls(), ["prefer 1 of a,b"]);
        gpu.script().hangs = true;
        let late = "rpc error: code = DeadlineExceeded desc = context deadline exceeded";
        assert_eq!(rig.prefer(&["a"], 1).await, Err(late.to_owned()));
    });
}

/// Upstream's TestDevicePreStartContainer.
#[test]
fn a_plugin_that_wants_it_prepares_devices_before_each_start() {
    run_paused(|| async {
        let rig = Rig::start().await;
        let gpu = PluginDouble::serve(&rig.folder(), "gpu.sock", GPU, healthy(&["a", "b"]));
        gpu.script().options.pre_start_required = true;
        gpu.register().await.unwrap();
        let nic = rig.plugin(NIC, &["n"]).await;
        let devices: &[(&str, &str, &[&str])] = &[("app", GPU, &["a", "b"]), ("app", NIC, &["n"])];
        rig.allocate("pod", devices).await.unwrap();
        gpu.calls();
        nic.calls();
        for _ in 0..2 {
            let given = rig.pre_start("pod", "app").await.unwrap().unwrap();
            assert_eq!(
                (given.nodes.len(), given.mounts.len(), given.envs.len()),
                (3, 2, 2)
            );
            assert_eq!(gpu.calls(), ["pre-start a,b"]);
        }
        assert_eq!(nic.calls(), Vec::<String>::new());
        assert_eq!(rig.pre_start("none", "app").await, Ok(None));
        gpu.script().fails = Some("cannot reset".to_owned());
        let failed = rig.pre_start("pod", "app").await.unwrap_err();
        assert_eq!(
            failed.to_string(),
            "device plugin PreStartContainer rpc failed with err: rpc error: code = Unknown desc = cannot reset"
        );
        gpu.die();
        pass(SOON).await;
        let failed = rig.pre_start("pod", "app").await;
        let stopped = "endpoint domain1.com/gpu has been stopped".to_owned();
        assert_eq!(failed, Err(DeviceCallError::PreStart(stopped)));
        pass(Duration::from_secs(301)).await;
        let failed = rig.pre_start("pod", "app").await;
        assert_eq!(failed, Err(DeviceCallError::NoEndpoint(GPU.to_owned())));
    });
}
