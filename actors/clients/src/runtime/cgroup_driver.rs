//! The runtime's cgroup driver: pods' cgroups have the names that this runtime reads.
//!
//! Upstream: cmd/kubelet/app/server.go (getCgroupDriverFromCRI), 1.36.

use kernel::watch;
use logic_resources::pod_cgroups::CgroupDriver;
use proto::cri;

use super::{RuntimeClient, RuntimeError, RuntimeVersion, malformed, runtime};

/// The Kubernetes version that no longer runs with a runtime without `RuntimeConfig`.
const LAST_SUPPORT: &str = "1.37.0";

/// The driver that the runtime reported.
#[derive(Debug)]
pub(super) struct ReportedCgroupDriver {
    /// None where the runtime does not report one: the configured one counts.
    driver: watch::Sender<Option<CgroupDriver>>,
    /// The version that was asked; none asks again.
    asked: watch::Sender<Option<RuntimeVersion>>,
}

impl Default for ReportedCgroupDriver {
    fn default() -> Self {
        ReportedCgroupDriver {
            driver: watch::Sender::new(None),
            asked: watch::Sender::new(None),
        }
    }
}

impl ReportedCgroupDriver {
    /// Has the runtime asked again: it may have restarted with another configuration.
    pub(super) fn forget(&self) {
        self.asked.send_replace(None);
    }
}

impl RuntimeClient {
    /// The driver that the runtime reported last; none before its first report, or where it reports none.
    pub fn cgroup_driver(&self) -> watch::Receiver<Option<CgroupDriver>> {
        self.cgroup_driver.driver.subscribe()
    }

    /// Asks the runtime for its cgroup driver, once for each version and each stream of events.
    ///
    /// # Errors
    /// Any but [`RuntimeError::is_unimplemented`]: a pod's cgroup cannot be named before the runtime has answered.
    pub async fn learn_cgroup_driver(&self) -> Result<(), RuntimeError> {
        let known = self.known();
        if self.cgroup_driver.asked.borrow().as_ref() == Some(&known) {
            return Ok(());
        }
        let request = cri::RuntimeConfigRequest {};
        let method = async |channel, request| runtime(channel).runtime_config(request).await;
        let answer = self
            .idempotent("RuntimeConfig", self.within, request, method)
            .await;
        let driver = match answer {
            // A runtime that tells nothing of Linux would read as systemd.
            Ok(answer) => answer.linux.map(read).transpose()?,
            Err(error) if error.is_unimplemented() => {
                metrics::runtime::losing_support(LAST_SUPPORT);
                tracing::info!(
                    "the runtime has no RuntimeConfig: the configured cgroupDriver counts"
                );
                None
            }
            Err(error) => return Err(error),
        };
        let before = self.cgroup_driver.driver.send_replace(driver);
        if before != driver {
            tracing::info!(?driver, "the runtime's cgroup driver");
        }
        self.cgroup_driver.asked.send_replace(Some(known));
        Ok(())
    }
}

fn read(linux: cri::LinuxRuntimeConfiguration) -> Result<CgroupDriver, RuntimeError> {
    match cri::CgroupDriver::try_from(linux.cgroup_driver) {
        Ok(cri::CgroupDriver::Systemd) => Ok(CgroupDriver::Systemd),
        Ok(cri::CgroupDriver::Cgroupfs) => Ok(CgroupDriver::Cgroupfs),
        Err(_) => Err(malformed(
            "RuntimeConfig",
            "linux.cgroup_driver",
            "systemd or cgroupfs",
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kernel::testing::run_paused;
    use plugin_host::PluginClient;
    use runtime_fake::{Clock, Fake, FakeSettings};
    use tempfile::TempDir;

    use super::*;
    use crate::runtime::fake::serve;

    struct Rig {
        folder: TempDir,
        _fake: Fake,
        client: RuntimeClient,
    }

    impl Rig {
        fn start() -> Rig {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("fake");
            let fake = Fake::open_at(path, FakeSettings::default(), Clock::start()).unwrap();
            let line = PluginClient::fixed("runtime", serve(&fake));
            Rig {
                folder,
                client: RuntimeClient::new(line, Duration::from_secs(2)),
                _fake: fake,
            }
        }

        fn script(&self, text: &str) {
            std::fs::write(self.folder.path().join("fake/faults.json"), text).unwrap();
        }

        async fn learn(&self) -> Result<Option<CgroupDriver>, RuntimeError> {
            self.client.version().await?;
            self.client.learn_cgroup_driver().await?;
            Ok(*self.client.cgroup_driver().borrow())
        }
    }

    #[test]
    fn the_runtime_names_its_cgroup_driver_and_is_asked_again_once_events_begin_anew() {
        run_paused(|| async {
            for (name, driver) in [
                ("systemd", CgroupDriver::Systemd),
                ("cgroupfs", CgroupDriver::Cgroupfs),
            ] {
                let rig = Rig::start();
                assert_eq!(*rig.client.cgroup_driver().borrow(), None);
                rig.script(&format!(r#"{{"cgroup_driver": "{name}"}}"#));
                assert_eq!(rig.learn().await.unwrap(), Some(driver));
                // A node with pods is not asked with each relist.
                rig.script(r#"{"faults": [{"call": "RuntimeConfig", "code": "Internal"}]}"#);
                assert_eq!(rig.learn().await.unwrap(), Some(driver));
                let _events = rig.client.events().await.unwrap();
                assert!(rig.learn().await.is_err());
                assert_eq!(*rig.client.cgroup_driver().borrow(), Some(driver));
            }
        });
    }

    #[test]
    fn a_runtime_without_the_call_leaves_the_driver_to_the_configuration() {
        run_paused(|| async {
            let rig = Rig::start();
            rig.script(r#"{"faults": [{"call": "RuntimeConfig", "code": "Unimplemented"}]}"#);
            assert_eq!(rig.learn().await.unwrap(), None);
        });
    }
}
