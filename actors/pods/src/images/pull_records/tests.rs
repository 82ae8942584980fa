//! The records on disk, by upstream's tables (pkg/kubelet/images/pullmanager).

use logic_pods::images::records::{PullSecret, PullServiceAccount};
use tempfile::TempDir;

use super::*;

/// When the records of the tests were written.
const THEN: Timestamp = Timestamp::UNIX_EPOCH;
const NOW: Timestamp = Timestamp::constant(60, 0);

struct Rig {
    folder: TempDir,
    store: PullRecordStore,
}

impl Rig {
    fn new() -> Rig {
        let folder = tempfile::tempdir().unwrap();
        let store = PullRecordStore {
            pulling: folder.path().join("root/image_manager/pulling"),
            pulled: folder.path().join("root/image_manager/pulled"),
            under_way: BTreeMap::new(),
        };
        Rig { folder, store }
    }

    fn with_record(self, record: &PulledRecord) -> Rig {
        let text = records::encode_pulled(record);
        write(&self.store.pulled, &record.image_ref, &text).unwrap();
        self
    }

    fn has_intent(&self, image: &str) -> bool {
        self.store.pulling.join(file_name(image)).exists()
    }

    fn pulled(&self) -> usize {
        files(&self.store.pulled).unwrap().len()
    }
}

fn everybody() -> PullCredentials {
    PullCredentials::of(None)
}

fn secret(uid: &str, namespace: &str, name: &str, hash: &str) -> PullCredentials {
    PullCredentials {
        kubernetes_secrets: vec![PullSecret {
            uid: uid.into(),
            namespace: namespace.into(),
            name: name.into(),
            credential_hash: hash.into(),
        }],
        ..PullCredentials::default()
    }
}

fn account(uid: &str, namespace: &str, name: &str) -> PullCredentials {
    PullCredentials {
        kubernetes_service_accounts: vec![PullServiceAccount {
            uid: uid.into(),
            namespace: namespace.into(),
            name: name.into(),
        }],
        ..PullCredentials::default()
    }
}

/// Both of them, the first's entries first.
fn both(mut one: PullCredentials, other: PullCredentials) -> PullCredentials {
    one.kubernetes_secrets.extend(other.kubernetes_secrets);
    one.kubernetes_service_accounts
        .extend(other.kubernetes_service_accounts);
    one
}

fn record(reference: &str, name: &str, with: &PullCredentials) -> PulledRecord {
    let mut record = PulledRecord::new(reference, THEN);
    record.merge(name, with, THEN);
    record
}

fn known_secret() -> PullCredentials {
    secret("testsecretuid", "default", "pull-secret", "testsecrethash")
}

fn known_account() -> PullCredentials {
    account("test-sa-uid", "default", "test-sa")
}

/// The record of an image that was pulled with [`known_secret`].
fn known() -> PulledRecord {
    record("testimageref", "docker.io/testing/test", &known_secret())
}

/// The record of an image that was pulled with [`known_account`].
fn known_by_account() -> PulledRecord {
    record(
        "testimageref-sa",
        "docker.io/testing/test",
        &known_account(),
    )
}

/// What was there, what is pulled with what, and the names and credentials that the record then has.
type Row = (
    Option<PulledRecord>,
    (&'static str, &'static str, PullCredentials),
    Vec<(&'static str, PullCredentials)>,
    Change,
);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Change {
    Written,
    None,
}

const TESTING: &str = "docker.io/testing/test";
const TESTING_IMAGE: &str = "docker.io/testing/test:something";

fn rows_of_secrets() -> Vec<Row> {
    let repository = "repo.repo/test/test";
    let image = "repo.repo/test/test:v1";
    let new = || secret("newuid", "newns", "newname", "somehash");
    vec![
        (
            None,
            (image, "testimageref", everybody()),
            vec![(repository, everybody())],
            Change::Written,
        ),
        (
            Some(known()),
            (image, "testimageref", everybody()),
            vec![(TESTING, known_secret()), (repository, everybody())],
            Change::Written,
        ),
        (
            Some(known()),
            (TESTING_IMAGE, "testimageref", new()),
            vec![(TESTING, both(known_secret(), new()))],
            Change::Written,
        ),
        (
            Some(known()),
            (TESTING_IMAGE, "testimageref", known_secret()),
            vec![(TESTING, known_secret())],
            Change::None,
        ),
    ]
}

fn rows_of_accounts() -> Vec<Row> {
    let app = || account("sa-uid-123", "default", "test-sa");
    let system = || account("sa-uid-456", "kube-system", "system-sa");
    let other = || account("sa-uid-789", "app-ns", "app-sa");
    let short = "testing@sha256:f24acc752be18b93b0504c86312bbaf482c9efb0c45e925bbccb0a591cebd7af";
    vec![
        (
            None,
            ("docker.io/sa-test/app:v1", "sa-testimageref", app()),
            vec![("docker.io/sa-test/app", app())],
            Change::Written,
        ),
        (
            Some(known()),
            (TESTING_IMAGE, "testimageref", system()),
            vec![(TESTING, both(known_secret(), system()))],
            Change::Written,
        ),
        (
            Some(known_by_account()),
            (TESTING_IMAGE, "testimageref-sa", other()),
            vec![(TESTING, both(other(), known_account()))],
            Change::Written,
        ),
        (
            Some(known_by_account()),
            (TESTING_IMAGE, "testimageref-sa", known_account()),
            vec![(TESTING, known_account())],
            Change::None,
        ),
        (
            None,
            (short, "testimageref-familiarlast", known_account()),
            vec![("testing", known_account())],
            Change::Written,
        ),
        (
            None,
            (
                "secretorg/myimage:customtag",
                "testimageref-familiarwithorg",
                known_account(),
            ),
            vec![("secretorg/myimage", known_account())],
            Change::Written,
        ),
    ]
}

/// Upstream's TestFileBasedImagePullManager_RecordImagePulled.
#[test]
fn a_pull_is_recorded_under_the_images_name_and_ends_its_intent() {
    for (before, (image, reference, with), mapping, change) in
        rows_of_secrets().into_iter().chain(rows_of_accounts())
    {
        let mut rig = Rig::new();
        if let Some(record) = &before {
            rig = rig.with_record(record);
        }
        rig.store.intend(image.to_owned()).unwrap();
        rig.store.learn(image, reference, Some(&with), NOW).unwrap();
        rig.store.over(image).unwrap();
        assert!(!rig.has_intent(image), "{image}");
        let found = rig.store.record(reference).unwrap().unwrap();
        let mapping = mapping.into_iter();
        let mapping: BTreeMap<_, _> = mapping
            .map(|(name, with)| (name.to_owned(), with))
            .collect();
        assert_eq!(found.credential_mapping, mapping, "{image}");
        let at = if change == Change::Written { NOW } else { THEN };
        assert_eq!(found.last_updated_time, Some(at), "{image}");
        assert_eq!(rig.pulled(), 1);
    }
}

/// Upstream's TestFileBasedImagePullManager_RecordPullIntent, and its case "more pulls in-flight".
#[test]
fn an_intent_stays_until_the_last_pull_of_its_image_is_over() {
    let image = "repo.repo/test/test:latest";
    let mut rig = Rig::new();
    for under_way in 1..=2 {
        rig.store.intend(image.to_owned()).unwrap();
        assert_eq!(rig.store.under_way[image], under_way);
        let path = rig.store.pulling.join(file_name(image));
        let (intended, form) = read(&path, records::decode_intent).unwrap().unwrap();
        assert_eq!((intended.as_str(), form), (image, RecordFormat::Current));
    }
    rig.store
        .learn(image, "testimageref", Some(&everybody()), NOW)
        .unwrap();
    rig.store.over(image).unwrap();
    assert!(rig.has_intent(image));
    rig.store.over(image).unwrap();
    assert!(!rig.has_intent(image) && rig.store.under_way.is_empty());
}

/// Upstream's TestNewFSPullRecordsAccessor.
#[test]
fn the_folders_are_made_and_files_of_an_older_version_are_written_anew() {
    let older = |text: Vec<u8>| {
        let text = String::from_utf8(text).unwrap();
        text.replace("/v1beta1", "/v1alpha1").into_bytes()
    };
    let versions: [&[bool]; 4] = [
        &[],
        &[true, true],
        &[true, false, true, false],
        &[false, false],
    ];
    for intents in versions {
        for pulls in versions {
            let mut rig = Rig::new();
            for (at, is_older) in intents.iter().enumerate() {
                let image = format!("example.com/a:{at}");
                let text = records::encode_intent(&image);
                let text = if *is_older { older(text) } else { text };
                write(&rig.store.pulling, &image, &text).unwrap();
            }
            for (at, is_older) in pulls.iter().enumerate() {
                let record = record(&format!("ref-{at}"), TESTING, &known_secret());
                let text = records::encode_pulled(&record);
                let text = if *is_older { older(text) } else { text };
                write(&rig.store.pulled, &record.image_ref, &text).unwrap();
            }
            let mut found = rig.store.open().unwrap();
            found.sort();
            let expected: Vec<_> = (0..intents.len())
                .map(|at| format!("example.com/a:{at}"))
                .collect();
            assert_eq!(found, expected);
            assert!(
                rig.folder
                    .path()
                    .join("root/image_manager/pulling")
                    .is_dir()
            );
            for path in files(&rig.store.pulling).unwrap() {
                let (_, form) = read(&path, records::decode_intent).unwrap().unwrap();
                assert_eq!(form, RecordFormat::Current);
            }
            assert_eq!(rig.pulled(), pulls.len());
            for path in files(&rig.store.pulled).unwrap() {
                let (record, form) = read(&path, records::decode_pulled).unwrap().unwrap();
                assert_eq!(form, RecordFormat::Current);
                assert_eq!(record.credential_mapping[TESTING], known_secret());
            }
        }
    }
}

fn gauge(name: &str) -> String {
    let text = metrics::text();
    let name = format!("kubelet_imagemanager_ondisk_{name} ");
    let mut values = text
        .lines()
        .filter_map(|line| line.strip_prefix(name.as_str()));
    values.next().unwrap_or_default().to_owned()
}

/// Upstream's TestFSPullRecordsMetrics, of the files.
#[test]
fn files_are_counted_as_they_come_and_go() {
    let mut rig = Rig::new();
    rig.store.open().unwrap();
    let counted = || (gauge("pullintents"), gauge("pulledrecords"));
    let is = |intents: &str, pulled: &str| assert_eq!(counted(), (intents.into(), pulled.into()));
    is("0", "0");
    for _ in 0..3 {
        rig.store.intend("test-image:latest".to_owned()).unwrap();
        is("1", "0");
    }
    rig.store.intend("test-image:v1".to_owned()).unwrap();
    is("2", "0");
    for reference in ["one", "one", "two"] {
        rig.store
            .learn("test-image", reference, Some(&everybody()), NOW)
            .unwrap();
    }
    is("2", "2");
    rig.store.over("test-image:v1").unwrap();
    rig.store.over("test-image:v1").unwrap();
    is("1", "2");
    for _ in 0..3 {
        rig.store.over("test-image:latest").unwrap();
    }
    is("0", "2");
}

/// Upstream's TestFileBasedImagePullManager_PruneUnknownRecords, and what it says of a record that is newer.
#[test]
fn records_of_images_that_are_gone_are_removed_and_no_others() {
    let all = ["testimage-anonpull", "testimageref", "testemptycredmapping"];
    let untracked = ["untracked1", "different-untracked"];
    let cases: [(&[&str], Timestamp, &[&str]); 5] = [
        (&all, NOW, &all),
        (&[], NOW, &[]),
        (&untracked, NOW, &[]),
        (
            &["testimage-anonpull", "untracked1", "testimageref"],
            NOW,
            &all[..2],
        ),
        (&[], THEN, &all),
    ];
    for (present, until, left) in cases {
        let rig = all.iter().fold(Rig::new(), |rig, reference| {
            rig.with_record(&record(reference, "name", &everybody()))
        });
        let present: BTreeSet<String> = present.iter().map(|&name| name.to_owned()).collect();
        rig.store.prune(&present, until).unwrap();
        let there = |reference: &&str| rig.store.record(reference).unwrap().is_some();
        let found: Vec<&str> = all.iter().copied().filter(there).collect();
        assert_eq!(found, left, "{present:?}");
        assert_eq!(gauge("pulledrecords"), left.len().to_string());
    }
}

#[test]
fn a_record_that_cannot_be_read_stays_and_so_keeps_its_image_closed() {
    let rig = Rig::new().with_record(&record("gone", "name", &everybody()));
    let damaged = rig.store.pulled.join(file_name("damaged"));
    fs::write(&damaged, b"{").unwrap();
    rig.store.prune(&BTreeSet::new(), NOW).unwrap();
    assert!(damaged.exists());
    assert_eq!(rig.pulled(), 1);
}
