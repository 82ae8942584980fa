//! Drivers that come, go, and come wrongly.

use std::fs;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use proto::plugin::HealthRequest;
use proto::storage::InquireRequest;
use proto::storage::event::Event as StorageEvent;
use tokio::net::UnixStream;

use crate::double::{Double, Fault, Manner};
use crate::rig::{Rig, alone, rig, said};

async fn synced() -> (Rig, crate::rig::Events) {
    let mut rig = alone(Manner::default()).await;
    let mut events = rig.watch().await;
    assert_eq!(events.word().await, "synced");
    (rig, events)
}

/// Has another driver register in this way, with a socket named `file`.
fn another(rig: &Rig, file: &str, manner: Manner) -> (Double, [crate::double::Serving; 2]) {
    let folder = rig.home.path().join(format!("of-{file}"));
    let double = Double::new(&folder, manner);
    let endpoint = folder.join("csi.sock");
    let driver = double.serve(endpoint.clone());
    let registrar = double.register(rig.registry.join(file), &endpoint);
    (double, [driver, registrar])
}

/// Upstream's TestRegisterPlugin and TestPluginRegistration.
#[tokio::test]
async fn a_driver_registers_with_everything_it_says_of_itself() {
    let (mut rig, mut events) = synced().await;
    rig.serve();
    let StorageEvent::Backend(backend) = events.next().await else {
        panic!("no backend");
    };
    assert_eq!(backend.name, "d.example.com");
    assert_eq!(
        (backend.node_id.as_str(), backend.max_volumes),
        ("node-of-d", 7)
    );
    assert_eq!(
        backend.topology,
        [("zone".to_owned(), "a".to_owned())].into()
    );
    assert_eq!(backend.versions, ["1.0.0"]);
    assert_eq!(
        backend.abilities,
        [
            "STAGE_UNSTAGE_VOLUME",
            "GET_VOLUME_STATS",
            "EXPAND_VOLUME",
            "VOLUME_CONDITION"
        ]
    );
    assert_eq!(rig.double.told(1).await, [(true, String::new())]);
    rig.end();
    assert_eq!(events.word().await, "gone d.example.com");
}

#[tokio::test]
async fn who_comes_later_is_told_everything_first() {
    let mut rig = rig().await;
    let mut events = rig.watch().await;
    assert_eq!(events.word().await, "backend d.example.com");
    assert_eq!(events.word().await, "synced");
}

#[tokio::test]
async fn a_socket_in_a_folder_of_its_own_is_found_and_one_with_a_dot_is_not() {
    let (rig, mut events) = synced().await;
    let hidden = another(&rig, ".d/hidden.sock", Manner::default());
    let manner = Manner {
        name: "e.example.com",
        ..Manner::default()
    };
    let deep = another(&rig, "e/f/e.sock", manner);
    assert_eq!(events.word().await, "backend e.example.com");
    assert_eq!(hidden.0.calls(), []);
    drop(deep);
    assert_eq!(events.word().await, "gone e.example.com");
}

/// A driver whose registrar came back, and a new process of the plugin.
#[tokio::test]
async fn a_driver_that_comes_back_is_there_again() {
    let mut rig = rig().await;
    let mut events = rig.watch().await;
    assert_eq!(events.word().await, "backend d.example.com");
    assert_eq!(events.word().await, "synced");
    rig.end();
    assert_eq!(events.word().await, "gone d.example.com");
    rig.serve();
    assert_eq!(events.word().await, "backend d.example.com");
    drop(events);
    rig.restart().await;
    // The first call waits until those that are there have been found.
    rig.stage().await.unwrap();
    assert_eq!(rig.double.told(3).await.len(), 3);
    rig.unstage().await.unwrap();
}

/// Upstream's `updateCSIDriver`.
#[tokio::test]
async fn a_driver_that_is_asked_anew_says_how_many_volumes_it_takes_now() {
    let mut rig = rig().await;
    let mut events = rig.watch().await;
    assert_eq!(events.word().await, "backend d.example.com");
    assert_eq!(events.word().await, "synced");
    let inquire = |name: &str| InquireRequest {
        name: name.to_owned(),
        within_ms: 10_000,
    };
    rig.storage.inquire(inquire("d.example.com")).await.unwrap();
    rig.double.takes_more(2);
    rig.storage.inquire(inquire("d.example.com")).await.unwrap();
    // The first answer was no news.
    let StorageEvent::Backend(backend) = events.next().await else {
        panic!("no backend");
    };
    assert_eq!(
        (backend.node_id.as_str(), backend.max_volumes),
        ("node-of-d", 9)
    );
    rig.double.fail("info", Fault::Says(tonic::Code::Internal));
    let (code, message) = said(rig.storage.inquire(inquire("d.example.com")).await);
    assert_eq!(code, tonic::Code::Internal);
    assert_eq!(
        message,
        "failed to get NodeGetInfo from driver \"d.example.com\": rpc error: code = Internal desc = boom"
    );
    let (code, message) = said(rig.storage.inquire(inquire("e.example.com")).await);
    assert_eq!(code, tonic::Code::NotFound);
    assert!(message.contains("e.example.com"), "{message}");
    let (code, _) = said(rig.storage.inquire(inquire("../d")).await);
    assert_eq!(code, tonic::Code::InvalidArgument);
    rig.end();
    assert_eq!(events.word().await, "gone d.example.com", "no other news");
}

/// Upstream's TestPluginRegistrationFailureWithUnsupportedVersion and TestValidatePlugin.
#[tokio::test]
async fn a_wrong_version_is_refused_and_the_driver_is_told() {
    let (rig, mut events) = synced().await;
    let manner = Manner {
        versions: vec!["0.3.0", "2.0.0"],
        ..Manner::default()
    };
    let (double, _serving) = another(&rig, "old.sock", manner);
    let word = events.word().await;
    let endpoint = rig
        .home
        .path()
        .join("of-old.sock/csi.sock")
        .display()
        .to_string();
    let why = format!(
        "RegisterPlugin error -- plugin validation failed with err: validation failed for CSI Driver d.example.com \
         at endpoint {endpoint}: kubernetes.io/csi: ValidatePlugin for CSI driver \"d.example.com\" failed. None of \
         the versions specified [\"0.3.0\" \"2.0.0\"] are supported. err=highest supported version reported is 0.3.0, \
         must be v1.x"
    );
    assert_eq!(word, format!("refused old.sock d.example.com: {why}"));
    assert_eq!(double.told(1).await[0], (false, why));
    assert_eq!(double.calls(), []);
}

/// Upstream's TestValidatePluginExistingDriver.
#[tokio::test]
async fn a_driver_that_registers_twice_is_refused_until_the_first_is_gone() {
    let (mut rig, mut events) = synced().await;
    rig.serve();
    assert_eq!(events.word().await, "backend d.example.com");
    let (second, _serving) = another(&rig, "second.sock", Manner::default());
    let word = events.word().await;
    let why = "Another driver with the same name is already registered with a higher supported version: \"1.0.0\"";
    assert!(
        word.starts_with("refused second.sock d.example.com: ") && word.ends_with(why),
        "{word}"
    );
    assert!(!second.told(1).await[0].0);
    // The first one works on.
    rig.stage().await.unwrap();
    assert_eq!(rig.double.words(), ["stage"]);
    rig.unstage().await.unwrap();
    rig.end();
    assert_eq!(events.word().await, "gone d.example.com");
    assert_eq!(events.word().await, "backend d.example.com");
}

#[tokio::test]
async fn a_higher_version_replaces_the_driver_of_its_name() {
    let (mut rig, mut events) = synced().await;
    rig.serve();
    assert_eq!(events.word().await, "backend d.example.com");
    let manner = Manner {
        versions: vec!["1.0.0", "1.1.0"],
        ..Manner::default()
    };
    let (newer, _serving) = another(&rig, "newer.sock", manner);
    assert_eq!(events.word().await, "backend d.example.com");
    newer.told(1).await;
    rig.stage().await.unwrap();
    assert_eq!((newer.words(), rig.double.words()), (vec!["stage"], vec![]));
    rig.unstage().await.unwrap();
}

#[tokio::test]
async fn a_driver_under_another_s_name_is_refused() {
    let (rig, mut events) = synced().await;
    let manner = Manner {
        own_name: Some("other.example.com"),
        ..Manner::default()
    };
    let (double, _serving) = another(&rig, "liar.sock", manner);
    let word = events.word().await;
    assert!(
        word.contains("calls itself \"other.example.com\""),
        "{word}"
    );
    assert!(!double.told(1).await[0].0);
}

#[tokio::test]
async fn a_name_that_is_a_path_is_refused() {
    let (rig, mut events) = synced().await;
    let manner = Manner {
        name: "../../etc",
        ..Manner::default()
    };
    let (double, _serving) = another(&rig, "path.sock", manner);
    let word = events.word().await;
    assert!(word.contains("is not a domain name"), "{word}");
    assert!(!double.told(1).await[0].0);
}

/// Upstream's InstallCSIDriver.
#[tokio::test]
async fn a_driver_without_a_name_for_the_node_is_refused() {
    let (rig, mut events) = synced().await;
    let manner = Manner {
        node_id: "",
        ..Manner::default()
    };
    let (double, _serving) = another(&rig, "nameless.sock", manner);
    let why = "RegisterPlugin error -- plugin registration failed with err: error adding CSI driver node info: \
               driverNodeID must not be empty";
    let word = events.word().await;
    assert!(word.ends_with(why), "{word}");
    assert_eq!(double.told(1).await[0], (false, why.to_owned()));
}

#[tokio::test]
async fn a_driver_that_fails_once_is_asked_again() {
    let (mut rig, mut events) = synced().await;
    rig.double.fail("info", Fault::Says(tonic::Code::Internal));
    rig.serve();
    let word = events.word().await;
    let why = "RegisterPlugin error -- plugin registration failed with err: rpc error: code = Internal desc = boom";
    assert_eq!(word, format!("refused d-reg.sock d.example.com: {why}"));
    assert_eq!(events.word().await, "backend d.example.com");
    let told = rig.double.told(2).await;
    assert_eq!(told, [(false, why.to_owned()), (true, String::new())]);
}

/// Device plugins and DRA drivers use the same folder; they are others' affair.
#[tokio::test]
async fn plugins_of_other_types_are_left_alone() {
    let (rig, mut events) = synced().await;
    let manner = |kind| Manner {
        kind,
        ..Manner::default()
    };
    let gpu = another(&rig, "gpu.sock", manner("DevicePlugin"));
    let dra = another(&rig, "dra.sock", manner("DRAPlugin"));
    let ours = another(&rig, "z.sock", Manner::default());
    assert_eq!(events.word().await, "backend d.example.com");
    ours.0.told(1).await;
    let other = Manner {
        name: "e.example.com",
        ..Manner::default()
    };
    let _last = another(&rig, "zz.sock", other);
    assert_eq!(events.word().await, "backend e.example.com");
    assert_eq!((gpu.0.calls(), dra.0.calls()), (vec![], vec![]));
}

/// Hangs at the first word, at the first call of its driver, and a server of something else altogether.
#[tokio::test]
async fn those_that_never_answer_delay_nobody() {
    let (mut rig, mut events) = synced().await;
    let mute = Manner {
        greets: false,
        ..Manner::default()
    };
    let _mute = another(&rig, "a-mute.sock", mute);
    let slow = Manner {
        name: "slow.example.com",
        ..Manner::default()
    };
    let (slow, _slow) = another(&rig, "b-slow.sock", slow);
    slow.fail("info", Fault::Hangs);
    let silent = UnixListener::bind(rig.registry.join("c-silent.sock")).unwrap();
    rig.serve();
    let late = "context deadline exceeded";
    let words = [
        events.word().await,
        events.word().await,
        events.word().await,
    ];
    assert!(
        words.contains(&"backend d.example.com".to_owned()),
        "{words:?}"
    );
    for file in ["a-mute.sock", "c-silent.sock"] {
        let word = words
            .iter()
            .find(|word| word.starts_with(&format!("refused {file} ")));
        assert!(word.is_some_and(|word| word.ends_with(late)), "{words:?}");
    }
    rig.stage().await.unwrap();
    rig.unstage().await.unwrap();
    drop(silent);
}

#[tokio::test]
async fn a_server_of_something_else_is_refused() {
    let (rig, mut events) = synced().await;
    let listener = tokio::net::UnixListener::bind(rig.registry.join("junk.sock")).unwrap();
    let junk = tokio::spawn(async move {
        let mut open: Vec<UnixStream> = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            stream.writable().await.unwrap();
            stream
                .try_write(b"SSH-2.0-this is no gRPC at all\r\n")
                .unwrap();
            open.push(stream);
        }
    });
    let word = events.word().await;
    let start = "refused junk.sock : RegisterPlugin error -- failed to get plugin info using RPC GetInfo at socket";
    assert!(word.starts_with(start), "{word}");
    junk.abort();
}

#[tokio::test]
async fn a_file_that_is_called_a_socket_is_refused_until_it_is_one() {
    let (mut rig, mut events) = synced().await;
    let path = rig.registry.join("d-reg.sock");
    fs::write(&path, "not a socket").unwrap();
    assert_eq!(
        events.word().await,
        "refused d-reg.sock : Ignoring non socket file"
    );
    rig.serve();
    assert_eq!(events.word().await, "backend d.example.com");
}

/// What a driver that crashed leaves behind.
#[tokio::test]
async fn a_socket_that_nobody_serves_keeps_nobody_waiting() {
    let mut rig = alone(Manner::default()).await;
    fs::create_dir_all(&rig.registry).unwrap();
    drop(UnixListener::bind(rig.registry.join("stale.sock")).unwrap());
    let mut events = rig.watch().await;
    assert_eq!(events.word().await, "synced");
    let (code, message) = said(rig.stage().await);
    assert_eq!(code, tonic::Code::NotFound);
    assert_eq!(
        message,
        "kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: driver name d.example.com not \
         found in the list of registered CSI drivers"
    );
}

#[tokio::test]
async fn the_health_report_names_the_drivers() {
    let mut rig = rig().await;
    let mut health = rig
        .base()
        .health(HealthRequest {
            interval_ms: 60_000,
        })
        .await
        .unwrap()
        .into_inner();
    let report = health.message().await.unwrap().unwrap();
    assert_eq!(report.attributes["drivers"], "d.example.com");
    assert_eq!(report.attributes["abandoned"], "0");
    rig.end();
    let gone = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            let report = health.message().await.unwrap().unwrap();
            if report.attributes["drivers"].is_empty() {
                return;
            }
        }
    });
    gone.await.unwrap();
}
