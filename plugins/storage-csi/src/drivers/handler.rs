//! The handler of plugins of type CSIPlugin.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use proto::registration::PluginInfo;
use proto::storage::Backend;
use registration::{Plugin, PluginHandler, RegistrationEvent};

use super::version::{self, DriverVersion};
use crate::driver::{self, CALL_TIMEOUT, Driver, name};

/// A driver that cannot tell its own name is not refused for that, nor waited for long.
const NAME_TIMEOUT: Duration = Duration::from_secs(5);
const VERSIONS_MAX: usize = 64;

/// A driver that has registered.
#[derive(Clone, Debug)]
pub(crate) struct CsiPlugin {
    version: DriverVersion,
    pub(super) driver: Arc<Driver>,
    /// What the agent is notified of: the driver and its node info.
    pub(super) backend: Backend,
}

impl CsiPlugin {
    /// Returns whether that changed anything. The rest of the driver's node info, from its registration, stays: the
    /// API server bears no other change either.
    pub(super) fn set_max_volumes(&mut self, driver: &Arc<Driver>, max: i64) -> bool {
        if !Arc::ptr_eq(&self.driver, driver) || self.backend.max_volumes == max {
            return false;
        }
        self.backend.max_volumes = max;
        true
    }
}

impl Plugin for CsiPlugin {
    type Version = DriverVersion;

    const REPLACED: &'static str =
        "Another driver with the same name registered with a higher supported version";

    fn name(&self) -> &str {
        &self.driver.name
    }

    fn version(&self) -> &DriverVersion {
        &self.version
    }

    fn yield_to(&self, version: &DriverVersion) -> Result<(), String> {
        if self.version < *version {
            return Ok(());
        }
        Err(format!(
            "Another driver with the same name is already registered with a higher supported version: {:?}",
            self.version.to_string()
        ))
    }
}

/// Validates and registers CSI drivers.
#[derive(Debug)]
pub(crate) struct CsiHandler {
    pub(super) health: sdk::Health,
}

impl PluginHandler for CsiHandler {
    type Plugin = CsiPlugin;

    const TYPE: &'static str = "CSIPlugin";
    const NOUN: &'static str = "drivers";

    fn validate(
        &self,
        info: &PluginInfo,
        may_register: impl FnOnce(&str, &DriverVersion) -> Result<(), String>,
    ) -> Result<DriverVersion, String> {
        let (name, endpoint) = (&info.name, &info.endpoint);
        if let Some(why) = name::wrong(name) {
            return Err(why);
        }
        if !endpoint.starts_with('/') {
            return Err(format!("endpoint {endpoint:?} is not the path of a socket"));
        }
        check_version(info, may_register).map_err(|why| {
            format!(
                "validation failed for CSI Driver {name} at endpoint {endpoint}: \
                 kubernetes.io/csi: ValidatePlugin for CSI driver {name:?} failed. {why}"
            )
        })
    }

    async fn register(
        &self,
        info: &PluginInfo,
        version: DriverVersion,
    ) -> Result<CsiPlugin, String> {
        let endpoint = Path::new(&info.endpoint);
        let name = &info.name;
        if let Ok(own) = driver::own_name(endpoint, NAME_TIMEOUT).await
            && !own.is_empty()
            && own != *name
        {
            return Err(format!(
                "the driver at {} calls itself {own:?}, it registered as {name:?}",
                endpoint.display()
            ));
        }
        let node = driver::node_info(endpoint, CALL_TIMEOUT).await;
        let node = node.map_err(|failure| failure.to_string())?;
        if node.node_id.is_empty() {
            return Err(
                "error adding CSI driver node info: driverNodeID must not be empty".to_owned(),
            );
        }
        let abilities = driver::abilities(endpoint, CALL_TIMEOUT).await;
        let abilities = abilities.map_err(|failure| failure.to_string())?;
        let topology = node.accessible_topology.unwrap_or_default();
        let backend = Backend {
            name: name.clone(),
            node_id: node.node_id,
            max_volumes: node.max_volumes_per_node,
            topology: topology.segments,
            endpoint: info.endpoint.clone(),
            versions: info.supported_versions.clone(),
            abilities: abilities
                .iter()
                .map(|ability| ability.as_str_name().to_owned())
                .collect(),
        };
        let driver = Driver {
            name: name.clone(),
            endpoint: endpoint.to_owned(),
            abilities,
        };
        Ok(CsiPlugin {
            version,
            driver: Arc::new(driver),
            backend,
        })
    }

    fn names_changed(&self, names: &[&str]) {
        self.health.attribute("drivers", names.join(" "));
    }

    fn log(&self, event: &RegistrationEvent<CsiPlugin>) {
        match event {
            RegistrationEvent::Registered(plugin) => {
                tracing::info!(
                    driver = plugin.backend.name,
                    endpoint = plugin.backend.endpoint,
                    "registered"
                );
            }
            RegistrationEvent::Gone(name) => tracing::info!(driver = name, "gone"),
            RegistrationEvent::Refused { socket, name, why } => {
                tracing::warn!(socket, driver = name, "{why}");
            }
            RegistrationEvent::Synced => {}
        }
    }
}

fn check_version(
    info: &PluginInfo,
    may_register: impl FnOnce(&str, &DriverVersion) -> Result<(), String>,
) -> Result<DriverVersion, String> {
    let versions = &info.supported_versions;
    if versions.is_empty() {
        return Err("Plugin returned an empty list for supported versions".to_owned());
    }
    if versions.len() > VERSIONS_MAX {
        return Err(format!(
            "Plugin returned {} supported versions, at most {VERSIONS_MAX} are read",
            versions.len()
        ));
    }
    let highest = version::highest(versions).map_err(|why| {
        format!(
            "None of the versions specified {} are supported. err={why}",
            quoted(versions)
        )
    })?;
    may_register(&info.name, &highest)?;
    Ok(highest)
}

/// `["a" "b"]`, as Go prints it.
fn quoted(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
    format!("[{}]", words.join(" "))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn plugin(version: &str) -> CsiPlugin {
        CsiPlugin {
            version: DriverVersion::read(version).unwrap(),
            driver: Arc::new(Driver {
                name: "a".to_owned(),
                endpoint: "/a".into(),
                abilities: BTreeSet::new(),
            }),
            backend: Backend::default(),
        }
    }

    #[test]
    fn a_driver_that_takes_another_number_of_volumes_is_told_once_and_by_nobody_else() {
        let mut plugin = plugin("1.0");
        let driver = plugin.driver.clone();
        assert!(plugin.set_max_volumes(&driver, 5));
        assert_eq!(plugin.backend.max_volumes, 5);
        assert!(!plugin.set_max_volumes(&driver, 5));
        // An earlier registration of the name is not refreshed: only its successor is.
        let before = Arc::new(Driver::clone(&driver));
        assert!(!plugin.set_max_volumes(&before, 6));
        assert_eq!(plugin.backend.max_volumes, 5);
    }

    #[test]
    fn a_driver_yields_to_a_higher_version_of_the_interface_only() {
        for (there, offered, goes) in [
            ("1.0.0", "1.0.0", false),
            ("1.2.0", "1.0.0", false),
            ("1.0.0", "1.2.0", true),
            ("1.0", "1.0.0.0", false),
        ] {
            let answer = plugin(there).yield_to(&DriverVersion::read(offered).unwrap());
            assert_eq!(answer.is_ok(), goes, "{there} {offered}");
            if let Err(why) = answer {
                assert_eq!(
                    why,
                    format!(
                        "Another driver with the same name is already registered with a higher supported version: {there:?}"
                    )
                );
            }
        }
    }
}
