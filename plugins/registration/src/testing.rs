//! A plugin and a handler for tests of the watcher: versions are numbers with dots.

use proto::registration::PluginInfo;

use crate::{Plugin, PluginHandler, RegistrationEvent, Version};

/// A version as text and as numbers, of which zeros at the end count for nothing.
#[derive(Clone, Debug)]
pub(crate) struct TestVersion {
    text: String,
    numbers: Vec<u64>,
}

impl TestVersion {
    pub(crate) fn new(text: &str) -> Self {
        let parsed = text.split('.').map(|part| part.parse().unwrap());
        let mut numbers: Vec<u64> = parsed.collect();
        while numbers.last() == Some(&0) {
            numbers.pop();
        }
        Self {
            text: text.to_owned(),
            numbers,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct TestPlugin {
    pub(crate) name: String,
    pub(crate) socket: String,
    version: TestVersion,
}

impl TestPlugin {
    pub(crate) fn new(socket: &str, name: &str, version: &str) -> Self {
        Self {
            name: name.to_owned(),
            socket: socket.to_owned(),
            version: TestVersion::new(version),
        }
    }
}

impl Plugin for TestPlugin {
    type Version = TestVersion;

    const REPLACED: &'static str = "replaced";

    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> &TestVersion {
        &self.version
    }

    fn yield_to(&self, version: &TestVersion) -> Result<(), String> {
        if version.numbers > self.version.numbers {
            return Ok(());
        }
        Err(format!(
            "Another driver with the same name is already registered with a higher supported version: {:?}",
            self.version.text
        ))
    }
}

/// A handler that registers nothing.
#[derive(Debug)]
pub(crate) struct TestHandler;

impl PluginHandler for TestHandler {
    type Plugin = TestPlugin;

    const TYPE: &'static str = "TestPlugin";
    const NOUN: &'static str = "plugins";

    fn validate(
        &self,
        info: &PluginInfo,
        may_register: impl FnOnce(&str, &Version<Self>) -> Result<(), String>,
    ) -> Result<Version<Self>, String> {
        let version = TestVersion::new("1");
        may_register(&info.name, &version)?;
        Ok(version)
    }

    async fn register(&self, _: &PluginInfo, _: Version<Self>) -> Result<Self::Plugin, String> {
        Err("nothing is registered here".to_owned())
    }

    fn names_changed(&self, _: &[&str]) {}

    fn log(&self, _: &RegistrationEvent<Self::Plugin>) {}
}
