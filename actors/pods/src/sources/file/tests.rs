//! Invariants of the file source, on real folders and with real inotify.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use kernel::testing::{self, Inbox, inbox};
use kernel::{ChildSpec, InjectedFault, Intensity, Supervisor, mailbox, system};
use logic_api::pod::PodView;
use state::events::{self, EventType};
use tempfile::TempDir;

use super::*;

/// The timeout for changes that inotify reports.
const TEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Sets that a test waits for; far more than any needs at the shortest period.
const MAX_SETS: usize = 100;
/// A period that no test reaches.
const NEVER: Duration = Duration::from_secs(3600);

struct Rig {
    folder: TempDir,
    root: Supervisor,
    sets: Inbox<pod_manager::Msg>,
    events: Inbox<events::Msg>,
}

/// Runs a test with a source on `path`, a name in a temporary folder that `prepare` fills.
fn source(path: &str, period: Duration, prepare: impl FnOnce(&Path), test: impl AsyncFnOnce(Rig)) {
    let run = system::run(async move {
        let folder = tempfile::tempdir().unwrap();
        prepare(folder.path());
        let (pod_manager, sets) = inbox(1024);
        let (events, heard) = inbox(1024);
        let root = Supervisor::root("test", Intensity::UNLIMITED);
        let (_, port) = mailbox(MAILBOX);
        let path = folder.path().join(path);
        root.spawn(ChildSpec::permanent("file"), port, move || {
            FileSource::new(
                path.clone(),
                period,
                "node",
                pod_manager.clone(),
                Recorder::new(events.clone()),
            )
        });
        test(Rig {
            folder,
            root,
            sets,
            events: heard,
        })
        .await;
    });
    run.unwrap();
}

impl Rig {
    /// The sets that nobody has taken yet.
    fn drained_sets(&mut self) -> Vec<pod_manager::Msg> {
        let mut told = self.sets.drain();
        told.retain(|msg| !matches!(msg, pod_manager::Msg::SetRefused { .. }));
        told
    }

    async fn pods(&mut self) -> Vec<Arc<Pod>> {
        loop {
            match self.sets.next(TEST_TIMEOUT).await {
                Some(pod_manager::Msg::SetPods {
                    source: PodSource::File,
                    pods,
                }) => return pods,
                Some(pod_manager::Msg::SetRefused { .. }) => {}
                other => panic!("expected a set of pods, got {other:?}"),
            }
        }
    }

    async fn names(&mut self) -> Vec<String> {
        names(&self.pods().await)
    }

    /// Receives sets until one has these pods; returns their number.
    async fn until(&mut self, expected: &[&str]) -> usize {
        for count in 1..=MAX_SETS {
            if self.names().await == expected {
                return count;
            }
        }
        panic!("{expected:?} did not come within {MAX_SETS} sets")
    }

    async fn complaint(&mut self) -> String {
        self.warning("InvalidManifest", ("Node", "node")).await
    }

    /// The message of the next event, which is a warning of this reason about this object.
    async fn warning(&mut self, reason: &str, object: (&str, &str)) -> String {
        match self.events.next(TEST_TIMEOUT).await {
            Some(events::Msg::Record(event)) => {
                assert_eq!(
                    (event.reason.as_str(), event.r#type),
                    (reason, EventType::Warning)
                );
                let about = (event.object.kind.as_str(), event.object.name.as_str());
                assert_eq!(about, object);
                event.message
            }
            other => panic!("expected an event, got {other:?}"),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Replaces a file in one step, as an editor or `mv` would.
    fn put(&self, name: &str, text: &str) {
        put(self.folder.path(), name, text);
    }
}

fn put(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    let hidden = path.with_file_name(".new");
    fs::write(&hidden, text).unwrap();
    fs::rename(hidden, path).unwrap();
}

fn names(pods: &[Arc<Pod>]) -> Vec<String> {
    pods.iter().map(|pod| pod.name().to_owned()).collect()
}

fn manifest(name: &str) -> String {
    with_image(name, "example.org/pause")
}

fn with_image(name: &str, image: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\nspec:\n  containers:\n  - name: c\n    image: {image}\n"
    )
}

fn with_uid(name: &str, uid: &str) -> String {
    manifest(name).replace("spec:", &format!("  uid: {uid}\nspec:"))
}

#[test]
fn missing_folder_is_an_empty_set_and_is_found_when_it_appears() {
    source(
        "m",
        NEVER,
        |_| {},
        async |mut rig| {
            assert!(rig.pods().await.is_empty());
            fs::create_dir(rig.path("m")).unwrap();
            put(&rig.path("m"), "a.yaml", &manifest("a"));
            assert_eq!(rig.names().await, ["a-node"]);
            fs::remove_dir_all(rig.path("m")).unwrap();
            rig.until(&[]).await;
        },
    );
}

#[test]
fn empty_folder_is_told_at_the_start() {
    source(
        ".",
        NEVER,
        |_| {},
        async |mut rig| assert!(rig.pods().await.is_empty()),
    );
}

#[test]
fn manifests_come_in_lexical_order_and_go_with_their_files() {
    let prepare = |folder: &Path| {
        put(folder, "b.yaml", &manifest("one"));
        put(
            folder,
            "a.json",
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"two"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#,
        );
        put(folder, ".hidden.yaml", &manifest("hidden"));
    };
    source(".", NEVER, prepare, async |mut rig| {
        assert_eq!(rig.names().await, ["two-node", "one-node"]);
        fs::remove_file(rig.path("a.json")).unwrap();
        rig.until(&["one-node"]).await;
        fs::rename(rig.path("b.yaml"), rig.path(".b.yaml")).unwrap();
        rig.until(&[]).await;
        // Written in place, not renamed.
        fs::write(rig.path("c.yaml"), manifest("three")).unwrap();
        rig.until(&["three-node"]).await;
        assert!(rig.events.drain().is_empty());
    });
}

#[test]
fn a_manifest_that_is_removed_and_put_back_at_once_was_gone() {
    let prepare = |folder: &Path| {
        put(folder, "a.yaml", &manifest("one"));
        put(folder, "b.yaml", &manifest("two"));
    };
    source(".", NEVER, prepare, async |mut rig| {
        rig.until(&["one-node", "two-node"]).await;
        // The first set may be told before the folder is watched, the second one is not.
        put(rig.folder.path(), "a.yaml", &with_image("one", "other"));
        rig.until(&["one-node", "two-node"]).await;
        fs::remove_file(rig.path("b.yaml")).unwrap();
        fs::write(rig.path("b.yaml"), manifest("two")).unwrap();
        rig.until(&["one-node"]).await;
        rig.until(&["one-node", "two-node"]).await;
        // One that takes the other's place was never gone.
        put(rig.folder.path(), "b.yaml", &with_image("two", "other"));
        assert_eq!(rig.names().await, ["one-node", "two-node"]);
    });
}

#[test]
fn dropped_manifest_reaches_the_directory_within_milliseconds() {
    source(
        ".",
        NEVER,
        |_| {},
        async |mut rig| {
            rig.pods().await;
            let mut took = Vec::new();
            for round in 0..21 {
                // inotify is set up after the first round at the latest.
                let began = kernel::now();
                rig.put(
                    "a.yaml",
                    &with_image("a", &format!("example.org/pause:{round}")),
                );
                rig.pods().await;
                took.push(kernel::now() - began);
            }
            took.sort();
            println!(
                "dropped to told: median {:?}, worst {:?}",
                took[10], took[20]
            );
            assert!(took[10] < Duration::from_millis(25), "median of {took:?}");
        },
    );
}

#[test]
fn burst_of_manifests_is_told_in_a_few_sets() {
    source(
        ".",
        NEVER,
        |_| {},
        async |mut rig| {
            rig.pods().await;
            let mut expected: Vec<String> = (0..100).map(|n| format!("p{n:03}-node")).collect();
            for n in 0..100 {
                rig.put(&format!("{n:03}.yaml"), &manifest(&format!("p{n:03}")));
            }
            let wanted: Vec<&str> = expected.iter().map(String::as_str).collect();
            let sets = rig.until(&wanted).await;
            assert!(sets <= 10, "{sets} sets");
            expected.clear();
        },
    );
}

#[test]
fn unchanged_pods_are_told_again_as_the_very_same_objects() {
    let prepare = |folder: &Path| {
        put(folder, "a.yaml", &manifest("a"));
        put(folder, "b.yaml", &manifest("b"));
    };
    source(".", MIN_PERIOD, prepare, async |mut rig| {
        let first = rig.pods().await;
        let again = rig.pods().await;
        assert!(
            first
                .iter()
                .zip(&again)
                .all(|(one, other)| Arc::ptr_eq(one, other))
        );
        let touched = File::options()
            .append(true)
            .open(rig.path("a.yaml"))
            .unwrap();
        touched
            .set_modified(kernel::wall() + Duration::from_secs(60))
            .unwrap();
        rig.put("b.yaml", &with_image("b", "example.org/other"));
        let mut last = rig.pods().await;
        while Arc::ptr_eq(&last[1], &first[1]) {
            last = rig.pods().await;
        }
        assert!(
            Arc::ptr_eq(&last[0], &first[0]),
            "touching a file is no change"
        );
    });
}

/// Each bad manifest, with the text that its event must contain besides the path.
const BAD: [(&str, &[&str]); 14] = [
    ("c-broken.yaml", &["line"]),
    ("d-empty.yaml", &["empty", "expected"]),
    (
        "e-huge.yaml",
        &["104857600 bytes", "expected at most 10485760"],
    ),
    (
        "f-folder.yaml",
        &["found a folder", "expected a regular file"],
    ),
    (
        "g-pipe.yaml",
        &["found a named pipe", "expected a regular file"],
    ),
    (
        "h-link.yaml",
        &["target is missing", "expected a regular file"],
    ),
    (
        "i-socket.yaml",
        &["found a socket", "expected a regular file"],
    ),
    (
        "j-device.yaml",
        &["found a device", "expected a regular file"],
    ),
    ("k-name.yaml", &["metadata.name", "RFC 1123"]),
    ("l-unknown.yaml", &["spec.containers", "Required value"]),
    ("m-uid.yaml", &["metadata.uid", "expected"]),
    (
        "n-same-name.yaml",
        &["metadata.name", "a-good.yaml", "expected"],
    ),
    (
        "o-same-uid.yaml",
        &["metadata.uid", "b-good.yaml", "expected"],
    ),
    ("p-kind.yaml", &["kind", "Deployment", "expected"]),
];

fn put_everything_bad(folder: &Path) -> UnixListener {
    put(folder, "c-broken.yaml", "apiVersion: v1\nkind: [Pod\n");
    put(folder, "d-empty.yaml", "");
    File::create(folder.join("e-huge.yaml"))
        .unwrap()
        .set_len(100 << 20)
        .unwrap();
    fs::create_dir(folder.join("f-folder.yaml")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        folder.join("g-pipe.yaml"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    symlink("/nowhere/at/all", folder.join("h-link.yaml")).unwrap();
    let socket = UnixListener::bind(folder.join("i-socket.yaml")).unwrap();
    symlink("/dev/zero", folder.join("j-device.yaml")).unwrap();
    put(folder, "k-name.yaml", &manifest("Not_A_Name"));
    put(
        folder,
        "l-unknown.yaml",
        &manifest("l").replace("containers", "contaners"),
    );
    put(folder, "m-uid.yaml", &with_uid("m", "../../etc"));
    put(
        folder,
        "n-same-name.yaml",
        &with_image("a", "example.org/other"),
    );
    put(folder, "o-same-uid.yaml", &with_uid("o", "the-uid"));
    put(folder, "p-kind.yaml", "apiVersion: v1\nkind: Deployment\n");
    socket
}

#[test]
fn every_bad_manifest_is_named_with_field_and_expectation_and_hides_no_good_one() {
    let mut socket = None;
    let prepare = |folder: &Path| {
        socket = Some(put_everything_bad(folder));
        put(folder, "a-good.yaml", &manifest("a"));
        put(folder, "b-good.yaml", &with_uid("b", "the-uid"));
        put(folder, "z-good.yaml", &manifest("z"));
    };
    source(".", MIN_PERIOD, prepare, async |mut rig| {
        assert_eq!(rig.names().await, ["a-node", "b-node", "z-node"]);
        let (mut source_problems, mut unknown) = (Vec::new(), None);
        while source_problems.len() < BAD.len() || unknown.is_none() {
            let Some(events::Msg::Record(event)) = rig.events.next(TEST_TIMEOUT).await else {
                panic!("{source_problems:#?}");
            };
            match event.reason.as_str() {
                "InvalidManifest" => source_problems.push(event.message),
                "UnknownFields" => unknown = Some(event.message),
                other => panic!("{other}"),
            }
        }
        let unknown = unknown.unwrap();
        assert!(
            unknown.contains("l-unknown.yaml: spec.contaners: unknown field"),
            "{unknown}"
        );
        for (file, words) in BAD {
            let place = rig.path(file).display().to_string();
            let complaint = source_problems
                .iter()
                .find(|text| text.starts_with(&format!("{place}: ")));
            let complaint = complaint.unwrap_or_else(|| panic!("{file} in {source_problems:#?}"));
            assert!(
                words.iter().all(|word| complaint.contains(word)),
                "{file}: {complaint}"
            );
        }
        for _ in 0..3 {
            assert_eq!(rig.names().await, ["a-node", "b-node", "z-node"]);
        }
        assert!(
            rig.events.drain().is_empty(),
            "told once, not at every look"
        );
    });
}

/// Upstream passes over what it does not know; of a key that stands twice the last value counts.
#[test]
fn a_pod_with_unknown_and_repeated_fields_runs_and_is_told_which() {
    let text = manifest("a").replacen(
        "spec:",
        "spec:\n  restartPolicie: Never\n  hostname: one\n  hostname: two",
        1,
    );
    let prepare = |folder: &Path| put(folder, "a.yaml", &text);
    source(".", NEVER, prepare, async |mut rig| {
        let pods = rig.pods().await;
        assert_eq!(pods.len(), 1, "{:?}", rig.events.drain());
        assert_eq!(
            pods[0].spec.as_ref().unwrap().hostname.as_deref(),
            Some("two")
        );
        let twice = rig.warning("UnknownFields", ("Node", "node")).await;
        assert!(
            twice.contains("a.yaml") && twice.contains("hostname"),
            "{twice}"
        );
        let unknown = rig.warning("UnknownFields", ("Pod", "a-node")).await;
        assert!(
            unknown.contains("a.yaml: spec.restartPolicie: unknown field"),
            "{unknown}"
        );
    });
}

#[test]
fn a_file_whose_name_is_no_text_is_refused() {
    let prepare = |folder: &Path| {
        let name = std::ffi::OsStr::from_bytes(b"a\xff.yaml");
        fs::write(folder.join(name), manifest("a")).unwrap();
        put(folder, "b.yaml", &manifest("b"));
    };
    source(".", NEVER, prepare, async |mut rig| {
        assert_eq!(rig.names().await, ["b-node"]);
        assert!(rig.complaint().await.contains("not utf-8"));
    });
}

#[test]
fn manifest_that_becomes_bad_keeps_its_pod_until_it_is_mended_or_removed() {
    source(
        ".",
        MIN_PERIOD,
        |folder| put(folder, "a.yaml", &manifest("a")),
        async |mut rig| {
            let first = rig.pods().await;
            rig.put("a.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: [}\n");
            assert!(rig.complaint().await.contains("a.yaml: "));
            rig.sets.drain();
            assert!(Arc::ptr_eq(&rig.pods().await[0], &first[0]));
            rig.put("a.yaml", &with_image("a", "example.org/mended"));
            let mut pods = rig.pods().await;
            while Arc::ptr_eq(&pods[0], &first[0]) {
                pods = rig.pods().await;
            }
            assert_eq!(
                pods[0].app_containers()[0].image.as_deref(),
                Some("example.org/mended")
            );
            rig.put("a.yaml", "nonsense: true\n");
            rig.complaint().await;
            fs::remove_file(rig.path("a.yaml")).unwrap();
            rig.until(&[]).await;
        },
    );
}

#[test]
fn the_same_mistake_made_anew_is_told_anew() {
    source(
        ".",
        NEVER,
        |folder| put(folder, "a.yaml", "nonsense"),
        async |mut rig| {
            let first = rig.complaint().await;
            rig.put("a.yaml", "nonsense");
            assert_eq!(rig.complaint().await, first);
        },
    );
}

#[test]
fn manifest_that_is_still_being_written_is_no_mistake() {
    source(
        ".",
        NEVER,
        |_| {},
        async |mut rig| {
            rig.pods().await;
            let (text, path) = (manifest("a"), rig.path("a.yaml"));
            fs::write(&path, &text[..40]).unwrap();
            rig.put("other.yaml", &manifest("other"));
            rig.until(&["other-node"]).await;
            fs::write(&path, &text).unwrap();
            rig.until(&["a-node", "other-node"]).await;
            assert!(rig.events.next(SETTLED_AFTER * 2).await.is_none());
        },
    );
}

#[test]
fn single_file_is_followed_through_replacement_and_removal() {
    source(
        "pod.yaml",
        NEVER,
        |folder| put(folder, "pod.yaml", &manifest("a")),
        async |mut rig| {
            assert_eq!(rig.names().await, ["a-node"]);
            rig.put("neighbour.yaml", &manifest("n"));
            rig.put("pod.yaml", &manifest("b"));
            rig.until(&["b-node"]).await;
            fs::remove_file(rig.path("pod.yaml")).unwrap();
            rig.until(&[]).await;
        },
    );
}

#[test]
fn single_file_that_was_never_good_says_nothing_about_pods() {
    source(
        "pod.yaml",
        MIN_PERIOD,
        |folder| put(folder, "pod.yaml", "nonsense"),
        async |mut rig| {
            rig.complaint().await;
            assert!(rig.drained_sets().is_empty());
            rig.put("pod.yaml", &manifest("a"));
            assert_eq!(rig.names().await, ["a-node"]);
        },
    );
}

#[test]
fn folder_swapped_through_its_data_link_is_read_at_once() {
    let prepare = |folder: &Path| {
        for (version, name) in [("..1", "a"), ("..2", "b")] {
            fs::create_dir(folder.join(version)).unwrap();
            fs::write(folder.join(version).join("pod.yaml"), manifest(name)).unwrap();
        }
        symlink("..1", folder.join("..data")).unwrap();
        symlink("..data/pod.yaml", folder.join("pod.yaml")).unwrap();
    };
    source(".", NEVER, prepare, async |mut rig| {
        assert_eq!(rig.names().await, ["a-node"]);
        symlink("..2", rig.path("..data_tmp")).unwrap();
        fs::rename(rig.path("..data_tmp"), rig.path("..data")).unwrap();
        rig.until(&["b-node"]).await;
    });
}

#[test]
fn folder_replaced_behind_a_link_is_watched_anew() {
    let prepare = |folder: &Path| {
        fs::create_dir(folder.join("one")).unwrap();
        fs::create_dir(folder.join("two")).unwrap();
        symlink("one", folder.join("m")).unwrap();
    };
    source("m", MIN_PERIOD, prepare, async |mut rig| {
        rig.pods().await;
        fs::remove_file(rig.path("m")).unwrap();
        symlink("two", rig.path("m")).unwrap();
        put(&rig.path("m"), "a.yaml", &manifest("a"));
        rig.until(&["a-node"]).await;
    });
}

#[test]
fn source_that_broke_tells_its_set_again() {
    source(
        ".",
        NEVER,
        |folder| put(folder, "a.yaml", &manifest("a")),
        async |mut rig| {
            assert_eq!(rig.names().await, ["a-node"]);
            rig.root.inject("test/file", InjectedFault::Panic).unwrap();
            rig.put("b.yaml", &manifest("b"));
            rig.until(&["a-node", "b-node"]).await;
        },
    );
}

#[test]
fn full_directory_hears_the_set_when_it_has_room() {
    let run = system::run(async {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), "a.yaml", &manifest("a"));
        let (pod_manager, mut sets) = inbox(1);
        let (events, _heard) = inbox(8);
        pod_manager.tell(pod_manager::Msg::Resync).unwrap();
        let root = Supervisor::root("test", Intensity::UNLIMITED);
        let (_, port) = mailbox(MAILBOX);
        let path = folder.path().to_owned();
        root.spawn(ChildSpec::permanent("file"), port, move || {
            FileSource::new(
                path.clone(),
                NEVER,
                "node",
                pod_manager.clone(),
                Recorder::new(events.clone()),
            )
        });
        testing::pass(NOTIFY_RETRY_PERIOD).await;
        assert!(matches!(
            sets.next(TEST_TIMEOUT).await,
            Some(pod_manager::Msg::Resync)
        ));
        match sets.next(TEST_TIMEOUT).await {
            Some(pod_manager::Msg::SetPods { pods, .. }) => assert_eq!(names(&pods), ["a-node"]),
            other => panic!("{other:?}"),
        }
    });
    run.unwrap();
}

/// What `oxctl pods` and `oxctl why` show of a manifest that does not run, until it is corrected.
#[test]
fn the_pod_manager_is_told_which_manifests_are_refused() {
    let prepare = |folder: &Path| put(folder, "b.yaml", &manifest("b").replace("image", "imge"));
    source(".", MIN_PERIOD, prepare, async |mut rig| {
        let place = rig.path("b.yaml").display().to_string();
        let mut refused = async || loop {
            match rig.sets.next(TEST_TIMEOUT).await {
                Some(pod_manager::Msg::SetRefused { source, manifests }) => {
                    assert_eq!(source, PodSource::File);
                    return manifests;
                }
                Some(_) => {}
                None => panic!("no message of refused manifests"),
            }
        };
        let told = refused().await;
        assert!(
            told[&place][0].contains("image: Required value"),
            "{told:?}"
        );
        put(
            Path::new(&place).parent().unwrap(),
            "b.yaml",
            &manifest("b"),
        );
        while !refused().await.is_empty() {}
    });
}
