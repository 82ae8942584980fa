//! The runtime contract, kept by a real containerd: alone, and with runtime-containerd before it.

use std::path::Path;

use conformance::runtime::{Events, Network, Target, run};
use integration::containerd::Containerd;
use integration::images::BUSYBOX_IMAGE;
use runtime_adapter::Flavour;
use tonic::transport::Channel;

fn target(rig: &Containerd, channel: Channel, events: Events) -> Target {
    let logs = rig.dir().join("logs");
    Target {
        channel,
        image: BUSYBOX_IMAGE.to_owned(),
        logs,
        network: Network::Pod,
        events,
        cgroup_parent: rig.cgroup(),
    }
}

/// Starts runtime-containerd in this process, over real gRPC.
pub(super) async fn adapter(rig: &Containerd, dir: &Path) -> sdk::testing::Plugin {
    let folder = dir.join("plugin");
    std::fs::create_dir(&folder).unwrap();
    let configuration = serde_json::json!({ "endpoint": rig.endpoint() });
    let info = runtime_adapter::info(Flavour::Containerd, "0");
    sdk::testing::start(&folder, info, configuration, |setup| {
        runtime_adapter::build(Flavour::Containerd, None, setup)
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn containerd_with_its_adapter_keeps_the_contract_with_events() {
    let dir = tempfile::tempdir().unwrap();
    let Some(rig) = Containerd::for_test(dir.path()).await else {
        return;
    };
    let plugin = adapter(&rig, dir.path()).await;
    let report = run(target(&rig, plugin.channel.clone(), Events::Reported)).await;
    println!("{report}");
    report.assert_kept();
}

/// What the adapter smooths over is broken without it: were it not, the quirk could go.
#[tokio::test]
async fn containerd_alone_breaks_only_the_law_that_the_adapter_has_a_quirk_for() {
    let dir = tempfile::tempdir().unwrap();
    let Some(rig) = Containerd::for_test(dir.path()).await else {
        return;
    };
    let report = run(target(&rig, rig.channel(), Events::Absent)).await;
    println!("{report}");
    let broken: Vec<&str> = report.broken().map(|law| law.words).collect();
    assert_eq!(
        broken,
        ["sandbox that is removed is gone, and may be removed again"]
    );
}
