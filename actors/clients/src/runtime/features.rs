//! What the runtime reports of itself before any pod begins: its cgroup driver, for pods' cgroups have the names that
//! this runtime reads; and its features, by which pods are admitted.
//!
//! Upstream: cmd/kubelet/app/server.go (getCgroupDriverFromCRI), pkg/kubelet/nodestatus/setters.go (NodeFeatures), 1.36.

use std::time::{Duration, Instant};

use kernel::watch;
use logic_resources::cgroups::CgroupDriver;
use logic_resources::node::Support;
use proto::cri;

use super::{RuntimeClient, RuntimeError, RuntimeVersion, malformed, runtime};

/// The Kubernetes version that no longer runs with a runtime without `RuntimeConfig`.
const LAST_SUPPORT: &str = "1.37.0";

/// How long the network counts as ready: upstream asks every 5 s (`updateRuntimeUp`). One that is not ready is asked about
/// each time.
const NETWORK_FRESH_FOR: Duration = Duration::from_secs(5);

/// The features that the runtime reported.
#[derive(Debug)]
pub(super) struct ReportedFeatures {
    /// None where the runtime does not report one: the configured one counts.
    driver: watch::Sender<Option<CgroupDriver>>,
    groups: watch::Sender<Support>,
    /// The version that was asked; none asks again.
    asked: watch::Sender<Option<RuntimeVersion>>,
    /// When the runtime reported its network as ready, unless it has reported otherwise since.
    network_ready: watch::Sender<Option<Instant>>,
}

impl Default for ReportedFeatures {
    fn default() -> Self {
        ReportedFeatures {
            driver: watch::Sender::new(None),
            groups: watch::Sender::new(Support::No),
            asked: watch::Sender::new(None),
            network_ready: watch::Sender::new(None),
        }
    }
}

impl ReportedFeatures {
    /// Has the runtime asked again: it may have restarted with another configuration.
    pub(super) fn forget(&self) {
        self.asked.send_replace(None);
        self.network_ready.send_replace(None);
    }

    /// Takes in whether the network was ready in an answer to a request of this moment.
    pub(super) fn learn_network(&self, ready: bool, asked: Instant) {
        self.network_ready.send_replace(ready.then_some(asked));
    }
}

impl RuntimeClient {
    /// The driver that the runtime reported last; none before its first report, or where it reports none.
    pub fn cgroup_driver(&self) -> watch::Receiver<Option<CgroupDriver>> {
        self.features.driver.subscribe()
    }

    /// Whether the runtime honours `supplementalGroupsPolicy: Strict`, as it reported last; no before its first report.
    pub fn supplemental_groups_policy(&self) -> Support {
        *self.features.groups.borrow()
    }

    /// Why the runtime's network is not ready; none where it is, by an answer of the last seconds.
    ///
    /// # Errors
    /// The runtime does not tell.
    pub async fn network_problem(&self) -> Result<Option<String>, RuntimeError> {
        let ready = *self.features.network_ready.borrow();
        let is_fresh = |at| kernel::now().saturating_duration_since(at) < NETWORK_FRESH_FOR;
        match ready.is_some_and(is_fresh) {
            true => Ok(None),
            false => Ok(self.reported_status().await?.network_problem()),
        }
    }

    /// Asks the runtime for its cgroup driver and its features, once for each version and each stream of events.
    ///
    /// # Errors
    /// Any but that the runtime has no `RuntimeConfig`: no pod is admitted or placed before the runtime has answered.
    pub async fn learn_features(&self) -> Result<(), RuntimeError> {
        let known = self.known();
        if self.features.asked.borrow().as_ref() == Some(&known) {
            return Ok(());
        }
        let asked = futures_util::future::try_join(self.ask_driver(), self.status());
        let (driver, status) = asked.await?;
        let before = self.features.driver.send_replace(driver);
        if before != driver {
            tracing::info!(?driver, "the runtime's cgroup driver");
        }
        let honours = |features: cri::RuntimeFeatures| features.supplemental_groups_policy;
        self.features
            .groups
            .send_replace(support(status.features.is_some_and(honours)));
        self.features.asked.send_replace(Some(known));
        Ok(())
    }

    async fn ask_driver(&self) -> Result<Option<CgroupDriver>, RuntimeError> {
        let request = cri::RuntimeConfigRequest {};
        let method = async |channel, request| runtime(channel).runtime_config(request).await;
        let answer = self
            .idempotent("RuntimeConfig", self.within, request, method)
            .await;
        match answer {
            // A runtime that tells nothing of Linux would read as systemd.
            Ok(answer) => answer.linux.map(read).transpose(),
            Err(error) if error.is_unimplemented() => {
                metrics::runtime::losing_support(LAST_SUPPORT);
                tracing::info!(
                    "the runtime has no RuntimeConfig: the configured cgroupDriver counts"
                );
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The runtime's answer to `Status`.
    pub(super) async fn status(&self) -> Result<cri::StatusResponse, RuntimeError> {
        let request = cri::StatusRequest { verbose: false };
        let method = async |channel, request| runtime(channel).status(request).await;
        self.idempotent("Status", self.within, request, method)
            .await
    }
}

pub(super) fn support(can: bool) -> Support {
    match can {
        true => Support::Yes,
        false => Support::No,
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
            self.client.learn_features().await?;
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

    /// Upstream's TestNodeFeatures (setters_test.go), its part on what the runtime says.
    #[test]
    fn the_runtime_says_whether_it_keeps_supplemental_groups_strict() {
        run_paused(|| async {
            for (reported, expected) in [(true, Support::Yes), (false, Support::No)] {
                let rig = Rig::start();
                assert_eq!(rig.client.supplemental_groups_policy(), Support::No);
                rig.script(&format!(r#"{{"supplemental_groups_policy": {reported}}}"#));
                rig.learn().await.unwrap();
                assert_eq!(rig.client.supplemental_groups_policy(), expected);
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
