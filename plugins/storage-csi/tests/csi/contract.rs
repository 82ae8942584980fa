//! The contract that every storage plugin keeps, with a driver behind.

use std::sync::Arc;

use conformance::storage::{Names, Sample, Target, run};
use proto::storage::volume::Source;
use proto::storage::{AccessMode, Csi, Mode, MountRequest, Pod, Volume};

use crate::double::{Double, Manner};
use crate::rig::{DRIVER, rig};

const PLAIN: &str = "plain.example.com";

fn volume(names: &Names, driver: &str, ephemeral: bool) -> Volume {
    let id = match ephemeral {
        true => format!("{}-{}", names.pod, names.volume),
        false => format!("{driver}^{}", names.volume),
    };
    Volume {
        id: format!("kubernetes.io/csi/{id}"),
        kind: "csi".to_owned(),
        name: names.volume.clone(),
        source: Some(Source::Csi(Csi {
            driver: driver.to_owned(),
            volume_handle: names.volume.clone(),
            access_mode: AccessMode::ReadWriteOnce.into(),
            ephemeral,
            ..Csi::default()
        })),
    }
}

fn sample(words: &'static str, driver: &'static str, mode: Mode, ephemeral: bool) -> Sample {
    let make = move |names: &Names| MountRequest {
        volume: Some(volume(names, driver, ephemeral)),
        pod: Some(Pod {
            uid: names.pod.clone(),
            namespace: "default".to_owned(),
            name: "web".to_owned(),
            service_account: "default".to_owned(),
        }),
        target: match mode {
            Mode::FileSystem => names.target("csi"),
            Mode::Block => names.device("csi"),
        },
        ..MountRequest::default()
    };
    Sample {
        words,
        mode,
        make: Arc::new(make),
    }
}

#[tokio::test]
async fn it_keeps_the_contract_of_storage_plugins() {
    let rig = rig().await;
    let folder = rig.home.path().join("plain");
    let manner = Manner {
        name: PLAIN,
        abilities: vec![],
        ..Manner::default()
    };
    let plain = Double::new(&folder, manner);
    let endpoint = folder.join("csi.sock");
    let _serving = [
        plain.serve(endpoint.clone()),
        plain.register(rig.registry.join("plain.sock"), &endpoint),
    ];
    plain.told(1).await;
    let samples = vec![
        sample("a staged volume", DRIVER, Mode::FileSystem, false),
        sample("an inline volume", DRIVER, Mode::FileSystem, true),
        sample("a raw volume", DRIVER, Mode::Block, false),
        sample("a raw volume that is not staged", PLAIN, Mode::Block, false),
    ];
    let target = Target {
        channel: rig.storage_channel(),
        root: rig.root.clone(),
        samples,
    };
    run(target).await.assert_kept();
    rig.assert_clean();
}
