//! Reading, writing and refusing files in the folder that is shared with a kubelet.

use std::time::Duration;

use kernel::testing::run_paused;
use kernel::{Addr, ChildSpec, Intensity, Strategy, Supervisor, mailbox};
use logic_pods::resize::AllocatedResources;
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::checkpoints::{self, CheckpointManager, PodRecord};

const WEB: &str = "6f1c1e58-0f6e-4c0b-9f0e-3a1f3c1f9a01";
const GONE: &str = "0c9a2f3e-7d1b-4a53-8a57-0d7b5d6f1e22";
const LOAD_TIMEOUT: Duration = Duration::from_secs(5);

/// A root folder with a folder of the pod `WEB`.
fn node() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("pods").join(WEB)).unwrap();
    root
}

fn sized(cpu: &str) -> AllocatedResources {
    let own = serde_json::from_value(json!({"requests": {"cpu": cpu}})).unwrap();
    AllocatedResources {
        pod: None,
        containers: [("app".to_owned(), own)].into(),
    }
}

fn pods(pods: &[(&str, &str)]) -> ResourcesByPod {
    let pods = pods.iter();
    pods.map(|(uid, cpu)| ((*uid).into(), sized(cpu))).collect()
}

/// A file that a kubelet left.
fn leave(root: &TempDir, allocated: &[(&str, &str)], actuated: &[(&str, &str)]) {
    for (name, left) in [(ALLOCATED, allocated), (ACTUATED, actuated)] {
        let path = root.path().join(name);
        fs::write(path, encode_resources(pods(left))).unwrap();
    }
}

fn held(root: &TempDir, name: &str) -> ResourcesByPod {
    decode_resources(&fs::read(root.path().join(name)).unwrap()).unwrap()
}

#[test]
fn what_pods_of_this_node_have_is_found() {
    let root = node();
    assert_eq!(
        AllocationFiles::new(root.path()).read(),
        LoadedAllocations::default()
    );
    leave(&root, &[(WEB, "2"), (GONE, "3")], &[(WEB, "1")]);
    let left = AllocationFiles::new(root.path()).read();
    assert_eq!(left.set_aside, Vec::<String>::new());
    assert_eq!(left.resources.allocated, pods(&[(WEB, "2")]));
    assert_eq!(left.resources.actuated, pods(&[(WEB, "1")]));
}

#[test]
fn a_damaged_file_is_set_aside_and_told_and_hides_nothing_else() {
    let root = node();
    leave(&root, &[(WEB, "2")], &[(WEB, "1")]);
    let path = root.path().join(ALLOCATED);
    let damaged = fs::read_to_string(&path).unwrap().replace('2', "9");
    fs::write(&path, &damaged).unwrap();
    let mut checkpoints = AllocationFiles::new(root.path());
    let left = checkpoints.read();
    assert!(left.resources.allocated.is_empty());
    assert_eq!(left.resources.actuated, pods(&[(WEB, "1")]));
    let [said] = &left.set_aside[..] else {
        panic!("{left:?}")
    };
    assert!(
        said.contains(ALLOCATED) && said.contains("checksum"),
        "{said}"
    );
    let aside = root.path().join(format!("{ALLOCATED}{SET_ASIDE_SUFFIX}"));
    assert_eq!(fs::read_to_string(aside).unwrap(), damaged);
    // A kubelet would start with the files as they are now.
    let resources = PodAllocations {
        allocated: pods(&[(WEB, "2")]),
        actuated: pods(&[(WEB, "1")]),
    };
    checkpoints.pending_writes(resources).write_now();
    assert_eq!(held(&root, ALLOCATED), pods(&[(WEB, "2")]));
}

#[test]
fn what_has_not_changed_is_not_written() {
    let root = node();
    let resources = |allocated: &[(&str, &str)]| PodAllocations {
        allocated: pods(allocated),
        actuated: ResourcesByPod::new(),
    };
    let mut checkpoints = AllocationFiles::new(root.path());
    assert_eq!(
        checkpoints.pending_writes(resources(&[(WEB, "1")])).0.len(),
        0,
        "not read"
    );
    checkpoints.read();
    assert_eq!(checkpoints.pending_writes(resources(&[])).0.len(), 0);
    let pending_writes = checkpoints.pending_writes(resources(&[(WEB, "1")]));
    assert_eq!(pending_writes.0.len(), 1);
    pending_writes.write_now();
    assert_eq!(
        checkpoints.pending_writes(resources(&[(WEB, "1")])).0.len(),
        0
    );
    let mut successor = AllocationFiles::new(root.path());
    successor.read();
    assert_eq!(
        successor.pending_writes(resources(&[(WEB, "1")])).0.len(),
        0
    );
    let pending_writes = successor.pending_writes(resources(&[]));
    assert_eq!(pending_writes.0.len(), 1, "what was promised is taken back");
    pending_writes.write_now();
    assert_eq!(held(&root, ALLOCATED), ResourcesByPod::new());
    let mode = fs::metadata(root.path().join(ALLOCATED)).unwrap();
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&mode.permissions()) & 0o777,
        0o600
    );
}

#[test]
fn a_file_that_cannot_be_written_anew_does_not_stay() {
    let root = node();
    leave(&root, &[(WEB, "1")], &[]);
    let mut checkpoints = AllocationFiles::new(root.path());
    checkpoints.read();
    // No file can be created beside it.
    fs::create_dir(root.path().join(format!("{ALLOCATED}.tmp"))).unwrap();
    let resources = || PodAllocations {
        allocated: pods(&[(WEB, "2")]),
        actuated: ResourcesByPod::new(),
    };
    checkpoints.pending_writes(resources()).write_now();
    assert!(!root.path().join(ALLOCATED).exists());
    fs::remove_dir(root.path().join(format!("{ALLOCATED}.tmp"))).unwrap();
    checkpoints.pending_writes(resources()).write_now();
    assert_eq!(held(&root, ALLOCATED), pods(&[(WEB, "2")]));
}

#[test]
fn only_static_pods_are_residents() {
    let root = node();
    let folder = root.path().join("pods");
    assert!(residents(&folder).is_empty());
    fs::create_dir(folder.join("d41d8cd98f00b204e9800998ecf8427e")).unwrap();
    assert_eq!(residents(&folder).len(), 1);
    assert!(residents(&root.path().join("missing")).is_empty());
}

/// A checkpoint manager on this root folder.
fn keeper(root: &TempDir) -> (Supervisor, Addr<checkpoints::Msg>) {
    let patience = Intensity {
        restarts: 1,
        within: Duration::from_secs(60),
    };
    let supervisor = Supervisor::root("test", patience);
    let group = supervisor.supervisor("keepers", Strategy::OneForOne, patience);
    let (addr, port) = mailbox(checkpoints::MAILBOX);
    let (file, root) = (root.path().join("pods.checkpoint"), root.path().to_owned());
    group.spawn(ChildSpec::permanent("checkpoints"), port, move || {
        CheckpointManager::new(file.clone(), &root)
    });
    (supervisor, addr)
}

async fn load(addr: &Addr<checkpoints::Msg>) -> PodRecord {
    let load = |reply| checkpoints::Msg::Load {
        uid: WEB.into(),
        reply,
    };
    let found = addr.ask(LOAD_TIMEOUT, load).await.unwrap();
    found.unwrap_or_default()
}

async fn keep(addr: &Addr<checkpoints::Msg>, cpu: &str) {
    let record = PodRecord {
        allocated: Some(sized(cpu)),
        actuated: sized(cpu).containers,
        ..load(addr).await
    };
    let uid = WEB.into();
    let record = Box::new(record);
    addr.tell(checkpoints::Msg::Keep { uid, record }).unwrap();
    kernel::testing::pass(Duration::from_secs(1)).await;
}

#[test]
fn a_record_goes_on_from_what_a_kubelet_left_and_a_kubelet_from_the_record() {
    run_paused(|| async {
        let root = node();
        leave(&root, &[(WEB, "2"), (GONE, "7")], &[(WEB, "1")]);
        let (supervisor, addr) = keeper(&root);
        let record = load(&addr).await;
        assert_eq!(record.allocated, Some(sized("2")));
        assert_eq!(record.actuated, sized("1").containers);
        assert_eq!(record.started, None, "nobody of ours has met the pod");
        keep(&addr, "3").await;
        assert_eq!(held(&root, ALLOCATED), pods(&[(WEB, "3")]));
        assert_eq!(held(&root, ACTUATED), pods(&[(WEB, "3")]));
        keep(&addr, "4").await;
        supervisor.shutdown().await;
        assert_eq!(held(&root, ALLOCATED), pods(&[(WEB, "4")]));

        // A kubelet ran for a while, and its files count again.
        leave(&root, &[(WEB, "5")], &[(WEB, "5")]);
        let (supervisor, addr) = keeper(&root);
        assert_eq!(load(&addr).await.allocated, Some(sized("5")));
        let forget = checkpoints::Msg::Forget { uid: WEB.into() };
        addr.tell(forget).unwrap();
        kernel::testing::pass(Duration::from_secs(1)).await;
        supervisor.shutdown().await;
        assert_eq!(held(&root, ALLOCATED), ResourcesByPod::new());
        assert_eq!(held(&root, ACTUATED), ResourcesByPod::new());
    });
}

#[test]
fn a_pod_whose_promise_is_lost_keeps_what_it_has() {
    run_paused(|| async {
        let root = node();
        leave(&root, &[(WEB, "2")], &[(WEB, "1")]);
        fs::write(root.path().join(ALLOCATED), "garbage").unwrap();
        let (supervisor, addr) = keeper(&root);
        assert_eq!(load(&addr).await.allocated, Some(sized("1")));
        supervisor.shutdown().await;
        assert_eq!(held(&root, ALLOCATED), pods(&[(WEB, "1")]));
    });
}

#[test]
fn a_damaged_file_leaves_the_record_as_it_is() {
    run_paused(|| async {
        let root = node();
        let (supervisor, addr) = keeper(&root);
        keep(&addr, "3").await;
        supervisor.shutdown().await;
        fs::write(root.path().join(ALLOCATED), "garbage").unwrap();
        fs::write(root.path().join(ACTUATED), r#"{"data":"{}","checksum":7}"#).unwrap();
        let (supervisor, addr) = keeper(&root);
        let record = load(&addr).await;
        assert_eq!(record.allocated, Some(sized("3")));
        assert_eq!(record.actuated, sized("3").containers);
        supervisor.shutdown().await;
        assert_eq!(held(&root, ALLOCATED), pods(&[(WEB, "3")]));
        assert_eq!(held(&root, ACTUATED), pods(&[(WEB, "3")]));
    });
}
