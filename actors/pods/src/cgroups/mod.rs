//! Groups made, limited and removed by the node's driver: as folders, or as systemd's slices.
//!
//! Not an actor: pods' workers and the container manager call it. Names and limits: `logic_resources::cgroups`; files:
//! `host::cgroups`; slices: [`systemd`].
//!
//! Upstream: pkg/kubelet/cm/cgroup_manager_linux.go (1.36).

pub mod pod_cgroups;
pub mod systemd;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use host::cgroups::{CgroupError, CgroupFiles, Killed};
use kernel::watch;
use logic_resources::cgroups::{
    self, CgroupDriver, CgroupLimits, CgroupName, Hierarchy, slice_name, slice_properties, writes,
};
use thiserror::Error;

use self::systemd::{SystemdConnection, SystemdError};

/// Waits between attempts: the kernel takes a moment to release a group whose last process has ended.
const REMOVE_BACKOFFS: [Duration; 5] = [
    Duration::from_millis(10),
    Duration::from_millis(20),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
];

/// Why a group could not be made, changed or removed.
#[derive(Debug, Error)]
pub enum CgroupManagerError {
    #[error(transparent)]
    Files(#[from] CgroupError),
    #[error(transparent)]
    Systemd(#[from] SystemdError),
    #[error("the thread that works on cgroups ended")]
    Thread,
}

impl CgroupManagerError {
    pub fn transient(&self) -> bool {
        match self {
            Self::Files(error) => error.transient(),
            Self::Systemd(_) | Self::Thread => true,
        }
    }

    /// Whether the operation would fail the same way for every group.
    pub fn is_node_wide(&self) -> bool {
        match self {
            Self::Files(error) => error.is_node_wide(),
            Self::Systemd(error) => error.is_absent(),
            Self::Thread => false,
        }
    }
}

/// Makes, limits and removes groups; clones share their connection to systemd.
#[derive(Debug, Clone)]
pub struct CgroupManager(Arc<ManagerState>);

#[derive(Debug)]
struct ManagerState {
    configured: CgroupDriver,
    /// The runtime's own driver, which replaces the configured one; none where the runtime reports none.
    reported: watch::Receiver<Option<CgroupDriver>>,
    files: CgroupFiles,
    /// The machine's sizes of huge pages in bytes.
    page_sizes: Vec<i64>,
    systemd: SystemdConnection,
}

impl CgroupManager {
    /// Detects the machine's groups. `reported` has the runtime's driver.
    pub fn here(
        configured: CgroupDriver,
        reported: watch::Receiver<Option<CgroupDriver>>,
    ) -> CgroupManager {
        let hierarchy = host::cgroups::hierarchy(Path::new("/proc"));
        let version = match &hierarchy {
            Some(Hierarchy::V2(_)) => 2.0,
            Some(Hierarchy::V1(_)) => 1.0,
            None => 0.0,
        };
        metrics::node::cgroups::VERSION.set(version);
        let sizes = host::huge_pages::read(Path::new("/sys")).into_keys();
        let sizes = sizes.filter_map(|size| i64::try_from(size).ok()).collect();
        let systemd = SystemdConnection::default();
        Self::on((configured, reported), (hierarchy, sizes), systemd)
    }

    /// The same, of this hierarchy, with huge pages of these sizes.
    pub fn on(
        (configured, reported): (CgroupDriver, watch::Receiver<Option<CgroupDriver>>),
        (hierarchy, page_sizes): (Option<Hierarchy>, Vec<i64>),
        systemd: SystemdConnection,
    ) -> CgroupManager {
        CgroupManager(Arc::new(ManagerState {
            configured,
            reported,
            files: CgroupFiles::new(hierarchy),
            page_sizes,
            systemd,
        }))
    }

    /// The driver in force.
    pub fn driver(&self) -> CgroupDriver {
        self.0.reported.borrow().unwrap_or(self.0.configured)
    }

    pub fn page_sizes(&self) -> &[i64] {
        &self.0.page_sizes
    }

    /// The machine's version; none where no cgroups are mounted.
    pub fn hierarchy(&self) -> Option<&Hierarchy> {
        self.0.files.hierarchy()
    }

    /// Makes the group if it is missing, with these limits; one that is there keeps its own.
    pub async fn create(
        &self,
        name: &CgroupName,
        limits: &CgroupLimits,
    ) -> Result<(), CgroupManagerError> {
        timed("create", self.make(name, limits)).await
    }

    /// Makes the group if it is missing, and sets these limits in any case.
    pub async fn enforce(
        &self,
        name: &CgroupName,
        limits: &CgroupLimits,
    ) -> Result<(), CgroupManagerError> {
        self.create(name, limits).await?;
        self.update(name, limits).await
    }

    /// Sets these limits of a group that is there.
    pub async fn update(
        &self,
        name: &CgroupName,
        limits: &CgroupLimits,
    ) -> Result<(), CgroupManagerError> {
        timed("update", self.set(self.driver(), name, limits)).await
    }

    async fn make(
        &self,
        name: &CgroupName,
        limits: &CgroupLimits,
    ) -> Result<(), CgroupManagerError> {
        let driver = self.driver();
        let path = name.path(driver);
        let hierarchy = self.hierarchy().ok_or(CgroupError::NotMounted)?;
        let there = path.clone();
        let exists = self.blocking(move |files| Ok(files.exists(&there)));
        if exists.await? {
            return Ok(());
        }
        match driver {
            CgroupDriver::Cgroupfs => {}
            CgroupDriver::Systemd => {
                let properties = cgroups::made_with(name, hierarchy);
                let unit = slice_name(name);
                self.0.systemd.start_slice(&unit, &properties).await?;
            }
        }
        self.blocking(move |files| files.create(&path)).await?;
        self.set(driver, name, limits).await
    }

    async fn set(
        &self,
        driver: CgroupDriver,
        name: &CgroupName,
        limits: &CgroupLimits,
    ) -> Result<(), CgroupManagerError> {
        let hierarchy = self.hierarchy().ok_or(CgroupError::NotMounted)?;
        let writes = match driver {
            CgroupDriver::Cgroupfs => writes(limits, hierarchy, &self.0.page_sizes),
            CgroupDriver::Systemd => {
                let version = self.0.systemd.version().await?;
                let properties = slice_properties(limits, hierarchy, version);
                let unit = slice_name(name);
                self.0.systemd.set(&unit, &properties).await?;
                // What systemd has no property for, and what it would write later.
                let limits = cgroups::rounded(limits);
                writes(&limits, hierarchy, &self.0.page_sizes)
            }
        };
        let path = name.path(driver);
        self.blocking(move |files| files.write(&path, &writes))
            .await
    }

    /// Removes the group and those left below it. Fails if it is still busy after the last attempt; the removal can be
    /// repeated.
    pub async fn remove(&self, name: &CgroupName) -> Result<(), CgroupManagerError> {
        timed("destroy", self.destroy(name)).await
    }

    async fn destroy(&self, name: &CgroupName) -> Result<(), CgroupManagerError> {
        let driver = self.driver();
        match driver {
            CgroupDriver::Cgroupfs => {}
            CgroupDriver::Systemd => self.0.systemd.stop_slice(&slice_name(name)).await?,
        }
        let path = name.path(driver);
        let remove = || {
            let path = path.clone();
            self.blocking(move |files| files.remove(&path))
        };
        for wait in REMOVE_BACKOFFS {
            match remove().await {
                Err(CgroupManagerError::Files(error)) if error.is_busy() => {
                    tokio::time::sleep(wait).await;
                }
                result => return result,
            }
        }
        remove().await
    }

    /// Kills what runs in the group; returns what has not ended after that.
    pub async fn kill(
        &self,
        name: &CgroupName,
        whom: Killed,
    ) -> Result<Vec<u32>, CgroupManagerError> {
        let path = name.path(self.driver());
        let mut alive = Vec::new();
        for wait in REMOVE_BACKOFFS {
            let group = path.clone();
            alive = self.blocking(move |files| files.kill(&group, whom)).await?;
            if alive.is_empty() {
                break;
            }
            tracing::warn!(
                group = path,
                ?alive,
                "killing what its containers have left"
            );
            tokio::time::sleep(wait).await;
        }
        Ok(alive)
    }

    /// Whether no process is in the group, by whichever driver it was made.
    pub async fn is_empty(&self, name: &CgroupName) -> Result<bool, CgroupManagerError> {
        let paths = [CgroupDriver::Cgroupfs, CgroupDriver::Systemd].map(|driver| name.path(driver));
        let found = self.blocking(move |files| files.processes(&paths));
        Ok(found.await?.is_empty())
    }

    /// Does file work of groups in the blocking pool.
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&CgroupFiles) -> Result<T, CgroupError> + Send + 'static,
    ) -> Result<T, CgroupManagerError> {
        let state = self.0.clone();
        match kernel::spawn_blocking(move || work(&state.files)).await {
            Ok(outcome) => Ok(outcome?),
            Err(_) => Err(CgroupManagerError::Thread),
        }
    }
}

/// Runs an operation and measures its duration.
async fn timed<T>(operation: &str, work: impl Future<Output = T>) -> T {
    let began = kernel::now();
    let result = work.await;
    let took = kernel::now().saturating_duration_since(began);
    let duration = metrics::node::cgroups::DURATION.with_label_values(&[operation]);
    duration.observe(took.as_secs_f64());
    result
}
