//! Laws of the checkpoint, on real files: what goes in comes out on this node, and nowhere else.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use kernel::testing::{pass, run_paused};
use kernel::{Addr, ChildSpec, Intensity, Supervisor, mailbox};
use logic_api::objects::{
    BoundPod, CertificateCredentials, Issuance, IssuanceRefusal, Objects,
    PendingCertificateRequest, PodCertificate, ServiceAccountToken, StaticToken,
};
use logic_pods::api::references::references;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::objects::StoreWriter;

const MINUTE: Duration = Duration::from_secs(60);
const SECRETS: [&str; 5] = [
    "correct horse",
    "eyJhbGciOi",
    "Y29ycmVjdCBob3JzZQ",
    "MC4CAQAwBQYDK2Vw",
    "MIGHAgEAMBMGByqG",
];

fn pod(name: &str) -> Arc<Pod> {
    changed(name, |_| {})
}

fn changed(name: &str, change: impl FnOnce(&mut Value)) -> Arc<Pod> {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "apps", "uid": format!("{name}-uid"), "resourceVersion": "7",
                     "generation": 1, "managedFields": [{"manager": "kubectl"}]},
        "spec": {
            "serviceAccountName": "worker",
            "containers": [{"name": "c", "volumeMounts": [{"name": "s", "mountPath": "/s"}, {"name": "t", "mountPath": "/t"}]}],
            "volumes": [
                {"name": "s", "secret": {"secretName": "login"}},
                {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}, {"configMap": {"name": "settings"}},
                    {"podCertificate": {"signerName": "a.io/b", "keyType": "ED25519", "userAnnotations": {"a.io/c": "d"}}}]}},
            ],
        },
        "status": {"phase": "Running", "podIP": "10.1.0.7"},
    });
    change(&mut pod);
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn objects() -> StaticObjects {
    let all = [
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login", "namespace": "apps"},
               "stringData": {"p": SECRETS[0]}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "apps"},
               "data": {"k": "v"}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "unused", "namespace": "apps"}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "apps"}}),
    ];
    let text: Vec<String> = all.iter().map(Value::to_string).collect();
    let mut objects = logic_api::objects::parse(text.join("\n---\n").as_bytes()).objects;
    put_token(&mut objects, SECRETS[1]);
    put_certificate(&mut objects, 3600, SECRETS[3]);
    objects
}

/// One that is held until then, and the key of the request for the next.
fn put_certificate(objects: &mut StaticObjects, expires: i64, key: &str) {
    let at = |second| jiff::Timestamp::from_second(second).unwrap();
    let issuance = Issuance {
        held: Some(CertificateCredentials {
            key_pem: key.into(),
            chain_pem: b"chain".to_vec(),
            renew_at: at(expires / 2),
            expires: at(expires),
        }),
        asked: Some(PendingCertificateRequest {
            name: "req-1".into(),
            key_pem: SECRETS[4].into(),
            request: vec![1, 2, 3],
        }),
        refused: None,
    };
    let references = references(&pod("a"));
    let wanted = references.certificates.into_iter().next().unwrap();
    objects.issuances.insert(wanted, Arc::new(issuance));
}

fn put_token(objects: &mut StaticObjects, text: &str) {
    let token = StaticToken {
        audiences: Vec::new(),
        bound_to: Some(BoundPod {
            name: "a".into(),
            uid: "a-uid".into(),
        }),
        asked: None,
        token: ServiceAccountToken {
            token: text.into(),
            expires: "2030-01-01T00:00:00Z".parse().unwrap(),
            issued: None,
        },
    };
    objects.tokens.clear();
    objects.put_token("apps".to_owned(), "worker".to_owned(), token);
}

struct Rig {
    folder: TempDir,
    root: Supervisor,
    alone: Addr<Msg>,
    store_writer: StoreWriter,
}

impl Rig {
    fn new() -> Rig {
        Rig::on(tempfile::tempdir().unwrap())
    }

    fn on(folder: TempDir) -> Rig {
        let (store_writer, shelf) = ObjectStore::new(objects());
        let root = Supervisor::root("test", Intensity::UNLIMITED);
        let (alone, port) = mailbox(MAILBOX);
        fs::write(folder.path().join("machine-id"), "one\n").unwrap();
        let own = folder.path().to_owned();
        root.spawn(ChildSpec::permanent("offline"), port, move || {
            let machine_id = own.join("machine-id");
            OfflineCheckpoint::on(&own, &machine_id, ("worker-1".into(), shelf.clone()))
        });
        Rig {
            folder,
            root,
            alone,
            store_writer,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn tell(&self, msg: Msg) {
        self.alone.tell(msg).unwrap();
    }

    fn pods(&self, pods: &[Arc<Pod>]) {
        self.tell(Msg::Pods {
            pods: pods.to_vec(),
        });
    }

    fn load(&self) -> OfflineState {
        load_on(self.folder.path(), &self.path("machine-id"))
    }

    async fn writes(&self) -> u64 {
        self.view().await["writes"].as_u64().unwrap()
    }

    async fn view(&self) -> Value {
        let tree = self.root.tree().await;
        tree.find("test/offline").unwrap().snapshot.clone()
    }
}

/// Enough for what is urgent.
async fn soon() {
    pass(SOON + Duration::from_millis(500)).await;
}

/// A folder with something in it.
async fn written() -> Rig {
    let rig = Rig::new();
    rig.pods(&[pod("a")]);
    rig.tell(Msg::Supplied {
        uids: [PodUid::from("a-uid".to_owned())].into(),
    });
    soon().await;
    assert_eq!(rig.writes().await, 1);
    rig
}

#[test]
fn what_pods_are_and_need_comes_back() {
    run_paused(|| async {
        let rig = written().await;
        let back = rig.load();
        assert_eq!(back.trouble, None);
        let [pod] = back.pods.as_slice() else {
            panic!("{:?}", back.pods);
        };
        assert_eq!(pod.metadata.uid.as_deref(), Some("a-uid"));
        assert_eq!(pod.metadata.managed_fields, None);
        let status = pod.status.as_ref().unwrap();
        assert_eq!(status.pod_ip.as_deref(), Some("10.1.0.7"));
        assert_eq!(back.supplied.len(), 1);
        let kept = &back.objects;
        let all = objects();
        assert_eq!(kept.secrets, all.secrets);
        assert_eq!(kept.services, all.services);
        assert_eq!(kept.tokens, all.tokens);
        assert_eq!(kept.issuances, all.issuances);
        assert!(kept.config_map("apps", "settings").is_some());
        // No pod refers to it.
        assert!(kept.config_map("apps", "unused").is_none());
    });
}

#[test]
fn no_secret_and_nothing_else_can_be_read_in_the_file_and_nobody_else_may_read_it() {
    run_paused(|| async {
        let rig = written().await;
        let bytes = fs::read(rig.path(FILE)).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        for secret in SECRETS.iter().chain(&["settings", "worker", "apps"]) {
            assert!(!text.contains(secret), "{secret}");
        }
        for name in [FILE, "alone.key"] {
            let mode = fs::metadata(rig.path(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, 0o600, "{name}");
        }
    });
}

#[test]
fn a_copy_opens_neither_without_the_key_nor_on_another_machine() {
    run_paused(|| async {
        type Change = fn(&Path);
        let changes: [Change; 4] = [
            |folder| fs::remove_file(folder.join("alone.key")).unwrap(),
            |folder| fs::write(folder.join("alone.key"), [7; 32]).unwrap(),
            |folder| fs::write(folder.join("alone.key"), [7; 5]).unwrap(),
            |folder| fs::write(folder.join("machine-id"), "two\n").unwrap(),
        ];
        for (index, change) in changes.into_iter().enumerate() {
            let rig = written().await;
            change(rig.folder.path());
            let back = rig.load();
            assert!(back.pods.is_empty() && back.objects.is_empty(), "{index}");
            let why = back.trouble.unwrap();
            assert!(why.contains("cannot be opened"), "{why}");
            assert!(rig.path("alone.checkpoint.unopened").exists());
            let again = rig.load();
            assert_eq!((again.pods.len(), again.trouble), (0, None));
        }
    });
}

/// Sealed with no id, it would not open once the machine has its id again.
#[test]
fn without_the_machines_id_nothing_is_sealed_and_nothing_set_aside() {
    run_paused(|| async {
        let rig = written().await;
        for id in [None, Some("\n")] {
            match id {
                Some(id) => fs::write(rig.path("machine-id"), id).unwrap(),
                None => fs::remove_file(rig.path("machine-id")).unwrap(),
            }
            let why = rig.load().trouble.unwrap();
            assert!(why.contains("machine-id"), "{why}");
        }
        fs::write(rig.path("machine-id"), "one\n").unwrap();
        let back = rig.load();
        assert!(!back.pods.is_empty(), "{:?}", back.trouble);
    });
}

#[test]
fn no_changed_bit_goes_unnoticed() {
    run_paused(|| async {
        let rig = written().await;
        let whole = fs::read(rig.path(FILE)).unwrap();
        for at in (0..whole.len()).step_by(7) {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            fs::write(rig.path(FILE), &bytes).unwrap();
            let back = rig.load();
            assert!(back.pods.is_empty(), "byte {at}");
            assert!(back.trouble.is_some(), "byte {at}");
        }
        for length in [0, 1, 19, 30, whole.len() - 1] {
            fs::write(rig.path(FILE), &whole[..length]).unwrap();
            assert!(rig.load().trouble.is_some(), "{length} bytes");
        }
    });
}

/// The frame's sum can be forged by anyone; the seal cannot.
#[test]
fn whoever_forges_the_frame_is_found_out_by_the_seal() {
    run_paused(|| async {
        let rig = written().await;
        let mut store = CheckpointFile::new(rig.path(FILE), SCHEMA);
        let Ok(LoadOutcome::Found(mut sealed)) = store.load::<Sealed>() else {
            panic!("there is no checkpoint");
        };
        sealed.sealed[40] ^= 1;
        store.save(&sealed).unwrap();
        assert!(rig.load().trouble.unwrap().contains("cannot be opened"));
        sealed.sealed.truncate(5);
        store.save(&sealed).unwrap();
        assert!(rig.load().trouble.unwrap().contains("cannot be opened"));
    });
}

#[test]
fn nothing_is_remembered_where_nothing_was_kept() {
    let folder = tempfile::tempdir().unwrap();
    let back = load(&folder.path().join("none"));
    assert!(back.pods.is_empty() && back.trouble.is_none());
}

#[test]
fn what_did_not_change_is_not_written_whether_by_this_life_or_the_one_before() {
    run_paused(|| async {
        let rig = written().await;
        rig.pods(&[changed("a", |pod| {
            pod["metadata"]["resourceVersion"] = json!("8");
        })]);
        pass(2 * MINUTE).await;
        assert_eq!(rig.writes().await, 1);
        assert_eq!(rig.view().await["unchanged"], 1);
        let inode = fs::metadata(rig.path(FILE)).unwrap().ino();
        rig.root.shutdown().await;
        let again = Rig::on(rig.folder);
        again.pods(&[pod("a")]);
        again.tell(Msg::Supplied {
            uids: [PodUid::from("a-uid".to_owned())].into(),
        });
        soon().await;
        assert_eq!(again.writes().await, 0);
        assert_eq!(fs::metadata(again.path(FILE)).unwrap().ino(), inode);
    });
}

#[test]
fn nothing_is_written_before_the_pods_are_known() {
    run_paused(|| async {
        let rig = written().await;
        rig.root.shutdown().await;
        let again = Rig::on(rig.folder);
        again.store_writer.send_replace(Arc::default());
        pass(2 * MINUTE).await;
        assert_eq!(again.writes().await, 0);
        assert_eq!(again.load().pods.len(), 1);
    });
}

#[test]
fn a_new_pod_is_kept_within_a_second_and_a_renewed_token_within_a_minute() {
    run_paused(|| async {
        let rig = written().await;
        let mut renewed = objects();
        put_token(&mut renewed, "eyJuZXdlcg");
        rig.store_writer.send_replace(Arc::new(renewed));
        pass(MINUTE / 2).await;
        assert_eq!(rig.writes().await, 1);
        pass(MINUTE).await;
        assert_eq!(rig.writes().await, 2);
        rig.pods(&[pod("a"), pod("b")]);
        soon().await;
        assert_eq!(rig.writes().await, 3);
        assert_eq!(rig.load().pods.len(), 2);
        rig.pods(&[pod("b")]);
        soon().await;
        assert_eq!(rig.load().pods.len(), 1);
    });
}

#[test]
fn a_first_certificate_is_kept_within_a_second_and_a_renewed_one_within_a_minute() {
    run_paused(|| async {
        let rig = written().await;
        let mut renewed = objects();
        put_certificate(&mut renewed, 7200, "MC4CAQAwBQYDK2Vw again");
        let (wanted, issuance) = renewed.issuances.first_key_value().unwrap();
        let expected = issuance.outcome(wanted);
        let wanted = wanted.clone();
        rig.store_writer.send_replace(Arc::new(renewed.clone()));
        pass(MINUTE / 2).await;
        assert_eq!(rig.writes().await, 1);
        pass(MINUTE).await;
        assert_eq!(rig.writes().await, 2);
        assert!(matches!(expected, PodCertificate::Issued(_)));
        assert_eq!(rig.load().objects.pod_certificate(&wanted), expected);

        let first = Issuance {
            held: None,
            ..Issuance::clone(&renewed.issuances[&wanted])
        };
        renewed.issuances.insert(wanted.clone(), Arc::new(first));
        rig.store_writer.send_replace(Arc::new(renewed.clone()));
        soon().await;
        assert_eq!(rig.writes().await, 3);
        assert_eq!(rig.load().objects.issuances, renewed.issuances);
    });
}

#[test]
fn what_a_signer_refused_is_not_kept() {
    run_paused(|| async {
        let rig = written().await;
        let mut refused = objects();
        for issuance in refused.issuances.values_mut() {
            let word = IssuanceRefusal::Denied {
                reason: "R".into(),
                message: "M".into(),
            };
            *issuance = Arc::new(Issuance {
                refused: Some(word),
                ..Issuance::default()
            });
        }
        rig.store_writer.send_replace(Arc::new(refused));
        soon().await;
        assert!(rig.load().objects.issuances.is_empty());
    });
}

#[test]
fn a_hundred_changes_make_few_writes() {
    run_paused(|| async {
        let rig = written().await;
        for number in 0..100 {
            rig.pods(&[pod("a"), pod(&format!("p{number}"))]);
            pass(Duration::from_millis(50)).await;
        }
        soon().await;
        let writes = rig.writes().await;
        assert!((4..9).contains(&writes), "{writes}");
    });
}

#[test]
fn a_pods_newest_status_is_kept_with_it() {
    run_paused(|| async {
        let rig = written().await;
        let status: PodStatus = serde_json::from_value(json!({"phase": "Succeeded"})).unwrap();
        rig.tell(Msg::Status {
            uid: PodUid::from("a-uid".to_owned()),
            status: Arc::new(status),
        });
        soon().await;
        let back = rig.load();
        let status = back.pods[0].status.as_ref().unwrap();
        assert_eq!(status.phase.as_deref(), Some("Succeeded"));
        // A pod that ended needs nothing when it comes back.
        rig.pods(&[]);
        soon().await;
        assert!(rig.load().pods.is_empty());
    });
}

#[test]
fn a_disk_that_refuses_is_told_and_tried_again() {
    run_paused(|| async {
        let rig = Rig::new();
        pass(Duration::from_millis(10)).await;
        // A folder in the file's place.
        fs::create_dir(rig.path(FILE)).unwrap();
        fs::create_dir(rig.path(FILE).join("full")).unwrap();
        rig.pods(&[pod("a")]);
        soon().await;
        let trouble = rig.view().await["trouble"].clone();
        assert!(trouble.as_str().unwrap().contains(FILE), "{trouble}");
        fs::remove_dir_all(rig.path(FILE)).unwrap();
        pass(MINUTE).await;
        assert_eq!(rig.view().await["trouble"], Value::Null);
        assert_eq!(rig.load().pods.len(), 1);
    });
}

#[test]
fn an_orderly_end_keeps_what_was_not_written_yet() {
    run_paused(|| async {
        let rig = written().await;
        rig.pods(&[pod("a"), pod("b")]);
        pass(Duration::from_millis(10)).await;
        rig.root.shutdown().await;
        assert_eq!(rig.load().pods.len(), 2);
    });
}

#[test]
fn nothing_secret_is_shown() {
    run_paused(|| async {
        let rig = written().await;
        let shown = format!("{} {:?}", rig.view().await, rig.load());
        assert!(SECRETS.iter().all(|secret| !shown.contains(secret)));
    });
}
