//! Laws of the image collector, on a whole node with the fake runtime.

use clients::runtime::ImagePull;
use kernel::testing::{pass, run_paused};
use kernel::{ChildSpec, mailbox};
use logic_api::testing::yaml::pod;
use logic_resources::image_gc::KeyedBy;
use pods::testing::TestNode;

use metrics::runtime::images::GARBAGE_COLLECTED;

use super::*;

const MIN_AGE: Duration = Duration::from_secs(120);
const ASK_TIMEOUT: Duration = Duration::from_secs(3600);

const WEB: &str = "
metadata: {name: web, uid: web}
spec:
  containers:
  - {name: app, image: localhost/busybox, command: [sleep, infinity]}
";

const WITH_VOLUME: &str = "
metadata: {name: web, uid: web}
spec:
  containers:
  - name: app
    image: localhost/busybox
    command: [sleep, infinity]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, image: {reference: localhost/data}}]
";

/// 95 % in use: 15 bytes must go.
fn full(_: &Path) -> io::Result<DiskSpace> {
    Ok(DiskSpace {
        capacity: 100,
        available: 5,
    })
}

fn huge_and_full(_: &Path) -> io::Result<DiskSpace> {
    Ok(DiskSpace {
        capacity: 1 << 40,
        available: 0,
    })
}

fn roomy(_: &Path) -> io::Result<DiskSpace> {
    Ok(DiskSpace {
        capacity: 100,
        available: 60,
    })
}

fn absurd(_: &Path) -> io::Result<DiskSpace> {
    Ok(DiskSpace {
        capacity: 100,
        available: 1000,
    })
}

fn none(_: &Path) -> io::Result<DiskSpace> {
    Ok(DiskSpace::default())
}

fn broken(_: &Path) -> io::Result<DiskSpace> {
    Err(io::Error::from_raw_os_error(5))
}

type Measure = fn(&Path) -> io::Result<DiskSpace>;

struct Rig {
    node: TestNode,
    addr: Addr<Msg>,
}

impl Rig {
    async fn start(measure: Measure, max_age: Duration) -> Rig {
        Rig::on(TestNode::start().await, measure, max_age)
    }

    fn on(node: TestNode, measure: Measure, max_age: Duration) -> Rig {
        let (addr, port) = mailbox(MAILBOX);
        let policy = ImageGcPolicy::new((90, 80), MIN_AGE, max_age, KeyedBy::Id).unwrap();
        let config = ImageGcConfig {
            policy,
            node_name: "node".to_owned(),
            checkpoint: node.path("images.checkpoint"),
            measure,
        };
        let peers = Peers {
            runtime: node.runtime.clone(),
            images: node.node.images.clone(),
            recorder: node.node.recorder.clone(),
        };
        let spec = ChildSpec::permanent("image-gc");
        node.node.root.spawn(spec, port, move || {
            ImageGc::new(config.clone(), peers.clone())
        });
        Rig { node, addr }
    }

    async fn pull(&self, images: &[&str]) {
        for image in images {
            let pull = ImagePull {
                image,
                auth: None,
                sandbox: None,
            };
            self.node.runtime.pull(pull).await.unwrap();
        }
    }

    /// The names of the images that are there, without their registry and tag.
    async fn images(&self) -> Vec<String> {
        let listed = self.node.runtime.images().await.unwrap();
        let tags = listed.iter().flat_map(|image| &image.names);
        let short = |name: &String| {
            let short = name.strip_prefix("localhost/")?.strip_suffix(":latest")?;
            Some(short.to_owned())
        };
        let mut names: Vec<String> = tags.filter_map(short).collect();
        names.sort();
        names
    }

    async fn delete_unused(&self) -> Result<u64, ImageGcError> {
        let ask = self
            .addr
            .ask(ASK_TIMEOUT, |reply| Msg::DeleteUnused { reply });
        ask.await.unwrap()
    }

    async fn told(&self, reason: &str) -> Vec<String> {
        let events = self.node.events().await.into_iter();
        let named = events.filter(|event| event.reason == reason);
        named.map(|event| event.message).collect()
    }

    async fn runs(&self, pods: &str) {
        self.node.desire(&[pod(pods)]);
        self.node
            .until("web", |status| status.phase.as_deref() == Some("Running"))
            .await;
    }
}

#[test]
fn a_full_disk_loses_just_enough_images_that_nothing_uses_and_only_those_of_their_minimum_age() {
    run_paused(|| async {
        let rig = Rig::start(full, Duration::ZERO).await;
        rig.runs(WEB).await;
        pass(FIRST_RUN_DELAY).await;
        assert_eq!(rig.images().await, ["busybox"], "older than the agent");
        rig.pull(&["localhost/a", "localhost/b"]).await;
        pass(PERIOD).await;
        assert_eq!(rig.images().await, ["a", "b", "busybox"], "too young");
        let told = rig.told(NOT_FREED).await;
        assert!(told[0].contains("(95% of 100 B used)"), "{told:?}");
        assert!(told[0].contains("(freed 0 bytes)"), "{told:?}");
        pass(PERIOD).await;
        assert_eq!(rig.images().await.len(), 2, "one more, for 15 bytes");
        pass(PERIOD * 2).await;
        assert_eq!(rig.images().await, ["busybox"]);
        let counted = GARBAGE_COLLECTED.with_label_values(&["space"]).get();
        assert_eq!(counted, 3);
        pass(PERIOD).await;
        assert_eq!(
            rig.told(FAILED).await.len(),
            1,
            "freed nothing twice in a row"
        );
    });
}

#[test]
fn an_image_that_was_not_used_for_its_maximum_age_goes_from_a_roomy_disk_too() {
    run_paused(|| async {
        let rig = Rig::start(roomy, PERIOD * 4).await;
        rig.runs(WEB).await;
        pass(PERIOD * 4).await;
        assert_eq!(rig.images().await, ["busybox", "pause"]);
        pass(PERIOD * 2).await;
        assert_eq!(rig.images().await, ["busybox"]);
        assert_eq!(GARBAGE_COLLECTED.with_label_values(&["age"]).get(), 1);
    });
}

#[test]
fn eviction_is_answered_with_the_bytes_of_all_images_that_nothing_uses() {
    run_paused(|| async {
        let rig = Rig::start(roomy, Duration::ZERO).await;
        pass(FIRST_RUN_DELAY).await;
        rig.pull(&["localhost/data", "localhost/a"]).await;
        rig.runs(WITH_VOLUME).await;
        let facts = rig.node.runtime.collectable_images().await.unwrap();
        let of = |name: &str| {
            let has = |image: &&decide::ImageFacts| image.names.iter().any(|n| n.contains(name));
            facts.iter().find(has).unwrap().bytes
        };
        let freed = of("localhost/pause:");
        assert_eq!(rig.delete_unused().await, Ok(freed), "a is too young");
        pass(MIN_AGE).await;
        assert_eq!(rig.delete_unused().await, Ok(of("localhost/a:")));
        assert_eq!(
            rig.images().await,
            ["busybox", "data"],
            "a volume's image stays"
        );
        assert_eq!(rig.delete_unused().await, Ok(0));
        rig.node.desire(&[]);
        rig.node.until_gone("web").await;
        pass(Duration::from_secs(1)).await;
        let freed = of("localhost/data:") + of("localhost/busybox:");
        assert_eq!(rig.delete_unused().await, Ok(freed));
    });
}

#[test]
fn an_image_that_cannot_be_removed_is_named_and_keeps_no_other() {
    run_paused(|| async {
        let rig = Rig::start(huge_and_full, Duration::ZERO).await;
        pass(FIRST_RUN_DELAY + Duration::from_secs(1)).await;
        rig.pull(&["localhost/a", "localhost/b"]).await;
        pass(PERIOD + MIN_AGE).await;
        let facts = rig.node.runtime.collectable_images().await.unwrap();
        let stuck = facts
            .iter()
            .find(|image| image.names[1] == "localhost/a:latest");
        let id = &stuck.unwrap().id;
        let fault = format!(
            r#"{{"faults": [{{"call": "RemoveImage", "subject": "{id}", "message": "busy"}}]}}"#
        );
        rig.node.script(&fault);
        let error = rig.delete_unused().await.unwrap_err().to_string();
        assert!(error.contains("with errors in image deletion"), "{error}");
        assert!(
            error.contains(&format!("{id}: RemoveImage: busy")),
            "{error}"
        );
        assert_eq!(rig.images().await, ["a"]);
        pass(PERIOD * 2).await;
        let told = rig.told(FAILED).await;
        assert!(told.iter().any(|told| told.contains("busy")), "{told:?}");
        rig.node.script("{}");
        pass(PERIOD).await;
        assert_eq!(rig.images().await, [""; 0]);
    });
}

#[test]
fn a_runtime_that_hangs_costs_one_run_and_is_told_from_the_second_time_on() {
    run_paused(|| async {
        let rig = Rig::start(full, Duration::ZERO).await;
        rig.node
            .script(r#"{"faults": [{"call": "ListImages", "hang": true}]}"#);
        pass(PERIOD * 2).await;
        assert_eq!(rig.told(FAILED).await, [""; 0], "once is no event");
        pass(PERIOD).await;
        let told = rig.told(FAILED).await;
        assert!(told[0].contains("ListImages"), "{told:?}");
        assert!(rig.delete_unused().await.is_err());
        rig.node.script("{}");
        pass(PERIOD * 2).await;
        assert!(rig.images().await.len() < 2, "it goes on");
    });
}

#[test]
fn a_removal_that_hangs_has_its_deadline_and_the_next_image_its_turn() {
    run_paused(|| async {
        let rig = Rig::start(huge_and_full, Duration::ZERO).await;
        rig.node
            .script(r#"{"faults": [{"call": "RemoveImage", "hang": true, "times": 1}]}"#);
        pass(Duration::from_secs(200)).await;
        assert_eq!(rig.images().await.len(), 1, "one of two");
        pass(PERIOD).await;
        assert_eq!(rig.images().await, [""; 0]);
    });
}

#[test]
fn a_file_system_that_lies_or_fails_loses_no_image() {
    let cases: [(Measure, Option<&str>); 4] = [
        (absurd, None),
        (roomy, None),
        (none, Some("invalid capacity 0 on image filesystem")),
        (broken, Some("Input/output error")),
    ];
    for (measure, error) in cases {
        run_paused(|| async {
            let rig = Rig::start(measure, Duration::ZERO).await;
            pass(PERIOD * 3).await;
            assert_eq!(rig.images().await, ["busybox", "pause"]);
            let told = rig.told(FAILED).await;
            match error {
                Some(error) => assert!(told[0].contains(error), "{told:?}"),
                None => assert_eq!(told, [""; 0]),
            }
            let invalid = rig.told(NO_CAPACITY).await;
            assert_eq!(
                !invalid.is_empty(),
                error.is_some_and(|error| error.contains("capacity"))
            );
        });
    }
}

#[test]
fn a_restart_forgets_neither_when_images_were_detected_nor_since_when_they_are_watched() {
    run_paused(|| async {
        let rig = Rig::start(roomy, PERIOD * 4).await;
        rig.runs(WEB).await;
        pass(PERIOD * 3).await;
        let node = rig.node.restart().await;
        let rig = Rig::on(node, roomy, PERIOD * 4);
        rig.runs(WEB).await;
        pass(PERIOD * 2).await;
        assert_eq!(rig.images().await, ["busybox"], "20 minutes in two lives");
    });
}

#[test]
fn an_image_that_came_while_the_agent_was_away_is_no_older_than_that() {
    for (measure, name) in [(roomy as Measure, "age"), (huge_and_full, "space")] {
        run_paused(move || async move {
            let rig = Rig::start(roomy, PERIOD * 4).await;
            rig.runs(WEB).await;
            pass(PERIOD * 6).await;
            let node = rig.node.restart().await;
            let rig = Rig::on(node, measure, PERIOD * 4);
            rig.pull(&["localhost/new"]).await;
            rig.runs(WEB).await;
            pass(FIRST_RUN_DELAY + Duration::from_secs(1)).await;
            assert_eq!(rig.images().await, ["busybox", "new"], "{name}");
            pass(PERIOD * 6).await;
            assert_eq!(rig.images().await, ["busybox"], "{name}");
        });
    }
}

#[test]
fn a_damaged_memory_is_set_aside_and_images_are_older_than_the_agent() {
    run_paused(|| async {
        let node = TestNode::start().await;
        std::fs::write(node.path("images.checkpoint"), b"garbage").unwrap();
        let rig = Rig::on(node, full, Duration::ZERO);
        pass(FIRST_RUN_DELAY + Duration::from_secs(1)).await;
        assert_eq!(rig.images().await.len(), 1, "one, for 15 bytes");
    });
}

#[test]
fn nothing_is_written_while_images_go_on_being_used_as_they_were() {
    run_paused(|| async {
        let rig = Rig::start(roomy, Duration::ZERO).await;
        rig.runs(WEB).await;
        pass(PERIOD).await;
        let file = rig.node.path("images.checkpoint");
        let written = || std::fs::metadata(&file).unwrap().modified().unwrap();
        let before = written();
        pass(PERIOD * 10).await;
        assert_eq!(written(), before);
    });
}
