//! Plugins come, list, are replaced, and go.

use tokio::sync::oneshot;

use super::*;
use logic_placement::devices::Registration;

const GRACE: Duration = Duration::from_secs(5 * 60);

/// Upstream's TestNewManagerImplStart, TestNewEndpoint and TestRun.
#[test]
fn what_a_plugin_lists_is_told_and_every_change_of_it() {
    run_paused(|| async {
        let mut rig = Rig::start().await;
        assert_eq!(rig.told(), Some(NodeDevices::default()));
        let plugin = rig.plugin(GPU, &["a", "b"]).await;
        assert_eq!(plugin.calls(), ["options "]);
        assert_eq!(rig.counts(GPU), Some((2, 2)));
        let changed = [("a", "Unhealthy"), ("c", "Healthy"), ("d", "Healthy")];
        plugin.list(changed.map(|(id, health)| device(id, health, &[1])).into());
        pass(SOON).await;
        assert_eq!(rig.counts(GPU), Some((3, 2)));
        let last = rig.assigner.drain().pop();
        let Some(PeerMessage::Devices(news)) = last else {
            panic!("{last:?}");
        };
        let known = news.inventory.resource(GPU).unwrap();
        assert_eq!(
            known.healthy().map(|(id, _)| id).collect::<Vec<_>>(),
            ["c", "d"]
        );
        plugin.list(vec![]);
        pass(SOON).await;
        assert_eq!(rig.counts(GPU), Some((0, 0)));
        let view = &rig.snapshot().await["plugins"][GPU];
        assert_eq!(
            (&view["connected"], &view["calls"]),
            (&true.into(), &0.into())
        );
    });
}

/// Upstream's TestDevicePluginReRegistration.
#[test]
fn a_plugin_that_registers_again_replaces_the_older_one_whose_end_is_no_matter() {
    run_paused(|| async {
        let mut rig = Rig::start().await;
        let first = rig.plugin(GPU, &["Dev1", "Dev2"]).await;
        assert_eq!(rig.counts(GPU), Some((2, 2)));
        let same = &["Dev1", "Dev2"][..];
        for (name, list, told) in [("new", same, None), ("third", &["Dev3"], Some((1, 1)))] {
            let next = PluginDouble::serve(&rig.folder(), name, GPU, healthy(list));
            next.script().options.pre_start_required = true;
            next.register().await.unwrap();
            pass(SOON).await;
            assert_eq!(rig.counts(GPU), told, "{name}");
        }
        first.list(healthy(&["Dev8", "Dev9"]));
        first.die();
        pass(SOON).await;
        assert_eq!(rig.told(), None, "nothing has changed");
        rig.allocate("pod", &[("app", GPU, &["Dev3"])])
            .await
            .unwrap();
        assert_eq!(first.calls(), ["options "]);
    });
}

/// Upstream's TestEndpointSyncOnDisconnect.
#[test]
fn devices_of_a_plugin_that_dies_are_unusable_at_once_and_gone_after_a_grace() {
    run_paused(|| async {
        let mut rig = Rig::start().await;
        let plugin = rig.plugin(GPU, &["a", "b"]).await;
        rig.plugin(NIC, &["n"]).await;
        plugin.die();
        pass(SOON).await;
        assert_eq!(rig.counts(GPU), Some((2, 0)));
        let stopped = rig.allocate("pod", &[("app", GPU, &["a"])]).await;
        assert_eq!(stopped, Err(DeviceCallError::Stopped(GPU.to_owned())));
        pass(GRACE - Duration::from_secs(2)).await;
        assert_eq!(rig.told(), None, "the grace lasts");
        pass(Duration::from_secs(2)).await;
        let told = rig.told().unwrap();
        assert_eq!((told.capacity.len(), told.removed), (1, ids(&[GPU])));
        let unknown = rig.allocate("pod", &[("app", GPU, &["a"])]).await;
        assert_eq!(unknown, Err(DeviceCallError::UnknownPlugin(GPU.to_owned())));
        plugin.register().await.unwrap();
        pass(SOON).await;
        let told = rig.told().unwrap();
        assert_eq!((told.capacity[GPU], told.removed), (2, ids(&[])));
    });
}

/// Upstream's TestNewManagerImplStartProbeMode and TestDevicePluginReRegistrationProbeMode, but for the watcher.
#[test]
fn a_plugin_that_was_found_elsewhere_is_registered_and_let_go_by_name() {
    run_paused(|| async {
        let mut rig = Rig::start().await;
        let elsewhere = rig.root_dir.path().join("plugins_registry");
        std::fs::create_dir(&elsewhere).unwrap();
        let plugin = PluginDouble::serve(&elsewhere, "gpu.sock", GPU, healthy(&["a"]));
        let (reply, answer) = oneshot::channel();
        let call = RegistrationCall {
            registration: Registration {
                version: "v1beta1".to_owned(),
                endpoint: "gpu.sock".to_owned(),
                resource: GPU.to_owned(),
            },
            endpoint: PluginEndpoint::At(plugin.socket.clone()),
            reply,
        };
        rig.addr.tell(Msg::Register(call)).unwrap();
        assert_eq!(answer.await, Ok(Ok(())));
        pass(SOON).await;
        assert_eq!(rig.counts(GPU), Some((1, 1)));
        let gone = || Msg::Deregister {
            resource: GPU.to_owned(),
        };
        rig.addr.tell(gone()).unwrap();
        rig.addr.tell(gone()).unwrap();
        pass(SOON).await;
        assert_eq!(rig.counts(GPU), Some((1, 0)));
    });
}

#[test]
fn a_plugin_that_registers_before_it_listens_is_waited_for() {
    run_paused(|| async {
        let mut rig = Rig::start().await;
        let moved = rig.folder().join("later");
        let plugin = PluginDouble::serve(&rig.folder(), "gpu.sock", GPU, healthy(&["a"]));
        std::fs::rename(&plugin.socket, &moved).unwrap();
        let registering = plugin.clone();
        let registered = tokio::spawn(async move { registering.register().await });
        pass(Duration::from_secs(5)).await;
        assert!(!registered.is_finished());
        std::fs::rename(&moved, &plugin.socket).unwrap();
        registered.await.unwrap().unwrap();
        pass(SOON).await;
        assert_eq!(rig.counts(GPU), Some((1, 1)));
    });
}

#[test]
fn peers_are_told_again_where_they_restart_or_have_had_no_room() {
    run_paused(|| async {
        let mut rig = Rig::start().await;
        rig.plugin(GPU, &["a"]).await;
        let first = rig.told();
        rig.assigner.drain();
        rig.addr.tell(Msg::Resync).unwrap();
        pass(SOON).await;
        assert_eq!(rig.told(), first);
        assert_eq!(rig.assigner.drain().len(), 1);
        let flapping = rig.plugin(NIC, &["n"]).await;
        for round in 0..300 {
            let health = if round % 2 == 0 {
                "Unhealthy"
            } else {
                "Healthy"
            };
            flapping.list(vec![device("n", health, &[])]);
            pass(Duration::from_millis(1)).await;
        }
        pass(SOON).await;
        assert!(rig.node.drain().len() <= 256);
        pass(Duration::from_secs(2)).await;
        assert_eq!(rig.counts(NIC), Some((1, 1)), "told once there was room");
    });
}
