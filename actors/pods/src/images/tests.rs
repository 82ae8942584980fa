//! The image manager over a fake runtime, on a paused clock.

use std::fs;
use std::path::Path;

use clients::runtime::fake::serve;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kernel::testing::{pass, run_paused};
use kernel::{ChildSpec, Intensity, Supervisor, mailbox};
use logic_api::objects::StaticObjects;
use logic_api::pod::PodView;
use logic_api::testing::yaml::pod;
use logic_pods::images::credentials::docker::DockerConfigDirs;
use logic_pods::images::{records, volumes};
use plugin_host::PluginClient;
use runtime_fake::{Clock, Fake, FakeSettings, Rpc};
use state::events::{self, Event, EventBroadcaster};
use tempfile::TempDir;

use super::*;
use crate::images::credentials::DockerKeyring;

const TEST_TIMEOUT: Duration = Duration::from_secs(3600);
const PRIVATE: &str = "example.com/private:1";

struct Rig {
    fake: Fake,
    root: Supervisor,
    images: Addr<Msg>,
    events: Addr<events::Msg>,
    folder: TempDir,
}

/// What a test changes of the defaults.
struct TestOptions {
    settings: FakeSettings,
    rules: ImageConfig,
    objects: StaticObjects,
}

impl Default for TestOptions {
    fn default() -> Self {
        let private = [("example.com/private".to_owned(), "user:right".to_owned())];
        TestOptions {
            settings: FakeSettings {
                private: private.into(),
                ..FakeSettings::default()
            },
            rules: ImageConfig {
                verification: Some(
                    verification::CredentialVerificationPolicy::NeverVerifyPreloadedImages,
                ),
                ..ImageConfig::default()
            },
            objects: StaticObjects::default(),
        }
    }
}

impl TestOptions {
    /// A secret of a namespace, with the user's password for example.com.
    fn secret(mut self, namespace: &str, name: &str, password: &str) -> Self {
        let config = format!(
            r#"{{"auths": {{"example.com": {{"username": "user", "password": "{password}"}}}}}}"#
        );
        let mut secret = Secret {
            type_: Some("kubernetes.io/dockerconfigjson".to_owned()),
            data: Some([(".dockerconfigjson".to_owned(), ByteString(config.into()))].into()),
            ..Secret::default()
        };
        secret.metadata.name = Some(name.to_owned());
        secret.metadata.namespace = Some(namespace.to_owned());
        secret.metadata.uid = Some(format!("{namespace}-{name}"));
        let key = (namespace.to_owned(), name.to_owned());
        self.objects.secrets.insert(key, Arc::new(secret));
        self
    }

    fn start(self) -> Rig {
        self.start_in(tempfile::tempdir().unwrap())
    }

    fn start_in(self, folder: TempDir) -> Rig {
        let place = folder.path().join("fake");
        let fake = Fake::open_at(place, self.settings.clone(), Clock::start()).unwrap();
        self.over(fake, folder)
    }

    fn over(mut self, fake: Fake, folder: TempDir) -> Rig {
        let line = PluginClient::fixed("runtime", serve(&fake));
        let root = Supervisor::root("test", Intensity::UNLIMITED);
        let (events, port) = mailbox(events::MAILBOX);
        root.spawn(
            ChildSpec::permanent("events"),
            port,
            EventBroadcaster::default,
        );
        let here = || folder.path().to_owned();
        let credentials_rules = credentials::CredentialConfig {
            folders: DockerConfigDirs {
                root_dir: here(),
                working: here(),
                home: here(),
            },
            providers: Vec::new(),
        };
        let (credentials, port) = mailbox(credentials::MAILBOX);
        root.spawn(ChildSpec::permanent("credentials"), port, move || {
            DockerKeyring::new(credentials_rules.clone())
        });
        self.rules.root_dir = here();
        let peers = Peers {
            runtime: RuntimeClient::new(line, Duration::from_secs(120)),
            credentials,
            recorder: Recorder::new(events.clone()),
            objects: Arc::new(self.objects),
        };
        let (images, port) = mailbox(MAILBOX);
        let rules = self.rules;
        root.spawn(ChildSpec::permanent("images"), port, move || {
            ImageManager::new(rules.clone(), peers.clone())
        });
        Rig {
            fake,
            root,
            images,
            events,
            folder,
        }
    }
}

impl Rig {
    async fn ensure(&self, pod: &Arc<Pod>) -> Result<PresentImage, ImageUnavailable> {
        self.ask(ImageRequest::new(pod, &pod.app_containers()[0]))
            .await
    }

    async fn ask(&self, wanted: ImageRequest) -> Result<PresentImage, ImageUnavailable> {
        let wanted = Box::new(wanted);
        let answer = self
            .images
            .ask(TEST_TIMEOUT, |reply| Msg::Ensure { wanted, reply });
        answer.await.unwrap()
    }

    async fn events(&self) -> Vec<Event> {
        let list = self
            .events
            .ask(TEST_TIMEOUT, |reply| events::Msg::List { reply });
        list.await.unwrap()
    }

    async fn said(&self, reason: &str, message: &str) -> bool {
        let said = |event: &Event| event.reason == reason && event.message.contains(message);
        self.events().await.iter().any(said)
    }

    async fn rows(&self) -> Vec<PullRow> {
        let list = self.images.ask(TEST_TIMEOUT, |reply| Msg::List { reply });
        list.await.unwrap().rows
    }

    fn pulls(&self) -> u64 {
        self.fake.calls(Rpc::PullImage)
    }

    fn folder(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join("image_manager").join(name)
    }
}

fn reason(answer: &Result<PresentImage, ImageUnavailable>) -> &str {
    answer
        .as_ref()
        .map_or_else(|missing| missing.waiting.reason.as_str(), |_| "")
}

fn message(answer: &Result<PresentImage, ImageUnavailable>) -> &str {
    answer
        .as_ref()
        .map_or_else(|missing| missing.waiting.message.as_str(), |_| "")
}

/// A pod of one container: its name is `namespace/name`.
fn wants(name: &str, image: &str, policy: &str, secrets: &[&str]) -> Arc<Pod> {
    let (namespace, name) = name.split_once('/').unwrap();
    let secrets: Vec<String> = secrets
        .iter()
        .map(|name| format!("{{name: {name}}}"))
        .collect();
    pod(&format!(
        "
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  imagePullSecrets: [{}]
  containers: [{{name: c, image: '{image}', imagePullPolicy: {policy}}}]
",
        secrets.join(", ")
    ))
}

fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).map_or(0, Iterator::count)
}

/// Upstream's Test_PullImageWithCredentials: one after the other, and the first that opens.
#[test]
fn each_credential_is_tried_until_one_opens_the_registry() {
    run_paused(|| async {
        let rig = TestOptions::default()
            .secret("default", "wrong", "wrong")
            .secret("default", "right", "right")
            .start();
        let pod = wants("default/a", PRIVATE, "IfNotPresent", &["wrong", "right"]);
        rig.ensure(&pod).await.unwrap();
        assert_eq!(rig.pulls(), 2);
        assert!(
            rig.said("Pulling", "Pulling image \"example.com/private:1\"")
                .await
        );
        assert!(rig.said("Pulled", "Successfully pulled image").await);
        assert_eq!(entries(&rig.folder("pulled")), 1);
        assert_eq!(entries(&rig.folder("pulling")), 0, "the intent is over");
    });
}

/// Upstream's TestParallelPuller and TestEvalCRIPullErr: what fails shows why, and then that it backs off.
#[test]
fn a_pull_that_every_credential_fails_says_why_and_backs_off() {
    run_paused(|| async {
        let rig = TestOptions::default()
            .secret("default", "wrong", "wrong")
            .secret("default", "same", "wrong")
            .start();
        let pod = wants("default/a", PRIVATE, "IfNotPresent", &["wrong", "same"]);
        let denied = "pull access denied for example.com/private:1 to \"user\"";
        let answer = rig.ensure(&pod).await;
        assert_eq!(reason(&answer), "ErrImagePull");
        assert_eq!(message(&answer), denied, "two equal errors are one");
        let answer = rig.ensure(&pod).await;
        assert_eq!(reason(&answer), "ImagePullBackOff");
        let expected =
            format!("Back-off pulling image \"example.com/private:1\": ErrImagePull: {denied}");
        assert_eq!(message(&answer), expected);
        assert!(rig.said("BackOff", "Back-off pulling image").await);
        let rows = rig.rows().await;
        assert_eq!(
            (rows.len(), rows[0].state, rows[0].attempt),
            (1, PullState::BackingOff, 1)
        );
        assert_eq!(rows[0].last_error.as_deref(), Some(denied));
        let wait = rows[0].until.unwrap().duration_since(rows[0].since);
        assert_eq!(wait.as_secs(), 10);

        pass(Duration::from_secs(11)).await;
        assert_eq!(reason(&rig.ensure(&pod).await), "ErrImagePull");
        assert_eq!(rig.rows().await[0].attempt, 2);
        assert_eq!(rig.pulls(), 4);
    });
}

#[test]
fn a_secret_that_is_not_at_hand_is_told_and_the_pull_is_tried() {
    run_paused(|| async {
        let rig = TestOptions::default().start();
        let pod = wants("default/a", "localhost/open:1", "IfNotPresent", &["gone"]);
        rig.ensure(&pod).await.unwrap();
        let complaint = "Unable to retrieve some image pull secrets (gone); attempting to pull the image may not succeed.";
        assert!(rig.said("FailedToRetrieveImagePullSecret", complaint).await);
    });
}

#[test]
fn a_secret_that_does_not_read_stops_its_own_pod_and_no_other() {
    run_paused(|| async {
        let mut with = TestOptions::default().secret("default", "broken", "x");
        let broken = with.objects.secrets.values_mut().next().unwrap();
        let data = Arc::make_mut(broken).data.as_mut().unwrap();
        data.insert(".dockerconfigjson".to_owned(), ByteString(b"{".to_vec()));
        let rig = with.start();
        let answer = rig
            .ensure(&wants("default/a", PRIVATE, "Always", &["broken"]))
            .await;
        assert_eq!(reason(&answer), "ErrImagePull");
        assert!(message(&answer).contains("image pull secret \"broken\""));
        assert_eq!(rig.pulls(), 0);
        let other = wants("default/b", "localhost/open:1", "Always", &[]);
        rig.ensure(&other).await.unwrap();
    });
}

#[test]
fn the_nodes_own_file_opens_a_registry_for_every_pod() {
    run_paused(|| async {
        let rig = TestOptions::default().start();
        let file = r#"{"auths": {"https://example.com": {"auth": "dXNlcjpyaWdodA=="}}}"#;
        fs::write(rig.folder.path().join("config.json"), file).unwrap();
        rig.ensure(&wants("default/a", PRIVATE, "IfNotPresent", &[]))
            .await
            .unwrap();
        rig.ensure(&wants("other/b", PRIVATE, "Never", &[]))
            .await
            .unwrap();
        assert_eq!(
            rig.pulls(),
            1,
            "what the node's credentials opened is for all"
        );
    });
}

/// Upstream's TestFileBasedImagePullManager_MustAttemptImagePull, from end to end, over a restart.
#[test]
fn an_image_that_is_here_is_for_pods_that_show_what_it_was_pulled_with() {
    run_paused(|| async {
        let with = || {
            TestOptions::default()
                .secret("default", "pull", "right")
                .secret("team", "copy", "right")
                .secret("team", "other", "wrong")
        };
        let rig = with().start();
        let owner = wants("default/owner", PRIVATE, "IfNotPresent", &["pull"]);
        rig.ensure(&owner).await.unwrap();
        rig.root.shutdown().await;
        let rig = with().over(rig.fake, rig.folder);
        rig.ensure(&owner).await.unwrap();
        let copy = wants("team/copy", PRIVATE, "Never", &["copy"]);
        rig.ensure(&copy).await.unwrap();
        assert_eq!(rig.pulls(), 1, "both have shown the same content");
        assert!(
            rig.said(
                "Pulled",
                "already present on machine and can be accessed by the pod"
            )
            .await
        );

        let stranger = wants("team/stranger", PRIVATE, "IfNotPresent", &["other"]);
        assert_eq!(reason(&rig.ensure(&stranger).await), "ErrImagePull");
        let silent = wants("team/silent", PRIVATE, "Never", &[]);
        let answer = rig.ensure(&silent).await;
        assert_eq!(reason(&answer), "ErrImageNeverPull");
        assert_eq!(
            message(&answer),
            "Container image \"example.com/private:1\" is not present with pull policy of Never"
        );
        let preloaded = wants("team/preloaded", "localhost/busybox", "Never", &[]);
        rig.ensure(&preloaded).await.unwrap();
    });
}

#[test]
fn where_nothing_is_verified_nothing_is_written() {
    run_paused(|| async {
        let mut with = TestOptions::default().secret("default", "pull", "right");
        with.rules.verification = None;
        let rig = with.start();
        rig.ensure(&wants("default/a", PRIVATE, "IfNotPresent", &["pull"]))
            .await
            .unwrap();
        rig.ensure(&wants("team/b", PRIVATE, "Never", &[]))
            .await
            .unwrap();
        assert!(!rig.folder("").exists());
        let present = "Container image \"example.com/private:1\" already present on machine";
        let events = rig.events().await;
        assert!(events.iter().any(|event| event.message == present));
    });
}

/// Upstream's TestFileBasedImagePullManager_initialize, and its tolerance of damage.
#[test]
fn records_of_an_earlier_life_are_taken_over_and_damaged_ones_cost_a_pull() {
    run_paused(|| async {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join("image_manager").join(name);
        fs::create_dir_all(at("pulling")).unwrap();
        fs::create_dir_all(at("pulled")).unwrap();
        let image = "localhost/busybox:latest";
        let intent = at("pulling").join(records::file_name(image));
        let text = String::from_utf8(records::encode_intent(image)).unwrap();
        fs::write(&intent, text.replace("v1beta1", "v1alpha1")).unwrap();
        fs::write(at("pulling").join("sha256-damaged"), "{").unwrap();
        let rig = TestOptions::default().start_in(folder);
        let pod = wants("default/a", image, "Never", &[]);
        pass(Duration::from_secs(1)).await;
        assert!(!intent.exists(), "it became a record");
        assert_eq!(entries(&rig.folder("pulled")), 1);
        assert_eq!(
            reason(&rig.ensure(&pod).await),
            "ErrImageNeverPull",
            "pulled by nobody known"
        );
        rig.ensure(&wants("default/b", image, "IfNotPresent", &[]))
            .await
            .unwrap();
        rig.ensure(&pod).await.unwrap();
        assert_eq!(rig.pulls(), 1);

        let record = fs::read_dir(rig.folder("pulled"))
            .unwrap()
            .next()
            .unwrap()
            .unwrap();
        fs::write(record.path(), "not a record").unwrap();
        assert_eq!(reason(&rig.ensure(&pod).await), "ErrImageNeverPull");
        rig.ensure(&wants("default/c", image, "IfNotPresent", &[]))
            .await
            .unwrap();
        rig.ensure(&pod).await.unwrap();
    });
}

/// Upstream's throttled puller.
#[test]
fn pulls_beyond_the_rate_fail_at_once_and_back_off() {
    run_paused(|| async {
        let mut with = TestOptions::default();
        with.rules.rate = PullRateLimit::new(1, 1);
        let rig = with.start();
        let first = wants("default/a", "localhost/one:1", "Always", &[]);
        let second = wants("default/b", "localhost/two:1", "Always", &[]);
        rig.ensure(&first).await.unwrap();
        let answer = rig.ensure(&second).await;
        assert_eq!(
            (reason(&answer), message(&answer)),
            ("ErrImagePull", "pull QPS exceeded")
        );
        assert_eq!(reason(&rig.ensure(&second).await), "ImagePullBackOff");
        pass(Duration::from_secs(11)).await;
        rig.ensure(&second).await.unwrap();
        assert!(
            rig.said(
                "Failed",
                "Failed to pull image \"localhost/two:1\": pull QPS exceeded"
            )
            .await
        );
    });
}

/// Upstream's TestMaxParallelImagePullsLimit.
#[test]
fn pulls_beyond_the_limit_wait_in_their_order_and_are_shown() {
    run_paused(|| async {
        let mut with = TestOptions::default();
        with.rules.parallel = Some(1);
        with.settings.pull_time = runtime_fake::DurationSetting(Duration::from_secs(10));
        let rig = with.start();
        let pods = ["default/a", "default/b", "default/c"]
            .map(|name| wants(name, &format!("localhost/{name}:1"), "Always", &[]));
        let asked = futures_util::future::join_all(pods.iter().map(|pod| rig.ensure(pod)));
        let shown = async {
            pass(Duration::from_secs(1)).await;
            rig.rows().await
        };
        let (answers, rows) = tokio::join!(asked, shown);
        assert!(answers.iter().all(Result::is_ok));
        let shown: Vec<_> = rows
            .iter()
            .map(|row| (row.pod.as_str(), row.state, row.position))
            .collect();
        let expected = [
            ("default/a", PullState::Pulling, None),
            ("default/b", PullState::Waiting, Some(1)),
            ("default/c", PullState::Waiting, Some(2)),
        ];
        assert_eq!(shown, expected);
        assert!(rig.rows().await.is_empty());
        let last = "in 10s (30s including waiting)";
        assert!(rig.said("Pulled", last).await, "{:#?}", rig.events().await);
    });
}

/// Upstream's getImageVolumes: each by its own policy, events about the pod.
#[test]
fn image_volumes_are_made_present_each_by_its_own_policy() {
    run_paused(|| async {
        let rig = TestOptions::default().start();
        let pod = pod("
metadata: {name: model}
spec:
  volumes:
  - {name: tools, image: {reference: 'localhost/tools:1', pullPolicy: IfNotPresent}}
  - {name: model, image: {reference: 'localhost/model:1', pullPolicy: Never}}
  - {name: bad, image: {reference: 'localhost/UPPER'}}
  - {name: empty, emptyDir: {}}
  containers: [{name: c, image: localhost/busybox}]
");
        let mut found = BTreeMap::new();
        for volume in volumes::of(&pod) {
            let name = volume.name.clone();
            found.insert(name, rig.ask(ImageRequest::volume(&pod, volume)).await);
        }
        assert_eq!(found.keys().collect::<Vec<_>>(), ["bad", "model", "tools"]);
        assert!(
            found["tools"]
                .as_ref()
                .unwrap()
                .reference
                .starts_with("sha256:")
        );
        assert_eq!(reason(&found["model"]), "ErrImageNeverPull");
        assert_eq!(reason(&found["bad"]), "InvalidImageName");
        let events = rig.events().await;
        let pulled = events
            .iter()
            .find(|event| event.reason == "Pulled")
            .unwrap();
        assert_eq!(pulled.object.field_path, "", "it is about the pod");
    });
}

/// Upstream's imagePullPrecheck: where an image is pulled in any case, its presence is not asked first.
#[test]
fn an_image_that_is_always_pulled_is_not_looked_for_first() {
    run_paused(|| async {
        let rig = TestOptions::default().start();
        let pod = wants("default/a", "localhost/busybox", "Always", &[]);
        rig.ensure(&pod).await.unwrap();
        assert_eq!(rig.pulls(), 1);
        assert_eq!(
            rig.fake.calls(Rpc::ImageStatus),
            1,
            "only for its user and size"
        );
    });
}

/// Upstream's TestEnsureImageRequestsMetrics and TestImagePullPrecheck, by their cases (pullerTestCases).
#[test]
fn each_request_is_counted_by_policy_presence_and_whether_a_pull_is_required() {
    const PRESENT: &str = "localhost/busybox";
    const IMAGE_ID: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let inspect = r#"{"faults": [{"call": "ImageStatus", "code": "Internal", "message": "no"}]}"#;
    let pull = r#"{"faults": [{"call": "PullImage", "code": "NotFound", "message": "404"}]}"#;
    let rows = [
        ("localhost/new:1", "IfNotPresent", "", ["false", "true"], ""),
        (PRESENT, "IfNotPresent", "", ["true", "false"], ""),
        (PRESENT, "Always", "", ["unknown", "true"], ""),
        (
            "localhost/new:1",
            "Never",
            "",
            ["false", "unknown"],
            "ErrImageNeverPull",
        ),
        (
            "localhost/new:1",
            "IfNotPresent",
            inspect,
            ["unknown", "unknown"],
            "ImageInspectError",
        ),
        (
            "localhost/typo:1",
            "IfNotPresent",
            pull,
            ["false", "true"],
            "ErrImagePull",
        ),
        (
            "FAILED_IMAGE",
            "Always",
            "",
            ["unknown", "unknown"],
            "InvalidImageName",
        ),
        (
            "http://url",
            "Always",
            "",
            ["unknown", "unknown"],
            "InvalidImageName",
        ),
        (
            IMAGE_ID,
            "Always",
            "",
            ["unknown", "unknown"],
            "InvalidImageName",
        ),
        (
            PRIVATE,
            "IfNotPresent",
            "",
            ["true", "true"],
            "ErrImagePull",
        ),
        (PRIVATE, "Never", "", ["true", "true"], "ErrImageNeverPull"),
    ];
    for (image, policy, faults, [present, required], expected) in rows {
        run_paused(move || async move {
            let rig = TestOptions::default()
                .secret("default", "pull", "right")
                .start();
            let owner = wants("default/owner", PRIVATE, "IfNotPresent", &["pull"]);
            rig.ensure(&owner).await.unwrap();
            if !faults.is_empty() {
                let script = rig.folder.path().join("fake/faults.json");
                fs::write(script, faults).unwrap();
            }
            let labels = [&policy.to_lowercase(), present, required];
            let count = || counted::ENSURED.with_label_values(&labels).get();
            let before = count();
            let answer = rig.ensure(&wants("team/a", image, policy, &[])).await;
            assert_eq!(reason(&answer), expected, "{image} {policy}");
            assert_eq!(count() - before, 1, "{image} {policy} {labels:?}");
        });
    }
}

/// Upstream's TestMustAttemptPullMetrics.
#[test]
fn each_check_of_a_present_image_is_counted_by_its_result() {
    run_paused(|| async {
        let rig = TestOptions::default()
            .secret("default", "pull", "right")
            .start();
        let owner = wants("default/owner", PRIVATE, "IfNotPresent", &["pull"]);
        rig.ensure(&owner).await.unwrap();
        let count = |result| counted::MUST_PULL_CHECKS.with_label_values(&[result]).get();
        let results = [
            "credentialPolicyAllowed",
            "credentialRecordFound",
            "mustAuthenticate",
            "error",
        ];
        let preloaded = wants("team/preloaded", "localhost/busybox", "Never", &[]);
        let stranger = wants("team/stranger", PRIVATE, "Never", &[]);
        let after = async |pod, rig: &Rig| {
            let before = results.map(count);
            drop(rig.ensure(pod).await);
            let after = results.map(count);
            [0, 1, 2, 3].map(|at| after[at] - before[at])
        };
        assert_eq!(after(&preloaded, &rig).await, [1, 0, 0, 0]);
        assert_eq!(after(&owner, &rig).await, [0, 1, 0, 0]);
        assert_eq!(after(&stranger, &rig).await, [0, 0, 1, 0]);
        let record = fs::read_dir(rig.folder("pulled")).unwrap().next();
        fs::write(record.unwrap().unwrap().path(), "not a record").unwrap();
        assert_eq!(after(&stranger, &rig).await, [0, 0, 0, 1]);
    });
}
