//! A node without an agent: both storage plugins and a CSI driver, and the task that kills them.

use std::cell::{Cell, RefCell};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use integration::chaos::Chaos;
use integration::doubles::csi_driver::{CsiDriver, mount_table};
use proto::storage::storage_client::StorageClient;
use proto::storage::{ListRequest, RemovePodRequest};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::plugin::PluginProcess;

pub(super) const DRIVER: &str = "kills.example.com";
/// `within_ms` of a plugin's call.
pub(super) const CALL_MS: u32 = 5_000;
/// Whatever is killed, it is back long before.
const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(40);
/// How many things go on at once.
const VOLUME_CYCLES: usize = 10;
/// About as many calls has a run.
const CALLS: u64 = 40;
/// About as long is one under way.
const A_CALL: Duration = Duration::from_millis(6);
const POLL_INTERVAL: Duration = Duration::from_millis(1);
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Dropped in this order: the processes that mount end before the mounts are removed.
pub(super) struct KillRig {
    csi: Mutex<PluginProcess>,
    local: Mutex<PluginProcess>,
    driver: Mutex<CsiDriver>,
    /// What was seen in the run under way.
    told: RefCell<Vec<String>>,
    /// How many calls of the run under way were answered; none when it is over.
    answered: Cell<Option<u64>>,
    pub(super) to_csi: StorageClient<Channel>,
    pub(super) to_local: StorageClient<Channel>,
    pub(super) root: PathBuf,
    _mounts: Mounts,
    _dir: TempDir,
}

/// What is mounted below this folder is taken away at the end, whatever a test left.
struct Mounts(PathBuf);

impl Drop for Mounts {
    fn drop(&mut self) {
        for failed in mount_table::unmount_all(|mount| mount.point.starts_with(&self.0)) {
            eprintln!("kills: {failed}");
        }
    }
}

/// The process that a kill hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Victim {
    Csi,
    Local,
    Driver,
}

impl KillRig {
    pub(super) async fn start() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("oxlet-kills-")
            .tempdir()
            .unwrap();
        let root = dir.path().canonicalize().unwrap().join("root");
        fs::create_dir_all(root.join("pods")).unwrap();
        let own = dir.path().join("driver");
        let driver = CsiDriver::start(DRIVER, &own, &root, &[]).await.unwrap();
        let settings = json!({ "rootDir": root });
        let local =
            PluginProcess::start("storage-local", &dir.path().join("local"), settings).await;
        let settings = json!({ "rootDir": root, "nodeName": "node" });
        let csi = PluginProcess::start("storage-csi", &dir.path().join("csi"), settings).await;
        let (csi, local) = (csi.unwrap(), local.unwrap());
        Self {
            to_csi: csi.storage(),
            to_local: local.storage(),
            csi: Mutex::new(csi),
            local: Mutex::new(local),
            driver: Mutex::new(driver),
            told: RefCell::default(),
            answered: Cell::new(None),
            _mounts: Mounts(root.clone()),
            root,
            _dir: dir,
        }
    }

    pub(super) async fn with_driver<T>(&self, ask: impl FnOnce(&CsiDriver) -> T) -> T {
        ask(&*self.driver.lock().await)
    }

    /// Resets the rig for the next run.
    pub(super) fn begin(&self) {
        self.told.borrow_mut().clear();
        self.answered.set(Some(0));
    }

    /// The volume cycles of the run have ended: no process needs to be killed any more.
    pub(super) fn end(&self) {
        self.answered.set(None);
    }

    /// Kills one of these now and then; each is back before the next is hit.
    pub(super) async fn kill(&self, victims: &[Victim], kills: u64, mut chaos: Chaos) {
        let mut moments: Vec<u64> = (0..kills).map(|_| chaos.below(CALLS)).collect();
        moments.sort_unstable();
        for calls in moments {
            while self.answered.get().is_some_and(|answered| answered < calls) {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            chaos.moment(A_CALL).await;
            if self.answered.get().is_none() {
                return;
            }
            let choice = chaos.below(victims.len() as u64);
            let victim = victims[usize::try_from(choice).unwrap()];
            self.tell(format!("{victim:?} is killed"));
            match victim {
                Victim::Csi => self.csi.lock().await.kill9().await.unwrap(),
                Victim::Local => self.local.lock().await.kill9().await.unwrap(),
                Victim::Driver => {
                    let mut driver = self.driver.lock().await;
                    driver.kill9().unwrap();
                    driver.spawn().unwrap();
                }
            }
        }
    }

    /// Starts a driver that crashed again, for as long as it is polled.
    pub(super) async fn revive(&self) -> ! {
        loop {
            if self.driver.lock().await.revive().unwrap() {
                self.tell("the driver had crashed".to_owned());
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Notes what is not the same as before.
    pub(super) fn tell(&self, what: String) {
        let mut told = self.told.borrow_mut();
        if told
            .iter()
            .rev()
            .take(VOLUME_CYCLES)
            .all(|before| *before != what)
        {
            told.push(what);
        }
    }

    /// Calls until it is answered well, as the agent does.
    pub(super) async fn persist<T>(
        &self,
        what: &str,
        call: impl AsyncFn() -> Result<T, Status>,
    ) -> T {
        let deadline = Instant::now() + CONVERGENCE_TIMEOUT;
        loop {
            match self.once(what, &call).await {
                Ok(answer) => return answer,
                Err(status) => assert!(
                    Instant::now() < deadline,
                    "{what} does not converge: {status:?}"
                ),
            }
            self.assert_nobody_complains().await;
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Calls once; only a refusal for ever is not to be expected.
    pub(super) async fn once<T>(
        &self,
        what: &str,
        call: impl AsyncFn() -> Result<T, Status>,
    ) -> Result<T, Status> {
        let within = Duration::from_millis(u64::from(CALL_MS)) + Duration::from_secs(2);
        let answer = tokio::time::timeout(within, call()).await;
        let answer = answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer")));
        self.answered
            .set(self.answered.get().map(|answered| answered + 1));
        match &answer {
            Ok(_) => self.tell(format!("{what}: OK")),
            Err(status) => {
                self.tell(format!("{what}: {:?}: {}", status.code(), status.message()));
                assert_ne!(status.code(), Code::InvalidArgument, "{what}: {status:?}");
            }
        }
        answer
    }

    pub(super) async fn remove_pod(&self, uid: &str) -> Vec<String> {
        let request = RemovePodRequest {
            folder: self.root.join("pods").join(uid).display().to_string(),
            within_ms: CALL_MS,
        };
        let what = format!("remove pod {uid}");
        let removed = self.persist(&what, async || {
            let answer = self.to_local.clone().remove_pod(request.clone()).await;
            answer.map(|answer| answer.into_inner().kept)
        });
        removed.await
    }

    async fn assert_nobody_complains(&self) {
        let complaints = self.driver.lock().await.complaints().unwrap();
        assert!(complaints.is_empty(), "{complaints:#?}");
    }

    /// Asserts that nothing is left of the run, and that the driver has recorded no breach of the protocol.
    pub(super) async fn assert_clean(&self) {
        self.assert_nobody_complains().await;
        let driver = self.driver.lock().await;
        assert_eq!(driver.in_use().unwrap(), Vec::<PathBuf>::new());
        assert_eq!(driver.mounts(), []);
        let mounts = mount_table::mounts().into_iter().map(|mount| mount.point);
        let mounts: Vec<PathBuf> = mounts
            .filter(|point| point.starts_with(&self.root))
            .collect();
        assert!(mounts.is_empty(), "{mounts:#?}");
        let pods: Vec<_> = fs::read_dir(self.root.join("pods")).unwrap().collect();
        assert!(pods.is_empty(), "{pods:?}");
        drop(driver);
        for (name, client) in [("csi", &self.to_csi), ("local", &self.to_local)] {
            let request = ListRequest { within_ms: CALL_MS };
            let what = format!("list of {name}");
            let listed = self.persist(&what, async || client.clone().list(request).await);
            let found = listed.await.into_inner().found;
            assert!(found.is_empty(), "{name}: {found:#?}");
        }
    }

    /// Returns what was seen in the run.
    pub(super) fn told(&self) -> String {
        self.told.borrow().join("\n  ")
    }

    /// Returns what helps to diagnose a failure.
    pub(super) async fn describe(&self) -> String {
        let told = self.told();
        let driver = self.driver.lock().await;
        let journal = driver.journal().unwrap_or_default();
        let last: Vec<String> = journal
            .iter()
            .rev()
            .take(40)
            .map(|call| format!("{call:?}"))
            .collect();
        let tail = |log: String| {
            let lines: Vec<&str> = log.lines().collect();
            lines[lines.len().saturating_sub(40)..].join("\n")
        };
        let (csi, local) = (self.csi.lock().await.log(), self.local.lock().await.log());
        format!(
            "--- told\n{told}\n--- the driver's last calls\n{}\n--- storage-csi\n{}\n--- storage-local\n{}",
            last.join("\n"),
            tail(csi),
            tail(local)
        )
    }
}
