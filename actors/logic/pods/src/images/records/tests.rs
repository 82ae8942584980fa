//! Records as upstream writes, reads and merges them.

use logic_api::testing::at;

use super::*;
use crate::images::credentials::{AuthConfig, SecretId};

fn secret(uid: &str, namespace: &str, name: &str, hash: &str) -> PullSecret {
    PullSecret {
        uid: uid.into(),
        namespace: namespace.into(),
        name: name.into(),
        credential_hash: hash.into(),
    }
}

fn account(uid: &str, namespace: &str, name: &str) -> PullServiceAccount {
    PullServiceAccount {
        uid: uid.into(),
        namespace: namespace.into(),
        name: name.into(),
    }
}

fn secrets(list: &[PullSecret]) -> PullCredentials {
    PullCredentials {
        kubernetes_secrets: list.to_vec(),
        ..PullCredentials::default()
    }
}

fn accounts(list: &[PullServiceAccount]) -> PullCredentials {
    PullCredentials {
        kubernetes_service_accounts: list.to_vec(),
        ..PullCredentials::default()
    }
}

fn everybody() -> PullCredentials {
    PullCredentials::of(None)
}

fn known() -> PulledRecord {
    let (one, two) = (
        secret("uid1", "namespace1", "name1", "hash1"),
        secret("uid2", "namespace2", "name2", "hash2"),
    );
    let mut record = PulledRecord::new("testImageRef", at(0));
    record.credential_mapping = [
        (
            "test-image1".to_owned(),
            secrets(std::slice::from_ref(&one)),
        ),
        ("test-image2".into(), secrets(&[one, two])),
        (
            "with-sa".into(),
            accounts(&[account("sa-uid1", "default", "sa1")]),
        ),
        ("nodewide".into(), everybody()),
    ]
    .into();
    record
}

/// Upstream's Test_pulledRecordMergeNewCreds.
#[test]
fn new_credentials_are_added_and_what_is_for_everybody_stays_so() {
    let (one, two) = (
        secret("uid1", "namespace1", "name1", "hash1"),
        secret("uid2", "namespace2", "name2", "hash2"),
    );
    let new = secret("newuid", "newnamespace", "newname", "newhash");
    let between = secret("newuid", "namespace1", "newname", "newhash");
    let renewed = secret("uid2", "namespace2", "name2", "newhash");
    let same_hash = secret("uid3", "namespace2", "name3", "hash2");
    let sa = account("sa-uid1", "default", "sa1");
    let other_sa = account("new-sa-uid", "kube-system", "new-sa");
    let other_uid = account("different-uid", "default", "sa1");
    let mut both = secrets(&[one.clone(), two.clone()]);
    both.kubernetes_service_accounts = vec![other_sa.clone()];
    let just = |one: &PullSecret| secrets(std::slice::from_ref(one));
    let changes = [
        ("new-image", just(&new), just(&new)),
        (
            "test-image1",
            just(&new),
            secrets(&[one.clone(), new.clone()]),
        ),
        (
            "test-image2",
            just(&between),
            secrets(&[one.clone(), between.clone(), two.clone()]),
        ),
        ("test-image2", everybody(), everybody()),
        (
            "test-image2",
            just(&renewed),
            secrets(&[one.clone(), renewed.clone()]),
        ),
        (
            "test-image2",
            just(&same_hash),
            secrets(&[one, two, same_hash.clone()]),
        ),
        (
            "test-image2",
            accounts(std::slice::from_ref(&other_sa)),
            both,
        ),
        (
            "with-sa",
            accounts(std::slice::from_ref(&other_sa)),
            accounts(&[sa.clone(), other_sa.clone()]),
        ),
        (
            "with-sa",
            accounts(std::slice::from_ref(&other_uid)),
            accounts(&[other_uid.clone(), sa.clone()]),
        ),
        ("with-sa", everybody(), everybody()),
    ];
    for (image, added, expected) in changes {
        let mut record = known();
        assert!(record.merge(image, &added, at(9)), "{image} {added:?}");
        assert_eq!(record.credential_mapping[image], expected, "{image}");
        assert_eq!(record.last_updated_time, Some(at(9)));
    }
    let nothing_new = [
        ("with-sa", accounts(&[sa])),
        (
            "test-image1",
            just(&secret("uid1", "namespace1", "name1", "hash1")),
        ),
        ("nodewide", just(&new)),
        ("nodewide", accounts(&[other_sa])),
        ("test-image1", PullCredentials::default()),
        ("new-image", PullCredentials::default()),
    ];
    for (image, added) in nothing_new {
        let mut record = known();
        assert!(!record.merge(image, &added, at(9)), "{image} {added:?}");
        assert_eq!(record, known());
    }
}

/// As a kubelet of 1.36 writes it.
#[test]
fn a_record_is_upstreams_file() {
    let now = "2026-09-26T06:36:38Z".parse().unwrap();
    let mut record = PulledRecord::new("sha256:9f5f", now);
    assert!(record.merge("example.com/web", &everybody(), now));
    let text = r#"{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","lastUpdatedTime":"2026-09-26T06:36:38Z","imageRef":"sha256:9f5f","credentialMapping":{"example.com/web":{"nodePodsAccessible":true}}}"#;
    assert_eq!(
        String::from_utf8(encode_pulled(&record)).unwrap(),
        format!("{text}\n")
    );
    let (read, form) = decode_pulled(text.as_bytes()).unwrap();
    assert_eq!((read, form), (record, RecordFormat::Current));
    assert_eq!(
        String::from_utf8(encode_intent("example.com/web:1")).unwrap(),
        "{\"kind\":\"ImagePullIntent\",\"apiVersion\":\"kubelet.config.k8s.io/v1beta1\",\"image\":\"example.com/web:1\"}\n"
    );
}

/// Upstream's testdata: what 1.33 and 1.34 wrote.
#[test]
fn records_of_an_older_version_are_read_and_known_as_such() {
    let text = br#"{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1alpha1","lastUpdatedTime":"2024-10-22T06:27:13Z","imageRef":"testimageref","credentialMapping":{"example.com/testing/test":{"kubernetesSecrets":[{"uid":"testsecretuid","namespace":"default","name":"pull-secret","credentialHash":"testsecrethash"}]}}}"#;
    let (record, form) = decode_pulled(text).unwrap();
    assert_eq!(form, RecordFormat::Older);
    let expected = secret("testsecretuid", "default", "pull-secret", "testsecrethash");
    assert_eq!(
        record.credential_mapping["example.com/testing/test"],
        secrets(&[expected])
    );
    assert!(
        String::from_utf8(encode_pulled(&record))
            .unwrap()
            .contains("/v1beta1\"")
    );
    let text = br#"{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1alpha1","image":"a:1"}"#;
    assert_eq!(
        decode_intent(text).unwrap(),
        ("a:1".to_owned(), RecordFormat::Older)
    );
}

/// Upstream decodes strictly, too.
#[test]
fn what_is_no_record_is_refused() {
    let pulled = |text: &str| decode_pulled(text.as_bytes()).is_err();
    assert!(pulled(""));
    assert!(pulled("{}"));
    assert!(pulled(
        r#"{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1"}"#
    ));
    assert!(pulled(
        r#"{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v2"}"#
    ));
    assert!(pulled(
        r#"{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","extra":1}"#
    ));
    assert!(!pulled(
        r#"{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","lastUpdatedTime":null,"imageRef":"a","credentialMapping":null}"#
    ));
    assert!(decode_intent(b"{\"kind\":\"ImagePulledRecord\"}").is_err());
}

/// Upstream's Test_mergePullServiceAccounts.
#[test]
fn service_accounts_are_merged_in_order_and_each_once() {
    let one = || account("sa1", "default", "serviceaccount1");
    let two = || account("sa2", "kube-system", "serviceaccount2");
    let three = || account("sa3", "default", "serviceaccount3");
    let (last, first, middle) = (
        || account("sa2", "kube-system", "z-sa"),
        || account("sa1", "default", "a-sa"),
        || account("sa3", "kube-system", "a-sa"),
    );
    let namesake = || account("sa2", "default", "serviceaccount1");
    let rows = [
        (vec![], vec![], vec![]),
        (vec![], vec![one()], vec![one()]),
        (vec![one()], vec![one()], vec![one()]),
        (vec![one()], vec![two()], vec![one(), two()]),
        (
            vec![last()],
            vec![first(), middle()],
            vec![first(), middle(), last()],
        ),
        (
            vec![one(), two()],
            vec![one(), three()],
            vec![one(), three(), two()],
        ),
        (vec![one()], vec![namesake()], vec![one(), namesake()]),
    ];
    for (known, new, expected) in rows {
        let mut merged = accounts(&known);
        let changed = merged.add(&accounts(&new));
        assert_eq!(merged, accounts(&expected));
        assert_eq!(changed, known != expected, "{known:?} and {new:?}");
    }
}

/// The names of upstream's testdata/pulling and testdata/pulled.
#[test]
fn a_file_is_named_by_the_hash_of_its_subject() {
    let known = [
        (
            "testimageref",
            "b3c0cc4278800b03a308ceb2611161430df571ca733122f0a40ac8b9792a9064",
        ),
        (
            "testimageref-sa",
            "917e8b3439bf8a7a6f37ffd2d2ddfdfafac8a251bf214a0be39675742b420b1a",
        ),
        (
            "testimage-anonpull",
            "a2eace2182b24cdbbb730798e47b10709b9ef5e0f0c1624a3bc06c8ca987727a",
        ),
        (
            "repo.repo/test/test:latest",
            "7d8c031e2f1aeaa71649ca3e0b64c9902370ed460ef57fb07582a87a5a1e1c02",
        ),
        (
            "repo.repo/test/test:v1",
            "ee81caca15454863449fb55a1d942904d56d5ed9f9b20a7cb3453944ea2c7e11",
        ),
        (
            "secretorg/myimage:customtag",
            "5f3ca9e4d82e32203c2fafb410dfae9c8047bc6ebe57d642fe264d479e152955",
        ),
    ];
    for (subject, hash) in known {
        assert_eq!(file_name(subject), format!("sha256-{hash}"), "{subject}");
    }
    assert_eq!(
        file_name(""),
        "sha256-e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    );
    assert!(is_file_name(&file_name("a")));
    assert!(!is_file_name(&format!("{}.tmp", file_name("a"))));
    assert!(!is_file_name("notes.txt"));
}

/// Upstream's trackedToImagePullCreds.
#[test]
fn a_pull_is_remembered_by_the_secret_that_it_took_or_as_for_everybody() {
    let auth = AuthConfig {
        username: "user".into(),
        password: "password".into(),
        email: String::new(),
    };
    let id = SecretId {
        uid: "uid".into(),
        namespace: "default".into(),
        name: "pull".into(),
    };
    let of = |source| Credential {
        auth: auth.clone(),
        source,
    };
    assert_eq!(
        PullCredentials::of(Some(&of(CredentialSource::Node))),
        everybody()
    );
    assert_eq!(
        PullCredentials::of(Some(&of(CredentialSource::Secret(id)))),
        secrets(&[secret("uid", "default", "pull", &auth.hash())])
    );
}
