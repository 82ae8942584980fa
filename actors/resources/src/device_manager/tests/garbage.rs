//! Plugins that send what they may not.

use tonic::Code;

use super::*;

#[test]
fn a_registration_that_is_none_is_refused_by_name() {
    run_paused(|| async {
        let mut rig = Rig::start().await;
        rig.told();
        let folder = rig.folder();
        for (version, resource, endpoint, why) in [
            (
                "v1alpha1",
                GPU,
                "gpu.sock",
                "requested API version \"v1alpha1\" is not supported by kubelet. Supported version is [\"v1beta1\"]",
            ),
            (
                "v1beta1",
                "gpu",
                "gpu.sock",
                "the ResourceName \"gpu\" is invalid",
            ),
            (
                "v1beta1",
                GPU,
                "../gpu.sock",
                "the endpoint \"../gpu.sock\" names no socket below the folder of device plugins",
            ),
            (
                "v1beta1",
                GPU,
                "nobody.sock",
                "failed to dial device plugin: context deadline exceeded",
            ),
        ] {
            let refused = double::register(&folder, version, resource, endpoint)
                .await
                .unwrap_err();
            assert_eq!((refused.code(), refused.message()), (Code::Unknown, why));
        }
        assert_eq!(rig.told(), None);
        let text = metrics::text();
        let line = "kubelet_device_plugin_registration_total{resource_name=\"gpu\"} 1";
        assert!(text.lines().any(|there| there == line), "{text}");
    });
}

#[test]
fn a_plugin_that_does_not_tell_its_options_is_not_registered() {
    run_paused(|| async {
        let rig = Rig::start().await;
        let plugin = PluginDouble::serve(&rig.folder(), "gpu.sock", GPU, healthy(&["a"]));
        plugin.script().fails = Some("no driver".to_owned());
        let refused = plugin.register().await.unwrap_err();
        assert_eq!(
            refused.message(),
            "failed to get device plugin options: rpc error: code = Unknown desc = no driver"
        );
        plugin.script().hangs = true;
        let refused = plugin.register().await.unwrap_err();
        assert_eq!(
            refused.message(),
            "failed to get device plugin options: rpc error: code = DeadlineExceeded desc = context deadline exceeded"
        );
    });
}

#[test]
fn a_list_with_garbage_is_not_taken_and_the_next_good_one_is() {
    run_paused(|| async {
        let mut rig = Rig::start().await;
        let plugin = rig.plugin(GPU, &["a", "b"]).await;
        rig.told();
        for (garbage, why) in [
            (
                healthy(&["a", "a"]),
                "domain1.com/gpu lists device \"a\" twice",
            ),
            (
                healthy(&[""]),
                "domain1.com/gpu lists a device without an id",
            ),
        ] {
            plugin.list(garbage);
            pass(SOON).await;
            assert_eq!(rig.snapshot().await["refused_lists"][GPU], why);
            assert_eq!(rig.told(), None);
        }
        plugin.list(healthy(&["a"]));
        pass(SOON).await;
        assert_eq!(rig.counts(GPU), Some((1, 1)));
        assert!(
            rig.snapshot().await["refused_lists"]
                .as_object()
                .unwrap()
                .is_empty()
        );
    });
}

#[test]
fn a_plugin_may_have_ten_thousand_devices() {
    run_paused(|| async {
        let mut rig = Rig::start().await;
        let plugin = rig.plugin(GPU, &[]).await;
        let names: Vec<String> = (0..10_000).map(|id| format!("device-{id:05}")).collect();
        let all: Vec<&str> = names.iter().map(String::as_str).collect();
        plugin.list(healthy(&all));
        pass(SOON).await;
        assert_eq!(rig.counts(GPU), Some((10_000, 10_000)));
        rig.allocate("pod", &[("app", GPU, &all[..5000])])
            .await
            .unwrap();
        let rig = rig.restart().await;
        assert_eq!(rig.held().await, only("pod", &[("app", GPU, &all[..5000])]));
    });
}
