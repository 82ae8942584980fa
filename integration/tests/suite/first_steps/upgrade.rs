//! Another build of the programs takes the place of the one that runs: later, earlier, or half of it.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use integration::agent::program;
use integration::wait_until;
use k8s_openapi::api::core::v1::Pod;
use kernel::checkpoint::{CheckpointFile, Schema};
use tempfile::TempDir;

use super::package::PROGRAMS;
use crate::suite::node_rig::*;

const PODS: usize = 6;
/// Where the header of a checkpoint file says which version of its schema it has, and of which kind it is.
const VERSION: usize = 8;
const KIND: usize = 10;

/// The programs of a package, installed in a folder of the test.
struct Installation {
    dir: TempDir,
    builds: usize,
}

impl Installation {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../.ci/package");
        let built = program("oxlet").unwrap();
        let done = Command::new(script)
            .arg("install")
            .env("PROGRAMS", built.parent().unwrap())
            .env("DESTDIR", dir.path())
            .env("PREFIX", "/usr")
            .output()
            .unwrap();
        let words = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{words}");
        Installation { dir, builds: 0 }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("usr/lib/oxlet").join(name)
    }

    /// Another build of one program takes its place, as a package manager has it: under another name first.
    fn exchange(&mut self, name: &str) {
        let (path, next) = (self.path(name), self.path(&format!("{name}.dpkg-new")));
        fs::copy(&path, &next).unwrap();
        self.builds += 1;
        let mut file = File::options().append(true).open(&next).unwrap();
        writeln!(file, "build {}", self.builds).unwrap();
        drop(file);
        fs::rename(next, path).unwrap();
    }

    /// All programs of a build take their places.
    fn exchange_all(&mut self, build: Option<&Path>) {
        for name in PROGRAMS {
            let Some(build) = build else {
                self.exchange(name);
                continue;
            };
            let next = self.path(&format!("{name}.dpkg-new"));
            fs::copy(build.join(name), &next).unwrap();
            fs::rename(next, self.path(name)).unwrap();
        }
    }
}

/// The programs of another commit, where `OXLET_OTHER_BUILD` names their folder; else they differ by a text at their end.
fn other_build() -> Option<PathBuf> {
    std::env::var_os("OXLET_OTHER_BUILD").map(PathBuf::from)
}

/// The file that a process was started from; it says so if that has been replaced. None: the process is gone.
fn file_of(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

async fn pid_of(rig: &NodeRig, plugin: &str) -> Option<u32> {
    let told = rig.node.plugin_named(plugin).await.ok()?;
    told["pid"].as_u64()?.try_into().ok()
}

async fn until_on(rig: &NodeRig, plugin: &str, file: &Path) {
    let what = format!("{plugin} runs from {}", file.display());
    let waited = wait_until(CONVERGENCE_TIMEOUT, &what, async || {
        let pid = pid_of(rig, plugin).await;
        pid.and_then(file_of).is_some_and(|own| own == file)
    });
    waited.await.unwrap();
}

fn restarts(pods: &[Pod]) -> i32 {
    let all = pods.iter().flat_map(containers);
    all.map(|status| status.restart_count).sum()
}

/// All is as it was: the pods are ready, no container has been made twice.
async fn assert_undisturbed(rig: &NodeRig) {
    let pods = until_all_ready(&rig.node, PODS, CONVERGENCE_TIMEOUT).await;
    assert_eq!(restarts(&pods), 0);
    let cri = rig.cri().await;
    assert_nothing_twice(&cri).await;
    assert_eq!(cri.containers().await.unwrap().len(), PODS);
}

fn start_pods(rig: &NodeRig, pods: std::ops::Range<usize>) {
    for number in pods {
        let name = format!("pod-{number}");
        let file = format!("{name}.yaml");
        rig.node.drop_manifest(&file, &server(&name)).unwrap();
    }
}

#[tokio::test]
async fn an_upgrade_in_the_middle_of_pod_starts_disturbs_no_pod() {
    let mut installed = Installation::new();
    let oxlet = installed.path("oxlet");
    let rig = TestRuntime::Native.start_with(|builder| builder.program(oxlet.clone()));
    let Some(mut rig) = rig.await else {
        return;
    };
    start_pods(&rig, 0..PODS / 2);
    let plugins = installed.path("oxlet-plugins");
    until_on(&rig, "runtime", &plugins).await;
    // Half of the package is new while pods start: the agent is the old one, its plugins are not.
    for name in [
        "oxlet-confine",
        "oxlet-monitor",
        "oxlet-oci",
        "oxlet-plugins",
    ] {
        installed.exchange(name);
    }
    assert!(rig.node.kill_plugin_named("runtime"));
    start_pods(&rig, PODS / 2..PODS);
    until_on(&rig, "runtime", &plugins).await;
    installed.exchange("oxlet");
    installed.exchange("oxctl");
    rig.node.terminate().await.unwrap();
    rig.node.begin().await.unwrap();
    assert_eq!(rig.node.pid().and_then(file_of), Some(oxlet));
    assert_undisturbed(&rig).await;
}

#[tokio::test]
async fn containers_are_the_same_after_an_upgrade_and_a_downgrade() {
    let (mut installed, other) = (Installation::new(), other_build());
    installed.exchange_all(other.as_deref());
    let (oxlet, plugins) = (installed.path("oxlet"), installed.path("oxlet-plugins"));
    let rig = TestRuntime::Native.start_with(|builder| builder.program(oxlet.clone()));
    let Some(mut rig) = rig.await else {
        return;
    };
    start_pods(&rig, 0..PODS);
    let before = until_all_ready(&rig.node, PODS, CONVERGENCE_TIMEOUT).await;
    let this = program("oxlet").unwrap();
    for build in [this.parent(), other.as_deref()] {
        rig.until_stored().await;
        rig.node.terminate().await.unwrap();
        installed.exchange_all(build);
        rig.node.begin().await.unwrap();
        assert_eq!(rig.node.pid().and_then(file_of).as_ref(), Some(&oxlet));
        until_on(&rig, "runtime", &plugins).await;
        assert_undisturbed(&rig).await;
        let after = until_all_ready(&rig.node, PODS, CONVERGENCE_TIMEOUT).await;
        assert_eq!(identities(&after), identities(&before));
    }
}

#[tokio::test]
async fn a_program_that_is_missing_is_named_and_pods_run_on_until_it_is_there() {
    let installed = Installation::new();
    let oxlet = installed.path("oxlet");
    let rig = TestRuntime::Native.start_with(|builder| builder.program(oxlet).with_patience());
    let Some(rig) = rig.await else {
        return;
    };
    start_pods(&rig, 0..PODS);
    until_all_ready(&rig.node, PODS, CONVERGENCE_TIMEOUT).await;
    let (plugins, away) = (installed.path("oxlet-plugins"), installed.path("away"));
    fs::rename(&plugins, &away).unwrap();
    assert!(rig.node.kill_plugin_named("runtime"));
    let name = plugins.display().to_string();
    let waited = wait_until(
        CONVERGENCE_TIMEOUT,
        "the missing program is named",
        async || {
            let told = rig.node.oxctl(&["plugins"]).await.unwrap_or_default();
            told.contains(&name) && told.contains("No such file")
        },
    );
    if let Err(error) = waited.await {
        panic!("{error:#}\n{}", rig.node.oxctl(&["plugins"]).await.unwrap());
    }
    fs::rename(&away, &plugins).unwrap();
    until_on(&rig, "runtime", &plugins).await;
    assert_undisturbed(&rig).await;
}

/// As a later build would leave it: of a schema that this one does not know.
fn write_as_a_later_build(file: &Path) {
    let header = fs::read(file).unwrap();
    let number = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let schema = Schema {
        kind: number(KIND),
        version: number(VERSION) + 1,
    };
    let mut later = CheckpointFile::new(file.to_owned(), schema);
    later.save(&"what a later build has to say").unwrap();
}

#[tokio::test]
async fn an_earlier_build_names_the_files_of_a_later_one_and_takes_its_pods_over() {
    let Some(mut rig) = TestRuntime::Native.start().await else {
        return;
    };
    start_pods(&rig, 0..PODS);
    until_all_ready(&rig.node, PODS, CONVERGENCE_TIMEOUT).await;
    rig.until_stored().await;
    rig.node.terminate().await.unwrap();
    let files = fs::read_dir(rig.node.root().join("oxlet")).unwrap();
    let files = files.map(|entry| entry.unwrap().path());
    let later: Vec<PathBuf> = files
        .filter(|path| path.extension().is_some_and(|end| end == "checkpoint"))
        .collect();
    assert!(later.iter().any(|path| path.ends_with("pods.checkpoint")));
    later.iter().for_each(|path| write_as_a_later_build(path));
    rig.node.begin().await.unwrap();
    assert_undisturbed(&rig).await;
    let log = rig.node.log();
    for file in later {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let told = log
            .lines()
            .find(|line| line.contains(&name) && line.contains("this program reads"));
        assert!(told.is_some(), "{name} is not named:\n{log}");
    }
}
