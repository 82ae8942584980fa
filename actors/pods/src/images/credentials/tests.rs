//! Providers are real programs here, so the clock is real.

use std::os::unix::fs::PermissionsExt;

use kernel::error_chain;
use kernel::{Addr, ChildSpec, Intensity, Supervisor, mailbox};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tempfile::TempDir;

use super::*;

const TEST_TIMEOUT: Duration = Duration::from_secs(20);
const V1: &str = "credentialprovider.kubelet.k8s.io/v1";

/// A provider that answers with this user, for as long as `holds`, keyed by `key`.
fn answers(user: &str, key: &str, holds: &str) -> String {
    format!(
        r#"cat > "$0.request"; echo run >> "$0.runs"
echo '{{"kind":"CredentialProviderResponse","apiVersion":"{V1}","cacheKeyType":"{key}","cacheDuration":"{holds}","auth":{{"*.io":{{"username":"{user}","password":"p"}}}}}}'"#
    )
}

struct Rig {
    folder: TempDir,
    root: Supervisor,
    credentials: Addr<Msg>,
}

impl Rig {
    /// Providers by name: what each is for, and its script.
    fn start(providers: &[(&str, &str, &str)]) -> Rig {
        let folder = tempfile::tempdir().unwrap();
        let providers = providers
            .iter()
            .map(|(name, images, script)| provider(folder.path(), name, images, script))
            .collect();
        let here = || folder.path().to_owned();
        let rules = CredentialConfig {
            folders: DockerConfigDirs {
                root_dir: here(),
                working: here(),
                home: here(),
            },
            providers,
        };
        let root = Supervisor::root("test", Intensity::UNLIMITED);
        let (credentials, port) = mailbox(64);
        root.spawn(ChildSpec::permanent("credentials"), port, move || {
            DockerKeyring::new(rules.clone())
        });
        Rig {
            folder,
            root,
            credentials,
        }
    }

    async fn users(&self, repository: &str) -> Vec<String> {
        let repository = repository.to_owned();
        let found = self
            .credentials
            .ask(TEST_TIMEOUT, |reply| Msg::Lookup { repository, reply });
        let found = found.await.unwrap().into_iter();
        found.map(|found| found.auth.username).collect()
    }

    fn text(&self, file: &str) -> String {
        fs::read_to_string(self.folder.path().join(file)).unwrap_or_default()
    }

    async fn shown(&self) -> serde_json::Value {
        self.root.tree().await.children.remove(0).snapshot
    }
}

fn provider(folder: &Path, name: &str, images: &str, script: &str) -> CredentialProvider {
    let program = folder.join(name);
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    CredentialProvider {
        name: name.to_owned(),
        program,
        api_version: V1.to_owned(),
        match_images: vec![images.to_owned()],
        default_cache_duration: Duration::ZERO,
        args: vec!["--flag".to_owned()],
        env: vec![("COLOUR".to_owned(), "blue".to_owned())],
    }
}

/// Upstream's Test_ProvideWithCache… and TestExecPlugin, with a real program.
#[test]
fn a_provider_is_told_the_image_and_its_answer_holds_for_what_it_says() {
    kernel::system::run(async {
        let script = format!(
            "echo \"$1 $COLOUR\" > \"$0.told\"\n{}",
            answers("cloud", "Registry", "1h")
        );
        let rig = Rig::start(&[("cloud", "*.io", &script)]);
        assert_eq!(rig.users("a.io/x").await, ["cloud"]);
        assert_eq!(rig.text("cloud.told"), "--flag blue\n");
        assert_eq!(
            rig.text("cloud.request"),
            format!("{{\"kind\":\"CredentialProviderRequest\",\"apiVersion\":\"{V1}\",\"image\":\"a.io/x\"}}\n")
        );
        assert_eq!(rig.users("a.io/y").await, ["cloud"], "known by its registry");
        assert_eq!(rig.text("cloud.runs"), "run\n");
        assert_eq!(rig.users("b.io/x").await, ["cloud"]);
        assert_eq!(rig.text("cloud.runs"), "run\nrun\n");
        assert!(rig.users("example.com/x").await.is_empty(), "not its image");
    })
    .unwrap();
}

/// Upstream's Test_ProvideParallel.
#[test]
fn many_who_ask_for_one_image_cause_one_run() {
    kernel::system::run(async {
        let script = answers("cloud", "Image", "0s");
        let rig = Rig::start(&[("cloud", "*.io", &script)]);
        let run_provider = join_all((0..5).map(|_| rig.users("a.io/x"))).await;
        assert_eq!(run_provider, vec![vec!["cloud".to_owned()]; 5]);
        assert_eq!(rig.text("cloud.runs"), "run\n");
        assert_eq!(rig.users("a.io/x").await, ["cloud"]);
        assert_eq!(rig.text("cloud.runs"), "run\nrun\n", "no time is no cache");
    })
    .unwrap();
}

#[test]
fn the_file_comes_before_the_providers_and_those_in_their_order() {
    kernel::system::run(async {
        let (first, second) = (answers("one", "Image", "0s"), answers("two", "Image", "0s"));
        let rig = Rig::start(&[("one", "*.io", &first), ("two", "a.io", &second)]);
        let file = r#"{"auths": {"a.io": {"username": "file", "password": "p"}}}"#;
        fs::write(rig.folder.path().join("config.json"), file).unwrap();
        assert_eq!(rig.users("a.io/x").await, ["file", "one", "two"]);
        assert_eq!(rig.users("b.io/x").await, ["one"]);
        let shown = rig.shown().await;
        assert!(shown["file"].as_str().unwrap().ends_with("config.json"));
    })
    .unwrap();
}

#[test]
fn a_provider_that_fails_is_told_of_and_hides_no_other() {
    kernel::system::run(async {
        let good = answers("good", "Image", "1h");
        let rig = Rig::start(&[
            ("bad", "*.io", "echo 'no token' >&2; exit 3"),
            ("garbage", "*.io", "echo hunter2"),
            ("good", "*.io", &good),
        ]);
        assert_eq!(rig.users("a.io/x").await, ["good"]);
        let shown = rig.shown().await;
        let last = |index: usize| shown["providers"][index]["last_error"].to_string();
        assert!(last(0).contains("exit status: 3: no token"), "{}", last(0));
        assert!(last(1).contains("error reading GVK"), "{}", last(1));
        assert!(!last(1).contains("hunter2"));
        assert_eq!(shown["providers"][2]["cached"], 1);
    })
    .unwrap();
}

#[test]
fn a_provider_that_hangs_holds_up_nobody_elses_images() {
    kernel::system::run(async {
        let good = answers("good", "Image", "1h");
        let rig = Rig::start(&[("stuck", "stuck.io", "sleep 3600"), ("good", "a.io", &good)]);
        let repository = "stuck.io/x".to_owned();
        let stuck = rig
            .credentials
            .ask(Duration::from_millis(200), |reply| Msg::Lookup {
                repository,
                reply,
            });
        assert!(stuck.await.is_err(), "it is still waited for");
        assert_eq!(rig.users("a.io/x").await, ["good"]);
        assert_eq!(rig.shown().await["providers"][0]["under_way"], 1);
        rig.root.shutdown().await;
    })
    .unwrap();
}

#[tokio::test]
async fn a_provider_that_hangs_is_killed_with_all_that_it_started() {
    let folder = tempfile::tempdir().unwrap();
    let script = "sleep 3600 & echo $! > \"$0.child\"; sleep 3600";
    let stuck = provider(folder.path(), "stuck", "*.io", script);
    let error = exec::ask(&stuck, "a.io/x", Duration::from_millis(500))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("did not answer within"));
    let child = fs::read_to_string(folder.path().join("stuck.child")).unwrap();
    let child = Pid::from_raw(child.trim().parse().unwrap()).unwrap();
    let child = match pidfd_open(child, PidfdFlags::empty()) {
        Ok(child) => child,
        // The process has ended already.
        Err(error) => return assert_eq!(error, Errno::SRCH),
    };
    let ended = kernel::spawn_blocking(move || {
        let mut watched = [PollFd::new(&child, PollFlags::IN)];
        let within = Timespec::try_from(TEST_TIMEOUT).unwrap();
        poll(&mut watched, Some(&within)).unwrap()
    });
    assert_eq!(ended.await.unwrap(), 1, "its child lives on");
}

#[tokio::test]
async fn a_provider_that_floods_is_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let flood = provider(folder.path(), "flood", "*.io", "exec cat /dev/zero");
    let error = exec::ask(&flood, "a.io/x", Duration::from_secs(20))
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "credential provider flood wrote more than 1048576 bytes"
    );
    let script = format!(
        "cat /dev/zero | head -c 3000000 >&2\n{}",
        answers("loud", "Image", "0s")
    );
    let loud = provider(folder.path(), "loud", "*.io", &script);
    let answer = exec::ask(&loud, "a.io/x", Duration::from_secs(20)).await;
    assert_eq!(
        answer.unwrap().auth.len(),
        1,
        "complaints are not the answer"
    );
}

#[tokio::test]
async fn a_provider_that_cannot_be_started_is_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let mut absent = provider(folder.path(), "absent", "*.io", "");
    absent.program = folder.path().join("nowhere");
    let error = exec::ask(&absent, "a.io/x", TEST_TIMEOUT)
        .await
        .unwrap_err();
    assert_eq!(
        error_chain(&error),
        "credential provider absent cannot be started: No such file or directory (os error 2)"
    );
}

/// The pool for blocking work, or the disk, may be busy for longer than a pull waits.
#[test]
fn a_docker_file_that_is_read_late_is_used_once_it_has_been_read() {
    kernel::testing::run_paused(|| async {
        let rig = Rig::start(&[]);
        let auth = r#"{"auths": {"example.io": {"username": "late", "password": "p"}}}"#;
        fs::write(rig.folder.path().join("config.json"), auth).unwrap();
        let threads = crate::testing::keep_threads();
        // The clock stands still while the pool works.
        let wait = async {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            tokio::time::advance(2 * FILE_TIMEOUT).await;
        };
        let (users, ()) = tokio::join!(rig.users("example.io/app"), wait);
        assert_eq!(users, [""; 0]);
        drop(threads);
        kernel::testing::pass(Duration::from_secs(1)).await;
        assert_eq!(rig.users("example.io/app").await, ["late"]);
    });
}
