//! Ranges assigned, kept and freed.

use std::fs;
use std::path::Path;
use std::time::Duration;

use kernel::testing::run_paused;
use kernel::{Addr, ChildSpec, Intensity, Strategy, Supervisor, mailbox};

use super::*;

const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
const UNIT: u32 = 65_536;

struct NamespaceRig {
    root: Supervisor,
    addr: Addr<Msg>,
}

impl NamespaceRig {
    async fn start(pods: &Path) -> NamespaceRig {
        let patience = Intensity {
            restarts: 3,
            within: REPLY_TIMEOUT,
        };
        let root = Supervisor::root("test", patience);
        let group = root.supervisor("keepers", Strategy::OneForOne, patience);
        let (addr, port) = mailbox(MAILBOX);
        let policy = Policy {
            pods: pods.to_owned(),
            ids_per_pod: UNIT,
            max_pods: 110,
        };
        group.spawn(ChildSpec::permanent("user-namespaces"), port, move || {
            UserNamespaceManager::new(policy.clone())
        });
        NamespaceRig { root, addr }
    }

    async fn ensure(&self, uid: &str) -> Result<IdRange, UserNamespaceError> {
        let uid = uid.into();
        self.addr
            .ask(REPLY_TIMEOUT, |reply| Msg::Ensure { uid, reply })
            .await
            .unwrap()
    }

    async fn restart(self, pods: &Path) -> NamespaceRig {
        self.root.shutdown().await;
        NamespaceRig::start(pods).await
    }
}

fn record(pods: &Path, uid: &str, text: &str) {
    fs::create_dir_all(pods.join(uid)).unwrap();
    fs::write(pods.join(uid).join("userns"), text).unwrap();
}

fn mapping(first: u32, length: u32) -> String {
    logic_pods::security::user_namespaces::encode_record(IdRange { first, length })
}

/// Upstream's TestGetOrCreateUserNamespaceMappings (its ranges; what is on the disk is given again).
#[test]
fn a_range_is_on_the_disk_before_it_is_given_and_outlives_the_agent() {
    run_paused(|| async {
        let folder = tempfile::tempdir().unwrap();
        let pods = folder.path().join("pods");
        let keeper = NamespaceRig::start(&pods).await;
        let first = keeper.ensure("a").await.unwrap();
        assert_eq!(
            fs::read_to_string(pods.join("a/userns")).unwrap(),
            mapping(first.first, UNIT)
        );
        let second = keeper.ensure("b").await.unwrap();
        assert_ne!(first, second);
        assert_eq!(keeper.ensure("a").await.unwrap(), first);
        let keeper = keeper.restart(&pods).await;
        assert_eq!(keeper.ensure("b").await.unwrap(), second);
        let third = keeper.ensure("c").await.unwrap();
        assert!(third != first && third != second);
    });
}

/// Upstream's TestCleanupOrphanedPodUsernsAllocations.
#[test]
fn ranges_of_pods_that_are_gone_are_taken_back() {
    run_paused(|| async {
        let folder = tempfile::tempdir().unwrap();
        let pods = folder.path().join("pods");
        record(&pods, "left", &mapping(3 * UNIT, UNIT));
        let keeper = NamespaceRig::start(&pods).await;
        for uid in ["a", "b"] {
            keeper.ensure(uid).await.unwrap();
        }
        keeper.addr.tell(Msg::Release { uid: "a".into() }).unwrap();
        let kept: BTreeSet<PodUid> = ["b".into()].into();
        keeper.addr.tell(Msg::Retain { pods: kept }).unwrap();
        // Answered after both; its write comes after theirs were begun.
        keeper.ensure("b").await.unwrap();
        kernel::testing::pass(Duration::from_secs(1)).await;
        let there = |uid: &str| pods.join(uid).join("userns").exists();
        assert_eq!(["a", "b", "left"].map(there), [false, true, false]);
    });
}

/// Upstream's TestMakeUserNsManagerFailsListPod.
#[test]
fn no_range_is_given_while_it_is_unknown_which_pods_have_one() {
    run_paused(|| async {
        let folder = tempfile::tempdir().unwrap();
        let pods = folder.path().join("pods");
        fs::write(&pods, "no folder").unwrap();
        let keeper = NamespaceRig::start(&pods).await;
        let asked = keeper.addr.ask(REPLY_TIMEOUT, |reply| Msg::Ensure {
            uid: "a".into(),
            reply,
        });
        assert!(!matches!(asked.await, Ok(Ok(_))));
        assert!(!keeper.root.degraded().is_empty());
    });
}

/// Upstream would refuse to start.
#[test]
fn a_record_that_makes_no_sense_is_that_pods_trouble_alone() {
    run_paused(|| async {
        let folder = tempfile::tempdir().unwrap();
        let pods = folder.path().join("pods");
        record(&pods, "damaged", "{");
        record(&pods, "foreign", &mapping(UNIT + 7, 10));
        fs::write(pods.join("a-file"), "").unwrap();
        fs::create_dir(pods.join("plain")).unwrap();
        let keeper = NamespaceRig::start(&pods).await;
        let error = keeper.ensure("damaged").await.unwrap_err();
        assert!(!error.transient());
        let told = error.to_string();
        assert!(
            told.starts_with("user namespace: invalid user namespace mappings file: "),
            "{told}"
        );
        let odd = IdRange {
            first: UNIT + 7,
            length: 10,
        };
        assert_eq!(keeper.ensure("foreign").await.unwrap(), odd);
        let plain = keeper.ensure("plain").await.unwrap();
        assert_eq!(plain.first, 2 * UNIT, "no id of the foreign range");
    });
}

#[test]
fn a_range_that_cannot_be_recorded_is_not_given() {
    run_paused(|| async {
        let folder = tempfile::tempdir().unwrap();
        let pods = folder.path().join("pods");
        let keeper = NamespaceRig::start(&pods).await;
        fs::create_dir_all(&pods).unwrap();
        fs::write(pods.join("a"), "no folder").unwrap();
        let error = keeper.ensure("a").await.unwrap_err();
        assert!(
            matches!(error, UserNamespaceError::Write(_)) && error.transient(),
            "{error}"
        );
        fs::remove_file(pods.join("a")).unwrap();
        assert!(keeper.ensure("a").await.is_ok());
    });
}
