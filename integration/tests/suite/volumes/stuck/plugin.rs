//! A storage plugin under the kernel's host: what becomes of its process, and of calls about other volumes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use integration::agent::program;
use integration::doubles::stuck_mount::StuckMount;
use integration::wait_until;
use kernel::{Addr, ChildSpec, Intensity, Supervisor, mailbox};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plugin_host::{
    CallError, Declaration, LaunchMethod, Msg, PluginClient, PluginHost, PluginState, ServiceKind,
};
use proto::storage::storage_client::StorageClient;
use proto::storage::volume::Source;
use proto::storage::{EmptyDir, HostPath, MountRequest, Pod, Volume};
use serde_json::json;
use tempfile::TempDir;
use tokio::time::timeout;
use tonic::Code;

const LONG: Duration = Duration::from_secs(30);
/// How long the plugin may look at a path.
const LOOK: Duration = Duration::from_millis(300);
const UID: &str = "11111111-1111-1111-1111-111111111111";

/// A plugin with its host, as an agent has it.
struct Rig {
    line: PluginClient,
    host: Addr<Msg>,
    supervisor: Supervisor,
    root: PathBuf,
}

impl Rig {
    /// As the agent declares it.
    async fn start(dir: &Path) -> Self {
        Self::start_with(dir, Duration::from_secs(1)).await
    }

    /// With another time from SIGKILL to giving a process up.
    async fn start_with(dir: &Path, abandon_within: Duration) -> Self {
        let root = dir.join("root");
        fs::create_dir_all(&root).unwrap();
        let command = program("oxlet-plugins").unwrap();
        let mut declaration = Declaration::new(
            "storage-local",
            ServiceKind::Storage,
            LaunchMethod::Managed {
                command,
                args: vec!["storage-local".to_owned()],
            },
        );
        declaration.configuration = json!({ "rootDir": root });
        declaration.health_interval = Duration::from_millis(500);
        declaration.drain_within = Duration::from_secs(2);
        declaration.term_within = Duration::from_millis(500);
        declaration.abandon_within = Some(abandon_within);
        let intensity = Intensity {
            restarts: 3,
            within: LONG,
        };
        let supervisor = Supervisor::root("root", intensity);
        let line = PluginClient::new("storage-local");
        let (host, port) = mailbox(64);
        let make = {
            let (folder, line) = (dir.join("plugins"), line.clone());
            move || PluginHost::new(declaration.clone(), folder.clone(), line.clone())
        };
        supervisor.spawn(ChildSpec::permanent("storage-local"), port, make);
        let rig = Self {
            line,
            host,
            supervisor,
            root,
        };
        rig.serves(1).await;
        rig
    }

    async fn serves(&self, generation: u64) {
        let mut views = self.line.states();
        let seen = views
            .wait_for(|view| view.state == PluginState::Ready && view.generation == generation);
        let seen = timeout(LONG, seen).await.map(drop);
        assert!(seen.is_ok(), "it is {:?}", self.line.state());
    }

    async fn mount(&self, volume: Volume) -> Result<String, CallError> {
        let target = self.root.join(format!(
            "pods/{UID}/volumes/kubernetes.io~{}/{}",
            volume.kind, volume.name
        ));
        let request = MountRequest {
            volume: Some(volume),
            pod: Some(Pod {
                uid: UID.to_owned(),
                namespace: "default".to_owned(),
                name: "pod".to_owned(),
                service_account: String::new(),
            }),
            target: target.display().to_string(),
            within_ms: u32::try_from(LOOK.as_millis()).unwrap(),
            ..MountRequest::default()
        };
        let call = |channel| {
            let request = request.clone();
            async move { StorageClient::new(channel).mount(request).await }
        };
        let answer = self.line.idempotent(LONG, call).await;
        answer.map(|answer| answer.path)
    }

    /// A volume on the node's own disk.
    async fn mount_own(&self, name: &str) {
        let volume = Volume {
            id: format!("kubernetes.io/empty-dir/{UID}-{name}"),
            kind: "empty-dir".to_owned(),
            name: name.to_owned(),
            source: Some(Source::EmptyDir(EmptyDir::default())),
        };
        let path = self.mount(volume).await.unwrap();
        assert!(Path::new(&path).is_dir());
    }

    async fn mount_folder_of(&self, mount: &StuckMount) -> Result<String, CallError> {
        let path = mount.folder().display().to_string();
        self.mount(Volume {
            id: format!("kubernetes.io/host-path/{path}"),
            kind: "host-path".to_owned(),
            name: "held".to_owned(),
            source: Some(Source::HostPath(HostPath {
                path,
                r#type: "Directory".to_owned(),
            })),
        })
        .await
    }

    /// Has a thread of the plugin stuck, and says what that looked like to the caller.
    async fn get_stuck(&self, mount: &StuckMount) {
        mount.block();
        let error = self.mount_folder_of(mount).await.unwrap_err();
        let CallError::Refused(status) = &error else {
            panic!("{error:?}")
        };
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        assert!(
            status.metadata().contains_key("oxlet-abandoned"),
            "{status:?}"
        );
        let path = mount.folder().display().to_string();
        assert!(status.message().contains(&path), "{status}");
    }

    async fn pid(&self) -> u32 {
        let tree = self.supervisor.tree().await;
        let pid = tree.children[0].snapshot["pid"].as_u64();
        u32::try_from(pid.unwrap()).unwrap()
    }

    async fn abandoned(&self, generations: &[u64]) -> Vec<u32> {
        let wanted: BTreeSet<u64> = generations.iter().copied().collect();
        let mut changes = self.line.abandonments();
        let seen = changes.wait_for(|list| {
            let generations = list.iter().map(|one| one.generation);
            generations.collect::<BTreeSet<u64>>() == wanted
        });
        let list = timeout(LONG, seen).await.expect("abandoned in time");
        list.unwrap().iter().map(|one| one.pid).collect()
    }

    async fn end(self) {
        timeout(LONG, self.supervisor.shutdown()).await.unwrap();
    }
}

fn stuck_mount(dir: &Path) -> StuckMount {
    let path = dir.join("mount");
    fs::create_dir_all(&path).unwrap();
    StuckMount::mount(&path).unwrap()
}

/// The states of a process's threads; the first is the process's own.
fn threads(pid: u32) -> String {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return String::new();
    };
    let mut states = String::new();
    for task in tasks.flatten() {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        let state = stat
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.chars().next());
        states.extend(state);
    }
    states
}

#[test]
fn stuck_process_is_replaced_and_given_up_until_the_mount_answers() {
    kernel::system::run(async {
        let dir = TempDir::new().unwrap();
        let mount = stuck_mount(dir.path());
        let rig = Rig::start(dir.path()).await;
        let pid = rig.pid().await;
        rig.get_stuck(&mount).await;
        rig.mount_own("beside").await;

        rig.host.tell(Msg::Replace { generation: 1 }).unwrap();
        rig.serves(2).await;
        rig.mount_own("with-the-successor").await;
        assert_eq!(rig.abandoned(&[1]).await, [pid]);
        // Nothing is left of it but the thread that is stuck, under the zombie that was its first one.
        assert_eq!(threads(pid), "ZD");
        assert_ne!(rig.pid().await, pid);
        rig.mount_own("without-it").await;

        // The agent can end, and its successor sees that what was left is stuck, and starts beside it at once.
        rig.end().await;
        let rig = Rig::start_with(dir.path(), LONG * 2).await;
        rig.mount_own("in-another-life").await;
        assert_eq!(rig.abandoned(&[0]).await, [pid]);

        mount.unblock();
        timeout(LONG, rig.line.ended(0)).await.unwrap();
        let is_gone = async || threads(pid).is_empty();
        wait_until(LONG, "it is gone", is_gone).await.unwrap();
        let path = rig.mount_folder_of(&mount).await.unwrap();
        assert_eq!(Path::new(&path), mount.folder());
        rig.end().await;
    })
    .unwrap();
}

#[test]
fn crash_with_a_stuck_thread_is_survived_on_the_same_socket() {
    kernel::system::run(async {
        let dir = TempDir::new().unwrap();
        let mount = stuck_mount(dir.path());
        let rig = Rig::start(dir.path()).await;
        let pid = rig.pid().await;
        rig.get_stuck(&mount).await;
        kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).unwrap();
        wait_until(LONG, "only the stuck thread is left", async || {
            threads(pid) == "ZD"
        })
        .await
        .unwrap();
        rig.serves(2).await;
        rig.mount_own("with-the-successor").await;
        assert_eq!(rig.abandoned(&[1]).await, [pid]);
        mount.unblock();
        timeout(LONG, rig.line.ended(1)).await.unwrap();
        rig.mount_folder_of(&mount).await.unwrap();
        rig.end().await;
    })
    .unwrap();
}
